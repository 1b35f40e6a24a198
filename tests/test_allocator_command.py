"""``lifecycle-sim allocator``: its answer in words and as a document, its exit codes, what it refuses."""

import json
import os
from itertools import pairwise

import pytest
from click.testing import CliRunner

from lifecycle_sim import read_trace
from lifecycle_sim.cli import main
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.output.exports import write
from tests.cli_support import json_of, keys_of, lifecycle_sim, small_trace
from tests.conftest import ROOT

TRAIN, GAP, SMALL = (ROOT / "scenarios" / f"torch214_stub_{name}.pickle" for name in ("train", "train_gap", "small"))


@pytest.fixture
def run(monkeypatch):
    """The command in this process; anything that leaves it as an exception is a failure."""
    monkeypatch.setenv("COLUMNS", "100")
    return lambda *arguments: CliRunner(catch_exceptions=False).invoke(main, ["allocator", *map(str, arguments)])


def test_an_exact_recording_is_told_in_a_page_and_answers_yes(run):
    result = run(TRAIN)
    assert result.exit_code == Exit.YES
    for line in (
        "rules           PyTorch 2.14 (the file is of 2.14+)",
        "start           empty",
        "final layout    equal: all 44 segments, all 201 blocks",
        "blocks handed out     1,090   1,090",
        "segment_alloc            44      44",
        "reserved    908,066,816         1,286",
        "reproduced exactly",
    ):
        assert " ".join(line.split()) in " ".join(result.stdout.split()), line
    assert result.stdout.count("\n") < 60


def test_a_lossy_recording_answers_no_with_its_differences(run):
    result = run(GAP)
    assert result.exit_code == Exit.NO
    assert "Differences: " in result.stdout
    assert "more" in result.stdout
    assert "not reproduced exactly" in result.stdout
    assert "lost" in result.stdout


KEYS = {
    "device": None,
    "events": None,
    "compared": None,
    "exact": None,
    "allocator": dict.fromkeys(["release", "release_given", "release_told", "options", "settings"]),
    "predicted": dict.fromkeys(
        ["placement", "segment_alloc", "segment_map", "segment_free", "segment_unmap", "oom"], dict.fromkeys(["exact", "recorded", "extra"])
    ),
    "layout": dict.fromkeys(["equal", "segments_exact", "segments", "segments_extra", "blocks_exact", "blocks", "blocks_extra", "first"]),
    "reserved_error": None,
    "differences": {"count": None, "first": [dict.fromkeys(["event", "decision", "predicted", "recorded"])]},
    "levels": {
        level: {"start": None, "end": None, "peak": dict.fromkeys(["bytes", "event", "upper"])}
        for level in ("requested", "allocated", "active", "reserved")
    },
    "start": dict.fromkeys(["requested", "allocated", "active", "reserved", "segments", "blocks"])
    | {"open_sizes": dict.fromkeys(["count", "settled"])},
    "waste": {
        "event": None,
        "reserved": None,
        "requested": None,
        "internal": dict.fromkeys(["bytes", "rounding", "tails"]),
        "external": dict.fromkeys(["bytes", "pieces", "whole", "largest_piece"]),
        "pending": None,
    },
    "assumptions": [dict.fromkeys(["code", "count", "bytes", "text"])],
}


def test_the_document_keeps_its_keys_and_order(run):
    document = json_of(run(GAP, "--json"))
    assert list(document) == ["schema", "source", "devices", "exact"]
    assert document["schema"] == "lifecycle-sim/allocator/1"
    found = {key: keys_of(value) for key, value in document["devices"][0].items()}
    found["allocator"]["settings"] = None
    assert found == KEYS
    assert list(found) == list(KEYS)
    assert json.dumps(found) == json.dumps(KEYS)


@pytest.mark.parametrize("event", [-1, 0, 500, 1288, 2987])
def test_reserved_bytes_are_shared_out_after_any_event(run, event):
    document = json_of(run(TRAIN, "--at", event, "--json"))
    (device,) = document["devices"]
    waste = device["waste"]
    assert waste["event"] == event
    assert waste["reserved"] == waste["requested"] + waste["internal"]["bytes"] + waste["external"]["bytes"]
    if event == -1:
        assert waste["reserved"] == 0
    if event == 1288:
        assert waste["requested"] == device["levels"]["requested"]["peak"]["bytes"] == 768_772_392


def test_an_event_that_is_not_there_and_a_release_that_is_none_are_told_in_one_line(run):
    for arguments in (("--at", 2988), ("--release", "latest"), ("--device", "cuda:7")):
        result = run(TRAIN, *arguments)
        assert result.exit_code == Exit.BAD_INPUT
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1


def test_what_holds_no_segments_or_no_events_is_refused_in_one_line(run, tmp_path, shared):
    write(small_trace(), tmp_path / "small.jsonl")
    for source in (
        tmp_path / "small.jsonl",
        ROOT / "scenarios" / "mlp_step.toml",
        shared / "data" / "snapshots" / "rl_pools_state_only.pickle",
    ):
        result = run(source)
        assert result.exit_code == Exit.BAD_INPUT
        assert result.stderr.count("\n") == 1


def test_a_given_release_is_said_and_used(run):
    (device,) = json_of(run(TRAIN, "--release", "2.11", "--json"))["devices"]
    assert device["allocator"]["release"] == "2.11"
    assert device["allocator"]["release_given"] is True
    assert device["allocator"]["release_told"] == "2.14+"


def test_a_recording_in_the_native_format_is_the_same_recording(run, tmp_path):
    write(read_trace(SMALL), tmp_path / "small.jsonl")
    theirs, ours = (json_of(run(path, "--json"))["devices"] for path in (SMALL, tmp_path / "small.jsonl"))
    assert theirs == ours


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("source", [TRAIN, GAP])
def test_piped_tables_keep_their_width_and_carry_no_escapes(source, columns):
    lines = lifecycle_sim("allocator", source, env=os.environ | {"COLUMNS": str(columns)}).stdout.splitlines()
    assert max(map(len, lines[1:])) <= columns
    assert not any("\x1b" in line or line != line.rstrip() for line in lines)
    assert all(line or before for before, line in pairwise(lines))


def test_the_answer_does_not_hang_on_the_hash_seed():
    answers = {lifecycle_sim("allocator", GAP, "--json", env=os.environ | {"PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
    assert len(answers) == 1
