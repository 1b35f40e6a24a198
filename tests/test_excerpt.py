"""Smaller traces: a window has the levels of the whole inside it, and the largest storages add up to what they held."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, BlockState, Clock, DeviceTrace, Events, Evidence, Kind, Span, Trace, check
from lifecycle_sim.output.exports.snapshot import as_snapshot
from lifecycle_sim.program.scenario import run_scenario
from lifecycle_sim.replay import replay_device
from lifecycle_sim.replay.allocator.recording import open_loop
from lifecycle_sim.replay.excerpt import excerpt
from lifecycle_sim.replay.moment import moment
from lifecycle_sim.replay.regions import regions
from lifecycle_sim.sources.detect import read_trace
from tests.cli_support import lifecycle_sim
from tests.conftest import ROOT
from tests.strategies import traces
from tests.test_snapshot_writer import assert_sound, same_levels
from tests.viewer import walk_back

TRAIN, EXPANDABLE = (ROOT / "scenarios" / f"torch214_stub_train{name}.pickle" for name in ("", "_expandable"))


def loaded(data: bytes) -> dict:
    import pickle

    return pickle.loads(data)


@pytest.mark.parametrize("path", [TRAIN, EXPANDABLE], ids=lambda path: path.stem)
@pytest.mark.parametrize("window", [(0, 700), (1000, 1600), (1287, 1288), (2900, 2985), (None, 1), (2500, None)])
def test_levels_in_a_window_are_those_of_the_whole(path: Path, window: tuple[int | None, int | None]) -> None:
    whole = replay_device(read_trace(path))
    part = excerpt(read_trace(path), window=window)
    first, stop = window[0] or 0, len(whole.recorded) if window[1] is None else window[1]
    for trace in (part.trace, read_trace(as_snapshot(part.trace).data)):
        inside = replay_device(trace)
        assert inside.timeline.levels.tolist() == whole.timeline.levels[first : stop + 1].tolist()
        assert inside.reserved.levels.tolist() == whole.reserved.levels[first : stop + 1].tolist()
        assert inside.reconciliation.difference == 0
        assert inside.gaps == ()
        assert {finding.code for finding in check(trace)} <= {"free_of_unknown"}
        assert_sound(inside)
        if stop > 1:  # the first event alone obtains a segment for a block that is no longer in the window
            assert open_loop(trace).exact
    walk_back(loaded(as_snapshot(part.trace).data))


def test_the_state_after_a_window_is_the_recorded_one_where_that_is_known() -> None:
    """A window that stops just before the end, where nothing happens any more, ends in the recorded blocks."""
    trace = read_trace(TRAIN)
    n = len(trace.devices[0])
    last = Events.of([Kind.SNAPSHOT], [0], [0], time=trace.devices[0].events.time[-1:])
    longer = Events(
        *(np.concatenate([getattr(trace.devices[0].events, name), getattr(last, name)]) for name in Events.__dataclass_fields__)
    )
    part = excerpt(replace(trace, devices=(replace(trace.devices[0], events=longer),)), window=(0, n))
    final, recorded = part.trace.devices[0].final, trace.devices[0].final
    for name in ("address", "size", "stream", "pool", "expandable", "allocated", "active", "requested"):
        assert getattr(final.segments, name).tolist() == getattr(recorded.segments, name).tolist(), name
    for name in ("segment", "address", "size", "state"):
        assert getattr(final.blocks, name).tolist() == getattr(recorded.blocks, name).tolist(), name


@pytest.mark.parametrize("event", [-1, 0, 300, 1288, 2000, 2987])
def test_the_state_after_any_event_holds_what_is_live(event: int) -> None:
    replayed = replay_device(read_trace(TRAIN))
    found = moment(replayed, event)
    assert found.differences == 0
    assert found.state.requested == replayed.timeline.at(event)
    assert found.state.reserved == replayed.reserved.at(event)
    blocks, live = found.state.blocks, replayed.lifetimes.live_at(event)
    active = blocks.state > 0
    told = sorted(zip(blocks.address[active].tolist(), blocks.requested[active].tolist(), blocks.stack[active].tolist(), strict=True))
    lifetimes = replayed.lifetimes
    columns = (lifetimes.address[live].tolist(), lifetimes.size[live].tolist(), lifetimes.stack[live].tolist())
    assert told == sorted(zip(*columns, strict=True))


def test_there_is_no_state_after_an_event_that_is_not_there() -> None:
    with pytest.raises(InputError, match="there is no event 2,988: its events are 0 to 2,987"):
        moment(replay_device(read_trace(TRAIN)), 2988)


def test_where_the_allocator_differs_the_state_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of the request rounded up to 512 bytes, in the segments of that event; the levels stay those of the whole."""
    monkeypatch.setattr("lifecycle_sim.replay.excerpt.replayable", lambda trace: [])
    whole = replay_device(read_trace(TRAIN))
    part = excerpt(read_trace(TRAIN), window=(1000, 1600))
    assert any("put together from what was live" in note for note in part.notes)
    inside = replay_device(part.trace)
    assert inside.timeline.levels.tolist() == whole.timeline.levels[1000:1601].tolist()
    assert inside.reserved.levels.tolist() == whole.reserved.levels[1000:1601].tolist()
    assert_sound(inside)


