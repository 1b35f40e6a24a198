"""What is held from the device, range by range, and how blocks lie in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lifecycle_sim.events import NO_STACK, Blocks, BlockState, MemoryState, Segments
from lifecycle_sim.replay.allocator.rounding import SMALL_SEGMENT, round_up

LONGEST_RESERVATION = 9 << 37
"""Where the device's size is not known, a reserved range is taken to be no longer than this: nine eighths of 1 TiB."""


class Extent(NamedTuple):
    """A segment, or a mapped run of an expandable one. ``pool`` is a number in the trace's ``pools``."""

    address: int
    size: int
    stream: int
    pool: int
    small: bool
    expandable: bool

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.address + self.size

    def joins(self, other: Extent) -> bool:
        """Whether two runs that touch are one."""
        return self.expandable and other.expandable and self[2:5] == other[2:5]


class Held(NamedTuple):
    """A block that is handed out or awaits its free.

    ``size`` includes rounding and tail; where several claim an address, the one with the highest ``claim`` has it.
    """

    address: int
    size: int
    requested: int
    state: BlockState
    claim: int = 0

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.address + self.size


class Extents:
    """Ranges of addresses that do not overlap."""

    def __init__(self, extents: Iterable[Extent] = ()) -> None:
        self._at: dict[int, Extent] = {extent.address: extent for extent in extents}
        self._starts = sorted(self._at)

    def __iter__(self) -> Iterator[Extent]:
        """Yield them by address."""
        return iter([self._at[start] for start in self._starts])

    def holding(self, address: int) -> Extent | None:
        """Return the extent in which *address* lies."""
        place = bisect_right(self._starts, address)
        extent = self._at[self._starts[place - 1]] if place else None
        return extent if extent is not None and address < extent.end else None

    def add(self, extent: Extent) -> int:
        """Add *extent*, joined with the runs that it touches; return how many extents had to go because it overlaps them."""
        gone = self._overlapping(extent.address, extent.end)
        for other in gone:
            self._discard(other)
        for beside in (self.holding(extent.address - 1), self.holding(extent.end)):
            if beside is not None and extent.joins(beside):
                self._discard(beside)
                start = min(extent.address, beside.address)
                extent = extent._replace(address=start, size=max(extent.end, beside.end) - start)
        self._at[extent.address] = extent
        insort(self._starts, extent.address)
        return len(gone)

    def remove(self, address: int, size: int) -> bool:
        """Remove a segment, or a part of a mapped run; return whether it was there, and only it."""
        found = self.holding(address)
        there = found is not None and address + size <= found.end and (found.expandable or (found.address, found.size) == (address, size))
        for extent in self._overlapping(address, address + size):
            self._discard(extent)
            if extent.expandable:
                for start, end in ((extent.address, address), (address + size, extent.end)):
                    if start < end:
                        self._at[start] = extent._replace(address=start, size=end - start)
                        insort(self._starts, start)
        return there

    def _overlapping(self, start: int, end: int) -> list[Extent]:
        first = bisect_right(self._starts, start)
        found = [self._at[at] for at in self._starts[first : bisect_left(self._starts, end, first)]]
        before = self.holding(start)
        return found if before is None else [before, *found]

    def _discard(self, extent: Extent) -> None:
        del self._at[extent.address]
        del self._starts[bisect_left(self._starts, extent.address)]


