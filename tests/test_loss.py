"""Recordings that lost events: gaps are found, nothing is claimed that the recording does not show, and the truth lies in the bounds."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from lifecycle_sim.events import Blocks, Kind, MemoryState, Segments, Span
from lifecycle_sim.replay import replay_device
from tests.programs import BASE, PLACE, PLACES, Act, final_state, live_after, overlapping_programs, programs, record, true_levels


@given(st.one_of(programs(), overlapping_programs()), st.data())
def test_the_truth_of_a_run_with_one_gap_lies_in_the_bounds(acts: list[Act], data: st.DataObject) -> None:
    off = data.draw(st.integers(0, len(acts)))
    on = data.draw(st.integers(off, len(acts)))
    replayed = replay_device(record(acts[:off] + acts[on:], final_state(live_after(acts)), times=[*range(off), *range(on, len(acts))]))
    assume(replayed.gaps)  # a gap that leaves no contradiction cannot be seen by anyone
    truth = true_levels(acts)
    (gap,) = replayed.gaps
    assert gap.first <= off <= gap.last
    assert replayed.peak.lower <= max(truth)
    assert replayed.peak.upper is not None
    assert replayed.peak.upper >= max(truth)
    assert replayed.peak.lower <= replayed.peak.size <= replayed.peak.upper
    assert replayed.start_bounds[0] <= 0 <= replayed.start_bounds[1]
    recorded = truth[: off + 1] + truth[on + 1 :]
    found = replayed.identified_lifetimes()
    for low, true, high in zip(found.lower_levels().tolist(), recorded, found.upper_levels().tolist(), strict=True):
        assert low <= true <= high
    assert not replayed.peak.exact
    whole = replayed.span_peak(Span("annotation", "all of it", 0, len(replayed.timeline)))
    assert (whole.size, whole.lower) == (replayed.peak.size, replayed.peak.lower)


@given(overlapping_programs(), st.data())
def test_a_window_without_loss_has_nothing_to_settle(acts: list[Act], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(acts)))
    replayed = replay_device(record(acts[start:], final_state(live_after(acts))))
    assert not replayed.gaps
    assert replayed.timeline.levels.tolist() == true_levels(acts)[start:]


@given(overlapping_programs(), st.integers(0, 40), st.integers(0, 40))
def test_what_overlaps_cannot_both_be_older(acts: list[Act], off: int, on: int) -> None:
    """Every pair is looked at: what is still taken to be older than the window overlaps nothing while it lives."""
    kept = acts[: min(off, on)] + acts[max(off, on) :]
    found = replay_device(record(kept, final_state(live_after(acts)))).identified_lifetimes()
    end = found.address + found.size
    for old in np.flatnonzero(found.alloc_earliest < 0).tolist():
        others = (found.address < end[old]) & (found.address[old] < end) & (found.alloc_latest < found.free_earliest[old])
        others &= ~found.lost_alloc & (np.arange(len(found)) != old) & (found.alloc_earliest >= 0)
        assert not others.any()


def test_an_address_in_use_tells_that_a_storage_is_not_older_than_the_window() -> None:
    """
    ::

        event       0      1     2     3
        A [0, 2)   +20    -20
        B [1, 3)                      -20     not before 1, for A was there
    """
    a, b, size = BASE, BASE + PLACE, 2 * PLACE
    acts = [Act(Kind.ALLOC, a, size), Act(Kind.FREE, a, size), Act(Kind.ALLOC, BASE + 6 * PLACE, 5), Act(Kind.FREE, b, size)]
    replayed = replay_device(record(acts, final_state({BASE + 6 * PLACE: 5})))
    assert {assumption.code: assumption.size for assumption in replayed.assumptions} == {"gap": None, "lost_alloc": size}
    assert (replayed.gaps[0].first, replayed.gaps[0].last) == (1, 3)
    assert replayed.timeline.start == 0


def test_of_two_unseen_storages_on_the_same_addresses_one_came_later() -> None:
    acts = [Act(Kind.FREE, BASE, 2 * PLACE), Act(Kind.FREE, BASE + PLACE, PLACE), Act(Kind.FREE, BASE + 3 * PLACE, 7)]
    replayed = replay_device(record(acts, final_state({})))
    assert [(gap.first, gap.last) for gap in replayed.gaps] == [(1, 1)]
    assert replayed.timeline.start == 2 * PLACE + 7


@given(programs(), st.sets(st.integers(0, 39), max_size=5))
def test_single_lost_events_never_break_a_replay(acts: list[Act], lost: set[int]) -> None:
    kept = [act for i, act in enumerate(acts) if i not in lost]
    replayed = replay_device(record(kept, final_state(live_after(acts))))
    assert replayed.timeline.end == replayed.reconciliation.recorded_end or replayed.gaps
    assert replayed.timeline.levels.min() >= 0
    assert replayed.timeline.levels.max() <= PLACE * PLACES
    assert (replayed.reconciliation.difference == 0) or replayed.gaps


def test_a_new_allocation_on_a_live_address_is_a_lost_free() -> None:
    """
    ::

        event   0    1    2    3
        A       +10       +20      the free of the first A is lost in (0, 2]
        B            +5       -5
    """
    other = BASE + PLACE
    acts = [Act(Kind.ALLOC, BASE, 10), Act(Kind.ALLOC, other, 5), Act(Kind.ALLOC, BASE, 20), Act(Kind.FREE, other, 5)]
    replayed = replay_device(record(acts, final_state({BASE: 20})))
    assert {a.code: (a.count, a.size) for a in replayed.assumptions} == {"gap": (1, None), "lost_free": (1, 10)}
    assert (replayed.gaps[0].first, replayed.gaps[0].last) == (1, 2)
    assert (replayed.peak.lower, replayed.peak.size) == (25, 25)
    assert replayed.reconciliation.difference == 10


def test_a_second_free_is_a_lost_allocation() -> None:
    acts = [Act(Kind.ALLOC, BASE, 10), Act(Kind.FREE, BASE, 10), Act(Kind.FREE, BASE, 30)]
    replayed = replay_device(record(acts, final_state({})))
    assert {a.code: (a.count, a.size) for a in replayed.assumptions} == {"gap": (1, None), "lost_alloc": (1, 30)}
    assert replayed.peak.lower == 10
    assert replayed.peak.upper == PLACE * PLACES  # what else the gap held is bounded by the reserved bytes alone
    assert replayed.reconciliation.difference == -30


def test_a_storage_that_is_gone_at_the_end_without_a_free() -> None:
    replayed = replay_device(record([Act(Kind.ALLOC, BASE, 10)], final_state({})))
    assert [a.code for a in replayed.assumptions] == ["gap", "lost_free"]
    assert replayed.reconciliation.difference == 10


def test_a_free_of_another_size_is_another_storage() -> None:
    replayed = replay_device(record([Act(Kind.ALLOC, BASE, 10), Act(Kind.FREE, BASE, 11)], final_state({})))
    assert {a.code: a.size for a in replayed.assumptions} == {"gap": None, "lost_free": 10, "lost_alloc": 11}


def test_two_gaps_are_told_apart() -> None:
    a, b = BASE, BASE + PLACE
    acts = [Act(Kind.ALLOC, a, 1), Act(Kind.ALLOC, a, 2), Act(Kind.FREE, a, 2), Act(Kind.ALLOC, b, 3), Act(Kind.ALLOC, b, 4)]
    replayed = replay_device(record(acts, final_state({b: 4})))
    assert [(gap.first, gap.last) for gap in replayed.gaps] == [(1, 1), (4, 4)]


def test_without_recorded_segments_the_upper_bound_is_unknown() -> None:
    replayed = replay_device(record([Act(Kind.ALLOC, BASE, 10), Act(Kind.ALLOC, BASE, 10)], None))
    assert replayed.gaps
    assert replayed.peak.upper is None


def test_storages_first_seen_after_a_gap_came_to_life_in_it_when_the_run_began_empty() -> None:
    """The part before the gap fills the segment from its base and frees nothing older, so an older storage is not assumed."""
    places = [BASE + PLACE * i for i in range(4)]
    acts = [
        Act(Kind.ALLOC, places[0], 10),
        Act(Kind.ALLOC, places[1], 10),
        Act(Kind.ALLOC, places[1], 20),
        Act(Kind.FREE, places[3], 7),
    ]
    replayed = replay_device(record(acts, final_state({places[0]: 10, places[1]: 20})))
    assert replayed.timeline.start == 0
    (unsettled,) = [a for a in replayed.assumptions if a.code == "start_unsettled"]
    assert unsettled.size == 7


def test_storages_below_the_filled_part_are_older_than_the_window() -> None:
    places = [BASE + PLACE * i for i in range(4)]
    acts = [Act(Kind.ALLOC, places[1], 10), Act(Kind.ALLOC, places[1], 20)]
    replayed = replay_device(record(acts, final_state({places[0]: 7, places[1]: 20})))
    assert replayed.timeline.start == 7


def test_one_gap_is_placed_where_all_its_intervals_overlap() -> None:
    """
    ::

        event  0    1    2    3    4
        A      +         +             a free lost in (0, 2]
        B           +         +        a free lost in (1, 3]
        gap              ?             both in (1, 2]
    """
    a, b = BASE, BASE + PLACE
    acts = [Act(Kind.ALLOC, a, 1), Act(Kind.ALLOC, b, 2), Act(Kind.ALLOC, a, 3), Act(Kind.ALLOC, b, 4)]
    replayed = replay_device(record(acts, final_state({a: 3, b: 4})))
    assert [(gap.first, gap.last) for gap in replayed.gaps] == [(2, 2)]
    found = replayed.identified_lifetimes()
    assert found.lower_levels().tolist() == found.upper_levels().tolist() == [0, 1, 3, 3, 7]


def test_a_storage_in_a_segment_that_the_first_part_never_touched_is_older() -> None:
    """Weights in segments of their own: an empty start is not assumed for them, however the touched segment looks."""
    elsewhere = 1 << 20
    final = final_state({BASE: 20})
    both = MemoryState(
        Segments(**{name: np.concatenate([column, column]) for name, column in vars(final.segments).items()}),
        Blocks(**{name: np.concatenate([column, column[:1]]) for name, column in vars(final.blocks).items()}),
    )
    both.segments.address[1] = elsewhere
    both.blocks.segment[-1], both.blocks.address[-1], both.blocks.requested[-1] = 1, elsewhere, 500
    replayed = replay_device(record([Act(Kind.ALLOC, BASE, 10), Act(Kind.ALLOC, BASE, 20)], both))
    assert replayed.timeline.start == 500
    assert replayed.identified_lifetimes().lower_levels().tolist() == [0, 10, 520]  # but the recording does not prove it
