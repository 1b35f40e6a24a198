"""docs/json.md names every key that a document has."""

import json
import re

import pytest
from click.testing import CliRunner

from lifecycle_sim.cli import main
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
SHARED = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1]
SECTIONS = dict(re.findall(r"^## `lifecycle-sim/(\w+)/1`\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
COMMANDS = {
    "peak": ["scenarios/torch214_stub_small.pickle", "--capacity", "1 GiB"],
    "run": ["scenarios/mlp_step.toml"],
    "timeline": ["scenarios/mlp_step.toml", "--by", "span"],
    "lifetimes": ["scenarios/torch214_stub_train.pickle"],
    "check": ["scenarios/torch214_stub_train_gap.pickle"],
}
DATA = {"parameters"}  # whose keys are the scenario's own


def keys_in(value, path=()):
    """Every key at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in DATA:
                yield from keys_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_in(inner)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_key_is_named(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = CliRunner(catch_exceptions=False).invoke(main, [command, *COMMANDS[command], "--json"])
    document = json.loads(result.stdout)
    named = set(re.findall(r"`([a-z_]+)`", SHARED + SECTIONS["peak"] + SECTIONS[command]))
    assert set(keys_in(document)) <= named
    own = set(document["devices"][0]) - {"device", "events", "basis", "evidence", "history", "relative"}
    expected = re.findall(r"`([a-z_]+)`", SECTIONS[command] + (SECTIONS["peak"] if command == "run" else ""))
    assert own <= set(expected)


def test_failures_leave_standard_output_empty(tmp_path):
    result = CliRunner().invoke(main, ["peak", str(tmp_path / "absent"), "--json"])
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("error: ")
