"""A block: a piece of a segment, linked to the pieces beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lifecycle_sim.replay.allocator.hashorder import SlotTable
    from lifecycle_sim.replay.allocator.pools import Pool

Key = tuple[int, int, int, "Block"]
"""Place in the free set: (size, counter, address, block). Addresses differ, so two blocks are never compared themselves."""


class Reservation:
    """A reserved range of addresses into which an expandable segment maps its pages."""

    __slots__ = ("address", "page", "size")

    def __init__(self, address: int, size: int, page: int) -> None:
        self.address, self.size, self.page = address, size, page


class Block:
    """A piece of a segment: handed out, waiting for its free, free, or (in an expandable segment) not mapped.

    Attributes:
        address: first byte.
        size: bytes, rounding and unsplit tail included.
        requested: bytes asked for; stale on a block that is not active, as in snapshots.
        stream: the stream it is bound to.
        pool: the pool it belongs to.
        allocated: handed out and not yet given up.
        mapped: False only for the holes of expandable segments.
        prev: the block before it in the same segment.
        next: the block after it in the same segment.
        key: its place in the pool's free set; None unless it is there.
        counter: the tie-break of releases 2.12 and later.
        calls: the pool's count of searches when the block was last put in the free set.
        reservation: the range that its expandable segment is mapped into.
        uses: streams recorded on it, beside its own.
        capture_uses: those of them that were recorded during a capture.
        events: how many of its events have not completed.
    """

    __slots__ = (
        "address",
        "allocated",
        "calls",
        "capture_uses",
        "counter",
        "events",
        "key",
        "mapped",
        "next",
        "pool",
        "prev",
        "requested",
        "reservation",
        "size",
        "stream",
        "uses",
    )

    def __init__(self, address: int, size: int, stream: int, pool: Pool, counter: int, reservation: Reservation | None = None) -> None:
        self.address = address
        self.size = size
        self.stream = stream
        self.pool = pool
        self.counter = counter
        self.reservation = reservation
        self.requested = 0
        self.allocated = False
        self.mapped = True
        self.prev: Block | None = None
        self.next: Block | None = None
        self.key: Key | None = None
        self.calls = 0
        self.events = 0
        self.uses: SlotTable[None] | None = None
        self.capture_uses: set[int] | None = None

    def __repr__(self) -> str:
        state = "allocated" if self.allocated else "free" if self.key else "active" if self.mapped else "unmapped"
        return f"Block({self.address:#x}, {self.size:,} B, {state})"

    @property
    def split(self) -> bool:
        """Whether it is only a part of its segment."""
        return self.prev is not None or self.next is not None

    @property
    def idle(self) -> bool:
        """Whether it is free or unmapped: neither handed out nor waiting for events."""
        return self.key is not None or not self.mapped

    def place_between(self, before: Block | None, after: Block | None) -> None:
        """Link the block in between two neighbours."""
        self.prev, self.next = before, after
        if before is not None:
            before.next = self
        if after is not None:
            after.prev = self

    def absorb(self, neighbour: Block) -> None:
        """Take the address range of an adjacent block, which is in no set any more."""
        self.size += neighbour.size
        if neighbour is self.prev:
            self.address = neighbour.address
            self.prev = neighbour.prev
            if self.prev is not None:
                self.prev.next = self
        else:
            self.next = neighbour.next
            if self.next is not None:
                self.next.prev = self
