"""Memory from the device: whole segments, and pages mapped into the reserved ranges of expandable segments."""

from __future__ import annotations

from lifecycle_sim.replay.allocator.blocks import Block, Reservation
from lifecycle_sim.replay.allocator.device import Device
from lifecycle_sim.replay.allocator.log import SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, Log
from lifecycle_sim.replay.allocator.pools import Pool
from lifecycle_sim.replay.allocator.release import TieBreak
from lifecycle_sim.replay.allocator.rounding import SMALL_SEGMENT, round_up


class Backing:
    """What is held from the device.

    Attributes:
        device: where it comes from.
        log: where segments obtained and given back are recorded.
        reserved: bytes held.
        limit: the most bytes that may be held; None leaves it to the device.
    """

    def __init__(self, device: Device, log: Log, tie_break: TieBreak) -> None:
        self.device, self.log = device, log
        self.reserved = 0
        self.limit: int | None = None
        self._stamps_segments = tie_break is not TieBreak.ADDRESS
        self._stamps_blocks = tie_break is TieBreak.BLOCK
        self._counter = 0

    # ── blocks ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def stamp(self) -> int:
        """Return the next number of the counter that breaks ties among blocks."""
        self._counter += 1
        return self._counter

    def first_block(self, address: int, size: int, stream: int, pool: Pool, reservation: Reservation | None = None) -> Block:
        """Return the block that is all of a new segment."""
        return Block(address, size, stream, pool, self.stamp() if self._stamps_segments else 0, reservation)

    def piece(self, of: Block, address: int, size: int) -> Block:
        """Return a new block for a part of *of*; it is not linked yet."""
        return Block(address, size, of.stream, of.pool, self.stamp() if self._stamps_blocks else of.counter, of.reservation)

    # ── whole segments ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def within_limit(self, size: int) -> bool:
        """Whether *size* more bytes would stay within the limit."""
        return self.limit is None or self.reserved + size <= self.limit

    def obtain(self, pool: Pool, stream: int, size: int) -> Block | None:
        """Return a new segment of *size* bytes as one block, or None where the device has no room."""
        address = self.device.allocate(size)
        if address is None:
            return None
        self.reserved += size
        if pool.owner is not None:
            pool.owner.reserved += size
        self.log.record((SEGMENT_ALLOC, address, size, stream, pool.number, 0, 0, 0))
        return self.first_block(address, size, stream, pool)

    def give_back(self, block: Block) -> None:
        """Give a free block that is a whole segment back to the device."""
        pool = block.pool
        pool.remove(block)
        self.log.record((SEGMENT_FREE, block.address, block.size, block.stream, pool.number, 0, 0, 0))
        self.reserved -= block.size
        if pool.owner is not None:
            pool.owner.reserved -= block.size
        self.device.release(block.address, block.size)

    # ── expandable segments ─────────────────────────────────────────────────────────────────────────────────────────────────────────
    #
    #     reservation   ├───────────┬───────────┬───────────┬───────────┬─ ─ ─┤     pages of 2 or 20 MiB
    #     blocks        │ A │ free  │       hole            │ B │ free  │ hole │    holes begin and end at pages

    def obtain_expandable(self, pool: Pool, stream: int, size: int, large_page: int) -> Block | None:
        """Return a free block of at least *size* bytes, taken out of the free set, by mapping pages; None where there is no room.

        What was mapped before the room ran out stays as a free block.
        """
        block = self._find_place(pool, stream, size, self.page(pool, large_page))
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            hole = block.next
            if hole is None or not self._map(hole, min(size - block.size, hole.size)):
                return None
            block = hole
        pool.remove(block)
        return block

    @staticmethod
    def page(pool: Pool, large_page: int) -> int:
        """Return the page size of expandable segments of *pool*."""
        return SMALL_SEGMENT if pool.small else large_page

    def reservation_size(self, page: int) -> int:
        """Return the bytes of a reserved range: the device and an eighth more, in whole pages."""
        return round_up(-(-9 * self.device.total // 8), page)

    def _find_place(self, pool: Pool, stream: int, size: int, page: int) -> Block:
        """Return the first block of the lowest run of free blocks and holes that can hold *size* bytes; of a new range where none can."""
        for _, hole in pool.unmapped.get(stream, ()):
            start = hole.prev if hole.prev is not None and hole.prev.idle else hole
            room, block = 0, start
            while block is not None and block.idle and room < size:
                room += block.size
                block = block.next  # type: ignore[assignment]
            if room >= size:
                return start
        length = self.reservation_size(page)
        reservation = Reservation(self.device.policy.reserve(length), length, page)
        whole = self.first_block(reservation.address, length, stream, pool, reservation)
        whole.mapped = False
        pool.insert_unmapped(whole)
        return whole

    def _map(self, hole: Block, size: int) -> bool:
        """Map at least *size* bytes at the start of a hole, in whole pages, and put the block in the free set; False without room."""
        pool = hole.pool
        size = round_up(size, hole.reservation.page)  # type: ignore[union-attr]
        if not self.device.map(size):
            return False
        pool.remove_unmapped(hole)
        address = hole.address
        if size < hole.size:
            rest = self.piece(hole, address + size, hole.size - size)
            rest.mapped = False
            rest.place_between(hole, hole.next)
            pool.insert_unmapped(rest)
            hole.size = size
        hole.mapped = True
        self._merge_free(hole)
        pool.insert(hole)
        self.reserved += size
        if pool.owner is not None:
            pool.owner.reserved += size
        self.log.record((SEGMENT_MAP, address, size, hole.stream, pool.number, 0, 0, 0))
        return True

    def unmap(self, block: Block) -> None:
        """Unmap the whole pages inside a free block; what is left of it at either end stays free. An empty range is given up."""
        pool, reservation = block.pool, block.reservation
        page = reservation.page  # type: ignore[union-attr]
        offset = block.address - reservation.address  # type: ignore[union-attr]
        start = round_up(offset, page) - offset
        size = (offset + block.size) // page * page - offset - start
        if size <= 0:
            return
        pool.remove(block)
        if start:
            head = self.piece(block, block.address, start)
            head.place_between(block.prev, block)
            pool.insert(head)
        if after := block.size - start - size:
            tail = self.piece(block, block.address + start + size, after)
            tail.place_between(block, block.next)
            pool.insert(tail)
        address = block.address + start
        block.address, block.size, block.mapped = address, size, False
        for hole in (block.prev, block.next):
            if hole is not None and not hole.mapped:
                pool.remove_unmapped(hole)
                block.absorb(hole)
        self.reserved -= size
        self.device.unmap(size)
        if pool.owner is not None:
            pool.owner.reserved -= size
        self.log.record((SEGMENT_UNMAP, address, size, block.stream, pool.number, 0, 0, 0))
        if block.split:
            pool.insert_unmapped(block)

    @staticmethod
    def _merge_free(block: Block) -> None:
        """Let a mapped block absorb its free neighbours."""
        for neighbour in (block.prev, block.next):
            if neighbour is not None and neighbour.key is not None:
                block.pool.remove(neighbour)
                block.absorb(neighbour)
