"""An allocator beside a recording: its device answers as the recorded one did, and it can be set right where the two part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lifecycle_sim.events import BlockState, Kind
from lifecycle_sim.events.kinds import GIVES_BACK
from lifecycle_sim.replay.allocator.blocks import Block
from lifecycle_sim.replay.allocator.device import Device, NextAddress
from lifecycle_sim.replay.allocator.giveback import available
from lifecycle_sim.replay.allocator.log import ADDRESS, KIND, SIZE, WIDTH
from lifecycle_sim.replay.allocator.model import Allocator
from lifecycle_sim.replay.allocator.pools import PoolId
from lifecycle_sim.replay.allocator.recording.calls import CHANGES, Change
from lifecycle_sim.replay.allocator.recording.extents import Held
from lifecycle_sim.replay.allocator.rounding import segment_size


class AstrayError(Exception):
    """The allocator asked the device for something that it was not asked for in the recording; ``size`` is how many bytes."""

    def __init__(self, kind: Kind, size: int) -> None:
        super().__init__(kind, size)
        self.kind, self.size = kind, size


class RecordedDevice(Device):
    """A device that grants and refuses as a recording says.

    It grants the requests that are recorded, at their addresses. Where the recording gives memory back before it obtains some, the device
    refuses until that has been done: so a retry is told apart from the rest. What the recording does not hold it cannot answer.
    """

    def __init__(self, size: int | None = None) -> None:
        super().__init__(policy=_RecordedRanges(self))
        self._size = size
        self._changes: Sequence[Change] = ()
        self._at = 0
        self._refuses = False

    @property
    def total(self) -> int:
        """The bytes that the device states as its size; they decide how long the ranges of expandable segments are."""
        return super().total if self._size is None else self._size

    def expect(self, changes: Sequence[Change], refuses: bool = False) -> None:
        """Answer the next requests by *changes*; when they run out, refuse if *refuses*, else they are astray."""
        self._changes, self._at, self._refuses = changes, 0, refuses

    def ahead(self, kind: Kind) -> Change | None:
        """Return the next change of *kind*."""
        return next((change for change in self._changes[self._at :] if change.kind == kind), None)

    def allocate(self, size: int) -> int | None:
        """Return the recorded address of a new segment, or None where the recording gives memory back first.

        Raises:
            AstrayError: the recording does not obtain a segment of *size* bytes here.
        """
        granted = self._granted(Kind.SEGMENT_ALLOC, size)
        return None if granted is None else granted.address

    def map(self, size: int) -> bool:
        """Grant *size* bytes of pages, or refuse where the recording gives memory back first.

        Raises:
            AstrayError: the recording does not map *size* bytes here.
        """
        return self._granted(Kind.SEGMENT_MAP, size) is not None

    def _granted(self, kind: Kind, size: int) -> Change | None:
        if self._at == len(self._changes):
            if self._refuses:
                return None
            raise AstrayError(kind, size)
        change = self._changes[self._at]
        if change.kind in GIVES_BACK:
            return None
        if (change.kind, change.size) != (kind, size):
            raise AstrayError(kind, size)
        self._at += 1
        self.held += size
        return change

    def release(self, address: int, size: int) -> None:
        """Take a segment back."""
        self._give_back(size)

    def unmap(self, size: int) -> None:
        """Take pages back."""
        self._give_back(size)

    def _give_back(self, size: int) -> None:
        self.held -= size
        if self._at < len(self._changes) and self._changes[self._at].kind in GIVES_BACK:
            self._at += 1


class _RecordedRanges(NextAddress):
    """Reserves ranges where the recording maps next."""

    def __init__(self, device: RecordedDevice) -> None:
        super().__init__()
        self._device = device

    def reserve(self, size: int) -> int:
        """Return the address of the next recorded mapping: a new range is mapped from its start."""
        change = self._device.ahead(Kind.SEGMENT_MAP)
        return super().reserve(size) if change is None else change.address


class Follower(Allocator):
    """An allocator whose doings can be compared with a recording, call by call."""

    def mark(self) -> None:
        """Begin a stretch for :meth:`changes`."""
        self._log.pack(1)

    def changes(self) -> list[Change]:
        """Return what changed at the device since the last :meth:`mark`."""
        rows = self._log.recent
        return [
            Change(rows[at + KIND], rows[at + ADDRESS], rows[at + SIZE]) for at in range(0, len(rows), WIDTH) if rows[at + KIND] in CHANGES
        ]

    def block_size(self, address: int) -> int:
        """Return the size of the active block at *address*, 0 where there is none."""
        block = self._live.get(address) or self._waiting.get(address)
        return 0 if block is None else block.size

    def is_live(self, address: int) -> bool:
        """Whether a block is handed out at *address*."""
        return address in self._live

    def is_waiting(self, address: int) -> bool:
        """Whether a block at *address* awaits its free."""
        return address in self._waiting

    def fits(self, size: int, stream: int) -> bool:
        """Whether a free block would serve a request."""
        rounded = self._round(size)
        block = self._fit(self._pool_for(rounded, stream), stream, rounded)
        if block is not None:
            block.pool.insert(block)
        return block is not None

    def block_size_for(self, size: int) -> int:
        """Return the block size that a request rounds to."""
        return self._round(size)

    def whole_segments(self) -> list[int]:
        """Return the addresses of the whole free segments of the default pools, in the order of a flush."""
        halves = (self._large, self._small)
        return [block.address for half in halves for block in half.in_order() if block.reservation is None and not block.split]

    def first_to_go(self, size: int, stream: int) -> list[int]:
        """Return the addresses of the segments that a request gives back before it flushes, where ``max_split_size`` is set."""
        rounded = self._round(size)
        return [block.address for block in available(self._pool_for(rounded, stream), stream, rounded, self._split_limit)[0]]

    def grows_by(self, size: int) -> int:
        """Return the bytes that a request would ask the device for."""
        return segment_size(self._round(size), self._settings.large_segment_size)

    @contextmanager
    def limited(self, *, limited: bool) -> Iterator[None]:
        """Let nothing more be obtained inside the block, as by a memory limit, if *limited*."""
        if limited:
            self._backing.limit = 0
        yield
        self._backing.limit = None

    def let_go(self, pool: PoolId) -> None:
        """Release *pool* for all its holders, so that its memory may be given back."""
        while pool in self._private and self._private[pool].uses:
            self.release_pool(pool)

    def held_blocks(self) -> list[Held]:
        """Return the active blocks."""
        states = ((self._live, BlockState.ALLOCATED), (self._waiting, BlockState.PENDING_FREE))
        return [Held(b.address, b.size, b.requested, state) for blocks, state in states for b in blocks.values()]

    def free_at(self, address: int) -> Block | None:
        """Return the free block in which *address* lies."""
        return next((block for block in self._free_blocks() if block.address <= address < block.address + block.size), None)

    def place(self, address: int, size: int, block_size: int) -> bool:
        """Hand out *block_size* bytes at *address*, whichever block would fit best; False where they are not free."""
        block = self.free_at(address)
        if block is None or address + block_size > block.address + block.size:
            return False
        pool, ahead = block.pool, address - block.address
        pool.remove(block)
        if ahead:
            head = self._backing.piece(block, block.address, ahead)
            head.place_between(block.prev, block)
            pool.insert(head)
            block.address, block.size = address, block.size - ahead
        if block.size > block_size:
            tail = self._backing.piece(block, address + block_size, block.size - block_size)
            tail.place_between(block, block.next)
            pool.insert(tail)
            block.size = block_size
        block.allocated, block.requested = True, size
        self._live[address] = block
        return True

    def segment_kind(self, address: int) -> bool | None:
        """Whether the mapped block that ends or lies at *address* is of a small pool; None where there is none."""
        for block in [*self._live.values(), *self._waiting.values(), *self._free_blocks()]:
            if block.address <= address <= block.address + block.size:
                return block.pool.small
        return None

    def stamps(self) -> dict[int, int]:
        """Return for each block's address the number that breaks ties."""
        return {block.address: block.counter for block in [*self._live.values(), *self._waiting.values(), *self._free_blocks()]}
