"""What a line is: stages, kinds of items that go through them, and the capacity they share.

An item comes, enters the line, and visits the stages of its route one after the other. A visit looks like this::

    accepted        enter            start           done            leave
       |--transport---|----waits-------|----machine----|---blocked-----|
                      |  in the buffer |               | until the next stage accepts it

What the item occupies in the visit, the *input*, is there from accepted to done. If the stage makes an *output* of another size, that is
there from done (or, if the stage says so, from start) until the next stage accepts it; an input can be held until then as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lifecycle_sim.events import Clock
from lifecycle_sim.program.places import Place
from lifecycle_sim.study.pipeline.line_draws import Draw

NO_TIME = Draw.fixed(0)
COARSE = 100
"""Below a mean of so many units of the clock, rounding changes a drawn time by half a percent of the mean and more."""


class LineCapacity(StrEnum):
    """What a capacity does."""

    LINE = "line"
    """It is a line to compare with; nothing waits for it."""
    BLOCK = "block"
    """Items wait until there is room: they do not enter, do not begin, or stay where they are."""


class Order(StrEnum):
    """Which of the waiting items a machine takes next; among equals the one that came first."""

    FIFO = "fifo"
    LIFO = "lifo"
    SHORTEST = "shortest"
    LONGEST = "longest"
    SMALLEST = "smallest"
    LARGEST = "largest"
    PRIORITY = "priority"


class Per(StrEnum):
    """Whether a stage's time is that of a whole batch, as in an oven, or of each item in it, one after the other."""

    BATCH = "batch"
    ITEM = "item"


class SetUp(StrEnum):
    """When a machine is set up: for every batch, or when the kind of item changes (and at first)."""

    BATCH = "batch"
    CHANGE = "change"


class InputUntil(StrEnum):
    """How long a visit holds its input: until the work is done, or until the next stage has accepted the output."""

    DONE = "done"
    ACCEPTED = "accepted"


class OutputFrom(StrEnum):
    """From when a visit occupies the room of its output: when the work begins, or when it is done."""

    START = "start"
    DONE = "done"


class Arrivals(StrEnum):
    """How the items of a kind come."""

    BURST = "burst"
    EVEN = "even"
    POISSON = "poisson"
    DRAWN = "drawn"
    EXPLICIT = "explicit"


class WhenFull(StrEnum):
    """What an item does that finds its first stage full: it waits outside, or is lost."""

    WAIT = "wait"
    LOST = "lost"


@dataclass(frozen=True)
class Breakdown:
    """When a machine breaks down and how long its repair takes.

    Attributes:
        every: working time (not calendar time) between two failures.
        repair: the time of a repair; the work goes on where it stopped.
    """

    every: Draw
    repair: Draw


@dataclass(frozen=True)
class Stage:
    """A stage of the line.

    Attributes:
        name: unique among the stages.
        time: of the work, for a batch or for each item as ``per`` says.
        machines: how many work beside each other.
        buffer: places to wait in before it, besides the machines; None for as many as are needed.
        batch: how many items a machine takes at once. An incomplete batch starts when no more items can come.
        per: what ``time`` is the time of; with ``BATCH`` and different items the longest counts.
        setup: time before the work.
        setup_when: which batches need it.
        breakdown: None for a machine that never fails.
        transport: time to the next stage; meanwhile the place there is taken.
        order: which item is next.
        output: what an item occupies after this stage; None for what it did before.
        output_from: from when.
        input_until: until when the input is held.
        capacity: room of this stage alone, for all that is in it; None if nothing limits it.
        place: where the scenario says so.
    """

    name: str
    time: Draw
    machines: int = 1
    buffer: int | None = None
    batch: int = 1
    per: Per = Per.BATCH
    setup: Draw = NO_TIME
    setup_when: SetUp = SetUp.BATCH
    breakdown: Breakdown | None = None
    transport: Draw = NO_TIME
    order: Order = Order.FIFO
    output: int | None = None
    output_from: OutputFrom = OutputFrom.DONE
    input_until: InputUntil = InputUntil.DONE
    capacity: int | None = None
    place: Place = field(default=Place(), compare=False)

    @property
    def overlaps(self) -> bool:
        """Whether input and output may be there at the same time."""
        return self.input_until is InputUntil.ACCEPTED or self.output_from is OutputFrom.START

    @property
    def draws(self) -> Iterator[Draw]:
        """The times of the stage."""
        yield from (self.time, self.setup, self.transport)
        if self.breakdown is not None:
            yield from (self.breakdown.every, self.breakdown.repair)


