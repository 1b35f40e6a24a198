"""What a program asked its allocator for, taken out of a trace: the same requests can then be made of another allocator.

A recording shows requests and the allocator's answers to them; only the requests are kept here::

    recorded    segment_alloc  alloc  free_requested  free_completed  segment_free  segment_alloc  alloc  oom
    requests                   alloc  free                            flush                        alloc  attempt

* A free that completed later than it was requested was waiting for another stream: it is given up at the one event and finished at the
  other, whatever the settings.
* Such a free may have completed because the allocator waited for all streams before it asked the device again; the request under way had
  been looked for among the free blocks before that. So a free that completed just before a new segment, a run of ``segment_free`` of the
  allocator's own, or a failure, is finished after that request, unless the allocator does it before.
* A run of ``segment_free`` is the program's ``empty_cache()``, or the allocator's own doing before a request that the device had refused.
  It is taken for the allocator's own where an ``oom`` follows, or a new segment while garbage collection was on, or a new segment that
  would not have fitted besides: above what an ``oom`` tells the device to have had, or else above all that the recording ever held.
  A private pool of which segments are given back was given up.
* A request that failed is an attempt: it is made, and given up at once if it succeeds, for what the program would have done is not known.
* Storages older than the window come first, by address.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from lifecycle_sim.events import DeviceTrace, Kind
from lifecycle_sim.events.kinds import GIVES_BACK, TAKES
from lifecycle_sim.events.trace import Bool, Int64, UInt8
from lifecycle_sim.replay.allocator.pools import PoolId
from lifecycle_sim.replay.allocator.recording.rebuild import Rebuilt
from lifecycle_sim.replay.device import DeviceReplay
from lifecycle_sim.replay.lifetimes import Lifetimes

BEFORE = -1
"""The event of what was there before the window."""


class Action(IntEnum):
    """What is asked of the allocator."""

    ALLOC = 0
    FREE = 1
    GIVE_UP = 2
    """A free that waits for another stream …"""
    FINISH = 3
    """… and the end of that wait."""
    FLUSH = 4
    """``empty_cache()``."""
    OWN_FLUSH = 5
    """The allocator gave back what it could before it asked the device again."""
    DROP = 6
    """A private pool is given up, and what is free in it given back."""
    ATTEMPT = 7
    """A request that failed in the recording."""


@dataclass(frozen=True, eq=False)
class Requests:
    """The requests of one device, in order: columns of equal length.

    Attributes:
        action: an :class:`Action` each.
        storage: number of the storage, its row in the lifetimes; -1 for flushes and attempts.
        size: bytes asked for; 0 unless something is asked for.
        stream: raw handle.
        pool: number in ``pools``.
        event: the event of the trace that it comes from; ``BEFORE`` for storages older than the window.
        older: how many of the first requests are for storages older than the window.
        address: recorded address of each storage, by its number.
        pools: the distinct pools; entry 0 is the default pool.
    """

    action: UInt8
    storage: Int64
    size: Int64
    stream: Int64
    pool: Int64
    event: Int64
    older: int
    address: Int64
    pools: tuple[PoolId, ...]

    def __len__(self) -> int:
        return len(self.action)

    def count(self, action: Action) -> int:
        """Return how many requests are of the kind *action*."""
        return int((self.action == action).sum())


def requests_of(
    replayed: DeviceReplay, rebuilt: Rebuilt | None = None, collects_garbage: bool = False, device_had: int | None = None
) -> Requests:
    """Return the requests behind what was recorded on a device.

    Args:
        replayed: the device's replay.
        rebuilt: what the device held before the window, where that can be told; it also tells pools that events leave out.
        collects_garbage: whether garbage collection was on in the recording.
        device_had: bytes that could be had from the recorded device, where that is known.

    Raises:
        InputError: the record's events carry no identity.
    """
    found, recorded = replayed.identified_lifetimes(), replayed.recorded
    asked = found.size > 0
    births, pool = _births(recorded, found, asked, rebuilt)
    runs = _runs_of_frees(recorded, collects_garbage, device_had)
    own_runs = np.array([run.begin for run in runs if run.own], np.int64)
    parts = [births, *_deaths(recorded, found, asked, own_runs), *_failures_and_flushes(recorded, runs)]
    merged: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((merged["tie"], merged["phase"], merged["event"]))
    stream = np.where(merged["storage"] >= 0, found.stream[merged["storage"]] if len(found) else 0, merged["stream"])
    return Requests(
        action=merged["action"][order].astype(np.uint8),
        storage=merged["storage"][order],
        size=merged["size"][order],
        stream=stream[order],
        pool=np.where(merged["storage"] >= 0, pool[merged["storage"]] if len(found) else 0, merged["pool"])[order],
        event=merged["event"][order],
        older=int((found.before_window & asked).sum()),
        address=found.address,
        pools=tuple(replayed.trace.pools),
    )


def _part(action: Action, event: Int64, phase: int | Int64 = 2, **columns: Any) -> dict[str, Int64]:
    """Columns of requests of one kind; ``phase`` orders those of one event: lost frees, lost allocations, its own, late ends."""
    neutral = {"storage": -1, "size": 0, "stream": 0, "pool": 0, "tie": 0}
    values: dict[str, Any] = neutral | {"action": int(action), "phase": phase} | columns
    return {"event": event} | {name: np.broadcast_to(np.asarray(value, np.int64), event.shape) for name, value in values.items()}


def _births(recorded: DeviceTrace, found: Lifetimes, asked: Bool, rebuilt: Rebuilt | None) -> tuple[dict[str, Int64], Int64]:
    """The allocations, those older than the window by address; and the pool of each storage."""
    rows = np.flatnonzero(asked)
    phase = np.where(found.lost_alloc[rows], 1, 2)
    return (
        _part(Action.ALLOC, found.alloc[rows], phase, storage=rows, size=found.size[rows], tie=found.address[rows]),
        _pools(recorded, found, rebuilt),
    )


def _pools(recorded: DeviceTrace, found: Lifetimes, rebuilt: Rebuilt | None) -> Int64:
    """The pool of each storage: that of its allocation, or of the segment in which it lay when the window began."""
    seen = (found.alloc >= 0) & (found.alloc < len(recorded)) & ~found.lost_alloc
    pool = np.zeros(len(found), np.int64)
    of_event = recorded.events.pool if rebuilt is None else rebuilt.pool
    if len(of_event):
        pool = np.where(seen, of_event[np.where(seen, found.alloc, 0)], 0).astype(np.int64)
    segments = None if rebuilt is None else rebuilt.state.segments
    if segments is not None and segments.pool.any():
        order = np.argsort(segments.address, kind="stable")
        start, size = segments.address[order], segments.size[order]
        row = np.maximum(np.searchsorted(start, found.address, side="right") - 1, 0)
        inside = (found.address >= start[row]) & (found.address < start[row] + size[row])
        pool = np.where(found.before_window & inside, segments.pool[order][row], pool)
    return pool


def _deaths(recorded: DeviceTrace, found: Lifetimes, asked: Bool, own_runs: Int64) -> list[dict[str, Int64]]:
    """The frees: at once, or given up and finished later. *own_runs* are the events at which the allocator began to give segments back."""
    n, events = found.events, recorded.events
    requested = _free_requests(recorded)
    freed = np.flatnonzero(asked & (found.free < n) | asked & found.lost_free)
    lost = freed[found.lost_free[freed]]
    seen = freed[~found.lost_free[freed]]
    end = found.free[seen]
    request = np.where(found.lost_alloc[seen], -1, requested[end] if len(events) else end)
    late = (request >= 0) & (request < end - 1)
    at_once = np.where(late | (request < 0), end, request)
    parts = [
        _part(Action.FREE, found.free[lost], 0, storage=lost),
        _part(Action.FREE, at_once[~late], storage=seen[~late]),
        _part(Action.GIVE_UP, request[late], storage=seen[late]),
        _part(Action.FINISH, *_finished(recorded, end[late], requested, own_runs), storage=seen[late]),
    ]
    open_ended = np.flatnonzero(asked & (found.free == n) & ~found.lost_free)
    last_request = _last_open_request(recorded)
    pending = np.array([last_request.get(address, -1) for address in found.address[open_ended].tolist()], np.int64)
    waits = pending >= np.maximum(found.alloc[open_ended], 0) if len(open_ended) else np.zeros(0, bool)
    parts.append(_part(Action.GIVE_UP, pending[waits], storage=open_ended[waits]))
    return parts


def _finished(recorded: DeviceTrace, end: Int64, requested: Int64, own_runs: Int64) -> tuple[Int64, Int64]:
    """The event at which each late free is finished, and its phase: after the request under way, where that may have waited for it."""
    kind, n = recorded.events.kind, len(recorded)
    events = np.arange(n)
    others = np.flatnonzero(~((kind == Kind.FREE_COMPLETED) & (requested < events - 1)))
    asks = np.flatnonzero((kind == Kind.ALLOC) | (kind == Kind.OOM))
    following = np.append(others, n)[np.searchsorted(others, end)]
    ends = np.append(asks, n)[np.searchsorted(asks, end)]
    waited = np.isin(following, own_runs)
    if n:
        there = np.minimum(following, n - 1)
        waited |= (following < n) & np.isin(kind[there], (Kind.OOM, Kind.SEGMENT_ALLOC))
    return np.where(waited, ends, end), np.where(waited, 3, 2)


def _free_requests(recorded: DeviceTrace) -> Int64:
    """For each ``free_completed`` the event that requested it, -1 where the recording has none; -1 elsewhere."""
    events = recorded.events
    rows = np.flatnonzero(np.isin(events.kind, (Kind.ALLOC, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED)))
    rows = rows[np.argsort(events.address[rows], kind="stable")]
    kind, address = events.kind[rows], events.address[rows]
    request = np.full(len(events), -1)
    if len(rows):
        follows = np.concatenate(([False], address[1:] == address[:-1])) & (kind == Kind.FREE_COMPLETED)
        follows &= np.concatenate(([False], kind[:-1] == Kind.FREE_REQUESTED))
        at = np.flatnonzero(follows)
        request[rows[at]] = rows[at - 1]
    return request


def _last_open_request(recorded: DeviceTrace) -> dict[int, int]:
    """For each address whose last event is a ``free_requested`` that event; nothing where no frees are ever completed."""
    events = recorded.events
    if not (events.kind == Kind.FREE_COMPLETED).any():
        return {}
    rows = np.flatnonzero(np.isin(events.kind, (Kind.ALLOC, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED)))
    last = dict(zip(events.address[rows].tolist(), rows.tolist(), strict=True))
    return {address: event for address, event in last.items() if events.kind[event] == Kind.FREE_REQUESTED}


class _Run(NamedTuple):
    """A run of segments that are given back: the event at which it begins, whether it is the allocator's own, and the pools concerned."""

    begin: int
    own: bool
    pools: list[int]


