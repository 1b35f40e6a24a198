"""The record that tracking fills: storages by number, and the events of their lives in order. It knows nothing of torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from lifecycle_sim.events import Category
from lifecycle_sim.program.step_graph import Mark


class Phase(Enum):
    """What the program is doing."""

    NONE = None
    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"
    OPTIMIZER = "optimizer"


@dataclass(slots=True)
class Where:
    """The place of an event in the program: the phase, and the module paths from the innermost to the root."""

    phase: Phase
    modules: tuple[str, ...]


@dataclass(slots=True)
class StorageRecord:
    """One storage from its allocation on.

    Attributes:
        size: bytes.
        operator: what allocated it: an operator's name, or a term's, or how it came in.
        where: the place where it was allocated.
        born: its allocation's event.
        died: its free's event, None while it lives.
        category: what it is for, by the strongest evidence so far; None if only its life can tell.
        name: a parameter's, buffer's or state's name, where it has one.
        term: the named term that it belongs to, None for a tensor's storage.
        saved: whether autograd saved a tensor of it for backward.
        pointer: the address of its memory, where a recording asked for it; else 0.
    """

    size: int
    operator: str
    where: Where
    born: int
    died: int | None = None
    category: Category | None = None
    name: str | None = None
    term: str | None = None
    saved: bool = False
    pointer: int = 0


@dataclass
class Ledger:
    """Storages in the order of their allocation, and events as storage numbers: *n* for the allocation of storage n, ``~n`` for its free.

    Attributes:
        storages: the storages.
        events: the events.
        phases: the phase at each event.
        backwards: the events at which a backward pass began.
        steps: the events at which steps began and ended.
        marks: told of each allocation, and of each end of a natural lifetime; None if nobody asks.
    """

    storages: list[StorageRecord] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    marks: Callable[[int, int], None] | None = None
    _holds: dict[int, int] = field(default_factory=dict)
    _waiting: set[int] = field(default_factory=set)

    def alloc(self, size: int, operator: str, where: Where, term: str | None = None) -> int:
        """Record that *size* bytes were allocated; return the number of the storage."""
        number = len(self.storages)
        category = None if term is None else Category.WORKSPACE
        self.storages.append(StorageRecord(size, operator, where, len(self.events), term=term, category=category))
        self.events.append(number)
        self.phases.append(where.phase)
        if self.marks is not None:
            self.marks(Mark.ALLOC, number)
        return number

    def free(self, number: int, phase: Phase) -> None:
        """Record that the program let the storage *number* go: it is freed, unless it is held."""
        if self.marks is not None:
            self.marks(Mark.FREE, number)
        if self._holds.get(number):
            self._waiting.add(number)
        else:
            self._free(number, phase)

    def hold(self, number: int) -> None:
        """Autograd holds the storage *number* once more."""
        self._holds[number] = self._holds.get(number, 0) + 1

    def unhold(self, number: int, phase: Phase) -> None:
        """Autograd holds the storage *number* once less: it is freed if nobody else does."""
        self._holds[number] -= 1
        if not self._holds[number]:
            del self._holds[number]
            if number in self._waiting:
                self._waiting.discard(number)
                self._free(number, phase)

    def _free(self, number: int, phase: Phase) -> None:
        self.storages[number].died = len(self.events)
        self.events.append(~number)
        self.phases.append(phase)

    def backward_begins(self) -> None:
        """Record that a backward pass begins."""
        if not self.backwards or self.backwards[-1] != len(self.events):
            self.backwards.append(len(self.events))

    def categories(self) -> list[Category]:
        """Return the category of each storage: the one there is evidence for, else what its life tells.

        What was allocated in forward and is alive when a backward begins is an activation, and so is what is recomputed in backward; all
        else is temporary.
        """
        found = []
        starts = self.backwards
        at = 0
        for storage in self.storages:
            while at < len(starts) and starts[at] <= storage.born:
                at += 1
            if storage.category is not None:
                found.append(storage.category)
            elif storage.where.phase is Phase.RECOMPUTE or (
                storage.where.phase in (Phase.FORWARD, Phase.NONE)
                and at < len(starts)
                and (storage.died is None or starts[at] < storage.died)
            ):
                found.append(Category.ACTIVATION)
            else:
                found.append(Category.TEMPORARY)
        return found
