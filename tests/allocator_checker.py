"""An independent check of the allocator: walks its events and its final blocks, and knows nothing of how it decides.

Written from the meaning of the events alone. Block sizes are not in a trace, so they come from the side (``block_sizes``).
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from lifecycle_sim.events import BlockState, Kind, MemoryState
from lifecycle_sim.replay.allocator import Allocator, Release


def check(allocator: Allocator) -> None:
    """Assert everything that must hold of a run that began with nothing."""
    unit = 512 if allocator.release >= Release(2, 4) else 1  # before, one power-of-two division kept a size as it was
    events, blocks = allocator.events(), allocator.block_sizes().tolist()
    held: dict[int, tuple[int, int, int]] = {}  # address of a segment or page range: end, stream, pool
    in_use: dict[int, tuple[int, int, int, int]] = {}  # address of a block: end, requested, stream, pool
    asked_back: set[int] = set()
    levels = [(0, 0, 0, 0)]
    requested = allocated = active = reserved = 0
    columns = (events.kind, events.address, events.size, events.stream, events.pool)
    for kind, address, size, stream, pool, block in zip(*(column.tolist() for column in columns), blocks, strict=True):
        match Kind(kind):
            case Kind.SEGMENT_ALLOC | Kind.SEGMENT_MAP:
                assert all(end <= address or address + size <= start for start, (end, *_) in held.items()), "segments overlap"
                held[address] = (address + size, stream, pool)
                reserved += size
            case Kind.SEGMENT_FREE | Kind.SEGMENT_UNMAP:
                assert not any(start < address + size and address < end for start, (end, *_) in in_use.items()), (
                    "memory in use was given back"
                )
                if kind == Kind.SEGMENT_FREE:
                    assert held.pop(address) == (address + size, stream, pool)
                else:
                    cut_out(held, address, address + size, stream, pool)
                reserved -= size
            case Kind.ALLOC:
                assert address % unit == 0
                assert block >= size
                assert not any(start < address + block and address < end for start, (end, *_) in in_use.items()), "blocks overlap"
                assert inside(held, address, address + block, stream, pool), "a block outside the memory of its stream and pool"
                in_use[address] = (address + block, size, stream, pool)
                requested, allocated, active = requested + size, allocated + block, active + block
            case Kind.FREE_REQUESTED:
                assert in_use[address] == (address + block, size, stream, pool)
                assert address not in asked_back
                asked_back.add(address)
                allocated -= block
            case Kind.FREE_COMPLETED:
                assert in_use.pop(address) == (address + block, size, stream, pool)
                asked_back.remove(address)
                requested, active = requested - size, active - block
        levels.append((requested, allocated, active, reserved))
    assert all(a <= b <= c and r <= b for r, a, b, c in levels)
    found = allocator.levels()
    assert list(zip(*(x.tolist() for x in (found.requested, found.allocated, found.active, found.reserved)), strict=True)) == levels
    assert (found.requested + found.internal_waste + found.external_waste == found.reserved).all()
    check_statistics(allocator, levels)
    check_state(allocator, in_use, asked_back, reserved)


def inside(held: dict[int, tuple[int, int, int]], start: int, end: int, stream: int, pool: int) -> bool:
    """Whether [start, end) lies in ranges of one stream and pool that follow one another."""
    starts = sorted(held)
    at = bisect_right(starts, start) - 1
    while at >= 0 and start < end:
        stop, *owner = held[starts[at]]
        if owner != [stream, pool] or stop <= start or starts[at] > start:
            return False
        start, at = stop, at + 1
        if start < end and (at == len(starts) or starts[at] != start):
            return False
    return start >= end


def cut_out(held: dict[int, tuple[int, int, int]], start: int, end: int, stream: int, pool: int) -> None:
    """Take [start, end) out of the page ranges."""
    assert inside(held, start, end, stream, pool), "pages were unmapped that were not mapped"
    for low, (high, *owner) in list(held.items()):
        if low < end and start < high:
            del held[low]
            if low < start:
                held[low] = (start, *owner)  # type: ignore[assignment]
            if end < high:
                held[end] = (high, *owner)  # type: ignore[assignment]


def check_statistics(allocator: Allocator, levels: list[tuple[int, int, int, int]]) -> None:
    statistics = allocator.statistics()
    for column, name in enumerate(("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes")):
        stat = statistics[name]
        assert (stat.current, stat.peak) == (levels[-1][column], max(level[column] for level in levels))
        halves = [statistics.by_pool[name][half] for half in ("small_pool", "large_pool")]
        assert sum(half.current for half in halves) == stat.current
        assert stat.allocated - stat.freed == stat.current


def check_state(allocator: Allocator, in_use: dict[int, tuple[int, int, int, int]], asked_back: set[int], reserved: int) -> None:
    """Check the final blocks: they tile the segments, agree with the events, and no two free neighbours are left unmerged."""
    state = allocator.state()
    segments, blocks = state.segments, state.blocks
    assert state.reserved == reserved == allocator.reserved
    check_tiles(state)
    active = {}
    split_bytes = 0
    for segment, address, size, requested, kind in zip(
        *(column.tolist() for column in (blocks.segment, blocks.address, blocks.size, blocks.requested, blocks.state)), strict=True
    ):
        if kind == BlockState.INACTIVE:
            if size < segments.size[segment] and not segments.expandable[segment]:
                split_bytes += size
        else:
            assert (kind == BlockState.PENDING_FREE) == (address in asked_back)
            active[address] = (address + size, requested, int(segments.stream[segment]), int(segments.pool[segment]))
    assert active == in_use
    assert allocator.statistics()["inactive_split_bytes"].current == split_bytes
    assert sum(allocator.largest_free().values(), 0) <= reserved


def check_tiles(state: MemoryState) -> None:
    """Check that blocks tile their segments, segments lie apart, and no two free neighbours are left unmerged."""
    segments, blocks = state.segments, state.blocks
    ends = dict(zip(segments.address.tolist(), (segments.address + segments.size).tolist(), strict=True))
    at = end = -1
    previous_free = False
    for segment, address, size, kind in zip(
        *(column.tolist() for column in (blocks.segment, blocks.address, blocks.size, blocks.state)), strict=True
    ):
        if segment != at:
            assert at < 0 or end == segments.address[at] + segments.size[at]
            at, previous_free, end = segment, False, int(segments.address[segment])
        assert address == end, "blocks leave a gap"
        assert size > 0
        end = address + size
        free = kind == BlockState.INACTIVE
        assert not (free and previous_free), "two free neighbours were not merged"
        previous_free = free
    if len(segments):
        assert end == segments.address[-1] + segments.size[-1]
    starts = sorted(ends)
    assert all(ends[low] <= high for low, high in pairwise(starts)), "segments overlap"
    assert set(blocks.segment.tolist()) == set(range(len(segments))), "a segment without blocks"