@pytest.mark.parametrize("count", [1, 10, 100, 10_000])
def test_the_largest_storages_hold_what_they_held(count: int) -> None:
    whole = replay_device(read_trace(TRAIN))
    found = whole.lifetimes
    kept = np.zeros(len(found), bool)
    kept[sorted(range(len(found)), key=lambda row: (-found.size[row], found.alloc[row], row))[:count]] = True
    part = excerpt(read_trace(TRAIN), largest=count)
    inside = replay_device(part.trace)
    same_levels(found.levels(kept), inside.timeline.levels)
    assert sorted(inside.lifetimes.size.tolist()) == sorted(found.size[kept].tolist())
    assert inside.reserved.peak_size == whole.reserved.peak_size
    assert inside.reconciliation.difference == 0
    if count < len(found):
        assert f"kept the largest {count:,} of {len(found):,} storages; left out {len(found) - count:,}" in part.notes[0]
    else:
        assert part.notes == ()
    walk_back(loaded(as_snapshot(part.trace).data))


@settings(max_examples=30, deadline=None)
@given(traces(min_devices=1), st.data())
def test_any_part_of_a_sound_trace_has_its_levels(trace: Trace, data: st.DataObject) -> None:
    names = [device.device for device in trace if not device.device.isdigit()]
    assume(names)
    device = data.draw(st.sampled_from(names))
    whole = replay_device(trace, device)
    n = len(whole.recorded)
    first = data.draw(st.integers(0, max(n - 1, 0)))
    stop = data.draw(st.integers(min(first + 1, n), n))
    part = excerpt(trace, device, window=(first, stop))
    inside = replay_device(part.trace)
    assert inside.timeline.levels.tolist() == whole.timeline.levels[first : stop + 1].tolist()
    assert sum("spans that neither" in note for note in part.notes) <= 1
    if whole.lifetimes is None:
        return
    count = data.draw(st.integers(1, 6))
    smaller = replay_device(excerpt(part.trace, largest=count).trace)
    assert len(smaller.lifetimes) == min(count, len(inside.lifetimes))
    assert smaller.peak.size <= inside.peak.size


def test_spans_are_cut_with_the_window_and_those_around_it_are_left_out() -> None:
    events = Events.of([Kind.ALLOC] * 6, [512 * k for k in range(1, 7)], [8] * 6)
    spans = [("whole", 0, 6), ("before", 0, 2), ("ends in it", 1, 4), ("within", 2, 4), ("begins in it", 3, 6), ("after", 4, 6)]
    record = DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0, spans=tuple(Span("annotation", *span) for span in spans))
    part = excerpt(Trace((record,), "native", Evidence.MEASURED, Clock.NONE), window=(2, 4))
    assert part.trace.devices[0].spans == (
        Span("annotation", "ends in it", 0, 2, closed=False),
        Span("annotation", "within", 0, 2),
        Span("annotation", "begins in it", 1, 2, closed=False),
    )
    assert "cuda:0: left out 3 spans that neither begin nor end in what was kept" in part.notes


