"""The Program: what would make a Trace. Storages with the events that name them, or with the operators that read and write them.

A program is either a list of planned events at known times, or a graph of operators whose times follow from their durations and from
what they wait for. ``docs/events.md`` states the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from lifecycle_sim.events import Category, Clock, Kind
from lifecycle_sim.program.places import Place

DEFAULT_STREAM = "default"
STATIC_CATEGORIES = (Category.PARAMETER, Category.BUFFER, Category.GRADIENT, Category.OPTIMIZER_STATE)


class Lives(StrEnum):
    """How long a storage of an operator program lives."""

    STEP = "step"
    """From the start of its first writer to the end of its last reader or writer in the step."""
    KEPT = "kept"
    """From the start of its first writer until an operator frees it, or for good: optimizer state."""
    GIVEN = "given"
    """There before the first operator, until an operator frees it, or for good: parameters."""


class SameInstant(StrEnum):
    """What comes first where frees and allocations fall on one instant."""

    FREES_FIRST = "frees-first"
    """Live intervals are half-open: what ends at t makes room for what begins at t."""
    ALLOCS_FIRST = "allocs-first"
    """What begins at t is there before what ends at t goes: ``x = f(x)``."""


class CapacityMode(StrEnum):
    """What a program does with its capacity. The two are never the same question."""

    LINE = "line"
    """Compare the level with it; nothing in the run changes."""
    WAIT = "wait"
    """Operators wait until there is room; the level never passes it."""


class InSteps(StrEnum):
    """The steps in which an operator runs."""

    ALL = "all"
    FIRST = "first"
    LATER = "later"


@dataclass(frozen=True)
class Storage:
    """What owns bytes, or a further name for it.

    Attributes:
        name: unique among the program's storages.
        size: bytes; of no meaning where ``shares`` is given.
        category: what it is for.
        owner: module path that allocates it, where known.
        lives: how long it lives in an operator program.
        shares: the storage (or name of one) that this is a further name for; it then adds no bytes.
        place: where the scenario declares it.
    """

    name: str
    size: int = 0
    category: Category = Category.UNKNOWN
    owner: str | None = None
    lives: Lives = Lives.STEP
    shares: str | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class PlannedEvent:
    """An event at a known time.

    Attributes:
        at: its time in the program's clock.
        kind: ``ALLOC``, ``FREE`` (one name goes; the last to go frees the storage) or ``SHARE``.
        name: the storage's name, or for a free any name of it.
        alias: the further name that a share gives.
        stream: the stream it happens on.
        place: where the scenario says so.
    """

    at: int
    kind: Kind
    name: str
    alias: str | None = None
    stream: str = DEFAULT_STREAM
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Operator:
    """Something that runs on a stream for a while, reading and writing storages.

    Attributes:
        name: unique among the program's operators.
        duration: in the program's clock; zero is allowed.
        stream: where it runs, after the operator before it on the same stream.
        reads: names it reads.
        writes: names it writes; the ones that are not live are allocated at its start.
        frees: kept or given names that go at its end.
        temporaries: bytes of storages that live exactly while it runs.
        phase: forward, backward or optimizer, or None.
        after: operators of the same step that it waits for beside its inputs.
        steps: the steps in which it runs.
        place: where the scenario declares it.
    """

    name: str
    duration: int = 0
    stream: str = DEFAULT_STREAM
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    frees: tuple[str, ...] = ()
    temporaries: tuple[int, ...] = ()
    phase: str | None = None
    after: tuple[str, ...] = ()
    steps: InSteps = InSteps.ALL
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Capacity:
    """A device's bytes, and whether they are a line to compare with or room to wait for."""

    size: int
    mode: CapacityMode = CapacityMode.LINE


@dataclass(frozen=True)
class Program:
    """What would make a Trace: storages with planned events, or with operators.

    Attributes:
        storages: all storages and further names.
        events: planned events, in the order written; empty in an operator program.
        operators: in program order: of two that touch one storage, the first here goes first.
        streams: names of the streams; the index is the stream's number in the trace.
        steps: how often the operators run, or None for once and without steps.
        clock: what times and durations count.
        same_instant: what comes first at one instant.
        capacity: the device's bytes, where stated.
        device: the device's name.
        horizon: the time over which averages are taken, from 0, in the program's clock; None for the time the run takes.
        title: one line for people.
        parameters: the parameters it was made with.
        source: the name of the file it came from.
    """

    storages: tuple[Storage, ...] = ()
    events: tuple[PlannedEvent, ...] = ()
    operators: tuple[Operator, ...] = ()
    streams: tuple[str, ...] = (DEFAULT_STREAM,)
    steps: int | None = None
    clock: Clock = Clock.TICKS
    same_instant: SameInstant = SameInstant.FREES_FIRST
    capacity: Capacity | None = None
    device: str = "device"
    horizon: int | None = None
    title: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict)
    source: str = "scenario"

    def __repr__(self) -> str:
        parts = [f"{len(self.storages):,} storages"]
        parts += [f"{len(rows):,} {what}" for rows, what in ((self.events, "events"), (self.operators, "operators")) if rows]
        parts += [f"{self.steps:,} steps"] if self.steps is not None else []
        return f"Program({self.source!r}, {', '.join(parts)})"


