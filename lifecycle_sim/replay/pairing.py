"""Pairs each allocation with its free, address by address, and finds the places where an event must have been lost.

On one address allocations and frees alternate. Where they do not, the recording lost an event, and the two neighbours on that
address tell between which events it must have happened::

    event      0   1   2   3   4   5
    address A  +           +   -            0 and 3 allocate A: a free was lost in (0, 3]
    address B      -           …   -        free 1 has no allocation: B was live before the window;
                                            free 5 follows free 1: an allocation was lost in (1, 5]

A position ``p`` means "after event p - 1 and before event p"; the interval ``[first, last]`` of positions holds the lost event.
A storage that no event allocates, in a range of addresses that the window itself saw being taken from the device, was not live before
the window either: its allocation was lost after that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lifecycle_sim.events import BlockState, DeviceTrace, Kind
from lifecycle_sim.events.trace import Bool, Int64
from lifecycle_sim.replay.mappings import last_taken

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
    (``skip_actions``), the request is taken in its place. It has not where all that was requested is pending in the final state.
    """
    kind = trace.events.kind
    if not (kind == Kind.FREE_COMPLETED).any() and (kind == Kind.FREE_REQUESTED).any() and not _all_are_pending(trace):
        return (Kind.FREE, Kind.FREE_REQUESTED)
    return (Kind.FREE, Kind.FREE_COMPLETED)


def _all_are_pending(trace: DeviceTrace) -> bool:
    if trace.final is None:
        return False
    pending = trace.final.blocks.address[trace.final.blocks.state == BlockState.PENDING_FREE]
    return bool(np.isin(trace.events.address[trace.events.kind == Kind.FREE_REQUESTED], pending).all())


def _states_of_live_blocks(trace: DeviceTrace) -> tuple[BlockState, ...]:
    requests_end_intervals = Kind.FREE_REQUESTED in release_kinds(trace)
    return (BlockState.ALLOCATED,) if requests_end_intervals else (BlockState.ALLOCATED, BlockState.PENDING_FREE)


def pair(trace: DeviceTrace) -> Pairing:
    """Pair the allocations and frees of *trace*, and both with the blocks that are live in its final state."""
    n = len(trace.events)
    address, event, size, ends, block = _histories(trace)

    continues = np.zeros(len(address) + 1, bool)  # continues[i]: row i goes on with the address of row i - 1
    np.equal(address[1:], address[:-1], out=continues[1:-1])
    pairs_with_next = np.zeros(len(address) + 1, bool)
    pairs_with_next[1:-1] = continues[1:-1] & (ends[1:] > ends[:-1]) & (size[1:] == size[:-1])

    births = np.flatnonzero(~ends)
    paired = pairs_with_next[births + 1]
    free_first = np.where(paired, event.take(births + 1, mode="clip"), n)
    free_last = free_first.copy()
    unpaired = births[~paired]
    goes_on = continues[unpaired + 1]
    free_last[~paired] = np.where(goes_on, event.take(unpaired + 1, mode="clip"), n)
    lost_free = np.zeros(len(births), bool)
    lost_free[~paired] = goes_on | (trace.final is not None)  # what nothing contradicts stays live to the end
    free_first[lost_free] = event[births[lost_free]] + 1

    orphans = np.flatnonzero(ends & ~pairs_with_next[:-1])
    end = event[orphans]
    earlier = np.where(continues[orphans], event.take(orphans - 1, mode="clip"), BEFORE_WINDOW)
    earlier = np.maximum(earlier, last_taken(trace.events, address[orphans], end))
    began_inside = earlier > BEFORE_WINDOW
    alloc_first = np.where(began_inside, np.minimum(earlier + 1, end), BEFORE_WINDOW)
    return Pairing(
        source_event=np.concatenate([event[births], np.where(end < n, end, -1)]),
        source_block=np.concatenate([np.where(paired, block.take(births + 1, mode="clip"), -1), block[orphans]]),
        alloc_first=np.concatenate([event[births], alloc_first]),
        alloc_last=np.concatenate([event[births], np.where(began_inside, end, BEFORE_WINDOW)]),
        free_first=np.concatenate([free_first, end]),
        free_last=np.concatenate([free_last, end]),
        lost_alloc=np.concatenate([np.zeros(len(births), bool), began_inside]),
        lost_free=np.concatenate([lost_free, np.zeros(len(orphans), bool)]),
    )


def _histories(trace: DeviceTrace) -> tuple[Int64, Int64, Int64, Bool, Int64]:
    """All that is said of each address, by address and then by event: address, event, size, whether it ends a live interval, block.

    What is live in the final state ends at n, and has the number of its block; the others have -1.
    """
    events, final = trace.events, trace.final
    is_free = np.isin(events.kind, release_kinds(trace))
    chosen = np.flatnonzero(is_free | (events.kind == Kind.ALLOC))
    address, size, ends = events.address[chosen], events.size[chosen], is_free[chosen]
    block = np.full(len(chosen), -1)
    if final is not None:
        live = np.flatnonzero(np.isin(final.blocks.state, _states_of_live_blocks(trace)))
        address, size = np.concatenate([address, final.blocks.address[live]]), np.concatenate([size, final.blocks.requested[live]])
        ends, block = np.concatenate([ends, np.ones(len(live), bool)]), np.concatenate([block, live])
        chosen = np.concatenate([chosen, np.full(len(live), len(events))])
    order = np.argsort(address, kind="stable")
    return address[order], chosen[order], size[order], ends[order], block[order]
