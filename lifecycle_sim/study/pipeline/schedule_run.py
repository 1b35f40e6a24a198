"""Runs a schedule: when each action of each rank starts and ends, on SimPy.

Every rank is a process. It takes its actions in order; before one it waits for what the action needs, then for the time the action takes.
What comes from another rank is there *communication* after it was done; sends hinder no rank and no other send. Times are whole numbers
throughout, and what ends at an instant makes room for what starts at it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from lifecycle_sim.errors import InputError
from lifecycle_sim.study.pipeline.schedule import Result, Schedule, Work, result
from lifecycle_sim.study.pipeline.schedule_costs import TIMES, Costs, Layer
from lifecycle_sim.study.pipeline.schedule_lists import deadlock

LARGEST_TIME = 2**62


@dataclass(frozen=True)
class Timed:
    """When each action starts and ends: for each rank, for each of its actions, in the clock of the costs.

    Attributes:
        starts, ends: times from 0.
    """

    starts: tuple[tuple[int, ...], ...]
    ends: tuple[tuple[int, ...], ...]

    @property
    def makespan(self) -> int:
        """When the last action ends."""
        return max((ends[-1] for ends in self.ends if ends), default=0)


def _duration(work: Work, layer: Layer) -> int:
    """How long *work* takes in a stage that takes what *layer* says."""
    if work is Work.FORWARD:
        return layer.forward
    if work is Work.BACKWARD:
        return layer.input_gradient + layer.weight_gradient
    return layer.input_gradient if work is Work.INPUT_GRADIENT else layer.weight_gradient


def timed(schedule: Schedule, costs: Costs) -> Timed:
    """Run *schedule* with *costs* and return when each action starts and ends.

    Raises:
        InputError: the costs are not of as many stages as the schedule has, the times are too long, or the ranks wait for each other in a
            circle, which is then told.
    """
    if len(costs.stages) != schedule.stages:
        raise InputError(
            f"{schedule.name} has {schedule.stages} stages, and costs are known of {len(costs.stages)}: give them for each stage"
        )
    if (
        sum(sum(getattr(stage, name) for name in TIMES) for stage in costs.stages) * schedule.microbatches
        + costs.communication * len(schedule)
        > LARGEST_TIME
    ):
        raise InputError(f"{schedule.name}: the times add up to more than 2**62: use a coarser clock")
    run = _Run(schedule, costs)
    run.go()
    if any(len(ends) < len(actions) for ends, actions in zip(run.ends, schedule.lists, strict=True)):
        circle = deadlock(schedule, [len(ends) for ends in run.ends])
        raise InputError(f"{schedule.name} never ends, because its ranks wait in a circle: {circle}")
    return Timed(tuple(map(tuple, run.starts)), tuple(map(tuple, run.ends)))


class _Run:
    """The clock, what is done when, and who waits for what is not."""

    def __init__(self, schedule: Schedule, costs: Costs) -> None:
        import simpy

        self._clock = simpy.Environment()
        self._schedule, self._costs = schedule, costs
        self._done: dict[Result, int] = {}
        self._awaited: dict[Result, Any] = {}
        self.starts: list[list[int]] = [[] for _ in schedule.lists]
        self.ends: list[list[int]] = [[] for _ in schedule.lists]

    def go(self) -> None:
        """Let all ranks work until none can."""
        for rank in range(self._schedule.ranks):
            self._clock.process(self._rank(rank))
        self._clock.run()

    def _rank(self, rank: int) -> Generator[Any, None, None]:
        schedule, clock, done, awaited = self._schedule, self._clock, self._done, self._awaited
        starts, ends, transfer, holder = self.starts[rank], self.ends[rank], self._costs.communication, schedule.rank_of
        durations = {(stage, work): _duration(work, self._costs.stages[stage]) for stage in schedule.stages_of(rank) for work in Work}
        now = 0
        for place, action in enumerate(schedule.lists[rank]):
            for need in schedule.needs(rank, place):
                if need not in done:
                    awaited[need] = clock.event()
                    yield awaited[need]
                    now = max(now, int(clock.now))
                if transfer and holder[need[0]] != rank:
                    now = max(now, done[need] + transfer)
            if now > clock.now:
                yield clock.timeout(now - clock.now)
            starts.append(now)
            length = durations[action.stage, action.work]
            if length:
                yield clock.timeout(length)
                now += length
            ends.append(now)
            made = result(action)
            done[made] = now
            if made in awaited:
                awaited.pop(made).succeed()