@dataclass(frozen=True)
class ItemKind:
    """A kind of item, how many there are and how they come.

    Attributes:
        name: unique among the kinds.
        count: how many.
        arrivals: how they come.
        every: time between two arrivals, the mean of it for ``POISSON``.
        start: when the first comes; a Poisson stream begins then, and its first item comes one gap later.
        at: the times of ``EXPLICIT`` arrivals, not descending.
        size: what one occupies when it enters.
        outputs: what it occupies after some stages, where that is not what the stage says.
        times: its own time at some stages.
        route: the names of the stages it visits, in order; a stage may come again.
        when_full: what it does if its first stage has no room.
        priority: the smaller, the sooner, where a stage's order is ``PRIORITY``.
        place: where the scenario says so.
    """

    name: str
    count: int
    route: tuple[str, ...]
    arrivals: Arrivals = Arrivals.BURST
    every: Draw = NO_TIME
    start: int = 0
    at: tuple[int, ...] = ()
    size: int = 1
    outputs: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[str, Draw] = field(default_factory=dict)
    when_full: WhenFull = WhenFull.WAIT
    priority: int = 0
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Line:
    """A line: what would make a run.

    Attributes:
        stages: in the order of the default route.
        kinds: the kinds of items.
        unit: what sizes count: ``"B"`` for bytes, ``"item"`` where nothing has a size, or what the scenario calls it.
        capacity: room of the whole line; None if nothing is said about it.
        mode: what the capacities, that of the line and those of stages, do.
        clock: what times count.
        seed: of everything that is drawn.
        replications: how many runs with other draws the answer rests on.
        warmup: averages begin then.
        horizon: averages end then; None for the end of the run.
        title: one line about it.
        parameters: as they were set.
        source: the file's name.
    """

    stages: tuple[Stage, ...]
    kinds: tuple[ItemKind, ...]
    unit: str = "item"
    capacity: int | None = None
    mode: LineCapacity = LineCapacity.LINE
    clock: Clock = Clock.TICKS
    seed: int = 0
    replications: int = 1
    warmup: int = 0
    horizon: int | None = None
    title: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict)
    source: str = "line"

    @property
    def random(self) -> bool:
        """Whether anything is drawn, so that another seed gives another run."""
        draws = [draw for stage in self.stages for draw in stage.draws]
        draws += [draw for kind in self.kinds for draw in (kind.every, *kind.times.values())]
        return any(draw.random for draw in draws) or any(kind.arrivals is Arrivals.POISSON for kind in self.kinds)

    @property
    def items(self) -> int:
        """How many items come."""
        return sum(kind.count for kind in self.kinds)

    @property
    def visits(self) -> int:
        """How many visits of stages there are if no item is lost."""
        return sum(kind.count * len(kind.route) for kind in self.kinds)

    def stage(self, name: str) -> Stage:
        """Return the stage called *name*."""
        return next(stage for stage in self.stages if stage.name == name)


def coarse_draws(line: Line) -> list[str]:
    """Return the stages and kinds of items with drawn times so short that rounding them to whole ticks or nanoseconds shows."""
    stages = [stage.name for stage in line.stages if any(draw.random and draw.mean < COARSE for draw in stage.draws)]
    kinds = [
        kind.name
        for kind in line.kinds
        if any(draw.random and draw.mean < COARSE for draw in (kind.every, *kind.times.values()))
        or (kind.arrivals is Arrivals.POISSON and kind.every.mean < COARSE)
    ]
    return stages + kinds


def sizes_along(line: Line, kind: ItemKind) -> list[int]:
    """Return what an item of *kind* occupies when it enters, and after each stage of its route."""
    sizes = [kind.size]
    for name in kind.route:
        output = line.stage(name).output
        sizes.append(kind.outputs.get(name, sizes[-1] if output is None else output))
    return sizes
