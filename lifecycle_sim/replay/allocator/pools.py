"""Pools: where free blocks wait, in the order that decides placement."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from lifecycle_sim.replay.allocator.blocks import Block, Key

PoolId = tuple[int, int]
DEFAULT_POOL: PoolId = (0, 0)

_UNSIGNED = (1 << 64) - 1


class PrivatePool:
    """A pair of pools apart from the default ones: a ``MemPool``, or that of a captured graph.

    Attributes:
        id: (0, n) made by the user, (n, 0) made by a capture.
        number: its place in the allocator's list of pools; the default pool is 0.
        uses: how many hold it; at 0 its memory may be given back.
        reserved: bytes it holds from the device.
    """

    __slots__ = ("custom", "id", "large", "no_split", "number", "reserved", "small", "use_on_oom", "uses")

    def __init__(self, pool_id: PoolId, number: int, use_on_oom: bool = False, no_split: bool = False, custom: bool = False) -> None:
        self.id, self.number = pool_id, number
        self.uses, self.reserved = 1, 0
        self.use_on_oom, self.no_split, self.custom = use_on_oom, no_split, custom
        self.small = Pool(2 * number, self)
        self.large = Pool(2 * number + 1, self)


class Pool:
    """Free and unmapped blocks of one size class.

    Attributes:
        number: twice the number of its place in the allocator's list of pools, plus 1 for the large pool.
        owner: the private pool it is half of, None for a default pool.
        small: whether it serves requests of at most 1 MiB.
        free: for each stream its free blocks' keys, ascending: best fit is the first that is large enough.
        unmapped: for each stream the holes of its expandable segments, by address.
        calls: how often it was searched while garbage collection was on; the age of a free block counts in these.
    """

    __slots__ = ("calls", "free", "number", "owner", "small", "unmapped")

    def __init__(self, number: int, owner: PrivatePool | None = None) -> None:
        self.number, self.owner, self.small = number, owner, number % 2 == 0
        self.free: dict[int, list[Key]] = {}
        self.unmapped: dict[int, list[tuple[int, Block]]] = {}
        self.calls = 0

    def insert(self, block: Block) -> None:
        """Put a free block in the set."""
        block.calls = self.calls
        block.key = key = (block.size, block.counter, block.address, block)
        insort(self.free.setdefault(block.stream, []), key)

    def remove(self, block: Block) -> None:
        """Take a free block out of the set."""
        if block.key is not None:
            keys = self.free[block.stream]
            del keys[bisect_left(keys, block.key)]
            block.key = None

    def insert_unmapped(self, block: Block) -> None:
        """Put a hole in the set of holes."""
        insort(self.unmapped.setdefault(block.stream, []), (block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        """Take a hole out of the set of holes."""
        holes = self.unmapped[block.stream]
        del holes[bisect_left(holes, (block.address, block))]

    def in_order(self) -> Iterator[Block]:
        """Yield the free blocks as they are now, by stream handle (unsigned), size and tie-break."""
        streams = sorted(self.free, key=lambda stream: stream & _UNSIGNED)
        return iter([key[3] for stream in streams for key in self.free[stream]])
