"""The checker: each rule on a trace broken on purpose, and all rules on events against a second, plain implementation."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Frame, Kind, Span, StackTable, Trace, check
from tests.strategies import BASE, SLOT, SLOTS, _state, _tiled, traces


def _trace(events: Events, clock: Clock = Clock.NONE, **facts: Any) -> Trace:
    device = DeviceTrace("cuda:0", events, **{"basis": Basis.PAYLOAD, "start": 0} | facts)
    return Trace((device,), "native", Evidence.SIMULATED, clock)


def _codes(trace: Trace) -> list[tuple[str, str, int | None, int]]:
    return [(finding.code, finding.severity, finding.event, finding.count) for finding in check(trace)]


SOUND = Events.of([Kind.ALLOC, Kind.ALLOC, Kind.FREE], [1, 2, 1], [10, 20, 10])


def test_a_sound_trace() -> None:
    assert check(_trace(SOUND)) == ()
    assert check(Trace((), "native", Evidence.SIMULATED, Clock.NONE)) == ()
    assert check(_trace(Events.of([], [], []))) == ()


@pytest.mark.parametrize(
    ("change", "code", "event"),
    [
        ({"size": np.array([10])}, "column_length", None),
        ({"kind": np.array([0, 77, 3], np.uint8)}, "unknown_kind", 1),
        ({"category": np.array([0, 0, 9], np.uint8)}, "unknown_category", 2),
        ({"size": np.array([10, -1, 10])}, "negative_size", 1),
        ({"stack": np.array([-1, -1, 0], np.int32)}, "stack_out_of_range", 2),
        ({"label": np.array([-2, -1, -1], np.int32)}, "label_out_of_range", 0),
        ({"pool": np.array([0, -1, 1], np.int32)}, "pool_out_of_range", 1),
    ],
)
def test_columns_that_cannot_be(change: dict[str, Any], code: str, event: int | None) -> None:
    found = check(_trace(replace(SOUND, **change)))
    assert [(finding.code, finding.severity, finding.event) for finding in found] == [(code, "error", event)]


def test_spans_and_tables() -> None:
    assert _codes(_trace(SOUND, spans=(Span("step", "a", 0, 3), Span("step", "b", 2, 4), Span("step", "c", 2, 1)))) == [
        ("span_out_of_range", "error", None, 2)
    ]
    trace = replace(_trace(SOUND), stacks=StackTable((Frame("a", "b", 1),), ((0, 1),)), labels=("x", "x"))
    assert [finding.code for finding in check(trace)] == ["duplicate_label", "frame_out_of_range"]
    assert [finding.code for finding in check(replace(trace, devices=trace.devices * 2, labels=(), stacks=StackTable()))] == [
        "duplicate_device"
    ]


def test_time_goes_back_only_where_there_is_a_clock() -> None:
    events = replace(SOUND, time=np.array([5, 4, 3]))
    assert _codes(_trace(events)) == []
    assert _codes(_trace(events, Clock.TICKS)) == [("time_backwards", "warning", 1, 2)]


#        index   0  1  2  3  4
#        kind    A  A  F  F  F        address 1: alloc of a live one at 1, double free at 3; address 2: unknown at 4
LOSSY = Events.of([0, 0, 3, 3, 3], [1, 1, 1, 1, 2], [10, 10, 12, 12, 5])


def test_lifecycles_of_a_complete_record_and_of_a_recording() -> None:
    rules = [("alloc_of_live", 1), ("double_free", 3), ("free_of_unknown", 4), ("size_mismatch", 2)]
    assert _codes(_trace(LOSSY)) == [("level_below_zero", "error", 3, 2)] + [(code, "error", event, 1) for code, event in rules]
    lost = [(code, event) for code, event in rules if code != "free_of_unknown"]  # a recording may begin mid-run
    assert _codes(_trace(LOSSY, start=None)) == [(code, "warning", event, 1) for code, event in lost]
    assert _codes(_trace(LOSSY, identified=False)) == [("level_below_zero", "error", 3, 2)]


def test_events_about_storages_that_are_not_live() -> None:
    kinds = [Kind.FREE_REQUESTED, Kind.ALLOC, Kind.SHARE, Kind.RELEASE, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED, Kind.ANNOTATE]
    events = Events.of(kinds, [1] * 7, [4] * 7)
    assert _codes(_trace(events)) == [("event_of_unknown", "error", 0, 2)]
    assert _codes(_trace(events, start=None)) == [("event_of_unknown", "warning", 6, 1)]


def test_allocations_of_nothing_are_odd_in_a_recording_only() -> None:
    events = Events.of([0, 3], [1, 1], [0, 0])
    assert _codes(_trace(events)) == []
    assert _codes(_trace(events, basis=Basis.REQUESTED)) == [("zero_size", "warning", 0, 1)]


def test_sizes_that_add_up_beyond_what_can_be_counted() -> None:
    assert _codes(_trace(Events.of([0, 0], [1, 2], [2**62, 2**62]))) == [("level_too_large", "error", None, 1)]


# The state at the end ----------------------------------------------------------------------------------------------------------------

LIVE = {0: 100, 3: SLOT}


def _with_final(**changes: Any) -> list[str]:
    """Codes of the findings for a tiled state, after *changes* to its columns: ``segment_size=(row, value)`` or ``block_size=…``."""
    state = _tiled(LIVE)
    for name, (row, value) in changes.items():
        table, column = name.split("_", 1)
        getattr(getattr(state, table + "s"), column)[row] = value
    return [finding.code for finding in check(_trace(Events.of([], [], []), start=None, final=state))]


def test_the_end_of_a_recording() -> None:
    assert _with_final() == []
    assert _with_final(segment_size=(0, SLOT * SLOTS + 1)) == ["not_tiled"]
    assert _with_final(block_address=(0, BASE + 1)) == ["not_tiled"]
    assert _with_final(block_address=(2, BASE - 1)) == ["not_tiled"]
    assert _with_final(block_size=(1, SLOT)) == ["not_tiled"]
    assert _with_final(block_requested=(0, 101)) == ["requested_total"]
    assert _with_final(block_requested=(1, 101)) == []
    assert _with_final(segment_allocated=(0, 5), segment_active=(0, -1)) == ["allocated_total"]
    assert _with_final(segment_active=(0, 5)) == ["active_total"]
    assert _with_final(block_state=(2, 2)) == ["allocated_total"]
    assert _with_final(block_state=(2, 0)) == ["unmerged_blocks", "allocated_total", "active_total", "requested_total"]
    assert _with_final(block_state=(2, 0), segment_expandable=(0, True)) == ["allocated_total", "active_total", "requested_total"]
    assert _with_final(block_requested=(0, 2100), segment_requested=(0, -1)) == ["requested_above_size"]
    assert _with_final(block_segment=(0, 1)) == ["block_segment_out_of_range"]
    assert _with_final(block_state=(0, 3)) == ["unknown_state"]
    assert _with_final(segment_stack=(0, 0), block_stack=(0, 0), segment_pool=(0, 2)) == [
        "stack_out_of_range",
        "pool_out_of_range",
        "stack_out_of_range",
    ]
    assert _with_final(segment_size=(0, -1)) == ["negative_size"]


def test_segments_that_overlap_or_have_no_blocks() -> None:
    one = (BASE, 4096, 0, 0, True, False, -1, -1, -1, -1)
    two = (BASE + 2048, 4096, 0, 0, True, False, -1, -1, -1, -1)
    state = _state([one, two], [(0, BASE, 4096, 1, 1, -1, 0)])
    found = check(_trace(Events.of([], [], []), start=None, final=state))
    assert [finding.code for finding in found] == ["segments_overlap", "not_tiled"]


# Segments and what is handed out of them -----------------------------------------------------------------------------------------------

#        0 alloc of a segment, 1 alloc in it, 2 its free; the segment stays
SEGMENT_KINDS = [Kind.SEGMENT_ALLOC, Kind.ALLOC, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED]
IN_A_SEGMENT = Events.of(SEGMENT_KINDS, [BASE, BASE + 512, BASE + 512, BASE + 512], [4096, 3584, 3584, 3584])


def _segment(address: int, size: int) -> tuple[int, ...]:
    return (address, size, 0, 0, 0, 0, -1, -1, -1, -1)


def _with_size(size: int) -> Events:
    return replace(IN_A_SEGMENT, size=np.array([4096, size, size, size]))


def test_an_allocation_must_fit_into_its_segment() -> None:
    state = _state([_segment(BASE, 4096)], [(0, BASE, 4096, 0, 0, -1, 0)])
    assert _codes(_trace(IN_A_SEGMENT, start=None, final=state, basis=Basis.REQUESTED)) == []
    found = _codes(_trace(_with_size(3585), start=None, final=state, basis=Basis.REQUESTED))
    assert found == [("beyond_segment", "error", 1, 1)]
    found = _codes(_trace(_with_size(4097), start=None, final=state, basis=Basis.REQUESTED))
    assert found == [("beyond_segment", "error", 1, 1), ("above_reserved", "error", 1, 2)]


def test_adjacent_segments_are_one_run_and_unknown_addresses_say_nothing() -> None:
    state = _state([_segment(BASE, 4096), _segment(BASE + 4096, 4096)], [(0, BASE, 4096, 0, 0, -1, 0), (1, BASE + 4096, 4096, 0, 0, -1, 0)])
    assert _codes(_trace(_with_size(4097), start=None, final=state, basis=Basis.REQUESTED)) == []
    elsewhere = replace(IN_A_SEGMENT, address=IN_A_SEGMENT.address + 2**30)
    assert _codes(_trace(elsewhere, start=None, final=state, basis=Basis.REQUESTED)) == []


def test_where_events_were_lost_levels_are_not_compared_and_an_overrun_is_a_warning() -> None:
    state = _state([_segment(BASE, 4096)], [(0, BASE, 4096, 0, 0, -1, 0)])
    events = Events.of([Kind.ALLOC, Kind.ALLOC, Kind.FREE_COMPLETED], [BASE, BASE, BASE], [9000, 9000, 9000])
    found = _codes(_trace(events, start=None, final=state, basis=Basis.REQUESTED))
    assert found == [("alloc_of_live", "warning", 1, 1), ("beyond_segment", "warning", 0, 2)]


def test_a_complete_record_with_segments_cannot_hand_out_more_than_they_hold() -> None:
    assert _codes(_trace(_with_size(4097), basis=Basis.REQUESTED)) == [("above_reserved", "error", 1, 2)]
    assert _codes(_trace(_with_size(4097))) == []  # payload figures have no segments


# Against a plain implementation --------------------------------------------------------------------------------------------------------


def _walk(device: DeviceTrace) -> dict[str, list[int]]:
    """Break every rule about lifecycles down event by event, with a dict of what is live."""
    complete = device.start == 0 and device.final is None
    broken: dict[str, list[int]] = {}
    live: dict[int, int] = {}
    seen: set[int] = set()
    for row, (kind, address, size) in enumerate(zip(device.events.kind, device.events.address.tolist(), device.events.size, strict=True)):
        if kind == Kind.ALLOC:
            if address in live:
                broken.setdefault("alloc_of_live", []).append(row)
            live[address] = size
            seen.add(address)
        elif kind in (Kind.FREE, Kind.FREE_COMPLETED):
            if address in live:
                if live.pop(address) != size:
                    broken.setdefault("size_mismatch", []).append(row)
            elif address in seen or complete:
                broken.setdefault("double_free" if address in seen else "free_of_unknown", []).append(row)
            seen.add(address)
        elif (
            kind in (Kind.FREE_REQUESTED, Kind.ANNOTATE, Kind.SHARE, Kind.RELEASE) and address not in live and (complete or address in seen)
        ):
            broken.setdefault("event_of_unknown", []).append(row)
    return broken


CODES = {"alloc_of_live", "size_mismatch", "double_free", "free_of_unknown", "event_of_unknown"}


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(traces(sound=False, min_devices=1), st.booleans())
def test_lifecycles_agree_with_a_walk(trace: Trace, complete: bool) -> None:
    trace = replace(trace, devices=tuple(replace(d, final=None, start=0 if complete else None, identified=True) for d in trace))
    found = [(f.device, f.code, f.event, f.count) for f in check(trace) if f.code in CODES]
    walked = [(d.device, code, rows[0], len(rows)) for d in trace for code, rows in _walk(d).items()]
    assert sorted(found) == sorted(walked)


@given(traces(sound=False))
def test_any_trace_can_be_checked(trace: Trace) -> None:
    assert all(finding.count > 0 and finding.text for finding in check(trace))


def test_a_million_events_take_less_than_a_second() -> None:
    half = 500_000
    address = np.repeat(np.random.default_rng(0).integers(0, 2**46, half), 2)
    events = Events.of(np.tile([0, 3], half), address, np.full(2 * half, 512))
    began = time.process_time()
    assert check(_trace(events)) == ()
    assert time.process_time() - began < 1
