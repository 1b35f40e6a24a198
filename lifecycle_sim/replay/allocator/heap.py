"""Pools of free blocks, and how a block is found in them, obtained from the device, and returned."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import BlockState, MemoryState
from lifecycle_sim.replay.allocator.backing import Backing
from lifecycle_sim.replay.allocator.blocks import Block
from lifecycle_sim.replay.allocator.device import Device
from lifecycle_sim.replay.allocator.giveback import collect_garbage, release_available, release_whole
from lifecycle_sim.replay.allocator.hashorder import SlotTable
from lifecycle_sim.replay.allocator.log import FREE_COMPLETED, OOM, Log
from lifecycle_sim.replay.allocator.pending import PendingFrees
from lifecycle_sim.replay.allocator.pools import DEFAULT_POOL, Pool, PoolId, PrivatePool
from lifecycle_sim.replay.allocator.release import NEWEST, Behaviour, Release, TieBreak
from lifecycle_sim.replay.allocator.restore import building_rows, linked_blocks
from lifecycle_sim.replay.allocator.rounding import MIN_BLOCK, NO_DIVISIONS, SMALL_REQUEST, round_size, segment_size
from lifecycle_sim.replay.allocator.settings import AllocatorSettings, parse_options
from lifecycle_sim.replay.allocator.statistics import NO_SPLIT_LIMIT, Counters


@dataclass(frozen=True)
class OutOfMemory:
    """A request that could not be met.

    Attributes:
        requested: bytes asked for.
        rounded: the block size that stands for; the size of the ``oom`` event.
        segment: bytes that would have had to come from the device; PyTorch's message prints these.
        stream: the stream it was for.
        pool: the pool it was for.
        reserved: bytes held from the device at that moment, after every attempt to give some back.
        device_free: bytes the device still had.
        limit: the memory limit in force.
        event: index of its ``oom`` event; None where PyTorch records none (refused outright).
    """

    requested: int
    rounded: int
    segment: int
    stream: int
    pool: PoolId
    reserved: int
    device_free: int
    limit: int | None
    event: int | None


class _RejectedError(Exception):
    """A request was refused before the device was asked, as ``throw_on_cudamalloc_oom`` wants it."""


class Heap:
    """What the allocator of one device holds, and its rules; :class:`~lifecycle_sim.replay.allocator.model.Allocator` is its surface."""

    def __init__(
        self,
        device: Device | None = None,
        settings: AllocatorSettings | str = "",
        release: Release | str = NEWEST,
        stream_ids: Mapping[int, int] | None = None,
        device_number: int = 0,
    ) -> None:
        self.release = Release.parse(release)
        self._behaviour = Behaviour.of(self.release)
        self.device = device or Device()
        self.failures: list[OutOfMemory] = []
        self.counters = Counters()
        self.pools: list[PoolId] = [DEFAULT_POOL]
        self._log = Log()
        self._record = self._log.record
        self._backing = Backing(self.device, self._log, self._behaviour.tie_break)
        self._small, self._large = Pool(0), Pool(1)
        self._private: dict[PoolId, PrivatePool] = {}
        self._freeable: SlotTable[PrivatePool] = SlotTable(lambda number: self.pools[number][0] or self.pools[number][1])
        self._diversions: list[tuple[PrivatePool, frozenset[int] | None]] = []
        self._captures = 0
        self._capturing = False
        self._live: dict[int, Block] = {}
        self._waiting: dict[int, Block] = {}
        self._deferred: list[Block] = []
        self._pending = PendingFrees(stream_ids, device_number)
        self._base = self._log.rows()
        self._split_limits: list[tuple[int, int]] = []
        self._stamps_blocks = self._behaviour.tie_break is TieBreak.BLOCK
        self._apply(settings if isinstance(settings, AllocatorSettings) else parse_options(settings, self.release))
        if self._settings.per_process_memory_fraction is not None:
            self.set_memory_fraction(self._settings.per_process_memory_fraction)

    @property
    def reserved(self) -> int:
        """Bytes held from the device."""
        return self._backing.reserved

    @property
    def limit(self) -> int | None:
        """The most bytes that may be held from the device; None leaves it to the device."""
        return self._backing.limit

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit what may be held to *fraction* of the device; 1.0 removes the limit, from 2.10 on.

        Raises:
            InputError: not a fraction, or a device without a capacity.
        """
        if not 0 <= fraction <= 1:
            raise InputError(f"memory fraction {fraction} is not between 0 and 1")
        if self.device.capacity is None:
            raise InputError("a memory fraction needs a device with a capacity: give one, such as 24 GiB")
        whole = fraction == 1.0 and not self._behaviour.whole_device_is_a_limit
        self._backing.limit = None if whole else int(fraction * self.device.capacity)
        self._apply(self._settings)

    def _apply(self, settings: AllocatorSettings) -> None:
        self._settings = settings
        self._divides = settings.roundup_power2_divisions != NO_DIVISIONS
        self._expandable = settings.expandable_segments
        self._split_limit = NO_SPLIT_LIMIT if settings.max_split_size is None else settings.max_split_size
        self._plain_fit = settings.max_split_size is None
        self._collects = self._backing.limit is not None and settings.garbage_collection_threshold > 0
        fraction = settings.per_process_memory_fraction
        self._rejects_above = int((1.0 if fraction is None else fraction) * self.device.total)
        self._split_limits.append((len(self._log), self._split_limit))

    def _restore(self, state: MemoryState, order: Sequence[int] | None, reservations: Sequence[tuple[int, int]]) -> None:
        """Hold the segments and blocks of *state*."""
        halves = list(self._all_pools())
        backing, page = self._backing, self._settings.large_segment_size
        placed = list(linked_blocks(state, lambda number, small: halves[2 * number + (not small)], backing, page, order, reservations))
        for block, block_state in placed:
            self._adopt(block, block_state)
        segments = state.segments
        for row in range(len(segments)):
            size, owner = int(segments.size[row]), halves[2 * int(segments.pool[row])].owner
            backing.reserved += size
            self.device.adopt(int(segments.address[row]), size, mapped=bool(segments.expandable[row]))
            if owner is not None:
                owner.reserved += size
        for start, length in {(block.reservation.address, block.reservation.size) for block, _ in placed if block.reservation}:
            self.device.policy.occupy(start, length)
        self._base = building_rows(placed)

    def _adopt(self, block: Block, state: BlockState | None) -> None:
        """Put a block in the set that its state asks for; None is a hole."""
        if state is None:
            block.pool.insert_unmapped(block)
        elif state is BlockState.INACTIVE:
            block.pool.insert(block)
        else:
            block.allocated = True
            self._live[block.address] = block
            if state is BlockState.PENDING_FREE:
                block.allocated = False
                block.uses = self._pending.unknown_stream()
                self._waiting[block.address] = self._live.pop(block.address)
                self._pending.insert(block)

    # ── how malloc finds a block ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _refuse(self, size: int, stream: int) -> int | None:
        if size == 0:
            return 0
        if size < 0:
            raise InputError(f"malloc of {size} bytes: a size cannot be negative")
        pool = self._pool_for(size, stream)
        self._fail(size, size, size, stream, pool, recorded=False)
        return None

    def _round(self, size: int) -> int:
        return round_size(size, self._settings.roundup_power2_divisions, self._behaviour.one_division_keeps_size)

    def _pool_for(self, rounded: int, stream: int) -> Pool:
        small = rounded <= SMALL_REQUEST
        for private, streams in reversed(self._diversions):
            if streams is None or stream in streams:
                return private.small if small else private.large
        return self._small if small else self._large

    def _splits(self, pool: Pool, rounded: int, rest: int) -> bool:
        """Whether a request leaves the *rest* of the block it got to others."""
        if pool.owner is not None and pool.owner.no_split:
            return False
        if pool.small or self._expandable:
            return rest >= MIN_BLOCK
        return rest > SMALL_REQUEST and rounded < self._split_limit

    def _fit(self, pool: Pool, stream: int, rounded: int) -> Block | None:
        """Take the best fitting free block out of the free set; None where there is none, or where it is too large to hand out whole."""
        if self._collects:
            pool.calls += 1
        keys = pool.free.get(stream)
        if not keys:
            return None
        at = bisect_left(keys, (rounded,))
        if at == len(keys):
            return None
        block = keys[at][3]
        if block.reservation is not None:
            if not self._expandable:
                while block.reservation is not None:
                    at += 1
                    if at == len(keys):
                        return None
                    block = keys[at][3]
            else:
                while block.reservation is not None and at + 1 < len(keys) and _reach(keys[at + 1][3]) < _reach(block):
                    at += 1
                    block = keys[at][3]
        if not self._plain_fit:
            if rounded < self._split_limit <= block.size:
                return None
            if rounded >= self._split_limit and block.size >= rounded + self._settings.non_split_rounding:
                return None
        del keys[at]
        block.key = None
        return block

    def _obtain(self, pool: Pool, stream: int, rounded: int, size: int) -> Block | None:
        """Get a block from the device, giving free memory back where that is needed; the ladder of attempts, in its order."""
        self._log.pack()
        segment = segment_size(rounded, self._settings.large_segment_size)
        if self._collects:
            threshold = int(self._settings.garbage_collection_threshold * (self._backing.limit or 0))
            collect_garbage(self._backing, self._large, threshold)
        try:
            block = self._climb(pool, stream, rounded, segment)
        except _RejectedError:
            self.counters.oom_rejections += 1
            self._fail(size, rounded, segment, stream, pool, recorded=False)
            return None
        if block is None:
            self.counters.ooms += 1
            self._fail(size, rounded, segment, stream, pool, recorded=True)
        return block

    def _climb(self, pool: Pool, stream: int, rounded: int, segment: int) -> Block | None:
        """Ask the device, then again after each way of giving free memory back; None when all have failed."""
        block = self._grow(pool, stream, rounded, segment)
        if block is None and pool.owner is None and not self._expandable:
            block = self._borrow(pool, stream, rounded)
        if block is None and not self._plain_fit and release_available(self._backing, pool, stream, rounded, self._split_limit):
            block = self._grow(pool, stream, rounded, segment)
        if block is None and not self._capturing:
            self._release_cached()
            self.counters.alloc_retries += 1
            block = self._grow(pool, stream, rounded, segment)
        return block

    def _borrow(self, pool: Pool, stream: int, rounded: int) -> Block | None:
        """Take a free block of a private pool that lends to default requests before they fail."""
        lenders = (private for private in self._private.values() if private.use_on_oom and private.uses)
        halves = (private.small if pool.small else private.large for private in lenders)
        return next((block for half in halves if (block := self._fit(half, stream, rounded)) is not None), None)

    def _grow(self, pool: Pool, stream: int, rounded: int, segment: int) -> Block | None:
        """Get a new segment, or more of an expandable one."""
        if not self._backing.within_limit(segment):
            return None
        if self._settings.throw_on_cudamalloc_oom and self._backing.reserved + segment > self._rejects_above:
            raise _RejectedError
        owner = pool.owner
        if self._expandable and (owner is None or (self._behaviour.expandable_private_pools and not owner.custom)):
            return self._backing.obtain_expandable(pool, stream, rounded, self._settings.large_segment_size)
        return self._backing.obtain(pool, stream, segment)

    def _fail(self, size: int, rounded: int, segment: int, stream: int, pool: Pool, *, recorded: bool) -> None:
        device_free = self.device.free
        event = None
        if recorded:
            event = len(self._log)
            self._record((OOM, device_free, rounded, stream, pool.number, 0, 0, 0))
        pool_id = DEFAULT_POOL if pool.owner is None else pool.owner.id
        self.failures.append(OutOfMemory(size, rounded, segment, stream, pool_id, self.reserved, device_free, self.limit, event))

    # ── how memory is given back ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _release_cached(self) -> None:
        if not self._capturing:
            self._synchronize()
            release_whole(self._backing, self._large)
            release_whole(self._backing, self._small)
        self._freeable.drain(lambda _, private: self._release_private(private))

    def _release_private(self, private: PrivatePool) -> bool:
        """Give back what is free in a released private pool; whether it held nothing else and is gone."""
        release_whole(self._backing, private.small)
        release_whole(self._backing, private.large)
        if private.reserved:
            return False
        self._private.pop(private.id, None)
        return True

    def _synchronize(self, only: PrivatePool | None = None) -> None:
        self.counters.sync_all_streams += 1
        self._end_deferral()
        self._pending.synchronize(self._settle, None if only is None else lambda block: block.pool.owner is only)

    def _end_deferral(self) -> None:
        """Turn the frees that a capture deferred into events; streams that were recorded only in the capture are dropped first."""
        deferred, self._deferred[:] = list(self._deferred), []
        for block in deferred:
            if self._behaviour.drops_capture_streams and block.capture_uses and block.uses is not None:
                for stream in block.capture_uses:
                    block.uses.discard(stream)
            self._pending.insert(block)
            if block.events == 0:
                self._settle(block)

    def _settle(self, block: Block) -> None:
        del self._waiting[block.address]
        block.capture_uses = None
        self._complete(block)

    def _all_pools(self) -> Iterator[Pool]:
        yield self._small
        yield self._large
        for private in self._private.values():
            yield private.small
            yield private.large

    def _free_blocks(self) -> list[Block]:
        return [block for pool in self._all_pools() for block in pool.in_order()]

    def _complete(self, block: Block) -> None:
        """Put a block back in the free set, merged with its free neighbours."""
        pool, size, splits = block.pool, block.size, 0
        address = block.address
        before, after = block.prev, block.next
        keys = pool.free.get(block.stream)
        if keys is None:
            keys = pool.free[block.stream] = []
        if before is not None and (key := before.key) is not None:
            del keys[bisect_left(keys, key)]
            before.key = None
            splits -= 1
            block.address = before.address
            block.size += before.size
            block.prev = before = before.prev
            if before is not None:
                before.next = block
        if after is not None and (key := after.key) is not None:
            del keys[bisect_left(keys, key)]
            after.key = None
            splits -= 1
            block.size += after.size
            block.next = after = after.next
            if after is not None:
                after.prev = block
        split_bytes = size - block.size
        if block.reservation is not None:
            splits = split_bytes = 0
        elif before is not None or after is not None:
            splits += 1
            split_bytes += block.size
        block.calls = pool.calls
        block.key = key = (block.size, block.counter, block.address, block)
        insort(keys, key)
        self._record((FREE_COMPLETED, address, block.requested, block.stream, pool.number, size, splits, split_bytes))


def _reach(block: Block) -> int:
    """The size a block of an expandable segment can grow to: itself and the hole behind it."""
    behind = block.next
    return block.size + (behind.size if behind is not None and not behind.mapped else 0)
