"""What came of a schedule: times, micro-batches in flight and bytes, rank by rank, and the rank that binds.

The work of a rank is one list that it goes through in order. So what it holds, and its peak, depend on that order alone; times decide when
the peak is, and how long the rest is idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from lifecycle_sim.display import Shown
from lifecycle_sim.events import Clock
from lifecycle_sim.study.pipeline.schedule import Action, Schedule, Work
from lifecycle_sim.study.pipeline.schedule_costs import UNIT, Costs, Layer, Model
from lifecycle_sim.study.pipeline.schedule_run import Timed, timed
from lifecycle_sim.units import format_duration, format_exact


class Change(NamedTuple):
    """What an action does to the bytes of its rank: added at its start and then there, or there only within it; taken away at its end."""

    added: int
    within: int
    taken: int


def change(action: Action, layer: Layer) -> Change:
    """Return what *action* does in a stage that takes what *layer* says."""
    if action.work is Work.FORWARD:
        return Change(layer.held, layer.forward_temporary, 0)
    if action.work is Work.BACKWARD:
        return Change(0, layer.backward_temporary, layer.held)
    if action.work is Work.INPUT_GRADIENT:
        return Change(layer.output_gradient, layer.apart, layer.activation)
    return Change(0, layer.weight_temporary, layer.weight_input + layer.output_gradient)


class Level(NamedTuple):
    """What a rank holds while one of its actions runs, and after it."""

    during: int
    after: int


def byte_levels(schedule: Schedule, costs: Costs, rank: int) -> Iterator[Level]:
    """Yield the bytes of *rank* action by action, what is there throughout among them."""
    level = static(schedule, costs, rank)
    for action in schedule.lists[rank]:
        added, within, taken = change(action, costs.stages[action.stage])
        level += added
        yield Level(level + within, level - taken)
        level -= taken


def static(schedule: Schedule, costs: Costs, rank: int) -> int:
    """Return the bytes that are on *rank* throughout."""
    return costs.resident + sum(costs.stages[stage].static for stage in schedule.stages_of(rank))


def in_flight(schedule: Schedule, rank: int, until: Work = Work.WEIGHT_GRADIENT) -> Iterator[Level]:
    """Yield how many micro-batches are in flight on *rank* action by action, each chunk's counted apart.

    One is in flight from the start of its forward to the end of its backward; of a backward in two parts, to the end of the weights'
    gradient, or with *until* to that of the input's.
    """
    level = 0
    for action in schedule.lists[rank]:
        level += action.work is Work.FORWARD
        gone = action.work is Work.BACKWARD or action.work is until
        yield Level(level, level - gone)
        level -= gone


@dataclass(frozen=True)
class RankResult:
    """What came of one rank. Times are in the clock of the costs; bytes are None where none are known.

    Attributes:
        rank: its number, from 0.
        stages: the stages that it holds.
        in_flight: the most micro-batches in flight, each chunk's counted apart, until their weights' gradients are done.
        in_flight_input: the same until their input's gradients are done.
        area: what ``in_flight`` counts, summed over time.
        peak: the most bytes.
        peak_place: at which of its actions, from 0; -1 if what is there throughout is the most.
        peak_time: when that action starts.
        static: the bytes that are there throughout.
        byte_area: its bytes, summed over time to the end of all ranks.
        busy: how long it works.
        first, last: when it begins and ends.
    """

    rank: int
    stages: tuple[int, ...]
    in_flight: int
    in_flight_input: int
    area: int
    peak: int | None
    peak_place: int
    peak_time: int
    static: int | None
    byte_area: int | None
    busy: int
    first: int
    last: int

    @property
    def gaps(self) -> int:
        """How long it is idle between its first action and its last."""
        return self.last - self.first - self.busy


@dataclass(frozen=True)
class ScheduleRun(Shown):
    """A schedule that was run.

    Attributes:
        schedule: who does what in which order.
        costs: what each stage takes.
        times: when each action starts and ends.
        ranks: what came of each rank.
    """

    schedule: Schedule
    costs: Costs
    times: Timed
    ranks: tuple[RankResult, ...]

    @property
    def makespan(self) -> int:
        """When the last rank ends."""
        return self.times.makespan

    @property
    def work(self) -> int:
        """How long all ranks work, summed."""
        return sum(rank.busy for rank in self.ranks)

    @property
    def bubble(self) -> Fraction:
        """The share of all ranks' time up to the makespan in which they are idle."""
        whole = self.makespan * len(self.ranks)
        return Fraction(whole - self.work, whole) if whole else Fraction(0)

    @property
    def gaps(self) -> int:
        """The most that a rank is idle between its first action and its last: the bubble of a run of many steps without a halt between."""
        return max(rank.gaps for rank in self.ranks)

    @property
    def peak(self) -> int | None:
        """The most bytes on a rank; None where no bytes are known."""
        return self.binding.peak

    @cached_property
    def binding(self) -> RankResult:
        """The rank with the highest peak, or with the most in flight where no bytes are known; the first of several."""
        return max(self.ranks, key=lambda rank: (rank.in_flight if rank.peak is None else rank.peak, -rank.rank))

    def __repr__(self) -> str:
        told = f"{self.binding.in_flight} in flight" if self.peak is None else f"peak {self.peak:,} B"
        return f"ScheduleRun({self.schedule.name!r}, makespan {self.makespan:,}, {told} on rank {self.binding.rank})"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        clock = self.costs.clock
        makespan = format_duration(self.makespan) if clock is Clock.NANOSECONDS else f"{self.makespan:,} {clock}s"
        told = [
            ("schedule", self.schedule.name),
            ("ranks, micro-batches, chunks", f"{self.schedule.ranks}, {self.schedule.microbatches}, {self.schedule.chunks}"),
            ("makespan", makespan),
            ("bubble", f"{float(self.bubble):.1%}"),
            ("in flight", f"{self.binding.in_flight} on rank {self.binding.rank}"),
        ]
        if self.peak is not None:
            told.append(("peak", f"{format_exact(self.peak)} {self.costs.basis}, simulated, on rank {self.binding.rank}"))
        return told


