"""Requested, allocated, active and reserved bytes over the events of a recording, given the sizes of its blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lifecycle_sim.events import BlockState, Events, Kind, MemoryState
from lifecycle_sim.events.kinds import GIVES_BACK, TAKES
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.allocator.recording.calls import completed_at_once
from lifecycle_sim.replay.allocator.recording.extents import Held
from lifecycle_sim.replay.allocator.recording.rebuild import OpenSize
from lifecycle_sim.replay.allocator.statistics import Levels


def levels_of(events: Events, start: MemoryState, block: Int64, unasked: Sequence[int], dropped: Iterable[tuple[int, Held]]) -> Levels:
    """Return the levels before the first event and after each.

    Args:
        events: the events.
        start: the state before them.
        block: for each event that hands out or frees a block its size; 0 where it made no sense, so that it changes nothing. Where a free
            is complete at once, only the request needs it.
        unasked: frees that complete without having been asked for.
        dropped: (event, block) where a block turned out to be gone, though its free was lost.
    """
    kind, size, block = events.kind, events.size, block.copy()
    at_once = completed_at_once(events)
    block[1:][at_once[:-1]] = block[:-1][at_once[:-1]]
    came, done = kind == Kind.ALLOC, np.isin(kind, (Kind.FREE_COMPLETED, Kind.FREE))
    given_up = np.isin(kind, (Kind.FREE_REQUESTED, Kind.FREE))
    given_up[list(unasked)] = True
    known = np.where(block > 0, size, 0)
    requested = known * came - known * done
    allocated = block * came - block * given_up
    active = block * came - block * done
    reserved = size * np.isin(kind, TAKES) - size * np.isin(kind, GIVES_BACK)
    for event, lost in dropped:
        requested[event] -= lost.requested
        active[event] -= lost.size
        if lost.state is BlockState.ALLOCATED:
            allocated[event] -= lost.size

    def summed(first: int, change: Int64) -> Int64:
        return first + np.concatenate([np.zeros(1, np.int64), np.cumsum(change)])

    return Levels(
        summed(start.requested, requested),
        summed(start.allocated, allocated),
        summed(start.active, active),
        summed(start.reserved, reserved),
    )


def slack_of(sizes: Iterable[OpenSize], events: int) -> Int64:
    """Return by how many bytes allocated and active may be higher, over *events* events, for sizes that nothing settles."""
    slack = np.zeros(events + 1, np.int64)
    for block in sizes:
        if block.settled_by is None:
            slack[: block.freed + 1] += block.high - block.size
    return slack
