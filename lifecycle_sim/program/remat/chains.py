"""A chain of stages that differ in time and size: the cheapest recomputation within a memory limit.

Source of the problem and of the persistent dynamic program: O. Beaumont, L. Eyraud-Dubois, J. Herrmann, A. Joly, A. Shilova, "Optimal
checkpointing for heterogeneous chains", arXiv 1911.13214, 2019. A schedule is persistent if what it keeps is kept until its backward
step; the best persistent schedule is not always the best of all, which for short chains is found by :func:`best_chain_time`.

Stages are numbered 1 to L, and L + 1 is the loss. A forward run of stage s needs its input (the output of stage s − 1) and either makes
its output alone or everything that its backward run needs, its output among it. The backward run of s needs that, the input and the
gradient of the output, and makes the gradient of the input.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError

LONGEST = 12
"""Stages of the longest chain for which :func:`best_chain_time` looks through all schedules."""


@dataclass(frozen=True)
class Chain:
    """Times and sizes by stage; index 0 stands for what comes before the first stage, the last index for the loss.

    Attributes:
        forward: time of each forward run; index 0 is not used.
        backward: time of each backward run; index 0 is not used.
        output: bytes of each stage's output; index 0 is the input of the chain.
        data: bytes that the backward run needs, the output included; index 0 is not used.
        gradient: bytes of the gradient of each output; index 0 is that of the input of the chain.
        forward_temporary: bytes beside all that during the forward run.
        backward_temporary: bytes beside all that during the backward run.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    output: tuple[int, ...]
    data: tuple[int, ...]
    gradient: tuple[int, ...]
    forward_temporary: tuple[int, ...]
    backward_temporary: tuple[int, ...]

    def __post_init__(self) -> None:
        columns = [getattr(self, name) for name in self.__dataclass_fields__]
        if len({len(column) for column in columns}) != 1 or len(self.forward) < 2:
            raise InputError("a chain has as many times as sizes, one for each stage, for what comes before the first and for the loss")
        if min(min(column) for column in columns) < 0:
            raise InputError("a time or size of the chain is negative: give 0 or more")
        for stage in range(1, len(self.forward)):
            if self.data[stage] < self.output[stage]:
                raise InputError(f"data of stage {stage:,} are smaller than its output, which is a part of them")

    @property
    def last(self) -> int:
        """The number of the last stage, the loss."""
        return len(self.forward) - 1

    @property
    def least_time(self) -> int:
        """The time of all runs if nothing is recomputed."""
        return sum(self.forward[1:]) + sum(self.backward[1:])


class Run(StrEnum):
    """What a step of a chain's schedule runs, and what it leaves."""

    DROP_INPUT = "forward, input dropped"
    """Forward; the output is made and the input goes."""
    KEEP_INPUT = "forward, input kept"
    """Forward; the output is made and the input stays: a checkpoint."""
    KEEP_ALL = "forward, all kept"
    """Forward; everything that the backward run needs is made, and the input stays."""
    BACKWARD = "backward"
    """Backward; the stage's data and gradient go, and the gradient of its input is made."""


class ChainStep(NamedTuple):
    """One run of one stage."""

    run: Run
    stage: int


@dataclass(frozen=True)
class ChainPlan:
    """A schedule for a chain.

    Attributes:
        time: of all runs.
        extra: time beyond one run of everything.
        peak: bytes held at most, as found by following the schedule.
        limit: bytes it was made for.
        schedule: the runs in order.
    """

    time: int
    extra: int
    peak: int
    limit: int
    schedule: tuple[ChainStep, ...]


def plan_chain(chain: Chain, limit: int) -> ChainPlan | None:
    """Return the persistent schedule of *chain* with the least time within *limit* bytes, or None if none fits.

    By dynamic programming over (first stage, last stage, bytes), exact in bytes: O(L³ · limit) at worst, so sizes should be in units that
    make *limit* some thousands. The input of the chain is counted in the limit.
    """
    room = limit - chain.output[0]
    if room < 0:
        return None
    best = _Persistent(chain, room)
    if not np.isfinite(best.time[1, chain.last][room]):
        return None
    schedule = tuple(best.steps(1, chain.last, room))
    time, peak = play_chain(chain, schedule)
    return ChainPlan(time, time - chain.least_time, peak, limit, schedule)