def run_schedule(schedule: Schedule, costs: Costs | Model | None = None) -> ScheduleRun:
    """Run *schedule* and return what came of it.

    Args:
        schedule: who does what in which order.
        costs: what each stage takes, or a model whose layers are cut into the stages; by default one tick for each kind of work.

    Raises:
        InputError: the costs are not of as many stages, or the ranks wait for each other in a circle.
    """
    costs = costs if isinstance(costs, Costs) else (costs or UNIT).costs(schedule.stages, schedule.in_flight)
    times = timed(schedule, costs)
    return ScheduleRun(schedule, costs, times, tuple(_rank(schedule, costs, times, rank) for rank in range(schedule.ranks)))


def peaks(schedule: Schedule, costs: Costs) -> list[int]:
    """Return the most bytes on each rank, which need no times."""
    return [
        max(static(schedule, costs, rank), *(level.during for level in byte_levels(schedule, costs, rank)))
        for rank in range(schedule.ranks)
    ]


def _rank(schedule: Schedule, costs: Costs, times: Timed, rank: int) -> RankResult:
    starts, ends = times.starts[rank], times.ends[rank]
    flights = list(in_flight(schedule, rank))
    levels = list(byte_levels(schedule, costs, rank))
    throughout = static(schedule, costs, rank)
    place = max(range(len(levels)), key=lambda each: (levels[each].during, -each))
    if levels[place].during <= throughout:
        place = -1
    known = costs.basis is not None
    return RankResult(
        rank,
        schedule.stages_of(rank),
        max(level.during for level in flights),
        max(level.during for level in in_flight(schedule, rank, Work.INPUT_GRADIENT)),
        _area(flights, starts, ends, 0, ends[-1]),
        (throughout if place < 0 else levels[place].during) if known else None,
        place,
        starts[place] if place >= 0 else 0,
        throughout if known else None,
        _area(levels, starts, ends, throughout, times.makespan) if known else None,
        sum(end - start for start, end in zip(starts, ends, strict=True)),
        starts[0],
        ends[-1],
    )


def _area(levels: list[Level], starts: tuple[int, ...], ends: tuple[int, ...], before: int, until: int) -> int:
    """Return the level summed over time from 0 to *until*: during actions, and between them what the one before left."""
    total, level, at = 0, before, 0
    for (during, after), start, end in zip(levels, starts, ends, strict=True):
        total += level * (start - at) + during * (end - start)
        level, at = after, end
    return total + level * (until - at)
