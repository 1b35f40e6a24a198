"""Which storage a tensor is a view of, when it first was seen, when its size changed, and when it died.

A storage's Python object stays the same for as long as the storage lives in C++, so its ``id`` is its identity and a weak reference
to it tells the moment at which its memory goes. No reference that would keep anything alive is held.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from lifecycle_sim.sources.capture.ledger import Ledger, Where

NOTHING = -1
"""Stands for a storage of no bytes, or of the host: it has no number."""


class Identities:
    """Gives the storages that it is shown their numbers in *ledger*.

    Args:
        ledger: where allocations and frees are recorded.
        where: tells the place in the program.
    """

    def __init__(self, ledger: Ledger, where: Callable[[], Where]) -> None:
        self._ledger = ledger
        self._where = where
        self._numbers: dict[int, int] = {}
        self._deaths: dict[int, weakref.ref[Any]] = {}
        self._resize: Callable[..., Any] | None = None

    def see(self, tensor: Any, operator: str, where: Where | None = None) -> int:
        """Return the number of the storage of *tensor*, which *operator* made or changed; ``NOTHING`` if it has none."""
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        number = self._numbers.get(key)
        if number is None:
            if not size:
                return NOTHING
            number = self._ledger.alloc(size, operator, where or self._where())
            self._watch(storage, key, number)
        elif number != NOTHING and self._ledger.storages[number].size != size:
            number = self._resized(key, size, operator)
        return number

    def known(self, tensor: Any) -> int:
        """Return the number of the storage of *tensor*, ``NOTHING`` if it has none or was never seen."""
        return self._numbers.get(id(tensor.untyped_storage()), NOTHING)

    def on_host(self, tensor: Any) -> None:
        """Take note that the storage of *tensor*, if it was not seen before, is on the host and takes no bytes of the device."""
        storage = tensor.untyped_storage()
        if id(storage) not in self._numbers:
            self._watch(storage, id(storage), NOTHING)

    def is_on_host(self, tensor: Any) -> bool:
        """Whether the storage of *tensor* was noted to be on the host."""
        return self._numbers.get(id(tensor.untyped_storage())) == NOTHING

    def stand_in(self, tensor: Any, number: int, gone: Callable[[], None]) -> None:
        """Let the storage of *tensor* stand for storage *number* while it lives; call *gone* at its death."""
        storage = tensor.untyped_storage()
        key = id(storage)
        self._numbers[key] = number

        def died(_: Any) -> None:
            self._numbers.pop(key, None)
            self._deaths.pop(key, None)
            gone()

        self._deaths[key] = weakref.ref(storage, died)

    def _watch(self, storage: Any, key: int, number: int) -> None:
        self._numbers[key] = number
        self._deaths[key] = weakref.ref(storage, lambda _: self._died(key))

    def _died(self, key: int) -> None:
        self._deaths.pop(key, None)
        number = self._numbers.pop(key, NOTHING)
        if number != NOTHING:
            self._ledger.free(number, self._where().phase)

    def _resized(self, key: int, size: int, operator: str) -> int:
        """A storage that changes its size is a new lifecycle: the new memory is there before the old one goes."""
        old = self._numbers[key]
        before = self._ledger.storages[old]
        if size:
            number = self._ledger.alloc(size, operator, self._where())
            after = self._ledger.storages[number]
            after.category, after.name = before.category, before.name
            self._numbers[key] = number
        else:
            del self._numbers[key]
            del self._deaths[key]
            number = NOTHING
        self._ledger.free(old, self._where().phase)
        return number

    def follow_resizes(self) -> None:
        """Notice ``UntypedStorage.resize_``, which no operator tells of, until :meth:`unfollow_resizes`."""
        resize = self._resize = torch.UntypedStorage.resize_

        def resize_(storage: Any, size: int) -> Any:
            result = resize(storage, size)
            key, after = id(storage), storage.nbytes()
            number = self._numbers.get(key)
            if number is None:
                if after:
                    self._watch(storage, key, self._ledger.alloc(after, "UntypedStorage.resize_", self._where()))
            elif number != NOTHING and self._ledger.storages[number].size != after:
                self._resized(key, after, "UntypedStorage.resize_")
            return result

        torch.UntypedStorage.resize_ = resize_

    def unfollow_resizes(self) -> None:
        """Undo :meth:`follow_resizes`."""
        torch.UntypedStorage.resize_ = self._resize

    def forget(self) -> None:
        """Stop watching: what dies from now on is not recorded."""
        self._deaths.clear()
        self._numbers.clear()
