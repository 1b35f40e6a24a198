"""The ledger of a run: names of storages and what became of them, written down as the events of a Trace."""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.events import NO_STACK, Category, Events, Frame, Kind, StackBuilder
from lifecycle_sim.program.expressions import LIMIT


@dataclass(eq=False)
class Generation:
    """One live interval of a storage: its number is the identity, ``names`` counts how many names it has now."""

    number: int
    name: str
    size: int
    category: Category
    stream: int
    names: int = 1


class Ledger:
    """Writes events and keeps the level; a storage is freed when its last name goes.

    Attributes:
        level: bytes live now, a Python integer.
        live: the generation behind each live name.
        stacks: the allocating owners.
    """

    def __init__(self) -> None:
        self.level = 0
        self.live: dict[str, Generation] = {}
        self.stacks = StackBuilder()
        self._generations = 0
        self._labels: dict[str, int] = {}
        self._rows: list[tuple[int, int, int, int, int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def labels(self) -> tuple[str, ...]:
        """The distinct names, in order of first appearance."""
        return tuple(self._labels)

    def alloc(self, time: int, name: str, size: int, category: Category, stream: int, frame: Frame) -> Generation:
        """Begin a live interval without entering its name; see :meth:`begin`."""
        generation = Generation(self._generations, name, size, category, stream)
        self._generations += 1
        self.level += size
        self._write(Kind.ALLOC, time, generation, name, self.stacks.add((frame,)))
        return generation

    def begin(self, time: int, name: str, size: int, category: Category, stream: int, frame: Frame) -> None:
        """Begin a live interval under *name*."""
        self.live[name] = self.alloc(time, name, size, category, stream, frame)

    def share(self, time: int, name: str, alias: str) -> None:
        """Give the storage that *name* names the further name *alias*."""
        generation = self.live[name]
        generation.names += 1
        self.live[alias] = generation
        self._write(Kind.SHARE, time, generation, alias)

    def drop(self, time: int, name: str) -> None:
        """Let *name* go: the storage is freed if it was the last one, else the name is released."""
        generation = self.live.pop(name)
        generation.names -= 1
        if generation.names:
            self._write(Kind.RELEASE, time, generation, name)
        else:
            self.free(time, generation)

    def free(self, time: int, generation: Generation) -> None:
        """End a live interval."""
        self.level -= generation.size
        self._write(Kind.FREE, time, generation, generation.name)

    def events(self) -> Events:
        """Return the events written so far, as columns.

        Raises:
            ScenarioError: a time of 2**63 or more.
        """
        if self._rows and self._rows[-1][4] >= LIMIT:
            raise ScenarioError("the run lasts 2**63 or more: use a coarser unit of time, or fewer steps")
        kind, address, size, stream, time, stack, label, category = zip(*self._rows, strict=True) if self._rows else ((),) * 8
        return Events.of(kind, address, size, stream=stream, time=time, stack=stack, label=label, category=category)

    def _write(self, kind: Kind, time: int, generation: Generation, label: str, stack: int = NO_STACK) -> None:
        number = self._labels.setdefault(label, len(self._labels))
        row = (kind, generation.number, generation.size, generation.stream, time, stack, number, generation.category)
        self._rows.append(row)
