"""The device behind the allocator: how many bytes it has, and which addresses it gives."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Protocol

from lifecycle_sim.errors import InputError
from lifecycle_sim.replay.allocator.rounding import round_up

GRANULARITY = 2 << 20
"""The driver gives segments in multiples of this."""
FIRST_SEGMENT, FIRST_RESERVATION = 0x7F00_0000_0000, 0x5000_0000_0000
LAST_SEGMENT = 1 << 47
"""Ranges are reserved outside the addresses from ``FIRST_SEGMENT`` to here."""
RESERVATION_SPACING = 1 << 40
NOMINAL_CAPACITY = 1 << 40
"""What an unlimited device states as its size; it only decides how large the reservations of expandable segments are."""


class AddressPolicy(Protocol):
    """Chooses addresses; the allocator's own decisions depend on them only in ties and in the order of frees."""

    def place(self, size: int) -> int | None:
        """Return the address of a new segment of *size* bytes, or None to refuse it."""

    def vacate(self, address: int, size: int) -> None:
        """Take note that the segment at *address* is gone."""

    def occupy(self, address: int, size: int) -> None:
        """Take note of a segment that was there before."""

    def reserve(self, size: int) -> int:
        """Return the address of a new reserved range of *size* bytes."""


class NextAddress:
    """Gives ever higher addresses and never the same one twice."""

    def __init__(self, first: int = FIRST_SEGMENT, first_reservation: int = FIRST_RESERVATION) -> None:
        self._next, self._next_reservation = first, first_reservation
        self._occupied: list[tuple[int, int]] = []

    def place(self, size: int) -> int | None:
        """Return the address behind the segment placed last."""
        address, self._next = self._next, self._next + round_up(size, GRANULARITY)
        return address

    def vacate(self, address: int, size: int) -> None:
        """Do nothing: the address is not given again."""

    def occupy(self, address: int, size: int) -> None:
        """Place later segments above this one, and later ranges beside it."""
        self._next = max(self._next, round_up(address + size, GRANULARITY))
        self._occupied.append((address, address + size))

    def reserve(self, size: int) -> int:
        """Return the first address behind the range reserved last where the new one meets nothing."""
        length = round_up(size, RESERVATION_SPACING)
        address = self._next_reservation
        if FIRST_SEGMENT < address + length <= LAST_SEGMENT:
            address = LAST_SEGMENT
        while any(start < address + length and address < end for start, end in self._occupied):
            address += length
        self._next_reservation = address + length
        return address


class LowestAddress(NextAddress):
    """Gives the lowest address at which the segment fits, so that addresses come again."""

    def __init__(self, first: int = FIRST_SEGMENT, first_reservation: int = FIRST_RESERVATION) -> None:
        super().__init__(first, first_reservation)
        self._first = first
        self._taken: list[tuple[int, int]] = []

    def place(self, size: int) -> int | None:
        """Return the start of the first gap that is large enough."""
        size, address = round_up(size, GRANULARITY), self._first
        for start, length in self._taken:
            if start - address >= size:
                break
            address = max(address, start + length)
        insort(self._taken, (address, size))
        return address

    def vacate(self, address: int, size: int) -> None:
        """Open the gap again."""
        del self._taken[bisect_left(self._taken, (address, round_up(size, GRANULARITY)))]

    def occupy(self, address: int, size: int) -> None:
        """Close the gap that holds this segment."""
        super().occupy(address, size)
        insort(self._taken, (address, round_up(size, GRANULARITY)))


class RecordedAddresses:
    """Gives the addresses that a recording holds, in its order; when they run out, those of another policy.

    Args:
        segments: the addresses of new segments.
        reservations: the addresses of new reserved ranges.
        then: what to ask when a sequence has run out.
    """

    def __init__(self, segments: Iterable[int] = (), reservations: Iterable[int] = (), then: AddressPolicy | None = None) -> None:
        self._segments, self._reservations = iter(segments), iter(reservations)
        self._then: AddressPolicy = then or NextAddress()
        self._recorded: set[int] = set()

    def place(self, size: int) -> int | None:
        """Return the next recorded address."""
        address = next(self._segments, None)
        if address is None:
            return self._then.place(size)
        self._recorded.add(address)
        return address

    def vacate(self, address: int, size: int) -> None:
        """Forget the segment."""
        if address in self._recorded:
            self._recorded.discard(address)
        else:
            self._then.vacate(address, size)

    def occupy(self, address: int, size: int) -> None:
        """Remember a segment that was there before."""
        self._recorded.add(address)

    def reserve(self, size: int) -> int:
        """Return the next recorded address of a reserved range."""
        address = next(self._reservations, None)
        return self._then.reserve(size) if address is None else address


class Device:
    """A device of some capacity.

    Args:
        capacity: its bytes; None is a device that never refuses.
        policy: what chooses addresses, :class:`NextAddress` by default.
        foreign: bytes that others hold on it.

    Raises:
        InputError: a negative capacity or share.
    """

    def __init__(self, capacity: int | None = None, policy: AddressPolicy | None = None, foreign: int = 0) -> None:
        if foreign < 0 or (capacity is not None and capacity < 0):
            raise InputError(f"device of {capacity} bytes, {foreign} of them held by others: neither can be negative")
        self.capacity = capacity
        self.policy: AddressPolicy = policy or NextAddress()
        self.held = foreign

    @property
    def total(self) -> int:
        """The bytes that the device states as its size."""
        return NOMINAL_CAPACITY if self.capacity is None else self.capacity

    @property
    def free(self) -> int:
        """Bytes that are still to be had."""
        return max(self.total - self.held, 0)

    def allocate(self, size: int) -> int | None:
        """Return the address of a new segment of *size* bytes, or None where there is no room."""
        length = round_up(size, GRANULARITY)
        if not self.has_room(length):
            return None
        address = self.policy.place(size)
        if address is not None:
            self.held += length
        return address

    def release(self, address: int, size: int) -> None:
        """Take the segment at *address* back."""
        self.held -= round_up(size, GRANULARITY)
        self.policy.vacate(address, size)

    def adopt(self, address: int, size: int, mapped: bool = False) -> None:
        """Count a segment, or with *mapped* a mapped run, that was there before."""
        self.held += size if mapped else round_up(size, GRANULARITY)
        if not mapped:
            self.policy.occupy(address, size)

    def has_room(self, size: int) -> bool:
        """Whether *size* more bytes fit."""
        return self.capacity is None or self.held + size <= self.capacity

    def map(self, size: int) -> bool:
        """Take *size* bytes for pages of a reserved range, all or nothing; False where there is no room."""
        if not self.has_room(size):
            return False
        self.held += size
        return True

    def unmap(self, size: int) -> None:
        """Take *size* bytes of pages back."""
        self.held -= size
