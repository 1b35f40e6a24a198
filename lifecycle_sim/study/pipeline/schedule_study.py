"""Schedules side by side, and the largest micro-batch that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import lcm

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.batch.seeking import Seen, seek, seek_all
from lifecycle_sim.study.executor import Executor, run_jobs
from lifecycle_sim.study.pipeline.schedule import Schedule
from lifecycle_sim.study.pipeline.schedule_costs import Costs, Model
from lifecycle_sim.study.pipeline.schedule_orders import SCHEDULES, Shape, find, schedule, why_not
from lifecycle_sim.study.pipeline.schedule_result import ScheduleRun, peaks, run_schedule, static
from lifecycle_sim.units import format_exact

MOST_TICKS = 10**9


@dataclass(frozen=True)
class Point:
    """A schedule by name, with its numbers of ranks, micro-batches and chunks."""

    name: str
    ranks: int
    microbatches: int
    chunks: int


@dataclass(frozen=True)
class ScheduleRow:
    """What came of one schedule among others; times in the clock of the model, bytes None where none are known.

    Attributes:
        point: which schedule.
        why_not: why it cannot be, with its numbers; all that follows is then 0 or None.
        makespan: when the last rank ends.
        work: how long all ranks work, summed.
        bubble: the idle share of all ranks' time.
        gaps: the most that a rank is idle between its first action and its last.
        in_flight: the most micro-batches in flight on a rank, each chunk's counted apart.
        in_flight_rank: the first rank with so many.
        peak: the most bytes on a rank.
        rank: the first rank with so many.
        average: the bytes of that rank averaged over the makespan, rounded down.
        fits: whether the peak is within the capacity; None if no bytes or no capacity is known.
    """

    point: Point
    why_not: str | None = None
    makespan: int = 0
    work: int = 0
    bubble: Fraction = Fraction(0)
    gaps: int = 0
    in_flight: int = 0
    in_flight_rank: int = 0
    peak: int | None = None
    rank: int | None = None
    average: int | None = None
    fits: bool | None = None


def points(names: Iterable[str], ranks: Iterable[int], microbatches: Iterable[int], chunks: Iterable[int] = (2,)) -> tuple[Point, ...]:
    """Return each schedule of *names* with each of the numbers; those with a number of chunks of their own come once for all *chunks*.

    Raises:
        InputError: a name is not known.
    """
    known = [find(name) for name in names]
    ranks, microbatches, chunks = tuple(ranks), tuple(microbatches), tuple(chunks)
    return tuple(
        dict.fromkeys(
            Point(each.name, p, m, v if each.chunks is None else each.chunks)
            for p in ranks
            for m in microbatches
            for each in known
            for v in chunks
        )
    )


def compare_schedules(
    model: Model,
    chosen: Sequence[Point],
    capacity: int | None = None,
    workers: int | None = 1,
    executor: Executor | None = None,
) -> tuple[ScheduleRow, ...]:
    """Run each of the *chosen* schedules on *model* and return what came of each, in their order.

    A model of which nothing is known takes the same number of ticks in all of them, so that they can be compared whatever their chunks.

    Args:
        model: the layers, cut for each schedule into its stages.
        chosen: which schedules, see :func:`points`.
        capacity: bytes of each rank; by default the model's own.
        workers: processes to spread the runs over; see :func:`~lifecycle_sim.study.executor.run_jobs`.
        executor: what to spread them with instead.

    Raises:
        InputError: there is none to run, or what they have in common is wrong.
    """
    if not chosen:
        raise InputError("no schedule is chosen: name one at least")
    model = evenly(model, chosen)
    capacity = model.capacity if capacity is None else capacity
    jobs = [(model, point, capacity) for point in chosen]
    work = sum(max(0, 3 * point.ranks * point.microbatches * point.chunks) for point in chosen)
    return tuple(run_jobs(_row, jobs, 4 * work, workers, executor))


def evenly(model: Model, chosen: Iterable[Point]) -> Model:
    """Return *model*; one of which nothing is known with as many ticks as every number of stages divides."""
    if model.layers:
        return model
    ticks = lcm(*(point.ranks * point.chunks for point in chosen if point.ranks > 0 and point.chunks > 0))
    if ticks > MOST_TICKS:
        raise InputError("the numbers of stages have no common multiple of a handy size: compare fewer of them, or give costs")
    return replace(model, ticks=ticks)


def _row(job: tuple[Model, Point, int | None]) -> ScheduleRow:
    model, point, capacity = job
    try:
        run = run_schedule(schedule(point.name, point.ranks, point.microbatches, point.chunks), model)
    except InputError as error:
        reasons = "; ".join(error.problems)
        return ScheduleRow(point, why_not=reasons if reasons.startswith(point.name) else f"{point.name}: {reasons}")
    return row_of(run, point, capacity)


def row_of(run: ScheduleRun, point: Point, capacity: int | None = None) -> ScheduleRow:
    """Return *run* as a row among others."""
    binding = run.binding
    crowded = max(run.ranks, key=lambda rank: (rank.in_flight, -rank.rank))
    average = None if binding.byte_area is None else binding.byte_area // max(1, run.makespan)
    return ScheduleRow(
        point,
        None,
        run.makespan,
        run.work,
        run.bubble,
        run.gaps,
        crowded.in_flight,
        crowded.rank,
        binding.peak,
        None if binding.peak is None else binding.rank,
        average,
        None if capacity is None or binding.peak is None else binding.peak <= capacity,
    )


def read_sweep(text: str) -> dict[str, tuple[int, ...]]:
    """Return the values that *text* names for ``p`` (ranks), ``m`` (micro-batches) and ``v`` (chunks), such as ``"p=4,8 m=16,32"``.

    Raises:
        InputError: it is not of that form, or a letter is not one of them or is there twice.
    """
    found: dict[str, tuple[int, ...]] = {}
    for part in text.split():
        letter, equals, values = part.partition("=")
        numbers = values.split(",")
        if letter not in ("p", "m", "v") or not equals or not all(each.isascii() and each.isdigit() and len(each) < 10 for each in numbers):
            raise InputError(f"{part!r} is none of p=…, m=…, v=… with whole numbers and commas: write for example 'p=4,8 m=16,32'")
        if letter in found:
            raise InputError(f"{letter} is there twice: write its values with commas between them")
        found[letter] = tuple(int(each) for each in numbers)
    if not found:
        raise InputError("a sweep needs values: write for example 'p=4,8 m=16,32'")
    return found


def possible(ranks: int, microbatches: int, chunks: int = 2) -> tuple[str, ...]:
    """Return the names of all schedules that can have these numbers."""
    return tuple(
        name for name, known in SCHEDULES.items() if why_not(known, Shape(ranks, microbatches, known.chunks or max(2, chunks))) is None
    )


@dataclass(frozen=True)
class Probe:
    """A size of micro-batch that was tried: the most bytes on a rank, and which rank."""

    size: int
    peak: int
    rank: int


@dataclass(frozen=True)
class LargestMicrobatch(Shown):
    """The largest micro-batch with which every rank fits.

    Attributes:
        size: samples of a micro-batch; 0 if not even one fits, -1 if what is there throughout does not.
        capacity: bytes of each rank.
        limit: the most that was allowed.
        at: the probe at ``size``, None where nothing fits.
        above: the probe one above, which does not fit; None if the limit binds.
        probes: all that were tried, in their order.
    """

    size: int
    capacity: int
    limit: int
    at: Probe | None
    above: Probe | None
    probes: tuple[Probe, ...]

    def __repr__(self) -> str:
        bound = f"{self.above.size:,} is too much" if self.above else "the limit"
        return f"LargestMicrobatch({self.size:,}, {bound}, {len(self.probes)} probes)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        told = [("largest micro-batch", f"{self.size:,}"), ("capacity", format_exact(self.capacity))]
        told += [(f"peak at {each.size:,}", f"{format_exact(each.peak)} on rank {each.rank}") for each in (self.at, self.above) if each]
        return [*told, ("probes", f"{len(self.probes):,}")]


def largest_microbatch(order: Schedule, costs_of: Callable[[int], Costs], capacity: int, limit: int = 1 << 20) -> LargestMicrobatch:
    """Return the largest micro-batch from 1 to *limit* with which every rank of *order* fits into *capacity*.

    The bytes of a rank must not fall as micro-batches grow. The answer is proved at both sides: its own peak fits, and that of one more
    does not. It is sought as the largest batch of a captured step is, by :func:`~lifecycle_sim.study.batch.seeking.seek`.

    Args:
        order: who does what in which order.
        costs_of: what each stage takes with micro-batches of a size.
        capacity: bytes of each rank.
        limit: the largest that is allowed.

    Raises:
        InputError: *limit* is less than 1, no bytes are known, a larger micro-batch takes less, or two samples take what one does.
    """
    if limit < 1:
        raise InputError(f"a limit of {limit} leaves nothing to try: give 1 or more")
    probes: list[Probe] = []

    def probe(size: int) -> Probe:
        costs = costs_of(size)
        if costs.basis is None:
            raise InputError("no bytes are known, so no micro-batch is the largest: give costs with sizes, or a model")
        found = peaks(order, costs)
        probes.append(Probe(size, max(found), found.index(max(found))))
        ordered = sorted(probes, key=lambda each: each.size)
        if any(one.peak > other.peak for one, other in pairwise(ordered)):
            told = ", ".join(f"{each.peak:,} B with {each.size:,}" for each in ordered)
            raise InputError(f"the peak falls as micro-batches grow ({told}), so no search finds the largest")
        if {each.size for each in ordered} == {1, 2} and ordered[0].peak == ordered[1].peak:
            raise InputError("a micro-batch of 2 takes as many bytes as one of 1: the costs, or the model, do not depend on its size")
        return probes[-1]

    sought = seek_all({order.name: seek(capacity, limit)}, lambda asked: [Seen(probe(size).peak) for _, size in asked])[order.name]
    seen = {each.size: each for each in probes}
    if sought.value == 0:
        costs = costs_of(1)
        nothing = any(static(order, costs, rank) > capacity for rank in range(order.ranks))
        return LargestMicrobatch(-1 if nothing else 0, capacity, limit, None, seen[1], tuple(probes))
    return LargestMicrobatch(sought.value, capacity, limit, seen[sought.value], seen.get(sought.value + 1), tuple(probes))