def _failures_and_flushes(recorded: DeviceTrace, runs: list[_Run]) -> list[dict[str, Int64]]:
    """The requests that failed, and what made segments go back: private pools are given up first, then all is flushed."""
    events = recorded.events
    failed = np.flatnonzero(events.kind == Kind.OOM)
    drops = [(run.begin, pool) for run in runs if not run.own for pool in run.pools if pool]
    dropped_at, dropped = np.array(drops, np.int64).reshape(-1, 2).T
    return [
        _part(Action.ATTEMPT, failed, size=events.size[failed], stream=events.stream[failed], pool=events.pool[failed]),
        _part(Action.DROP, dropped_at, pool=dropped),
        _part(Action.FLUSH, np.array([run.begin for run in runs if not run.own and 0 in run.pools], np.int64), tie=1),
        _part(Action.OWN_FLUSH, np.array([run.begin for run in runs if run.own], np.int64)),
    ]


def _runs_of_frees(recorded: DeviceTrace, collects_garbage: bool, device_had: int | None) -> list[_Run]:
    """The runs in which segments are given back."""
    events = recorded.events
    gives_back = np.isin(events.kind, GIVES_BACK)
    edges = np.diff(np.concatenate(([0], gives_back.astype(np.int8), [0])))
    first, following = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    change = reserved_changes(recorded)
    start = 0 if recorded.final is None else recorded.final.reserved - int(change.sum())
    level = np.concatenate(([start], start + np.cumsum(change)))
    most = int(level.max()) if device_had is None else device_had
    runs = []
    for begin, after in zip(first.tolist(), following.tolist(), strict=True):
        own = False
        if after < len(events):
            kind = events.kind[after]
            grows = kind in TAKES
            own = kind == Kind.OOM or (grows and (collects_garbage or int(level[begin]) + int(events.size[after]) > most))
        runs.append(_Run(begin, bool(own), np.unique(events.pool[begin:after]).tolist()))
    return runs


def reserved_changes(recorded: DeviceTrace) -> Int64:
    """Return by how much each event of *recorded* changes the bytes held from the device."""
    events = recorded.events
    grows = np.isin(events.kind, TAKES)
    shrinks = np.isin(events.kind, GIVES_BACK)
    return np.where(grows, events.size, 0) - np.where(shrinks, events.size, 0)
