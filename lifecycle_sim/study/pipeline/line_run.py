"""The record of a run of a line: when each item came, entered and left, and when each visit of a stage began, was done and ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lifecycle_sim.events.trace import Bool, Int64
from lifecycle_sim.study.pipeline.line import Arrivals, ItemKind, Line, sizes_along
from lifecycle_sim.study.pipeline.line_draws import source_for

NEVER = -1
"""Stands for a time that did not come."""


@dataclass(frozen=True, eq=False)
class Agenda:
    """What will come and what it will need, drawn before anything runs. Items are numbered by when they come.

    Attributes:
        kind: number of each item's kind.
        number: which one of its kind each item is, from 0.
        arrive: when it comes.
        first: its first visit, and behind the last item the number of all visits.
        item: the item of each visit; the visits of an item stand one behind the other.
        stage: number of the stage of each visit.
        work: working time of each visit.
        transport: time from the stage of each visit to the next one; 0 for the last.
        size: what the item occupies when it comes to the stage.
        output: what it occupies after it.
    """

    kind: Int64
    number: Int64
    arrive: Int64
    first: Int64
    item: Int64
    stage: Int64
    work: Int64
    transport: Int64
    size: Int64
    output: Int64


def agenda(line: Line, replication: int = 0) -> Agenda:
    """Draw what *line* needs in a replication."""
    kind = np.repeat(np.arange(len(line.kinds)), [each.count for each in line.kinds])
    number = np.concatenate([np.arange(each.count) for each in line.kinds])
    arrive = np.concatenate([_arrivals(line, each, replication) for each in line.kinds])
    order = np.argsort(arrive, kind="stable")
    kind, number, arrive = kind[order], number[order], arrive[order]
    lengths = np.array([len(each.route) for each in line.kinds])[kind]
    first = np.concatenate([[0], np.cumsum(lengths)])
    stage_number = {stage.name: at for at, stage in enumerate(line.stages)}
    stage, work, transport = (np.zeros(first[-1], np.int64) for _ in range(3))
    largest = max((max(sizes_along(line, each)) for each in line.kinds), default=0)
    size, output = (np.zeros(first[-1], np.int64 if largest < 2**63 else object) for _ in range(2))
    for at, each in enumerate(line.kinds):
        begin = first[:-1][kind == at]
        sizes = sizes_along(line, each)
        for position, name in enumerate(each.route):
            here = line.stage(name)
            what = (name, each.name, position)
            stage[begin + position] = stage_number[name]
            work[begin + position] = each.times.get(name, here.time).sample(source_for(line.seed, replication, "time", *what), each.count)
            if position + 1 < len(each.route):
                source = source_for(line.seed, replication, "transport", *what)
                transport[begin + position] = here.transport.sample(source, each.count)
            size[begin + position], output[begin + position] = sizes[position], sizes[position + 1]
    return Agenda(kind, number, arrive, first, np.repeat(np.arange(len(kind)), lengths), stage, work, transport, size, output)


def _arrivals(line: Line, kind: ItemKind, replication: int) -> Int64:
    source = source_for(line.seed, replication, "arrivals", kind.name)
    match kind.arrivals:
        case Arrivals.EXPLICIT:
            return np.array(kind.at, np.int64) + kind.start
        case Arrivals.BURST:
            return np.full(kind.count, kind.start, np.int64)
        case Arrivals.EVEN:
            return (
                kind.start + kind.every.times[0] * np.arange(kind.count, dtype=np.int64)
                if not kind.every.random
                else _renewal(kind, source)
            )
        case Arrivals.DRAWN:
            return _renewal(kind, source)
        case Arrivals.POISSON:
            return kind.start + np.rint(np.cumsum(source.exponential(kind.every.mean, kind.count))).astype(np.int64)


def _renewal(kind: ItemKind, source: np.random.Generator) -> Int64:
    gaps = np.maximum(kind.every.raw(source, kind.count).astype(float), 0.0)
    gaps[0] = 0.0
    times: Int64 = kind.start + np.rint(np.cumsum(gaps)).astype(np.int64)
    return times


@dataclass(frozen=True, eq=False)
class Jobs:
    """What machines did: a batch each.

    Attributes:
        stage: number of the stage.
        machine: number of the machine, from 0.
        begin: when it took the batch.
        setup: time of set-up at the beginning.
        repair: time of repairs in between.
        work: working time.
        done: when it was done; ``begin + setup + repair + work``.
        release: when the last item of the batch had left the machine, ``NEVER`` if it has not.
        items: how many items the batch had.
    """

    stage: Int64
    machine: Int64
    begin: Int64
    setup: Int64
    repair: Int64
    work: Int64
    done: Int64
    release: Int64
    items: Int64


@dataclass(frozen=True)
class Wait:
    """Someone who waits in a deadlock.

    Attributes:
        who: a machine, as ``"press, machine 1"``, or ``"outside"``.
        item: the item it waits with.
        what: what for: a place at a stage, room in the line, room in a stage.
        held_by: who would have to let go for that.
    """

    who: str
    item: str
    what: str
    held_by: tuple[str, ...]


@dataclass(frozen=True)
class Deadlock:
    """A line in which nobody can go on.

    Attributes:
        time: since when.
        cycle: the waits that lead back to where they begin: each waits for what the next one holds.
        inside: how many items are stuck in the line.
        outside: how many wait to enter it.
    """

    time: int
    cycle: tuple[Wait, ...]
    inside: int
    outside: int


@dataclass(frozen=True, eq=False)
class LineRun:
    """One run of a line.

    Attributes:
        line: what was run.
        replication: with which draws.
        agenda: what came and what it needed.
        entered: when each item entered the line; ``NEVER`` if it did not.
        left: when it left.
        lost: whether it was turned away.
        enter: when each visit's item came to the stage (after transport).
        start: when a machine took it.
        done: when the work was done.
        made: when the output was there; later than ``done`` if there was no room for it.
        leave: when the next stage accepted it, or it left the line.
        job: number in ``jobs``.
        jobs: what the machines did.
        end: when the last thing happened; that of a deadlock if there is one.
        deadlock: what nobody can get out of, None if all went well.
    """

    line: Line
    replication: int
    agenda: Agenda
    entered: Int64
    left: Int64
    lost: Bool
    enter: Int64
    start: Int64
    done: Int64
    made: Int64
    leave: Int64
    job: Int64
    jobs: Jobs
    end: int
    deadlock: Deadlock | None = None

    def __repr__(self) -> str:
        state = f", deadlocked at {self.deadlock.time}" if self.deadlock else ""
        return f"LineRun({len(self.entered):,} items, {len(self.enter):,} visits, until {self.end:,} {self.line.clock}{state})"

    def name(self, item: int) -> str:
        """Return what *item* is called: its kind and which one of it."""
        return f"{self.line.kinds[self.agenda.kind[item]].name} {self.agenda.number[item]}"
