"""Who holds what while an edited step runs: holders of each storage counted, and the events that follow, in order."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.step_graph import StepGraph


class Happens(IntEnum):
    """What an event of an edited step is."""

    OPERATOR = 0
    """The operator ``value`` runs, as in the step as it was."""
    AGAIN = 1
    """The operator ``value`` runs again."""
    ALLOC = 2
    """The storage ``value`` is allocated."""
    FREE = 3
    """The storage ``value`` is freed."""


class Event(NamedTuple):
    """An event of an edited step.

    Attributes:
        happens: what it is.
        value: number of an operator or storage; storages from ``Edit.first_new`` on are new.
        mark: the mark of the step as it was at which it happens.
        again: whether it happens while a call runs again.
    """

    happens: Happens
    value: int
    mark: int
    again: bool = False


class Account:
    """Counts the holders of storages, and records their allocations and frees.

    A storage of the step as it was keeps its number. One that is allocated again is a copy, with a number of its own.

    Args:
        graph: the step.
        first_new: the number of the first copy.

    Attributes:
        events: what happened.
        copies: for each copy the storage that it is one of.
        sizes: bytes of each copy.
        at: the mark at which things happen now.
        again: whether a call runs again now.
    """

    def __init__(self, graph: StepGraph, first_new: int) -> None:
        self.events: list[Event] = []
        self.copies: list[int] = []
        self.sizes: list[int] = []
        self.at = 0
        self.again = False
        self._first = first_new
        self._sizes = graph.sizes
        self._holders: dict[int, int] = {}

    def begin(self, storages: Sequence[int]) -> None:
        """Take note of the storages that the program holds before the step."""
        for storage in storages:
            self._holders[storage] = 1

    def alloc(self, storage: int) -> int:
        """Allocate *storage*, held once."""
        self._holders[storage] = 1
        self.events.append(Event(Happens.ALLOC, storage, self.at, self.again))
        return storage

    def copy(self, storage: int, size: int | None = None) -> int:
        """Allocate another *storage*, held once; return its number."""
        self.copies.append(storage)
        self.sizes.append(self._sizes[storage] if size is None else size)
        return self.alloc(self._first + len(self.copies) - 1)

    def hold(self, storage: int) -> None:
        """Hold *storage* once more.

        Raises:
            InputError: it is not there: the marks contradict themselves.
        """
        if storage not in self._holders:
            raise self._contradiction(storage)
        self._holders[storage] += 1

    def is_live(self, storage: int) -> bool:
        """Whether *storage* has a holder."""
        return storage in self._holders

    def drop(self, storage: int | None) -> None:
        """Hold *storage* once less; free it if nobody else holds it.

        Raises:
            InputError: it is not there: the marks contradict themselves.
        """
        if storage is None:
            return
        if storage not in self._holders:
            raise self._contradiction(storage)
        holders = self._holders[storage] = self._holders[storage] - 1
        if not holders:
            del self._holders[storage]
            self.events.append(Event(Happens.FREE, storage, self.at, self.again))

    def _contradiction(self, storage: int) -> InputError:
        return InputError(
            f"the graph of the step contradicts itself at mark {self.at:,}: storage {storage} is not there. Capture the step again"
        )

    def ran(self, operator: int) -> None:
        """The *operator* runs, for the first time or again."""
        self.events.append(Event(Happens.AGAIN if self.again else Happens.OPERATOR, operator, self.at, self.again))