def test_a_block_that_waits_for_its_free_when_the_window_stops_is_pending() -> None:
    rows = [(Kind.ALLOC, 512, 100), (Kind.FREE_REQUESTED, 512, 100), (Kind.FREE_COMPLETED, 512, 100)]
    events = Events.of(*zip(*rows, strict=True))
    trace = Trace((DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0),), "native", Evidence.MEASURED, Clock.NONE)
    part = excerpt(trace, window=(0, 2)).trace
    final = part.devices[0].final
    assert replay_device(part).timeline.levels.tolist() == [0, 100, 100]
    assert final.blocks.state[final.blocks.requested == 100].tolist() == [BlockState.PENDING_FREE]


def test_regions_follow_maps_and_unmaps_to_the_byte() -> None:
    r"""Ranges over events.

    ::

        event  0 map [0, 4)   1 map [4, 8)   2 unmap [2, 6)   3 map [2, 3)        end: [0, 3), [6, 8)
    """
    mb = 1 << 20
    rows = [(Kind.SEGMENT_MAP, 0, 4), (Kind.SEGMENT_MAP, 4, 4), (Kind.SEGMENT_UNMAP, 2, 4), (Kind.SEGMENT_MAP, 2, 1)]
    kind, address, size = zip(*rows, strict=True)
    events = Events.of(kind, np.array(address) * mb + 2**40, np.array(size) * mb)
    record = DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0)
    held = {
        event: [((a - 2**40) // mb, s // mb) for a, s in zip(found.address.tolist(), found.size.tolist(), strict=True)]
        for event in range(-1, 4)
        for found in [regions(record).at(event)]
    }
    # Nothing tells that [6, 8) was ever given back, nor that [2, 3) was.
    assert held == {-1: [], 0: [(0, 4)], 1: [(0, 8)], 2: [(0, 2), (6, 2)], 3: [(0, 3), (6, 2)]}


@pytest.mark.parametrize("window", [(5, 5), (7, 5), (0, 10_000), (3000, None)])
def test_a_window_outside_the_events_is_refused(window: tuple[int, int | None]) -> None:
    with pytest.raises(InputError, match="it has 2,988 events, numbered from 0"):
        excerpt(read_trace(TRAIN), window=window)


def test_a_window_is_one_of_a_device() -> None:
    trace = read_trace(TRAIN)
    two = replace(trace, devices=(trace.devices[0], replace(trace.devices[0], device="cuda:1")))
    with pytest.raises(InputError, match="choose one of cuda:0, cuda:1"):
        excerpt(two, window=(0, 5))
    assert [device.device for device in excerpt(two, 1, window=(0, 5)).trace] == ["cuda:1"]


def test_a_scenario_can_be_cut_too(tmp_path: Path) -> None:
    trace = run_scenario(ROOT / "scenarios" / "mlp_step.toml")
    whole = replay_device(trace)
    notes = ls.write(trace, tmp_path / "part.pickle", window=(40, 90))
    inside = replay_device(read_trace(tmp_path / "part.pickle"))
    same_levels(whole.timeline.levels[40:91], inside.timeline.levels)
    assert any("addresses are made up" in note for note in notes)


def test_the_command_cuts_and_tells(tmp_path: Path) -> None:
    target = tmp_path / "part.pickle"
    result = lifecycle_sim("convert", TRAIN, "-o", target, "--window", "1,000:2000", "--largest", "50")
    assert (result.returncode, result.stdout) == (0, "")
    assert "kept events 1,000 to 1,999, numbered from 0 again; left out 1,988 of 2,988 events" in result.stderr
    assert "kept the largest 50 of" in result.stderr
    assert len(replay_device(read_trace(target)).lifetimes) == 50
    for wrong in ("1000", "a:b", "-5:3", "1:2:3"):
        bad = lifecycle_sim("convert", TRAIN, "-o", tmp_path / "no.pickle", "--window", wrong)
        assert bad.returncode == 2
        assert "is not of the form FIRST:STOP" in bad.stderr.replace("\n", " ")
    beyond = lifecycle_sim("convert", TRAIN, "-o", tmp_path / "no.pickle", "--window", "9000:")
    assert (beyond.returncode, (tmp_path / "no.pickle").exists()) == (3, False)
