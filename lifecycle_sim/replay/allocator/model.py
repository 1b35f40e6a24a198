"""PyTorch's native caching allocator on one device: what a program can do with it, and what can be seen of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Self

from lifecycle_sim.errors import InputError, TraceInvariantError
from lifecycle_sim.events import Events, MemoryState
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.allocator.blocks import Block
from lifecycle_sim.replay.allocator.device import Device
from lifecycle_sim.replay.allocator.heap import Heap, OutOfMemory
from lifecycle_sim.replay.allocator.log import ALLOC, BLOCK, FREE_REQUESTED
from lifecycle_sim.replay.allocator.pools import DEFAULT_POOL, PoolId, PrivatePool
from lifecycle_sim.replay.allocator.release import NEWEST, Release
from lifecycle_sim.replay.allocator.rounding import LARGEST_REQUEST, MIN_BLOCK, SMALL_REQUEST
from lifecycle_sim.replay.allocator.settings import AllocatorSettings, parse_options
from lifecycle_sim.replay.allocator.state import memory_state
from lifecycle_sim.replay.allocator.statistics import Levels, Statistics, levels, statistics

__all__ = ["Allocator", "OutOfMemory"]


class Allocator(Heap):
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

    @classmethod
    def from_state(
        cls,
        state: MemoryState,
        device: Device | None = None,
        settings: AllocatorSettings | str = "",
        release: Release | str = NEWEST,
        *,
        pools: Sequence[PoolId] = (DEFAULT_POOL,),
        order: Sequence[int] | None = None,
        reservations: Sequence[tuple[int, int]] = (),
        stream_ids: Mapping[int, int] | None = None,
        device_number: int = 0,
    ) -> Self:
        """Return an allocator that holds the segments and blocks of *state*, with an empty record.

        A block that awaits its free waits for a stream that is not known: :meth:`finish` ends the wait. Every private pool has one holder.

        Args:
            state: segments and the blocks that tile them; ``requested`` of inactive blocks is kept as it is.
            device: its capacity and addresses; the segments are counted as held on it.
            settings: an options string in PyTorch's syntax, or settings.
            release: the PyTorch release to behave like.
            pools: the ids of the pools that the segments name by number.
            order: rows of the segments in the order in which they were obtained, which breaks ties from 2.12 on; by address by default.
            reservations: (address, bytes) of the reserved ranges of expandable segments, where they are known.
            stream_ids: torch's stream id of each stream handle.
            device_number: the device's number.

        Raises:
            InputError: a segment names a pool that *pools* does not have.
            SnapshotError: blocks that do not tile their segments, or segments that overlap.
        """
        named = int(state.segments.pool.max(initial=0))
        if named >= len(pools):
            raise InputError(f"the segments name pool number {named}, but {len(pools)} pools are given: give the trace's own list")
        allocator = cls(device, settings, release, stream_ids, device_number)
        for pool in pools[1:]:
            allocator.create_pool(pool)
        allocator._restore(state, order, reservations)
        return allocator

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
        """Let the free of the block at *address* wait for a stream that is not known; :meth:`finish` ends the wait.

        Raises:
            TraceInvariantError: no live block begins there.
        """
        block = self._live_block(address, "defer")
        unknown = self._pending.unknown_stream()
        for stream, _ in block.uses or ():
            unknown.add(stream, None)
        block.uses = unknown

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

    def has_pool(self, pool: PoolId) -> bool:
        """Whether there is a private pool *pool* now."""
        return pool in self._private

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

    def set_options(self, text: str) -> None:
        """Change settings at run time, with what such a call resets; *text* is an options string.

        Raises:
            InputError: one line for each key or value that cannot be accepted.
        """
        self._apply(parse_options(text, self.release, onto=self._settings))

    # ── what can be seen ────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        """How many events were recorded."""
        return len(self._log)

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

    def _live_block(self, address: int, action: str) -> Block:
        block = self._live.get(address)
        if block is None:
            raise TraceInvariantError(f"{action} of {address:#x}, where no live block begins")
        return block
