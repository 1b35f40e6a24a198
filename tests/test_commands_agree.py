"""What the commands answer agrees with one another and with a plain replay, event by event, of made recordings whose truth is known."""

import json
import runpy
import sys

import pytest
from click.testing import CliRunner

from lifecycle_sim.cli import main
from lifecycle_sim.replay import BY, attribute, replay_device
from lifecycle_sim.sources.container import load_document
from lifecycle_sim.sources.detect import read_trace

PATTERNS = {
    "lifo": ["--events", "500", "--live", "20"],
    "fifo": ["--events", "500", "--live", "20", "--order", "fifo", "--seed", "5"],
    "frames": ["--events", "1500", "--live", "60", "--frames", "40", "--seed", "1"],
    "no steps": ["--events", "500", "--seed", "9"],
    "long fifo": ["--events", "4000", "--order", "fifo", "--live", "10000", "--seed", "3"],
}


@pytest.fixture(scope="module", params=PATTERNS)
def made(request, shared, tmp_path_factory):
    """The folder of the made recordings, and the truth about them."""
    folder, before = tmp_path_factory.mktemp("made"), sys.argv
    sys.argv = ["make_cases.py", str(folder), *PATTERNS[request.param]]
    printed = []
    try:
        made_by = runpy.run_path(str(shared / "tools" / "make_cases.py"))
        made_by["main"].__globals__["print"] = printed.append
        made_by["main"]()
    finally:
        sys.argv = before
    return folder, json.loads(printed[-1])


def ask(*arguments):
    result = CliRunner(catch_exceptions=False).invoke(main, [*map(str, arguments), "--json"])
    assert result.exit_code in (0, 1), result.stderr
    return json.loads(result.stdout)["devices"]


def plain_replay(events, live):
    """The n + 1 levels, and (alloc, free, bytes) of every storage; -1 stands for before the window, None for never."""
    level, born, intervals = sum(live.values()), dict.fromkeys(live, -1), []
    live, levels = dict(live), [level]
    for number, event in enumerate(events):
        if event["action"] == "alloc":
            live[event["addr"]], born[event["addr"]] = event["size"], number
            level += event["size"]
        elif event["action"] == "free_completed":
            intervals.append((born[event["addr"]], number, live[event["addr"]]))
            level -= live.pop(event["addr"])
        levels.append(level)
    return levels, intervals + [(born[address], None, size) for address, size in live.items()]


def live_after(events):
    live = {}
    for event in events:
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            del live[event["addr"]]
    return live


def must_agree(path, number, events, live):
    levels, intervals = plain_replay(events, live)
    peak = max(levels)
    asked = [
        ask(command, path, *more)[number]
        for command, *more in (["peak"], ["timeline", "--points", 100_000], ["lifetimes", "--top", 10_000])
    ]
    told, timeline, lifetimes = asked
    for answer in (told, timeline):
        assert (answer["peak"]["bytes"], answer["peak"]["event"], answer["peak"]["exact"]) == (peak, levels.index(peak) - 1, True)
        assert (answer["start"], answer["end"]) == (levels[0], levels[-1])
    assert told["reconciliation"]["difference"] == 0
    assert timeline["points"]["bytes"] == [levels[event + 1] for event in timeline["points"]["event"]]
    assert len(timeline["points"]["event"]) == len(levels)
    assert told["storages"] == lifetimes["storages"]
    found = sorted((row["alloc"], row["free"] or len(events), row["bytes"]) for row in lifetimes["shown"])
    assert found == sorted((alloc, len(events) if free is None else free, size) for alloc, free, size in intervals)
    replayed = replay_device(read_trace(path), number)
    for by in BY:
        for at in (-1, levels.index(peak) - 1, len(events) // 2, len(events) - 1):
            shared_out = attribute(replayed, by, at, 3)
            assert sum(share.size for share in shared_out.shares) == shared_out.total == levels[at + 1]
            held = [size for alloc, free, size in intervals if alloc <= at and (free is None or at < free)]
            assert sum(share.count for share in shared_out.shares) == len(held)  # so none of it is the unidentified rest
    return peak


@pytest.mark.parametrize("name", ["whole", "protocol5", "skip", "same_time"])
def test_what_was_recorded_whole(made, name):
    folder, truth = made
    events = load_document(folder / f"{name}.pickle")["device_traces"][0]
    assert [must_agree(folder / f"{name}.pickle", 0, events, {})] == truth[name]["peak"]


@pytest.mark.parametrize("name", ["ring", "two_devices"])
def test_windows_that_start_in_the_middle(made, name):
    folder, truth = made
    whole = load_document(folder / "whole.pickle")["device_traces"][0]
    traces = load_document(folder / f"{name}.pickle")["device_traces"]
    before = live_after(whole[: len(whole) - len(traces[0])])
    for number, events in enumerate(traces):
        base, shift = 0x7F0000000000, number << 44
        live = {base + shift + (number + 1) * (address - base): (number + 1) * size for address, size in before.items()}
        assert must_agree(folder / f"{name}.pickle", number, events, live) == truth[name]["peak"][number]
        assert sum(live.values()) == truth[name]["start"][number]


def test_a_gap_over_the_peak_leaves_the_truth_within_the_bounds(made):
    folder, truth = made
    (device,) = ask("peak", folder / "gap.pickle")
    peak, (of_the_run,), (of_the_parts,) = device["peak"], truth["gap"]["peak_of_the_run"], truth["gap"]["peak_of_recorded_parts"]
    assert not peak["exact"]
    assert peak["lower"] <= of_the_parts <= of_the_run <= peak["upper"]
    assert peak["bytes"] == of_the_parts
    assert {"gap"} <= {each["code"] for each in device["assumptions"]}
    for by in BY:
        (shared_out,) = ask("peak", folder / "gap.pickle", "--by", by)
        assert sum(share["bytes"] for share in shared_out["owners"]["shares"]) == peak["bytes"]
    assert ask("timeline", folder / "gap.pickle")[0]["peak"] == peak
