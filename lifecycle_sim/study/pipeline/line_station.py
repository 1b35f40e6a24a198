"""The stages and machines of a line while it runs: who waits where, and what each machine has in hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from lifecycle_sim.study.pipeline.line import NO_TIME, Line, LineCapacity, Order, OutputFrom, SetUp, Stage


class Machine:
    """A machine and what it has in hand.

    Attributes:
        station: where it stands.
        number: which one of its stage it is, from 0.
        batch: the visits it works on.
        left: how many of them have not moved on.
        job: number of its work in the log.
        kind: the kind of item that it is set up for, None at first.
        life: working time until it fails.
    """

    __slots__ = ("batch", "job", "kind", "left", "life", "lives", "number", "repairs", "station")

    def __init__(self, station: Station, number: int, line: Line, replication: int) -> None:
        self.station, self.number = station, number
        self.batch: list[int] = []
        self.left = self.job = 0
        self.kind: int | None = None
        breakdown, name = station.stage.breakdown, station.stage.name
        if breakdown is not None:
            self.lives: Iterator[int] = breakdown.every.one_by_one(line.seed, replication, "every", name, number)
            self.repairs: Iterator[int] = breakdown.repair.one_by_one(line.seed, replication, "repair", name, number)
            self.life = max(1, next(self.lives))

    def repair_within(self, work: int) -> int:
        """Return how long repairs take in *work*, which wears the machine. It fails at the end of its life, not before."""
        repair = 0
        while self.life < work:
            repair += next(self.repairs)
            self.life += max(1, next(self.lives))
        self.life -= work
        return repair


class Station:
    """A stage in a run.

    Attributes:
        stage: what it is.
        index: its number.
        machines: its machines.
        idle: numbers of those that have nothing in hand, ascending.
        queue: who waits: visits, or (key, number, visit) in a heap.
        inside: how many wait or are on their way.
        coming: how many visits have not come yet.
        blocked: who waits in machines before it to come in, with the machine.
        growing: who is done here and has no room for the output.
        outside: items that wait to enter here.
        level: what is occupied here; kept only where capacities block.
    """

    __slots__ = (
        "batch", "blocked", "coming", "fifo", "growing", "idle", "index", "inside", "level",
        "listed", "machines", "order", "outside", "places", "queue", "room", "setups", "simple", "stage",
    )  # fmt: skip

    def __init__(self, stage: Stage, index: int, line: Line, replication: int, coming: int) -> None:
        self.stage, self.index, self.coming = stage, index, coming
        self.machines = [Machine(self, number, line, replication) for number in range(stage.machines)]
        self.idle = list(range(stage.machines))
        self.order, self.fifo = stage.order, stage.order in (Order.FIFO, Order.LIFO)
        self.queue: Any = deque() if self.fifo else []
        self.inside = self.level = 0
        self.places, self.batch = stage.buffer, stage.batch
        self.room = stage.capacity if line.mode is LineCapacity.BLOCK else None
        self.blocked: deque[tuple[Machine, int]] = deque()
        self.growing: deque[tuple[Machine, int]] = deque()
        self.outside: deque[int] = deque()
        self.simple = (stage.batch, stage.order, stage.setup, stage.breakdown) == (1, Order.FIFO, NO_TIME, None)
        self.simple &= stage.setup_when is SetUp.BATCH and (line.mode is LineCapacity.LINE or stage.output_from is OutputFrom.DONE)
        self.setups = stage.setup.one_by_one(line.seed, replication, "setup", stage.name)
        self.listed = False