class Edge(NamedTuple):
    """Operator number ``after`` waits for operator number ``before``, because of ``why``."""

    before: int
    after: int
    why: str


def operators_of(program: Program, step: int) -> tuple[Operator, ...]:
    """Return the operators that run in step number *step*, from 1."""
    skipped = InSteps.LATER if step == 1 else InSteps.FIRST
    return tuple(operator for operator in program.operators if operator.steps != skipped)


def roots(program: Program) -> dict[str, str]:
    """Return for every name the name of the storage that owns its bytes; names that share each other in a circle are left out."""
    shares = {storage.name: storage.shares for storage in program.storages}
    found: dict[str, str] = {}
    circular: set[str] = set()
    for name in shares:
        chain = {name: None}
        target = shares[name]
        while target is not None and target not in found and target not in circular and target not in chain:
            chain[target] = None
            target = shares.get(target)
        if target is None:
            found.update(dict.fromkeys(chain, next(reversed(chain))))
        elif target in found:
            found.update(dict.fromkeys(chain, found[target]))
        else:
            circular.update(chain)
    return found


def edges(program: Program, operators: Sequence[Operator]) -> list[Edge]:
    """Return what each of *operators* waits for, at most one edge for each pair.

    An operator waits for the one before it on its stream, for those its ``after`` names, and over each storage in program order: a
    reader for the last writer before it, a writer (or one that frees) also for the readers since then. Making a further name of a
    storage reads it; later writes through that name write it.
    """
    owner = roots(program)
    maker = {storage.name for storage in program.storages if storage.shares is not None and storage.lives is Lives.STEP}
    number = {operator.name: index for index, operator in enumerate(operators)}
    found: dict[tuple[int, int], Edge] = {}
    last_on_stream: dict[str, int] = {}
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}

    def wait(after: int, before: int, why: str) -> None:
        if before != after or why == "after":
            found.setdefault((before, after), Edge(before, after, why))

    for index, operator in enumerate(operators):
        if operator.stream in last_on_stream:
            wait(index, last_on_stream[operator.stream], f"stream {operator.stream!r}")
        last_on_stream[operator.stream] = index
        for name in operator.after:
            if name in number:
                wait(index, number[name], "after")
        makes = [name for name in operator.writes if name in maker]
        maker.difference_update(makes)
        written = dict.fromkeys(owner.get(name, name) for name in (*operator.writes, *operator.frees) if name not in makes)
        read = dict.fromkeys(owner.get(name, name) for name in (*operator.reads, *makes))
        for name in dict.fromkeys((*read, *written)):
            if name in writer:
                wait(index, writer[name], f"storage {name!r}")
        for name in written:
            for reader in readers.pop(name, ()):
                wait(index, reader, f"storage {name!r}")
            writer[name] = index
        for name in read:
            if name not in written:
                readers.setdefault(name, []).append(index)
    return list(found.values())


def find_cycle(count: int, waits: Sequence[Edge]) -> list[Edge]:
    """Return edges that close a cycle among *count* operators, or nothing if there is none."""
    left = [0] * count
    followers: dict[int, list[int]] = {}
    for edge in waits:
        left[edge.after] += 1
        followers.setdefault(edge.before, []).append(edge.after)
    free = [index for index in range(count) if not left[index]]
    for index in free:
        for follower in followers.get(index, ()):
            left[follower] -= 1
            if not left[follower]:
                free.append(follower)
    if len(free) == count:
        return []
    import networkx

    by_pair = {(edge.before, edge.after): edge for edge in waits if left[edge.before] and left[edge.after]}
    return [by_pair[pair[0], pair[1]] for pair in networkx.find_cycle(networkx.DiGraph(list(by_pair)))]


def dependency_graph(program: Program, step: int = 1) -> Any:
    """Return the operators of step *step* as a ``networkx.DiGraph``: nodes are names, edges run from what is waited for, with ``why``."""
    import networkx

    operators = operators_of(program, step)
    graph = networkx.DiGraph()
    for operator in operators:
        graph.add_node(operator.name, stream=operator.stream, duration=operator.duration, phase=operator.phase)
    for edge in edges(program, operators):
        graph.add_edge(operators[edge.before].name, operators[edge.after].name, why=edge.why)
    return graph


def ordered_events(program: Program) -> list[PlannedEvent]:
    """Return the planned events in the order in which they happen: by time, then by the same-instant rule, then as written.

    Frees first: frees, allocations, shares. Allocations first: allocations, shares, frees.
    """
    first = Kind.FREE if program.same_instant is SameInstant.FREES_FIRST else Kind.ALLOC
    rank = {Kind.ALLOC: 1, Kind.SHARE: 2, Kind.FREE: 3} | {first: 0}
    return sorted(program.events, key=lambda event: (event.at, rank[event.kind]))


def static_table(program: Program) -> dict[Category, int]:
    """Return the bytes of parameters, buffers, gradients and optimizer state, each storage once: the table that is there whatever happens.

    It says nothing about when they are there, and leaves out activations, inputs, temporaries and everything else that comes and goes.
    """
    table = dict.fromkeys(STATIC_CATEGORIES, 0)
    for storage in program.storages:
        if storage.shares is None and storage.category in table:
            table[storage.category] += storage.size
    return table
