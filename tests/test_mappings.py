"""What is live in fresh memory was allocated after it was taken from the device."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.events import Basis, Blocks, BlockState, Clock, DeviceTrace, Events, Evidence, Kind, MemoryState, Segments, Trace
from lifecycle_sim.replay import replay_device
from lifecycle_sim.replay.mappings import TAKES, last_taken

KINDS = st.sampled_from([*TAKES, Kind.SEGMENT_FREE, Kind.ALLOC])
EVENTS = st.lists(st.tuples(KINDS, st.integers(0, 20), st.integers(0, 12)), max_size=25)


@given(EVENTS, st.lists(st.tuples(st.integers(0, 32), st.integers(0, 25)), max_size=20))
def test_last_taken_is_what_looking_at_every_event_finds(rows, asked):
    events = Events.of(*(list(column) for column in zip(*rows, strict=True))) if rows else Events.of([], [], [])
    address, before = (np.array([pair[n] for pair in asked], np.int64) for n in (0, 1))
    before = np.minimum(before, len(rows))
    expected = [
        max((e for e, (kind, start, size) in enumerate(rows[:limit]) if kind in TAKES and start <= at < start + size), default=-1)
        for at, limit in zip(address.tolist(), before.tolist(), strict=True)
    ]
    assert last_taken(events, address, before).tolist() == expected


def state(*blocks):
    """One segment [0, 100) with the *blocks* (address, size), and holes between them."""
    rows, end = [], 0
    for address, size in [*blocks, (100, 0)]:
        if address > end:
            rows.append((end, address - end, BlockState.INACTIVE))
        if size:
            rows.append((address, size, BlockState.ALLOCATED))
        end = address + size
    address, size, states = (np.array(column) for column in zip(*rows, strict=True))
    n = len(rows)
    none, neutral = np.full(1, -1), np.zeros(1, np.int64)
    segments = Segments(
        neutral,
        np.array([100]),
        neutral,
        neutral.astype(np.int32),
        np.zeros(1, bool),
        np.zeros(1, bool),
        none,
        none,
        none,
        none.astype(np.int32),
    )
    requested = np.where(states == BlockState.ALLOCATED, size, 0)
    return MemoryState(
        segments,
        Blocks(np.zeros(n, np.int32), address, size, requested, states.astype(np.uint8), np.full(n, -1, np.int32), np.zeros(n, np.uint8)),
    )


def replayed(rows, final):
    events = Events.of(*(list(column) for column in zip(*rows, strict=True)))
    device = DeviceTrace("cuda:0", events, Basis.REQUESTED, final=final)
    return replay_device(Trace((device,), "cuda-snapshot", Evidence.MEASURED, Clock.NONE))


def test_what_lives_in_a_segment_created_inside_the_window_was_not_there_before_it():
    r"""The allocation of B, 30 bytes, was lost; its segment was created in the window, so it lay between 1 and the end.

    ::

        event     0         1    2    3
        segment   [ 100 ]
        A                   + 10 - 10
        B                             …          live at the end
    """
    told = replayed(
        [(Kind.SEGMENT_ALLOC, 0, 100), (Kind.ALLOC, 0, 10), (Kind.FREE_COMPLETED, 0, 10), (Kind.ALLOC, 50, 5)], state((10, 30), (50, 5))
    )
    assert told.timeline.start == 0
    (lost,) = np.flatnonzero(told.lifetimes.lost_alloc)
    assert (told.lifetimes.size[lost], told.lifetimes.alloc_earliest[lost], told.lifetimes.alloc_latest[lost]) == (30, 1, 4)
    assert not told.peak.exact
    assert told.peak.lower <= 35 <= told.peak.upper
    assert {each.code for each in told.assumptions} >= {"gap", "lost_alloc"}
    assert "live_throughout" not in {each.code for each in told.assumptions}


def test_a_free_of_what_was_never_allocated_in_a_new_segment_is_a_loss():
    told = replayed([(Kind.SEGMENT_MAP, 0, 100), (Kind.ALLOC, 0, 10), (Kind.FREE_COMPLETED, 40, 20)], state((0, 10)))
    assert told.timeline.start == 0
    assert not told.peak.exact
    assert told.peak.upper >= 30


def test_what_was_freed_before_the_segment_was_made_again_is_older_than_the_window():
    told = replayed(
        [(Kind.FREE_COMPLETED, 40, 20), (Kind.SEGMENT_FREE, 0, 100), (Kind.SEGMENT_ALLOC, 0, 100), (Kind.ALLOC, 40, 10)], state((40, 10))
    )
    assert told.timeline.start == 20
    assert told.peak.exact


def test_two_blocks_at_one_address_are_replayed_all_the_same():
    final = state((0, 10))
    twice = MemoryState(final.segments, Blocks(*(np.repeat(column[:1], 2) for column in vars(final.blocks).values())))
    assert replayed([(Kind.ALLOC, 0, 10), (Kind.ALLOC, 50, 10), (Kind.FREE_COMPLETED, 50, 10)], twice).peak.size >= 20
