"""Gives addresses, segments and a final state to records that have none, simulated plainly: this is no model of an allocator.

Storages of one pool and stream share one segment that is there throughout, and take the smallest free piece that fits (best fit, the
lowest of equals; freed neighbours merge); sizes are rounded up to 512 bytes. Where the storages have real addresses, those stay, and only
the segments around them are made up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, fields, replace

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import NO_STACK, BlockState, DeviceTrace, Events, Kind, Segments
from lifecycle_sim.events.kinds import TAKES
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.belonging import NOBODY, given_up, storage_of_events
from lifecycle_sim.replay.device import DeviceReplay
from lifecycle_sim.replay.lifetimes import Lifetimes
from lifecycle_sim.replay.pairing import release_kinds
from lifecycle_sim.replay.regions import regions
from lifecycle_sim.replay.tiling import SEGMENT_ROUNDING, Live, rounded, segments_of, tile

BASE = 0x7F00_0000_0000
"""Where made-up segments begin."""
MOST_BYTES = 1 << 62


@dataclass(frozen=True)
class Placed:
    """A record with addresses and a final state, and what was made up for that, in one line; None if nothing was."""

    recorded: DeviceTrace
    made_up: str | None


def placed(replayed: DeviceReplay) -> Placed:
    """Return the record of *replayed* with addresses and a final state.

    Raises:
        InputError: its events carry no identity, or too many bytes are live together for addresses of 64 bits.
    """
    recorded = replayed.recorded
    if recorded.final is not None:
        return Placed(recorded, None)
    found = replayed.identified_lifetimes()
    owner = storage_of_events(recorded.events, found)
    if replayed.peak.size > MOST_BYTES:
        raise InputError(f"{recorded.device}: holds {replayed.peak.size:,} bytes at once, which is more than addresses can tell apart")
    if are_addresses(found):
        address, segments = found.address, _segments_around(recorded, found)
        made_up = "the segments are made up around the recorded addresses"
        lump = int(max((segments.address + segments.size).max(initial=BASE), BASE))
    else:
        address, segments = _best_fit(recorded, found, owner)
        made_up = "the addresses are made up: best fit in one segment a pool and stream"
        lump = int((segments.address + segments.size).max(initial=BASE))
    events = replace(recorded.events, address=np.where(owner == NOBODY, recorded.events.address, address[owner] if len(found) else 0))
    live = _live_at_end(recorded, replace(found, address=address), owner)
    if replayed.unidentified:
        live = _with_lump(live, lump, replayed.unidentified)
    final, _ = tile(segments, live)
    return Placed(replace(recorded, events=events, final=final), made_up)


def are_addresses(found: Lifetimes) -> bool:
    """Whether the addresses of *found* can be real: no two storages overlap while both are live, and none begins at 0."""
    if (found.address <= 0).any():
        return False
    leaving = np.argsort(found.free, kind="stable").tolist()
    alloc, free, address, size = found.alloc.tolist(), found.free.tolist(), found.address.tolist(), found.size.tolist()
    starts: list[int] = []
    ends: dict[int, int] = {}
    gone = 0
    for row in np.argsort(found.alloc, kind="stable").tolist():
        while free[leaving[gone]] <= alloc[row]:
            start = address[leaving[gone]]
            if start in ends:
                del ends[start], starts[bisect_left(starts, start)]
            gone += 1
        start = address[row]
        at = bisect_right(starts, start)
        if (at and ends[starts[at - 1]] > start) or start in ends or (at < len(starts) and starts[at] < start + size[row]):
            return False
        starts.insert(at, start)
        ends[start] = start + size[row]
    return True


class _Arena:
    """Offsets in one segment that grows as it must; the free pieces below its top by size and by place."""

    def __init__(self) -> None:
        self.top = 0
        self.by_size: list[tuple[int, int]] = []
        self.size_from: dict[int, int] = {}
        self.begin_of: dict[int, int] = {}

    def take(self, size: int) -> int:
        at = bisect_left(self.by_size, (size, -1))
        if at < len(self.by_size):
            found, offset = self.by_size[at]
            self._remove(found, offset)
            if found > size:
                self._add(offset + size, found - size)
            return offset
        offset = self.begin_of.get(self.top, self.top)
        if offset < self.top:
            self._remove(self.top - offset, offset)
        self.top = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        begin = self.begin_of.get(offset)
        if begin is not None:
            self._remove(offset - begin, begin)
            offset, size = begin, size + offset - begin
        following = self.size_from.get(offset + size)
        if following is not None:
            self._remove(following, offset + size)
            size += following
        self._add(offset, size)

    def _add(self, offset: int, size: int) -> None:
        insort(self.by_size, (size, offset))
        self.size_from[offset], self.begin_of[offset + size] = size, offset

    def _remove(self, size: int, offset: int) -> None:
        del self.by_size[bisect_left(self.by_size, (size, offset))], self.size_from[offset], self.begin_of[offset + size]


def _best_fit(recorded: DeviceTrace, found: Lifetimes, owner: Int64) -> tuple[Int64, Segments]:
    """Return the address of each storage, and the segments, one for each pool and stream, one after the other from ``BASE``."""
    pool = _pools(recorded, found)
    whose, arena_of = np.unique(np.stack([pool, found.stream], axis=1), axis=0, return_inverse=True)
    arenas = [_Arena() for _ in whose]
    arena_number = arena_of.reshape(-1).tolist()
    size, alloc, free = rounded(found.size).tolist(), found.alloc.tolist(), found.free.tolist()
    leaving = np.argsort(found.free, kind="stable").tolist()
    offsets = [0] * len(found)
    gone = 0
    for row in np.argsort(found.alloc, kind="stable").tolist():
        while free[leaving[gone]] <= alloc[row]:
            left = leaving[gone]
            arenas[arena_number[left]].give(offsets[left], size[left])
            gone += 1
        offsets[row] = arenas[arena_number[row]].take(size[row])
    extent = rounded(np.array([arena.top for arena in arenas], np.int64), SEGMENT_ROUNDING)
    base = BASE + np.concatenate([np.zeros(1, np.int64), np.cumsum(extent)])[:-1] if len(arenas) else np.zeros(0, np.int64)
    address = np.array(offsets, np.int64) + base[arena_of.reshape(-1)] if len(found) else np.zeros(0, np.int64)
    return address, segments_of(base, extent, whose[:, 1].astype(np.int64), whose[:, 0].astype(np.int32))


def _pools(recorded: DeviceTrace, found: Lifetimes) -> Int64:
    """The pool of each storage, as its allocation says; the default pool where that was not seen."""
    pool = np.zeros(len(found), np.int64)
    seen = np.flatnonzero(found.alloc >= 0)
    pool[seen] = recorded.events.pool[found.alloc[seen]]
    return pool


def _segments_around(recorded: DeviceTrace, found: Lifetimes) -> Segments:
    """The recorded segments of *recorded*; where it tells of none, segments around all addresses it names, in steps of 2 MiB."""
    if np.isin(recorded.events.kind, TAKES).any():
        return regions(recorded).at(len(recorded.events) - 1)
    order = np.argsort(found.address, kind="stable")
    low = found.address[order] // SEGMENT_ROUNDING * SEGMENT_ROUNDING
    high = -(-(found.address + rounded(found.size))[order] // SEGMENT_ROUNDING) * SEGMENT_ROUNDING
    reach = np.maximum.accumulate(high) if len(high) else high
    first = np.flatnonzero(np.append(True, low[1:] > reach[:-1])[: len(low)])
    stop = reach[np.append(first[1:] - 1, len(low) - 1)] if len(first) else reach
    return segments_of(low[first], stop - low[first], found.stream[order][first], _pools(recorded, found)[order][first].astype(np.int32))


def _live_at_end(recorded: DeviceTrace, found: Lifetimes, owner: Int64) -> Live:
    return live_after(recorded, found, owner, len(recorded.events) - 1)


def live_after(recorded: DeviceTrace, found: Lifetimes, owner: Int64, event: int) -> Live:
    """Return the storages that are live after *event*, their blocks as large as the request rounded up to 512 bytes."""
    rows = np.flatnonzero(found.live_at(event))
    waits = given_up(recorded.events, owner, found, event + 1)[rows] & (Kind.FREE_REQUESTED not in release_kinds(recorded))
    return Live(
        address=found.address[rows],
        requested=found.size[rows],
        size=rounded(found.size[rows]),
        state=np.where(waits, BlockState.PENDING_FREE, BlockState.ALLOCATED).astype(np.uint8),
        stack=found.stack[rows],
        category=found.category[rows],
        stream=found.stream[rows],
        pool=_pools(recorded, found)[rows].astype(np.int32),
    )


def _with_lump(live: Live, address: int, size: int) -> Live:
    """Add one storage for the bytes that were there throughout without a name."""
    whole = np.array([size], np.int64)
    lump = Live(
        address=np.array([address], np.int64),
        requested=whole,
        size=rounded(whole, SEGMENT_ROUNDING),
        state=np.array([BlockState.ALLOCATED], np.uint8),
        stack=np.array([NO_STACK], np.int32),
        category=np.zeros(1, np.uint8),
        stream=np.zeros(1, np.int64),
        pool=np.zeros(1, np.int32),
    )
    return Live(*(np.concatenate([getattr(live, c.name), getattr(lump, c.name)]) for c in fields(Live)))


def in_two_steps(recorded: DeviceTrace) -> DeviceTrace:
    """Return *recorded* with each ``FREE`` as a request and its completion, and without ``SHARE`` and ``RELEASE``, as PyTorch records."""
    events = recorded.events
    times = np.where(events.kind == Kind.FREE, 2, np.where(np.isin(events.kind, (Kind.SHARE, Kind.RELEASE)), 0, 1))
    if (times == 1).all():
        return recorded
    row = np.repeat(np.arange(len(events)), times)
    repeated = Events(*(getattr(events, column.name)[row] for column in fields(Events)))
    second = np.append(False, row[1:] == row[:-1])[: len(row)]
    kind = np.where(repeated.kind == Kind.FREE, np.where(second, Kind.FREE_COMPLETED, Kind.FREE_REQUESTED), repeated.kind)
    position = np.concatenate([np.zeros(1, np.int64), np.cumsum(times)])
    spans = tuple(replace(span, start=int(position[span.start]), stop=int(position[span.stop])) for span in recorded.spans)
    return replace(recorded, events=replace(repeated, kind=kind.astype(np.uint8)), spans=spans)
