"""Fills segments with blocks: live storages where they lie, and free pieces between them.

segment   [0                                 2 MiB)
storages      A [0, 4000)      B [8192, 12192)
blocks    A 4096 | free 4096 | B 4096 | free rest          a storage takes its block's size, at most up to what comes next
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.events import NO_STACK, Blocks, BlockState, MemoryState, Segments
from lifecycle_sim.events.trace import Int32, Int64, UInt8

ROUNDING = 512
"""PyTorch's allocator hands out multiples of this many bytes."""
SEGMENT_ROUNDING = 2 << 20


@dataclass(frozen=True, eq=False)
class Live:
    """Live storages, in any order: where each begins, the bytes asked for, its block's bytes, and what is known of it."""

    address: Int64
    requested: Int64
    size: Int64
    state: UInt8
    stack: Int32
    category: UInt8
    stream: Int64
    pool: Int32

    def __len__(self) -> int:
        return len(self.address)

    def of(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Live:
        """Return the storages *rows*."""
        return Live(*(getattr(self, column.name)[rows] for column in fields(self)))


def rounded(size: Int64, to: int = ROUNDING) -> Int64:
    """Return each *size* as the next multiple of *to*, at least one."""
    return -(-np.maximum(size, 1) // to) * to


def tile(segments: Segments, live: Live) -> tuple[MemoryState, int]:
    """Return *segments*, by address and with their sums, filled with the *live* storages, and how many of them had no room.

    A storage outside every segment gets one of its own. A block ends at the latest where the next one or its segment's end is.
    """
    live = live.of(np.argsort(live.address, kind="stable"))
    segments = _take(segments, np.argsort(segments.address, kind="stable"))
    segments = _take(segments, np.flatnonzero(segments.size > 0))
    segments = _with_segments_for(segments, live)
    within = np.searchsorted(segments.address, live.address, side="right") - 1
    limit = (segments.address + segments.size)[within]
    limit[:-1] = np.where(within[1:] == within[:-1], np.minimum(limit[:-1], live.address[1:]), limit[:-1])
    size = np.minimum(live.size, limit - live.address)
    kept = size > 0
    without_room = int((~kept).sum())
    live, within, size = live.of(kept), within[kept], size[kept]

    end = live.address + size
    before = segments.address[within]
    before[1:] = np.where(within[1:] == within[:-1], end[:-1], before[1:])
    filled = segments.address.copy()
    np.maximum.at(filled, within, end)
    blocks = _blocks(
        np.concatenate([within, within, np.arange(len(segments))]),
        np.concatenate([live.address, before, filled]),
        np.concatenate([size, live.address - before, segments.address + segments.size - filled]),
        live,
    )
    return MemoryState(_with_sums(segments, blocks), blocks), without_room


def _blocks(segment: Int64, address: Int64, size: Int64, live: Live) -> Blocks:
    """The blocks of those rows that have bytes, by address; the first of them are the *live* storages, the others free pieces."""
    order = np.argsort(address, kind="stable")
    order = order[size[order] > 0]
    free = len(segment) - len(live)

    def column(values: NDArray[np.generic], neutral: int) -> NDArray[np.generic]:
        return np.concatenate([values, np.full(free, neutral, values.dtype)])[order]

    return Blocks(
        segment=segment[order].astype(np.int32),
        address=address[order],
        size=size[order],
        requested=column(live.requested, 0).astype(np.int64),
        state=column(live.state, BlockState.INACTIVE).astype(np.uint8),
        stack=column(live.stack, NO_STACK).astype(np.int32),
        category=column(live.category, 0).astype(np.uint8),
    )


def _with_segments_for(segments: Segments, live: Live) -> Segments:
    """Add a segment for each run of storages that lie in none, up to the next segment at most."""
    ends = segments.address + segments.size
    at = np.searchsorted(segments.address, live.address, side="right") - 1
    outside = (at < 0) | (live.address >= ends[np.maximum(at, 0)] if len(ends) else np.ones(len(live), bool))
    rows = np.flatnonzero(outside)
    if not len(rows):
        return segments
    address = live.address[rows]
    following = np.searchsorted(segments.address, address, side="right")
    next_segment = np.append(segments.address, np.iinfo(np.int64).max)[following]
    stop = np.minimum(address + live.size[rows], next_segment)
    reach = np.maximum.accumulate(stop)
    starts = np.flatnonzero(np.append(True, address[1:] > reach[:-1]))
    run_stop = reach[np.append(starts[1:] - 1, len(rows) - 1)]
    first = rows[starts]
    added = segments_of(address[starts], run_stop - address[starts], live.stream[first], live.pool[first])
    both = Segments(*(np.concatenate([getattr(segments, c.name), getattr(added, c.name)]) for c in fields(Segments)))
    return _take(both, np.argsort(both.address, kind="stable"))


def segments_of(address: Int64, size: Int64, stream: Int64, pool: Int32) -> Segments:
    """Return segments of which no more is known than where they are and whose; small are those of 2 MiB at most."""
    unknown = np.full(len(address), -1)
    return Segments(
        address=address,
        size=size,
        stream=stream,
        pool=pool.astype(np.int32),
        small=size <= SEGMENT_ROUNDING,
        expandable=np.zeros(len(address), np.bool_),
        allocated=unknown,
        active=unknown,
        requested=unknown,
        stack=np.full(len(address), NO_STACK, np.int32),
    )


def _with_sums(segments: Segments, blocks: Blocks) -> Segments:
    def total(values: Int64, chosen: NDArray[np.bool_]) -> Int64:
        sums = np.zeros(len(segments), np.int64)
        np.add.at(sums, blocks.segment[chosen], values[chosen])
        return sums

    allocated, active = blocks.state == BlockState.ALLOCATED, blocks.state != BlockState.INACTIVE
    return replace(
        segments,
        allocated=total(blocks.size, allocated),
        active=total(blocks.size, active),
        requested=total(blocks.requested, active),
    )


def _take(segments: Segments, rows: Int64) -> Segments:
    return Segments(*(getattr(segments, column.name)[rows] for column in fields(Segments)))