class _Persistent:
    """The least time of every part of a chain for every number of bytes. The input of a part is counted outside of it."""

    def __init__(self, chain: Chain, room: int) -> None:
        self.chain, self.room = chain, room
        self.total = list(accumulate(chain.forward))
        self.time: dict[tuple[int, int], NDArray[np.float64]] = {}
        for length in range(chain.last):
            for first in range(1, chain.last - length + 1):
                self.time[first, first + length] = self._part(first, first + length)

    def _part(self, first: int, last: int) -> NDArray[np.float64]:
        best = np.full(self.room + 1, np.inf)
        for _, times in self.ways(first, last):
            largest = best[self.room + 1 - len(times) :]
            np.minimum(largest, times, out=largest)
        return best

    def ways(self, first: int, last: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Every way to begin the part, with its times for the largest byte numbers: the stage to advance to, or *first* to keep all."""
        chain, room = self.chain, self.room
        need = max(
            chain.gradient[last] + chain.data[first] + chain.forward_temporary[first],
            chain.data[first] + chain.gradient[first] + chain.gradient[first - 1] + chain.backward_temporary[first],
        )
        both = chain.forward[first] + chain.backward[first]
        if need <= room:
            if first == last:
                yield first, np.full(room + 1 - need, float(both))
            else:
                rest = self.time[first + 1, last]
                yield first, both + rest[need - chain.data[first] : room + 1 - chain.data[first]]
        need = 0
        for stop in range(first + 1, last + 1):  # run first … stop − 1 without keeping anything, keep the input of stop
            run = stop - 1
            held = chain.output[run - 1] if run > first else 0
            need = max(need, chain.gradient[last] + held + chain.output[run] + chain.forward_temporary[run])
            kept = chain.output[stop - 1]
            least = max(need, kept)
            if least <= room:
                behind, before = self.time[stop, last], self.time[first, stop - 1]
                times = (self.total[stop - 1] - self.total[first - 1]) + behind[least - kept : room + 1 - kept] + before[least:]
                yield stop, times

    def steps(self, first: int, last: int, room: int) -> Iterator[ChainStep]:
        """The schedule of a part for *room* bytes."""
        todo: list[tuple[int, int, int] | ChainStep] = [(first, last, room)]
        while todo:
            item = todo.pop()
            if isinstance(item, ChainStep):
                yield item
                continue
            first, last, room = item
            wanted = self.time[first, last][room]
            start = next(
                start
                for start, times in self.ways(first, last)
                if (index := room - (self.room + 1 - len(times))) >= 0 and times[index] == wanted
            )
            if start == first:
                yield ChainStep(Run.KEEP_ALL, first)
                todo.append(ChainStep(Run.BACKWARD, first))
                if first < last:
                    todo.append((first + 1, last, room - self.chain.data[first]))
            else:
                yield ChainStep(Run.KEEP_INPUT, first)
                for stage in range(first + 1, start):
                    yield ChainStep(Run.DROP_INPUT, stage)
                todo += [(first, start - 1, room), (start, last, room - self.chain.output[start - 1])]


def play_chain(chain: Chain, schedule: Sequence[ChainStep]) -> tuple[int, int]:
    """Follow *schedule* and return its time and the bytes held at most.

    Raises:
        InputError: a run lacks what it needs, or a stage's backward run is missing.
    """
    outputs, data = {0}, set[int]()
    gradient = chain.last
    time = peak = 0
    for number, (run, stage) in enumerate(schedule):
        held = sum(chain.output[each] for each in outputs) + sum(chain.data[each] for each in data) + chain.gradient[gradient]
        possible = stage - 1 in outputs or stage - 1 in data
        if run is Run.BACKWARD:
            possible = possible and stage in data and stage == gradient
            peak = max(peak, held + chain.gradient[stage - 1] + chain.backward_temporary[stage])
            data.discard(stage)
            outputs -= {stage, stage - 1} - {0}  # no later run needs them
            gradient, time = stage - 1, time + chain.backward[stage]
        else:
            made = chain.data[stage] if run is Run.KEEP_ALL else chain.output[stage]
            peak = max(peak, held + made + chain.forward_temporary[stage])
            if run is Run.DROP_INPUT:
                outputs.discard(stage - 1)
            (data if run is Run.KEEP_ALL else outputs).add(stage)
            if run is Run.KEEP_ALL:
                outputs.discard(stage)
            time += chain.forward[stage]
        if not possible:
            raise InputError(f"run {number:,} of the schedule ({run} of stage {stage:,}) lacks what it needs")
    if gradient:
        raise InputError(f"the schedule ends before the backward run of stage {gradient:,}")
    return time, peak


def best_chain_time(chain: Chain, limit: int) -> int | None:
    """Return the least time of any schedule of *chain* within *limit* bytes, persistent or not, or None if none fits.

    Looks through all sets of what may be held (A*, with the runs that are left at least as the estimate), so it is for short chains.

    Raises:
        InputError: the chain has more than 12 stages.
    """
    if chain.last - 1 > LONGEST:
        raise InputError(f"{chain.last - 1:,} stages are too many to look through all schedules: at most {LONGEST}")
    last = chain.last
    start = (last, tuple([1] + [0] * last))  # the next backward stage; of each stage 0 nothing, 1 its output, 2 its data is held
    least = {start: 0}
    queue: list[tuple[int, int, tuple[int, tuple[int, ...]]]] = [(0, 0, start)]
    while queue:
        _, time, state = heapq.heappop(queue)
        if time > least[state]:
            continue
        gradient, held = state
        if not gradient:
            return time
        for spent, after in _next_states(chain, limit, gradient, held):
            total = time + spent
            if total < least.get(after, total + 1):
                least[after] = total
                heapq.heappush(queue, (total + _left(chain, *after), total, after))
    return None


def _left(chain: Chain, gradient: int, held: tuple[int, ...]) -> int:
    """The time that is left at least: every backward run, and a forward run of each stage whose data are not held."""
    return sum(chain.backward[stage] + (chain.forward[stage] if held[stage] < 2 else 0) for stage in range(1, gradient + 1))


def _next_states(chain: Chain, limit: int, gradient: int, held: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, tuple[int, ...]]]]:
    """Every state that one run or one drop leads to, and the time it takes."""
    sizes = (None, chain.output, chain.data)
    level = chain.gradient[gradient] + sum(column[stage] for stage, kind in enumerate(held) if (column := sizes[kind]) is not None)
    for stage in range(1, gradient + 1):
        if held[stage]:
            yield 0, (gradient, (*held[:stage], 0, *held[stage + 1 :]))
        if not held[stage - 1]:
            continue
        for kind, column in ((1, chain.output), (2, chain.data)):
            if held[stage] < kind and level + column[stage] + chain.forward_temporary[stage] <= limit:
                yield chain.forward[stage], (gradient, (*held[:stage], kind, *held[stage + 1 :]))
    ready = held[gradient] == 2 and held[gradient - 1]
    if ready and level + chain.gradient[gradient - 1] + chain.backward_temporary[gradient] <= limit:
        yield chain.backward[gradient], (gradient - 1, (*held[:gradient], *[0] * (len(held) - gradient)))
