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
    "plan": ["scenarios/capture/gpt_step.jsonl.gz", "--budget", "3 GiB", "--modules", "blocks.*", "--solver", "branch"],
    "frontier": ["scenarios/capture/gpt_step.jsonl.gz", "--modules", "blocks.*", "--solver", "branch"],
    "whatif": ["scenarios/capture/gpt_step.jsonl.gz", "--checkpoint", "blocks.*", "--save", "aten.addmm.default", "--capacity", "3 GiB"],
}
WHAT_IFS = [
    ["scenarios/capture/gpt_step.jsonl.gz", "--shard", "zero3:4", "--offload", "optimizer", "--link", "25 GB/s"],
    ["scenarios/capture/gpt_step.jsonl.gz", "--shard", "zero3:4", "--offload", "saved", "--link", "25 GB/s", "--ladder"],
    ["scenarios/capture/gpt_step.jsonl.gz", "--drop", "<blocks.*>"],
    ["scenarios/blocks_kept.toml", "--checkpoint", "block*"],
]
TRAIN = "scenarios/torch214_stub_train.pickle"
ALLOCATOR = [
    ["scenarios/torch214_stub_train_gap.pickle"],
    [TRAIN, "--set", "expandable_segments:True", "--capacity", "800 MiB"],
    [TRAIN, "--why", "--capacity", "800 MiB"],
]
ASKED = [*COMMANDS.items(), *(("allocator", arguments) for arguments in ALLOCATOR), *(("whatif", arguments) for arguments in WHAT_IFS)]
DATA = {"parameters", "settings"}  # whose keys are the scenario's own, or PyTorch's


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


def documented(command):
    return set(re.findall(r"`([a-z_]+)`", SECTIONS[command] + (SECTIONS["peak"] if command == "run" else "")))


@pytest.mark.parametrize(("command", "arguments"), ASKED, ids=[" ".join((command, *rest[1:])) for command, rest in ASKED])
def test_every_key_is_named(command, arguments, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = CliRunner(catch_exceptions=False).invoke(main, [command, *arguments, "--json"])
    document = json.loads(result.stdout)
    assert document["schema"] == f"lifecycle-sim/{command}/1"
    named = set(re.findall(r"`([a-z_]+)`", SHARED + SECTIONS["peak"] + SECTIONS[command]))
    assert set(keys_in(document)) <= named
    own = set(document["devices"][0]) - {"device", "events", "basis", "evidence", "history", "relative"}
    assert own <= documented(command)


def test_the_documents_of_the_allocator_name_their_own_keys(monkeypatch):
    """What its three kinds of documents hold is told in its own section, apart from what all documents share."""
    monkeypatch.chdir(ROOT)
    shared = set(re.findall(r"`([a-z_]+)`", SHARED)) | {"code", "text"}
    for arguments in ALLOCATOR:
        result = CliRunner(catch_exceptions=False).invoke(main, ["allocator", *arguments, "--json"])
        assert set(keys_in(json.loads(result.stdout))) - shared <= documented("allocator")


def test_failures_leave_standard_output_empty(tmp_path):
    result = CliRunner().invoke(main, ["peak", str(tmp_path / "absent"), "--json"])
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("error: ")
