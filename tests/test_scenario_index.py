"""Every command of scenarios/README.md is run, and its answer is the one that the text below it gives."""

import re
import shlex

import pytest
from click.testing import CliRunner

from lifecycle_sim.cli import main
from tests.cli_support import json_of
from tests.conftest import ROOT

ENTRY = re.compile(r"```console\n\$ lifecycle-sim (?P<command>[^\n]+)\n```\n\n(?P<text>(?:[^\n]+\n)+)")
ENTRIES = [(entry["command"], entry["text"]) for entry in ENTRY.finditer((ROOT / "scenarios" / "README.md").read_text(encoding="utf-8"))]

RUNS = [(command, text) for command, text in ENTRIES if not command.startswith("schedule ")]


def test_the_index_has_commands():
    assert len(ENTRIES) >= 8


@pytest.mark.parametrize(("command", "text"), RUNS, ids=[command for command, _ in RUNS])
def test_the_first_figure_below_a_command_is_the_peak_it_tells(command, text, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(main, [*shlex.split(command), "--json"])
    document = json_of(result)
    if command.startswith("line "):
        peak, unit = document["rows"][0]["peak"]["amount"], document["source"]["unit"]
    else:
        peak, unit = document["devices"][0]["peak"]["bytes"], "B"
    assert peak == int(re.search(rf"([0-9][0-9,]*) {unit}s?\b", text)[1].replace(",", ""))
    assert result.exit_code == (1 if "does not fit" in text or "deadlock" in text else 0)
    assert document["source"]["evidence"] == "simulated"
    assert f"{peak:,} {unit}" in CliRunner().invoke(main, shlex.split(command)).stdout


@pytest.mark.parametrize(("command", "text"), ENTRIES, ids=[command for command, _ in ENTRIES])
def test_a_command_prints_the_bytes_and_seconds_that_stand_below_it(command, text, monkeypatch):
    """A sentence about another same-instant rule tells of another run."""
    monkeypatch.chdir(ROOT)
    printed = " ".join(CliRunner().invoke(main, shlex.split(command)).stdout.split())
    told = ". ".join(sentence for sentence in " ".join(text.split()).split(". ") if "same_instant" not in sentence)
    units = "GiB|ms" if command.startswith("schedule ") else "B·s|B|s|m²|parts?|items?|min|h|ticks?"
    figures = re.findall(rf"(?<![\d,])\d[\d,]*(?:\.\d+)? (?:{units})\b", told)
    assert figures
    assert [figure for figure in figures if figure not in printed] == []
