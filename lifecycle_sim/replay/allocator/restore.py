"""From the segments and blocks of a snapshot back to linked blocks, as the allocator holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from lifecycle_sim.errors import SnapshotError
from lifecycle_sim.events import BlockState, MemoryState
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.allocator import log
from lifecycle_sim.replay.allocator.backing import Backing
from lifecycle_sim.replay.allocator.blocks import Block, Reservation
from lifecycle_sim.replay.allocator.pools import Pool

Placed = tuple[Block, BlockState | None]
"""A block with its state; None for a hole of an expandable segment."""


def linked_blocks(
    state: MemoryState,
    pool_of: Callable[[int, bool], Pool],
    backing: Backing,
    large_page: int,
    order: Sequence[int] | None = None,
    reservations: Sequence[tuple[int, int]] = (),
) -> Iterator[Placed]:
    """Yield the blocks of *state*, linked within their segments, and the holes of expandable ones; none is in any set yet.

    Args:
        state: segments and the blocks that tile them.
        pool_of: gives the pool of a pool number and size class.
        backing: makes the blocks.
        large_page: page size of large expandable segments.
        order: rows of the segments in the order in which they were obtained; by address where it is not known.
        reservations: (address, bytes) of the reserved ranges; where none holds a mapped run, one is taken to begin at the lowest run.

    Raises:
        SnapshotError: blocks that do not tile their segments, or segments that overlap; one line for each.
    """
    check_tiling(state)
    segments, blocks = state.segments, state.blocks
    rows: list[list[int]] = [[] for _ in range(len(segments))]
    for row in np.argsort(blocks.address, kind="stable").tolist():
        rows[int(blocks.segment[row])].append(row)
    by_address = np.argsort(segments.address, kind="stable").tolist()
    ends: dict[Pool, dict[int, tuple[Reservation, Block]]] = {}
    for segment in by_address if order is None else order:
        stream, expandable = int(segments.stream[segment]), bool(segments.expandable[segment])
        address, size = int(segments.address[segment]), int(segments.size[segment])
        pool = pool_of(int(segments.pool[segment]), bool(segments.small[segment]))
        first: Block | None = None
        reservation = None
        if expandable:
            page = backing.page(pool, large_page)
            known = ends.setdefault(pool, {}).get(stream)
            if known is not None and address + size <= known[0].address + known[0].size:
                reservation, first = known
                gap = backing.piece(first, first.address + first.size, address - first.address - first.size)
            else:
                start, length = _reserved(address, size, reservations) or (address, backing.reservation_size(page))
                reservation = Reservation(start, max(length, size), page)
                if known is not None:
                    yield from _tail(backing, *known)
                gap = backing.first_block(start, address - start, stream, pool, reservation)
            gap.mapped = False
            if gap.size:
                gap.place_between(first, None)
                first = gap
                yield gap, None
        before = first
        for row in rows[segment]:
            at, length = int(blocks.address[row]), int(blocks.size[row])
            if before is None:
                block = backing.first_block(at, length, stream, pool, reservation)
            else:
                block = backing.piece(before, at, length)
                block.place_between(before, None)
            block.requested = int(blocks.requested[row])
            yield block, BlockState(int(blocks.state[row]))
            before = block
        if reservation is not None and before is not None:
            ends[pool][stream] = reservation, before
    for streams in ends.values():
        for reservation, last in streams.values():
            yield from _tail(backing, reservation, last)


def _tail(backing: Backing, reservation: Reservation, last: Block) -> Iterator[Placed]:
    """Yield the hole between the last mapped block and the end of its reserved range."""
    end = last.address + last.size
    if end < reservation.address + reservation.size:
        hole = backing.piece(last, end, reservation.address + reservation.size - end)
        hole.mapped = False
        hole.place_between(last, None)
        yield hole, None


def _reserved(address: int, size: int, reservations: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    return next(((start, length) for start, length in reservations if start <= address and address + size <= start + length), None)


def check_tiling(state: MemoryState) -> None:
    """Check that blocks tile their segments and segments do not overlap.

    Raises:
        SnapshotError: one line for each segment that is wrong.
    """
    segments, blocks = state.segments, state.blocks
    order = np.lexsort((blocks.address, blocks.segment))
    segment, address, size = blocks.segment[order], blocks.address[order], blocks.size[order]
    first = np.ones(len(order), bool)
    first[1:] = segment[1:] != segment[:-1]
    expected = np.where(first, segments.address[segment] if len(segment) else address, np.roll(address + size, 1))
    broken = set(segment[(address != expected) | (size <= 0)].tolist())
    total = np.zeros(len(segments), np.int64)
    np.add.at(total, segment, size)
    broken |= set(np.flatnonzero(total != segments.size).tolist())
    problems = [f"segment {segments.address[row]:#x}: its blocks do not tile it; the snapshot is damaged" for row in sorted(broken)]
    by_address = np.argsort(segments.address, kind="stable")
    start, end = segments.address[by_address], (segments.address + segments.size)[by_address]
    problems += [f"segment {start[row + 1]:#x} overlaps the one before it" for row in np.flatnonzero(start[1:] < end[:-1]).tolist()]
    if problems:
        raise SnapshotError(problems)


def building_rows(blocks: Sequence[Placed]) -> Int64:
    """Return log rows that would build the state of *blocks*: what statistics and levels start from."""
    rows: list[tuple[int, ...]] = []
    for block, state in blocks:
        number, expandable = block.pool.number, block.reservation is not None
        place = (block.address, block.size, block.stream, number)
        if state is None:
            continue
        if expandable:
            rows.append((log.SEGMENT_MAP, *place, 0, 0, 0))
        elif block.prev is None:
            size, piece = 0, block
            while piece is not None:
                size += piece.size
                piece = piece.next  # type: ignore[assignment]
            rows.append((log.SEGMENT_ALLOC, block.address, size, block.stream, number, 0, 0, 0))
        if state is not BlockState.INACTIVE:
            rows.append((log.ALLOC, block.address, block.requested, block.stream, number, block.size, 0, 0))
        elif block.split and not expandable:
            rows.append((log.SPLIT_PIECE, block.address, 0, block.stream, number, 0, 1, block.size))
        if state is BlockState.PENDING_FREE:
            rows.append((log.FREE_REQUESTED, block.address, block.requested, block.stream, number, block.size, 0, 0))
    return np.array(rows, np.int64).reshape(-1, log.WIDTH)
