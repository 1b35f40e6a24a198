"""Replay against a plain walk: whole runs, windows that start mid-run, lost actions, and totals past 2^63."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Kind, Span, Trace
from lifecycle_sim.replay import replay_all, replay_device
from tests.programs import BASE, PLACE, Act, final_state, live_after, programs, record, true_levels


@given(programs(), st.data())
def test_a_window_of_a_run_is_anchored_on_its_end(acts: list[Act], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(acts)))
    end = data.draw(st.integers(start, len(acts)))
    replayed = replay_device(record(acts[start:end], final_state(live_after(acts[:end]))))
    truth = true_levels(acts)[start : end + 1]
    assert replayed.timeline.levels.tolist() == truth
    assert replayed.peak.exact is (start < end)  # without events it is only a state
    assert (replayed.peak.size, replayed.peak.event) == (max(truth), truth.index(max(truth)) - 1)
    assert replayed.reconciliation.difference == 0
    assert not replayed.gaps


@given(programs(), st.data())
def test_live_intervals_are_those_of_a_plain_walk(acts: list[Act], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(acts)))
    window = acts[start:]
    found = replay_device(record(window, final_state(live_after(acts)))).identified_lifetimes()
    held = live_after(acts[:start])
    for event in range(-1, len(window)):
        if event >= 0:
            act = window[event]
            if act.kind is Kind.ALLOC:
                held[act.address] = act.size
            else:
                del held[act.address]
        live = found.live_at(event)
        assert dict(zip(found.address[live].tolist(), found.size[live].tolist(), strict=True)) == held
    assert int(found.leaked.sum()) == len(held)
    assert found.levels().tolist() == true_levels(acts)[start:]


@given(programs())
def test_without_a_final_state_a_complete_record_is_still_exact(acts: list[Act]) -> None:
    replayed = replay_device(record(acts, None, start=0))
    assert replayed.timeline.levels.tolist() == true_levels(acts)
    assert not replayed.assumptions


@given(programs())
def test_a_free_counts_when_it_is_completed(acts: list[Act]) -> None:
    """free_requested changes nothing; where free_completed was not recorded, the request takes its place."""
    both: list[Act] = []
    for act in acts:
        if act.kind is Kind.ALLOC:
            both.append(act)
        else:
            both += [Act(kind, act.address, act.size) for kind in (Kind.FREE_REQUESTED, Kind.FREE_COMPLETED)]
    final = final_state(live_after(acts))
    assume(acts)  # without events it is only a state
    whole = replay_device(record(both, final))
    assert [whole.timeline.at(i) for i, act in enumerate(both) if act.kind is not Kind.FREE_REQUESTED] == true_levels(acts)[1:]
    assert not whole.assumptions
    for skipped, code in ((Kind.FREE_COMPLETED, "free_requested_as_free"), (Kind.FREE_REQUESTED, "no_free_requested")):
        lean = replay_device(record([act for act in both if act.kind is not skipped], final))
        assert lean.timeline.levels.tolist() == true_levels(acts)
        frees = sum(act.kind is Kind.FREE for act in acts)
        assert [(a.code, a.count) for a in lean.assumptions] == ([(code, frees)] if frees > (code == "no_free_requested") else [])


def test_peak_may_be_the_state_before_the_first_event() -> None:
    acts = [Act(Kind.ALLOC, BASE, 100), Act(Kind.FREE, BASE, 100)]
    peak = replay_device(record(acts[1:], final_state({}))).peak
    assert (peak.size, peak.event, peak.time) == (100, -1, None)


def test_totals_past_two_to_the_63_stay_exact() -> None:
    huge = 2**62
    acts = [Act(Kind.ALLOC, i, huge) for i in range(5)] + [Act(Kind.FREE, i, huge) for i in range(5)]
    replayed = replay_device(record(acts, None, start=0))
    assert replayed.peak.size == 5 * huge
    assert replayed.timeline.end == 0
    assert replayed.identified_lifetimes().levels().tolist() == true_levels(acts)


def test_a_stated_start_that_no_storage_explains_is_kept_apart() -> None:
    replayed = replay_device(record([Act(Kind.FREE, 1, 30), Act(Kind.ALLOC, 2, 50)], None, start=100))
    assert replayed.timeline.levels.tolist() == [100, 70, 120]
    assert replayed.unidentified == 70
    assert [a.code for a in replayed.assumptions] == ["freed_without_alloc", "unidentified_start"]


def test_amounts_without_identity_have_levels_but_no_lifetimes() -> None:
    events = Events.of([Kind.ALLOC, Kind.FREE, Kind.ALLOC], [-1, -1, -1], [10, 4, 7])
    trace = Trace((DeviceTrace("cpu", events, Basis.REQUESTED, identified=False),), "profiler", Evidence.MEASURED, Clock.NONE)
    replayed = replay_device(trace)
    assert replayed.timeline.levels.tolist() == [0, 10, 6, 13]
    assert [a.code for a in replayed.assumptions] == ["relative_level"]
    with pytest.raises(InputError, match="amounts without identities"):
        replayed.identified_lifetimes()


def test_streams_add_up_to_the_whole() -> None:
    acts = [Act(Kind.ALLOC, BASE, 10), Act(Kind.ALLOC, BASE + PLACE, 20), Act(Kind.FREE, BASE, 10)]
    trace = record(acts, None, start=0)
    events = trace.devices[0].events
    events.stream[1] = 7
    replayed = replay_device(trace)
    streams = replayed.stream_timelines()
    assert streams[0].levels.tolist() == [0, 10, 10, 0]
    assert streams[7].levels.tolist() == [0, 0, 20, 20]


def test_a_span_has_a_peak_of_its_own() -> None:
    acts = [Act(Kind.ALLOC, 1, 10), Act(Kind.ALLOC, 2, 50), Act(Kind.FREE, 2, 50), Act(Kind.ALLOC, 3, 5)]
    replayed = replay_device(record(acts, None, start=0))
    assert replayed.span_peak(Span("annotation", "late", 3, 4)).size == 15
    assert replayed.span_peak(Span("annotation", "middle", 2, 3)).size == 60  # it begins at 60 bytes
    assert replayed.span_peak(Span("annotation", "empty", 1, 1)).event == 0


def test_an_annotation_labels_the_storage_that_is_live() -> None:
    acts = [Act(Kind.ALLOC, 1, 10), Act(Kind.FREE, 1, 10), Act(Kind.ALLOC, 1, 10), Act(Kind.ANNOTATE, 1, 10)]
    trace = record(acts, None, start=0)
    trace.devices[0].events.label[3] = 0
    assert replay_device(trace).identified_lifetimes().label.tolist() == [-1, 0]


def test_the_default_device_is_the_one_with_the_highest_peak() -> None:
    small, big = (record([Act(Kind.ALLOC, 1, size)], None, start=0).devices[0] for size in (1, 9))
    trace = Trace((small, DeviceTrace("cuda:1", big.events, Basis.REQUESTED, start=0)), "native", Evidence.MEASURED, Clock.NANOSECONDS)
    assert replay_device(trace).device == "cuda:1"
    assert replay_device(trace, 0).device == "cuda:0"
    assert [r.peak.size for r in replay_all(trace)] == [1, 9]
    with pytest.raises(InputError, match="no device 'cuda:3'"):
        replay_device(trace, 3)
    with pytest.raises(InputError, match="nothing to replay"):
        replay_device(Trace((), "native", Evidence.MEASURED, Clock.NONE))


def test_segments_give_the_reserved_level() -> None:
    final = final_state({})
    acts = [Act(Kind.SEGMENT_FREE, 5, 1000), Act(Kind.SEGMENT_MAP, BASE, 64), Act(Kind.SEGMENT_UNMAP, BASE, 32)]
    reserved = replay_device(record(acts, final)).reserved
    assert reserved is not None
    assert (np.diff(reserved.levels).tolist(), reserved.end) == ([-1000, 64, -32], final.reserved)
