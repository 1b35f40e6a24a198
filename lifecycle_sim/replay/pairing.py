"""Pairs each allocation with its free, address by address, and finds the places where an event must have been lost.

On one address allocations and frees alternate. Where they do not, the recording lost an event, and the two neighbours on that
address tell between which events it must have happened::

    event      0   1   2   3   4   5
    address A  +           +   -            0 and 3 allocate A: a free was lost in (0, 3]
    address B      -           …   -        free 1 has no allocation: B was live before the window;
                                            free 5 follows free 1: an allocation was lost in (1, 5]

A position ``p`` means "after event p - 1 and before event p"; the interval ``[first, last]`` of positions holds the lost event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lifecycle_sim.events import BlockState, DeviceTrace, Kind
from lifecycle_sim.events.trace import Bool, Int64

BEFORE_WINDOW = -1


@dataclass(frozen=True, eq=False)
class Pairing:
    """One row for each storage that the window tells of.

    Attributes:
        source_event: the event that names the storage (its allocation, else its free), -1 if only the final state does.
        source_block: its row in the final state's blocks, -1 if it is not live at the end or there is no final state.
        alloc_first, alloc_last: positions between which it was allocated; equal when recorded; both -1 if it was live before the window.
        free_first, free_last: likewise for its free; both n if it never was freed.
        lost_alloc: whether its allocation happened inside the window and was not recorded.
        lost_free: whether its free happened inside the window and was not recorded.
    """

    source_event: Int64
    source_block: Int64
    alloc_first: Int64
    alloc_last: Int64
    free_first: Int64
    free_last: Int64
    lost_alloc: Bool
    lost_free: Bool


def release_kinds(trace: DeviceTrace) -> tuple[Kind, ...]:
    """Return the kinds of events that end a live interval in *trace*.

    Bytes stay in use until a free is completed, so that is what ends an interval; where a recording has skipped that action
    (``skip_actions``), the request is taken in its place.
    """
    seen = np.bincount(trace.events.kind, minlength=len(Kind))
    if seen[Kind.FREE_REQUESTED] and not seen[Kind.FREE_COMPLETED]:
        return (Kind.FREE, Kind.FREE_REQUESTED)
    return (Kind.FREE, Kind.FREE_COMPLETED)


def _states_of_live_blocks(trace: DeviceTrace) -> tuple[BlockState, ...]:
    requests_end_intervals = Kind.FREE_REQUESTED in release_kinds(trace)
    return (BlockState.ALLOCATED,) if requests_end_intervals else (BlockState.ALLOCATED, BlockState.PENDING_FREE)


def pair(trace: DeviceTrace) -> Pairing:
    """Pair the allocations and frees of *trace*, and both with the blocks that are live in its final state."""
    events, n = trace.events, len(trace.events)
    is_free = np.isin(events.kind, release_kinds(trace))
    chosen = np.flatnonzero(is_free | (events.kind == Kind.ALLOC))
    final = trace.final
    live = np.empty(0, np.int64) if final is None else np.flatnonzero(np.isin(final.blocks.state, _states_of_live_blocks(trace)))

    # One table of all that is said of each address, by address and then by event; what is live at the end counts as a free at n.
    address = np.concatenate([events.address[chosen], final.blocks.address[live] if final is not None else live])
    event = np.concatenate([chosen, np.full(len(live), n)])
    size = np.concatenate([events.size[chosen], final.blocks.requested[live] if final is not None else live])
    ends = np.concatenate([is_free[chosen], np.ones(len(live), bool)])
    block = np.concatenate([np.full(len(chosen), -1), live])
    order = np.argsort(address, kind="stable")
    address, event, size, ends, block = address[order], event[order], size[order], ends[order], block[order]

    joined = np.zeros(len(address) + 1, bool)  # joined[i]: row i continues the history of row i - 1's address
    joined[1:-1] = address[1:] == address[:-1]
    before, after = joined[:-1], joined[1:]
    previous = np.where(before, np.concatenate([[0], event[:-1]]), BEFORE_WINDOW)
    following = np.where(after, np.concatenate([event[1:], [0]]), n)
    pairs_with_next = np.zeros(len(address), bool)
    pairs_with_next[:-1] = after[:-1] & ~ends[:-1] & ends[1:] & (size[:-1] == size[1:])
    paired_end = np.concatenate([[False], pairs_with_next[:-1]])

    births = np.flatnonzero(~ends)
    paired = pairs_with_next[births]
    partner = np.minimum(births + 1, len(address) - 1)
    lost_free = ~paired & (after[births] | (final is not None))  # what nothing contradicts stays live to the end
    orphans = np.flatnonzero(ends & ~paired_end)
    known_before = np.where(before[orphans], previous[orphans] + 1, BEFORE_WINDOW)

    return Pairing(
        source_event=np.concatenate([event[births], np.where(event[orphans] < n, event[orphans], -1)]),
        source_block=np.concatenate([np.where(paired, block[partner], -1), block[orphans]]),
        alloc_first=np.concatenate([event[births], known_before]),
        alloc_last=np.concatenate([event[births], np.where(before[orphans], event[orphans], BEFORE_WINDOW)]),
        free_first=np.concatenate([np.where(lost_free, event[births] + 1, following[births]), event[orphans]]),
        free_last=np.concatenate([following[births], event[orphans]]),
        lost_alloc=np.concatenate([np.zeros(len(births), bool), before[orphans]]),
        lost_free=np.concatenate([lost_free, np.zeros(len(orphans), bool)]),
    )
