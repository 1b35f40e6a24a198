"""What a run of a line comes to: peak, average and total work, machines, times, and what was above the capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lifecycle_sim.display import Shown
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.study.pipeline.line_occupancy import Level, Occupancy, occupancy
from lifecycle_sim.study.pipeline.line_run import NEVER, Deadlock, Jobs, LineRun


@dataclass(frozen=True)
class Present:
    """Something that is there at the peak.

    Attributes:
        item: the item's name.
        place: the stage, or the way between two.
        what: ``"input"`` or ``"output"`` of the visit.
        size: how much.
        since: from when.
    """

    item: str
    place: str
    what: str
    size: int
    since: int


@dataclass(frozen=True)
class LevelFigures:
    """A level in figures.

    Attributes:
        peak: its maximum.
        peak_time: when that is first reached.
        area: total work, level times time, in the window of the averages; exact.
        span: how long that window is.
        capacity: what it is compared with, or held under; None if nothing.
        overflow: by how much the peak is above.
        above: for how long the level is above, in the whole run.
    """

    peak: int
    peak_time: int
    area: int
    span: int
    capacity: int | None = None
    overflow: int = 0
    above: int = 0

    @property
    def average(self) -> Fraction:
        """The average level, exact; 0 for a window in which no time passes."""
        return Fraction(self.area, self.span) if self.span else Fraction(0)


@dataclass(frozen=True)
class Times:
    """Times of items or visits: how many, their sum, and some of them."""

    count: int
    total: int
    least: int
    median: int
    high: int
    most: int

    @property
    def mean(self) -> Fraction:
        """Their mean, exact; 0 if there are none."""
        return Fraction(self.total, self.count) if self.count else Fraction(0)


@dataclass(frozen=True)
class StageFigures:
    """A stage in figures. The five times of its machines add up to ``machines * span``.

    Attributes:
        name: the stage.
        machines: how many.
        visits: how many were done.
        batches: in how many batches.
        span: the window.
        working: machine time at work.
        setup: in set-up.
        repair: broken.
        blocked: done, with something that could not move on.
        level: what is occupied there.
        waiting: how long visits waited for a machine.
        delayed: how long done visits waited to move on.
    """

    name: str
    machines: int
    visits: int
    batches: int
    span: int
    working: int
    setup: int
    repair: int
    blocked: int
    level: LevelFigures
    waiting: Times
    delayed: Times

    @property
    def idle(self) -> int:
        """Machine time with nothing in hand."""
        return self.machines * self.span - self.working - self.setup - self.repair - self.blocked

    @property
    def utilisation(self) -> Fraction:
        """The share of machine time at work."""
        return Fraction(self.working, self.machines * self.span) if self.span else Fraction(0)


@dataclass(frozen=True)
class LineFigures(Shown):
    """A run of a line in figures.

    Attributes:
        run: what was measured.
        begin: where the window of averages begins.
        end: where it ends.
        total: what is occupied in the line.
        items: how many items are in it.
        stages: stage by stage.
        ways: what is occupied on the ways between stages, by name.
        residence: from entering to leaving, of the items that came after the warm-up and left.
        outside: how long those that came after the warm-up and entered had waited outside.
        present: what is there at the peak, the largest first.
    """

    run: LineRun
    begin: int
    end: int
    total: LevelFigures
    items: LevelFigures
    stages: tuple[StageFigures, ...]
    ways: dict[str, LevelFigures]
    residence: Times
    outside: Times
    present: tuple[Present, ...]

    def __repr__(self) -> str:
        peak = f"peak {self.total.peak:,} {self.run.line.unit} at {self.total.peak_time:,}, average {float(self.total.average):,.6g}"
        return f"LineFigures({self.finished:,} of {len(self.run.left):,} items finished, {peak})"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        unit, clock = self.run.line.unit, self.run.line.clock
        return [
            ("items", f"{self.finished:,} of {len(self.run.left):,} finished, {self.lost:,} lost"),
            ("ran for", f"{self.run.end:,} {clock}"),
            ("peak", f"{self.total.peak:,} {unit} at {self.total.peak_time:,}"),
            ("average", f"{float(self.total.average):,.6g} {unit} from {self.begin:,} to {self.end:,}"),
            ("total work", f"{self.total.area:,} {unit}·{clock}"),
            ("bubble", f"{float(self.bubble):.1%}"),
            *([("deadlock", f"since {self.run.deadlock.time:,}")] if self.run.deadlock else []),
        ]

    @property
    def deadlock(self) -> Deadlock | None:
        """What nobody can get out of."""
        return self.run.deadlock

    @property
    def finished(self) -> int:
        """How many items left the line, in the whole run."""
        return int((self.run.left != NEVER).sum())

    @property
    def lost(self) -> int:
        """How many were turned away."""
        return int(self.run.lost.sum())

    @property
    def throughput(self) -> Fraction:
        """Items that left per tick or nanosecond, in the whole run."""
        return Fraction(self.finished, self.run.end) if self.run.end else Fraction(0)

    @property
    def bubble(self) -> Fraction:
        """The share of the time of all machines in which none of them works, from the beginning to the end of the window."""
        time = sum(stage.machines * stage.span for stage in self.stages)
        return 1 - Fraction(sum(stage.working for stage in self.stages), time) if time else Fraction(0)

    @property
    def fits(self) -> bool | None:
        """Whether the line and its stages stay within their capacities and it does not deadlock; None if there is no capacity to say."""
        if self.deadlock is not None:
            return False
        levels = [self.total, *(stage.level for stage in self.stages)]
        judged = [level.overflow == 0 for level in levels if level.capacity is not None]
        return all(judged) if judged else None


def measure_line(run: LineRun, occupied: Occupancy | None = None) -> LineFigures:
    """Return *run* in figures; *occupied* is its occupancy, where that is known already.

    Averages are over the window from the line's warm-up to its horizon, or to the end of the run; peaks are those of the whole run.
    """
    line, held = run.line, occupancy(run) if occupied is None else occupied
    begin = min(line.warmup, run.end) if line.horizon is None else line.warmup
    end = run.end if line.horizon is None else line.horizon
    total = _level(held.total, begin, end, run.end, line.capacity)
    stages = tuple(_stage(run, held, at, begin, end) for at in range(len(line.stages)))
    ways = {name: _level(held.at(at), begin, end, run.end, None) for at, name in enumerate(held.places) if at >= len(line.stages)}
    in_time = np.flatnonzero((run.left != NEVER) & (run.agenda.arrive >= line.warmup))
    entered = np.flatnonzero((run.entered != NEVER) & (run.agenda.arrive >= line.warmup))
    gone = _times(run.left[in_time] - run.entered[in_time])
    return LineFigures(
        run=run,
        begin=begin,
        end=end,
        total=total,
        items=_level(held.items, begin, end, run.end, None),
        stages=stages,
        ways=ways,
        residence=gone,
        outside=_times(run.entered[entered] - run.agenda.arrive[entered]),
        present=_present(held, total.peak_time),
    )


def _level(level: Level, begin: int, end: int, last: int, capacity: int | None) -> LevelFigures:
    over = 0 if capacity is None else max(0, level.peak - capacity)
    above = level.above(capacity, 0, last) if over and capacity is not None else 0
    return LevelFigures(level.peak, level.peak_time, level.area(begin, end), end - begin, capacity, over, above)


def _stage(run: LineRun, held: Occupancy, at: int, begin: int, end: int) -> StageFigures:
    stage, jobs = run.line.stages[at], run.jobs
    here = np.flatnonzero(jobs.stage == at)
    release = np.where(jobs.release[here] == NEVER, run.end, jobs.release[here])
    done = np.minimum(jobs.done[here], run.end)
    set_up = jobs.begin[here] + jobs.setup[here]
    busy = _within(set_up, done, begin, end)
    repair, work = _share(jobs, here, busy, done - set_up)
    visits = np.flatnonzero((run.agenda.stage == at) & (run.done != NEVER))
    started, left = run.start[visits], np.where(run.leave[visits] == NEVER, run.end, run.leave[visits])
    return StageFigures(
        name=stage.name,
        machines=stage.machines,
        visits=len(visits),
        batches=len(here),
        span=end - begin,
        working=work,
        setup=int(_within(jobs.begin[here], set_up, begin, end).sum()),
        repair=repair,
        blocked=int(_within(done, release, begin, end).sum()),
        level=_level(held.at(at), begin, end, run.end, stage.capacity),
        waiting=_times(started - run.enter[visits]),
        delayed=_times(left - run.done[visits]),
    )


def _within(start: Int64, stop: Int64, begin: int, end: int) -> Int64:
    """How much of each time from *start* to *stop* lies between *begin* and *end*."""
    return np.clip(stop, begin, end) - np.clip(start, begin, end)


def _share(jobs: Jobs, here: Int64, busy: Int64, whole: Int64) -> tuple[int, int]:
    """Split the time that machines were *busy* within the window, of the *whole*, into repair and work; work is cut off first."""
    repair = np.maximum(jobs.repair[here] - (whole - busy), 0)
    return int(repair.sum()), int((busy - repair).sum())


def _times(values: Int64) -> Times:
    if not len(values):
        return Times(0, 0, 0, 0, 0, 0)
    ranked: Sequence[int] = np.sort(values).tolist()
    return Times(len(ranked), sum(ranked), ranked[0], _rank(ranked, 0.5), _rank(ranked, 0.95), ranked[-1])


def _rank(ranked: Sequence[int], share: float) -> int:
    """The least value that is not below *share* of all."""
    return ranked[min(len(ranked) - 1, max(0, -int(-share * len(ranked) // 1) - 1))]


def _present(held: Occupancy, time: int) -> tuple[Present, ...]:
    pieces, run = held.pieces, held.run
    there = held.present(time).tolist()
    found = [
        Present(
            run.name(int(pieces.item[at])),
            held.places[pieces.place[at]],
            "output" if pieces.output[at] else "input",
            int(pieces.size[at]),
            int(pieces.begin[at]),
        )
        for at in there
        if pieces.size[at]
    ]
    return tuple(sorted(found, key=lambda each: -each.size))