def extents_of(state: MemoryState) -> Extents:
    """Return the segments of *state*."""
    s = state.segments
    columns = (s.address, s.size, s.stream, s.pool, s.small, s.expandable)
    return Extents(Extent(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


def settle_claims(held: Iterable[Held], extents: Extents) -> tuple[list[Held], list[Held]]:
    """Return the blocks that can be there together, by address, and those that cannot: outside every extent, or overlapping.

    Of blocks that overlap, the one with the highest claim stays.
    """
    inside: list[Held] = []
    lost: list[Held] = []
    for block in held:
        extent = extents.holding(block.address)
        (inside if extent is not None and block.end <= extent.end else lost).append(block)
    inside.sort()
    if all(block.end <= following.address for block, following in pairwise(inside)):
        return inside, lost
    kept: list[Held] = []
    for block in sorted(inside, key=lambda block: -block.claim):
        place = bisect_left(kept, block)
        clear = (place == 0 or kept[place - 1].end <= block.address) and (place == len(kept) or block.end <= kept[place].address)
        if clear:
            kept.insert(place, block)
        else:
            lost.append(block)
    return kept, lost


def tiled(extents: Extents, held: Sequence[Held]) -> MemoryState:
    """Return the state in which *held*, by address and each inside one of *extents*, are the blocks, and all between them is free."""
    rows = list(extents)
    blocks: list[tuple[int, int, int, int, int]] = []
    place = 0
    for number, extent in enumerate(rows):
        end = extent.address
        while place < len(held) and held[place].address < extent.end:
            block = held[place]
            if end < block.address:
                blocks.append((number, end, block.address - end, 0, BlockState.INACTIVE))
            blocks.append((number, block.address, block.size, block.requested, block.state))
            end = block.end
            place += 1
        if end < extent.end:
            blocks.append((number, end, extent.end - end, 0, BlockState.INACTIVE))
    table = np.array([row[:4] for row in rows], np.int64).reshape(-1, 4).T
    cells = np.array(blocks, np.int64).reshape(-1, 5).T
    unrecorded = np.full(len(rows), -1, np.int64)
    return MemoryState(
        Segments(
            address=table[0].copy(),
            size=table[1].copy(),
            stream=table[2].copy(),
            pool=table[3].astype(np.int32),
            small=np.array([row.small for row in rows], np.bool_),
            expandable=np.array([row.expandable for row in rows], np.bool_),
            allocated=unrecorded,
            active=unrecorded,
            requested=unrecorded,
            stack=np.full(len(rows), NO_STACK, np.int32),
        ),
        Blocks(
            segment=cells[0].astype(np.int32),
            address=cells[1].copy(),
            size=cells[2].copy(),
            requested=cells[3].copy(),
            state=cells[4].astype(np.uint8),
            stack=np.full(len(blocks), NO_STACK, np.int32),
            category=np.zeros(len(blocks), np.uint8),
        ),
    )


def order_of(extents: Extents, stamps: Mapping[int, float]) -> list[int]:
    """Return the rows of *extents* by the least stamp in each; the runs of one range stay together, by address.

    Args:
        extents: segments and mapped runs.
        stamps: for the address of each block the number that breaks ties; segments without one come last.
    """
    least: dict[tuple[object, ...], float] = {}
    keys: list[tuple[object, ...]] = []
    addresses = sorted(stamps)
    place = 0
    for extent in extents:
        key = extent[2:5] if extent.expandable else (extent.address,)
        keys.append(key)
        least.setdefault(key, float("inf"))
        while place < len(addresses) and addresses[place] < extent.end:
            if addresses[place] >= extent.address:
                least[key] = min(least[key], stamps[addresses[place]])
            place += 1
    return sorted(range(len(keys)), key=lambda row: (least[keys[row]], row))


def reserved_ranges(seen: Iterable[Extent], large_page: int, capacity: int | None = None) -> tuple[tuple[int, int], ...]:
    """Return (address, bytes) of the reserved ranges in which the mapped runs *seen* lie, at any time.

    A range begins at the lowest run of its stream and pool. It is as long as a device of *capacity* bytes asks for; where that is not
    known, it ends where a range of another stream or pool begins.
    """
    starts: list[Extent] = []

    def longest(run: Extent) -> int:
        page = SMALL_SEGMENT if run.small else large_page
        return LONGEST_RESERVATION if capacity is None else round_up(-(-9 * capacity // 8), page)

    for run in sorted(run for run in seen if run.expandable):
        if not starts or starts[-1][2:5] != run[2:5] or run.end - starts[-1].address > longest(starts[-1]):
            starts.append(run)
    ends = [run.address for run in starts[1:]] + [1 << 62]
    return tuple((run.address, min(end - run.address, longest(run))) for run, end in zip(starts, ends, strict=False))
