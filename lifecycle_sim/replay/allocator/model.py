"""PyTorch's native caching allocator on one device: the public operations, and the order in which malloc tries things."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from lifecycle_sim.errors import InputError, TraceInvariantError
from lifecycle_sim.events import Events, MemoryState
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.allocator.backing import Backing
from lifecycle_sim.replay.allocator.blocks import Block
from lifecycle_sim.replay.allocator.device import Device
from lifecycle_sim.replay.allocator.giveback import collect_garbage, release_available, release_whole
from lifecycle_sim.replay.allocator.hashorder import SlotTable
from lifecycle_sim.replay.allocator.log import ALLOC, BLOCK, FREE_COMPLETED, FREE_REQUESTED, OOM, Log
from lifecycle_sim.replay.allocator.pending import PendingFrees
from lifecycle_sim.replay.allocator.pools import DEFAULT_POOL, Pool, PoolId, PrivatePool
from lifecycle_sim.replay.allocator.release import NEWEST, Behaviour, Release, TieBreak
from lifecycle_sim.replay.allocator.rounding import LARGEST_REQUEST, MIN_BLOCK, NO_DIVISIONS, SMALL_REQUEST, round_size, segment_size
from lifecycle_sim.replay.allocator.settings import AllocatorSettings, parse_options
from lifecycle_sim.replay.allocator.state import memory_state
from lifecycle_sim.replay.allocator.statistics import NO_SPLIT_LIMIT, Counters, Levels, Statistics, levels, statistics


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


class Allocator:
    """The caching allocator of one device.

    Args:
        device: capacity and addresses; by default a device that never refuses.
        settings: an options string in PyTorch's syntax, or settings.
        release: the PyTorch release to behave like.
        stream_ids: torch's stream id of each stream handle; see :class:`~lifecycle_sim.replay.allocator.pending.PendingFrees`.
        device_number: the device's number.

    Attributes:
        failures: the requests that could not be met, in order.
        counters: retries, failures and synchronisations.
        pools: the ids of all pools that ever were; an event's ``pool`` is a place in this list.
    """

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
        self._captures, self._anonymous = 0, 0
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

    # ── what programs do ────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def malloc(self, size: int, stream: int = 0) -> int | None:
        """Return the address of a block for *size* bytes on *stream*, or None where memory ran out: ``failures[-1]`` then says how.

        A request for nothing gets the null address 0 and leaves no trace.

        Raises:
            InputError: *size* is negative.
        """
        if not 0 < size < LARGEST_REQUEST:
            return self._refuse(size, stream)
        if self._waiting and not self._capturing:
            self.process_events()
        rounded = self._round(size) if self._divides else (size + MIN_BLOCK - 1) & -MIN_BLOCK
        pool = self._pool_for(rounded, stream) if self._diversions else self._small if rounded <= SMALL_REQUEST else self._large

        block = self._fit(pool, stream, rounded)
        if block is None:
            block = self._obtain(pool, stream, rounded, size)
            if block is None:
                return None
            pool = block.pool

        address = block.address
        rest = block.size - rounded
        splits = split_bytes = 0
        if rest and self._splits(pool, rounded, rest):
            counter = self._backing.stamp() if self._stamps_blocks else block.counter
            front = Block(address, rounded, stream, pool, counter, block.reservation)
            before = block.prev
            if block.reservation is None:
                if before is None and block.next is None:
                    splits, split_bytes = 1, rest
                else:
                    split_bytes = -rounded
            front.prev, front.next = before, block
            if before is not None:
                before.next = front
            block.prev = front
            block.address = address + rounded
            block.size = rest
            pool.insert(block)
            block = front
        elif (block.prev is not None or block.next is not None) and block.reservation is None:
            splits, split_bytes = -1, -block.size
        block.allocated = True
        block.requested = size
        self._live[address] = block
        self._record((ALLOC, address, size, stream, pool.number, block.size, splits, split_bytes))
        return address

    def free(self, address: int) -> None:
        """Give up the block at *address*. If other streams were recorded on it, it waits until they have passed this point.

        Raises:
            TraceInvariantError: no live block begins there.
        """
        block = self._live.pop(address, None)
        if block is None:
            if address == 0:
                return
            raise TraceInvariantError(
                f"free of {address:#x}, where no live block begins: a double free, or not an address that malloc gave"
            )
        block.allocated = False
        self._record((FREE_REQUESTED, address, block.requested, block.stream, block.pool.number, block.size, 0, 0))
        if block.uses is None:
            self._complete(block)
            return
        self._waiting[address] = block
        if self._capturing:
            self._deferred.append(block)
        else:
            self._pending.insert(block)

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

    def record_stream(self, address: int, stream: int) -> None:
        """Record that *stream* works on the block at *address*; its own stream does not count.

        Raises:
            TraceInvariantError: no live block begins there.
        """
        block = self._live_block(address, "record_stream")
        if stream == block.stream:
            return
        if block.uses is None:
            block.uses = self._pending.streams()
        if stream not in block.uses:
            block.uses.add(stream, None)
        if self._capturing:
            block.capture_uses = (block.capture_uses or set()) | {stream}

    def complete(self, stream: int) -> None:
        """Let *stream* have finished all work it has been given: its events so far are complete.

        Nothing is freed before the allocator looks at the events, at the next malloc or flush.
        """
        self._pending.complete(stream)

    def defer(self, address: int) -> None:
        """Let the free of the block at *address* wait for a stream that is not known; :meth:`finish` ends the wait."""
        self._anonymous -= 1
        self.record_stream(address, self._anonymous)

    def finish(self, address: int) -> None:
        """End the wait of the block at *address*, which was freed, whatever it waited for.

        Raises:
            TraceInvariantError: no block waits there.
        """
        block = self._waiting.get(address)
        if block is None:
            raise TraceInvariantError(f"no block at {address:#x} waits for its free to complete")
        if block in self._deferred:
            self._deferred.remove(block)
        self._pending.finish(block)
        self._settle(block)

    def process_events(self) -> None:
        """Complete the frees whose events have all completed. Every malloc begins with this, except in a capture."""
        if self._capturing:
            return
        self._end_deferral()
        self._pending.process(self._settle)

    def empty_cache(self, pool: PoolId | None = None) -> None:
        """Give back what is whole and free: of the default pools and of all released private pools, or of one released pool.

        In a capture the default pools keep what they have.
        """
        if pool is None:
            self._release_cached()
            return
        private = self._private.get(pool)
        if private is None or private.number not in self._freeable:
            return
        if not self._capturing:
            self._synchronize(private)
        self._release_private(private)

    def release_segment(self, address: int) -> None:
        """Give back the whole free segment at *address*, as a recording shows it.

        Raises:
            TraceInvariantError: there is no such segment that is whole, free and not expandable.
        """
        for block in self._free_blocks():
            if block.address == address and not block.split and block.reservation is None:
                self._backing.give_back(block)
                return
        raise TraceInvariantError(f"no free segment to give back at {address:#x}: it is in use, split, expandable, or was never obtained")

    # ── pools and captures ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def create_pool(
        self, pool: PoolId | None = None, *, use_on_oom: bool = False, no_split: bool = False, custom_allocator: bool = False
    ) -> PoolId:
        """Make a private pool, as ``torch.cuda.MemPool()`` does, and return its id; a new (0, n) unless one is given.

        Args:
            pool: its id.
            use_on_oom: its free blocks serve default requests before those fail.
            no_split: its segments are never split.
            custom_allocator: its segments come from an allocator of its own, so that it never has expandable ones.

        Raises:
            InputError: the pool exists.
        """
        if pool is None:
            pool = next((0, n) for n in count(1) if (0, n) not in self.pools)
        if pool in self._private or pool == DEFAULT_POOL:
            raise InputError(f"pool {pool} exists already: leave the id out, or choose another")
        if pool not in self.pools:
            self.pools.append(pool)
        self._private[pool] = PrivatePool(pool, self.pools.index(pool), use_on_oom, no_split, custom_allocator)
        return pool

    def begin_pool(self, pool: PoolId, streams: Collection[int] | None = None) -> None:
        """Divert later requests to *pool*, made if there is none; only those on *streams* where these are given.

        Raises:
            InputError: the pool was released by all its holders.
        """
        if pool in self._private:
            if self._private[pool].number in self._freeable:
                raise InputError(f"pool {pool} has been released: it cannot take requests any more")
            self._private[pool].uses += 1
        else:
            self.create_pool(pool)
        self._diversions.append((self._private[pool], None if streams is None else frozenset(streams)))
        self._note_capture()

    def end_pool(self, pool: PoolId) -> None:
        """Stop diverting requests to *pool*. Its holder count stays: see :meth:`release_pool`.

        Raises:
            InputError: nothing is diverted to it.
        """
        for at, (private, _) in enumerate(self._diversions):
            if private.id == pool:
                del self._diversions[at]
                self._note_capture()
                return
        raise InputError(f"nothing is diverted to pool {pool}")

    def release_pool(self, pool: PoolId) -> None:
        """Let one holder of *pool* go; without any, its memory may be given back at the next flush.

        Raises:
            InputError: there is no such pool, or nobody holds it.
        """
        private = self._private.get(pool)
        if private is None or private.uses == 0:
            raise InputError(f"pool {pool} cannot be released: nobody holds it")
        private.uses -= 1
        if private.uses == 0:
            self._freeable.add(private.number, private)

    def begin_capture(self) -> None:
        """Begin a graph capture: from 2.13 on this, and before that any diversion, keeps events unlooked at and the cache unflushed."""
        self._captures += 1
        self._note_capture()

    def end_capture(self) -> None:
        """End a graph capture.

        Raises:
            InputError: none is under way.
        """
        if self._captures == 0:
            raise InputError("no capture is under way")
        self._captures -= 1
        self._note_capture()

    def _note_capture(self) -> None:
        self._capturing = self._captures > 0 or (self._behaviour.diversion_is_capture and bool(self._diversions))

    # ── settings ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def settings(self) -> AllocatorSettings:
        """The settings in force."""
        return self._settings

    @property
    def limit(self) -> int | None:
        """The most bytes that may be held from the device; None leaves it to the device."""
        return self._backing.limit

    def set_options(self, text: str) -> None:
        """Change settings at run time, with what such a call resets; *text* is an options string.

        Raises:
            InputError: one line for each key or value that cannot be accepted.
        """
        self._apply(parse_options(text, self.release, onto=self._settings))

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

    # ── what can be seen ────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        """How many events were recorded."""
        return len(self._log)

    @property
    def reserved(self) -> int:
        """Bytes held from the device."""
        return self._backing.reserved

    def events(self) -> Events:
        """Return everything that was recorded, as a snapshot's trace would show it; ``pool`` is a place in :attr:`pools`."""
        return self._log.events()

    def block_sizes(self) -> Int64:
        """Return the size of the block of each event, rounding and unsplit tail included; 0 for events of segments."""
        return self._log.rows()[:, BLOCK]

    def statistics(self) -> Statistics:
        """Return the statistics that ``torch.cuda.memory_stats()`` would show, peaks included."""
        return statistics(self._log.rows(), self._base, self._split_limits, self.counters, tuple(self.pools))

    def levels(self) -> Levels:
        """Return the requested, allocated, active and reserved bytes after each event."""
        return levels(self._log.rows(), self._base)

    def state(self) -> MemoryState:
        """Return the segments and blocks as a snapshot taken now would show them."""
        return memory_state([*self._live.values(), *self._waiting.values(), *self._free_blocks()])

    def largest_free(self) -> dict[tuple[PoolId, bool, int], int]:
        """Return the size of the largest free block for each (pool, whether small, stream) that has one."""
        return {
            (DEFAULT_POOL if pool.owner is None else pool.owner.id, pool.small, stream): keys[-1][0]
            for pool in self._all_pools()
            for stream, keys in pool.free.items()
            if keys
        }

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
        if private.segments:
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

    def _live_block(self, address: int, action: str) -> Block:
        block = self._live.get(address)
        if block is None:
            raise TraceInvariantError(f"{action} of {address:#x}, where no live block begins")
        return block


def _reach(block: Block) -> int:
    """The size a block of an expandable segment can grow to: itself and the hole behind it."""
    behind = block.next
    return block.size + (behind.size if behind is not None and not behind.mapped else 0)
