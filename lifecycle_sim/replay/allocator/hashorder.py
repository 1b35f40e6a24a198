"""A table that is walked in the order of the hash map that PyTorch keeps streams and pools in.

The order in which several streams' events are looked at decides the order of deferred frees, and it is that map's slot order: robin
hood hashing with linear probing, power-of-two sizes, half full at most; the slot is the top bits of the hash times 2^64 over the golden
ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

V = TypeVar("V")

_GOLDEN = 11400714819323198485
_MASK = (1 << 64) - 1
_LEAST_SLOTS, _LEAST_PROBES = 4, 4


class _Entry(Generic[V]):
    """A key with its value and its distance from the slot that its hash asks for."""

    __slots__ = ("distance", "key", "value")

    def __init__(self, key: int, value: V) -> None:
        self.key, self.value, self.distance = key, value, 0


class SlotTable(Generic[V]):
    """A mapping from integers that is walked in slot order.

    Args:
        hashed: the hash of a key, as an unsigned 64-bit integer.
    """

    __slots__ = ("_bits", "_entries", "_hashed", "_probes", "_size")

    def __init__(self, hashed: Callable[[int], int]) -> None:
        self._hashed = hashed
        self._entries: list[_Entry[V] | None] = []
        self._bits, self._probes, self._size = 0, 0, 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[int, V]]:
        return ((entry.key, entry.value) for entry in self._entries if entry is not None)

    def __contains__(self, key: int) -> bool:
        return any(entry is not None and entry.key == key for entry in self._entries)

    def get(self, key: int) -> V | None:
        """Return the value of *key*, or None."""
        return next((entry.value for entry in self._entries if entry is not None and entry.key == key), None)

    def add(self, key: int, value: V) -> V:
        """Return the value of *key*, which is *value* when the key is new."""
        known = self.get(key)
        if known is not None or key in self:
            return known if known is not None else value
        self._insert(_Entry(key, value))
        return value

    def clear(self) -> None:
        """Take everything out; the number of slots stays."""
        self._entries = [None] * len(self._entries)
        self._size = 0

    def discard(self, key: int) -> None:
        """Take *key* out and move the entries behind it up, until one is where its hash asks for."""
        at = next((i for i, entry in enumerate(self._entries) if entry is not None and entry.key == key), None)
        if at is None:
            return
        self._size -= 1
        for following in range(at + 1, len(self._entries)):
            entry = self._entries[following]
            if entry is None or entry.distance == 0:
                break
            entry.distance -= 1
            self._entries[at] = entry
            at = following
        self._entries[at] = None

    def drain(self, each: Callable[[int, V], bool]) -> None:
        """Call *each* on every key and value in slot order and take out those for which it returns True.

        An entry that moves up into the place of one taken out is looked at next.
        """
        at = 0
        while at < len(self._entries):
            entry = self._entries[at]
            if entry is not None and each(entry.key, entry.value):
                self.discard(entry.key)
            else:
                at += 1

    def _insert(self, entry: _Entry[V]) -> None:
        if 2 * (self._size + 1) > 1 << self._bits or not self._entries:
            self._grow()
        at = ((_GOLDEN * self._hashed(entry.key)) & _MASK) >> (64 - self._bits)
        entry.distance = 0
        while True:
            here = self._entries[at] if entry.distance < self._probes else None
            if entry.distance == self._probes:
                self._grow()
                self._insert(entry)
                return
            if here is None:
                self._entries[at] = entry
                self._size += 1
                return
            if here.distance < entry.distance:
                self._entries[at], entry = entry, here
            at += 1
            entry.distance += 1

    def _grow(self) -> None:
        entries = [entry for entry in self._entries if entry is not None]
        slots = max(_LEAST_SLOTS, 2 << self._bits if self._entries else 0)
        self._bits = slots.bit_length() - 1
        self._probes = max(_LEAST_PROBES, self._bits)
        self._entries = [None] * (slots + self._probes)
        self._size = 0
        for entry in entries:
            self._insert(entry)
