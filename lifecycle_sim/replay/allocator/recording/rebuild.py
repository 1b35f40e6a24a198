"""What a device held when a recording began: rebuilt backwards from what it held when the recording ended.

Each event is undone, the last one first. That tells where every segment and every block was; of a block that is freed in the window it
tells what was asked for, but not always the block's size, for up to 1 MiB that is too small to split off stays with a block of the large
pool::

    a block older than the window      what lies behind it                  its size
    ├─ requested ─┤· rounding ·┤       another block, or the segment's end  exact: no room for a tail
    ├─ requested ─┤· rounding ·┤ ≤ 1 MiB ├ another block                    exact: the small gap is its tail
    ├─ requested ─┤· rounding ·┤ ?  free …                                  an interval, until a later block lands where it ends

A recording that lost events contradicts itself here and there. What was freed in the window was live before it; blocks and segments that
overlap it came later, and their beginning was lost: they are left out and counted.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Assumption, BlockState, DeviceTrace, Events, Kind, MemoryState
from lifecycle_sim.events.kinds import GIVES_BACK, TAKES
from lifecycle_sim.events.trace import Int32, Int64
from lifecycle_sim.replay.allocator.recording.calls import completed_at_once
from lifecycle_sim.replay.allocator.recording.extents import Extent, Extents, Held, extents_of, reserved_ranges, settle_claims, tiled
from lifecycle_sim.replay.allocator.release import Behaviour, Release
from lifecycle_sim.replay.allocator.rounding import MIN_BLOCK, SMALL_REQUEST, SMALL_SEGMENT, round_size
from lifecycle_sim.replay.allocator.settings import AllocatorSettings

_SKIPPED = -1
_LOST = {
    "lost_free": "blocks were handed out where one was still live: its free was lost",
    "lost_alloc": "blocks were freed, or live at the end, though others lay there before: their allocation was lost",
    "lost_segment_alloc": "segments lie where others lay before: that they were obtained was lost",
    "lost_segment_free": "segments were obtained that are not there later: that they were given back was lost",
    "block_outside": "blocks were freed that lie in no segment: a segment's events were lost",
}


@dataclass(frozen=True)
class OpenSize:
    """A block older than the window, freed in it, of which the recording at the start tells the size only as an interval.

    Attributes:
        address: its first byte.
        requested: bytes asked for.
        freed: event at which its free completes.
        low, high: the least and the most bytes that it can have had.
        size: what it is taken to have had.
        settled_by: the event of the later block whose address tells its size; None if none does, and ``low`` is taken.
    """

    address: int
    requested: int
    freed: int
    low: int
    high: int
    size: int
    settled_by: int | None


@dataclass(frozen=True)
class Rebuilt:
    """What a device held before the first event.

    Attributes:
        state: segments, and the blocks that tile them.
        open_sizes: the blocks whose size is not certain from the start.
        pool: for each event the pool of its request, as a number in the trace's ``pools``.
        reservations: (address, bytes) of the reserved ranges of expandable segments, as far as they were ever mapped.
        losses: what in the recording contradicts itself.
    """

    state: MemoryState
    open_sizes: tuple[OpenSize, ...]
    pool: Int32
    reservations: tuple[tuple[int, int], ...]
    losses: tuple[Assumption, ...]


def rebuild(recorded: DeviceTrace, settings: AllocatorSettings, release: Release, pools: int = 1, capacity: int | None = None) -> Rebuilt:
    """Return what *recorded*'s device held before its first event.

    Args:
        recorded: events, and the segments at their end.
        settings: settings in force; they decide how requests are rounded and split.
        release: the PyTorch release.
        pools: how many pools the trace knows.
        capacity: bytes of the device, where they are known.

    Raises:
        InputError: the final segments were not recorded.
    """
    if recorded.final is None:
        raise InputError(
            f"{recorded.device}: the recording holds no segments, so what lay where at its start cannot be told; "
            "torch.cuda.memory._dump_snapshot writes them, a trace alone does not"
        )
    walk = _Backwards(recorded.events, recorded.final, settings, release, pools)
    walk.undo_all()
    held, lost = settle_claims(walk.live.values(), walk.extents)
    for block in lost:
        walk.lost["block_outside" if walk.extents.holding(block.address) is None else "lost_alloc"] += 1
    sizes = _Sizes(recorded.events, settings)
    held = list(sizes.settled(held, walk.extents))
    losses = tuple(Assumption(code, walk.lost[code], text) for code, text in _LOST.items() if walk.lost[code])
    reservations = reserved_ranges(walk.seen, settings.large_segment_size, capacity)
    return Rebuilt(tiled(walk.extents, held), tuple(sizes.open), walk.pool, reservations, losses)


def open_sizes_assumption(start: Rebuilt) -> Assumption | None:
    """What the recording leaves open about sizes: the blocks concerned, and by how many bytes they may be larger."""
    unsettled = [block for block in start.open_sizes if block.settled_by is None]
    if not unsettled:
        return None
    text = (
        "blocks older than the window, freed in it, may have kept a tail that was too small to split off, and no later address tells; "
        "they are taken to have none, so allocated and active bytes may be higher by up to so many bytes until they are freed"
    )
    return Assumption("size_open", len(unsettled), text, sum(block.high - block.size for block in unsettled))


class _Backwards:
    """Undoes events, the last one first."""

    def __init__(self, events: Events, final: MemoryState, settings: AllocatorSettings, release: Release, pools: int) -> None:
        self.events, self.settings = events, settings
        self.keeps_size = Behaviour.of(release).one_division_keeps_size
        self.extents = extents_of(final)
        self.seen: list[Extent] = list(self.extents)
        blocks = final.blocks
        columns = (blocks.address, blocks.size, blocks.requested, blocks.state)
        self.live = {
            address: Held(address, size, requested, BlockState(state), -len(events))
            for address, size, requested, state in zip(*(column.tolist() for column in columns), strict=True)
            if state != BlockState.INACTIVE
        }
        self.starts = sorted(self.live)
        self.pool = events.pool.copy()
        self.finds_pools = pools > 1 and not events.pool.any()
        self.lost: Counter[str] = Counter()
        self.freed_state = BlockState.ALLOCATED if _lacks_requests(events) else BlockState.PENDING_FREE

    def undo_all(self) -> None:
        """Undo every event."""
        events = self.events
        kinds = events.kind.astype(np.int64)
        at_once = np.flatnonzero(completed_at_once(events))
        kinds[at_once], kinds[at_once + 1] = _SKIPPED, int(Kind.FREE)
        columns = (kinds, events.address, events.size, events.stream, events.pool)
        rows = list(zip(range(len(events)), *(column.tolist() for column in columns), strict=True))
        alloc, free, completed, asked = int(Kind.ALLOC), int(Kind.FREE), int(Kind.FREE_COMPLETED), int(Kind.FREE_REQUESTED)
        for event, kind, address, size, stream, pool in reversed(rows):
            if kind == alloc:
                self._undo_alloc(event, address, size)
            elif kind == free:
                self._undo_free(event, address, size, BlockState.ALLOCATED)
            elif kind == completed:
                self._undo_free(event, address, size, self.freed_state)
            elif kind == asked:
                block = self.live.get(address)
                if block is not None and block.state is BlockState.PENDING_FREE:
                    self.live[address] = block._replace(state=BlockState.ALLOCATED)
                else:
                    self._undo_free(event, address, size, BlockState.ALLOCATED)
            elif kind in TAKES:
                if not self.extents.remove(address, size):
                    self.lost["lost_segment_free"] += 1
            elif kind in GIVES_BACK:
                expandable = kind == Kind.SEGMENT_UNMAP
                small = self._small(address, size, stream) if expandable else size == SMALL_SEGMENT
                extent = Extent(address, size, stream, pool, small, expandable)
                self.seen.append(extent)
                if self.extents.add(extent):
                    self.lost["lost_segment_alloc"] += 1

    def _undo_alloc(self, event: int, address: int, size: int) -> None:
        if address in self.live:
            self._discard(address)
        else:
            self.lost["lost_free"] += 1
        self._clear(address, address + self._rounded(size))
        if self.finds_pools:
            extent = self.extents.holding(address)
            self.pool[event] = 0 if extent is None else extent.pool

    def _undo_free(self, event: int, address: int, size: int, state: BlockState) -> None:
        """Let a block be live that was freed; what lies over it came to life later, which was lost."""
        rounded = self._rounded(size)
        self._clear(address, address + rounded)
        self.live[address] = Held(address, rounded, size, state, -event)
        insort(self.starts, address)

    def _clear(self, start: int, end: int) -> None:
        """Take away the live blocks that overlap a range which another block had before them."""
        place = bisect_left(self.starts, start)
        if place and self.live[self.starts[place - 1]].end > start:
            place -= 1
        while place < len(self.starts) and self.starts[place] < end:
            self._discard(self.starts[place])
            self.lost["lost_alloc"] += 1

    def _discard(self, address: int) -> None:
        del self.live[address]
        del self.starts[bisect_left(self.starts, address)]

    def _rounded(self, size: int) -> int:
        return round_size(size, self.settings.roundup_power2_divisions, self.keeps_size)

    def _small(self, address: int, size: int, stream: int) -> bool:
        """Whether an unmapped range belonged to the small pool: as what it touches, or as the first block that lay in it."""
        for at in (address - 1, address + size):
            beside = self.extents.holding(at)
            if beside is not None and beside.expandable and beside.stream == stream:
                return beside.small
        events = self.events
        inside = (events.address >= address) & (events.address < address + size)
        inside &= np.isin(events.kind, (Kind.ALLOC, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED))
        if inside.any():
            return int(events.size[inside][0]) <= SMALL_REQUEST
        return size % self.settings.large_segment_size != 0


def _lacks_requests(events: Events) -> bool:
    """Whether requests to free were not recorded, as can be chosen: blocks of the window are freed, none asked for it."""
    done = events.address[events.kind == Kind.FREE_COMPLETED]
    return not (events.kind == Kind.FREE_REQUESTED).any() and bool(np.isin(done, events.address[events.kind == Kind.ALLOC]).any())


class _Sizes:
    """Finds the sizes of blocks that are freed in the window."""

    def __init__(self, events: Events, settings: AllocatorSettings) -> None:
        self.settings = settings
        self.open: list[OpenSize] = []
        allocs = np.flatnonzero(events.kind == Kind.ALLOC)
        self._by_address = allocs[np.argsort(events.address[allocs], kind="stable")]
        self._addresses: Int64 = events.address[self._by_address]
        self._count = len(events)

    def settled(self, held: list[Held], extents: Extents) -> Iterator[Held]:
        """Yield the blocks of *held*, by address, with their sizes."""
        for place, block in enumerate(held):
            extent = extents.holding(block.address)
            if extent is None or extent.small or self.settings.expandable_segments or -block.claim >= self._count:
                yield block
                continue
            end = held[place + 1].address if place + 1 < len(held) and held[place + 1].address < extent.end else extent.end
            yield block._replace(size=self._size(block, end - block.end))

    def _size(self, block: Held, gap: int) -> int:
        """Return the size of a block of the large pool that is at least ``block.size``, with *gap* bytes to the next one."""
        if gap <= SMALL_REQUEST:
            return block.size + gap
        limit, split = self.settings.max_split_size, SMALL_REQUEST
        if limit is not None and block.size >= limit:
            split = max(split, self.settings.non_split_rounding - MIN_BLOCK)
        else:
            gap -= SMALL_REQUEST + MIN_BLOCK  # what is free behind it is larger than 1 MiB
        high = block.size + min(split, gap)
        freed = -block.claim
        first = self._first_landing(block.end, block.address + high, freed)
        size = block.size if first is None else first[1] - block.address
        if high > block.size:
            self.open.append(OpenSize(block.address, block.requested, freed, block.size, high, size, None if first is None else first[0]))
        return size

    def _first_landing(self, start: int, last: int, before: int) -> tuple[int, int] | None:
        """Return the first alloc before event *before* at an address from *start* to *last*, as (event, address)."""
        low, high = np.searchsorted(self._addresses, [start, last + 1])
        landed = self._by_address[low:high]
        if not len(landed) or int(landed.min()) >= before:
            return None
        first = int(landed.argmin())
        return int(landed[first]), int(self._addresses[low + first])
