"""Memory and a deadline together: the micro-batches that fit and are in time, enumerated.

A step over a global batch G takes ``ceil(G / B)`` micro-batches, the last one padded, and each takes ``overhead + per_sample · B``. That
neither rises nor falls with B all along: it rises while the number of micro-batches stays, and falls where one less is needed. So the set
of batches that are in time has holes, and bisection would not find it; there are only about ``2 · sqrt(G)`` different numbers of
micro-batches, and each of them is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Protocol

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.batch.accumulation import blocks, check_global_batch
from lifecycle_sim.study.batch.search import largest


class TimeModel(Protocol):
    """How long a micro-batch takes; more samples never take less."""

    @property
    def longest(self) -> int | None:
        """The largest micro-batch it knows of, None if any."""

    def at(self, micro_batch: int) -> int:
        """Return the time of a micro-batch of that many samples, in nanoseconds (or any other unit)."""


@dataclass(frozen=True)
class StraightTime:
    """``overhead + per_sample · micro_batch``.

    Attributes:
        overhead, per_sample: in nanoseconds (or any other unit), 0 or more.
    """

    overhead: int
    per_sample: int

    def __post_init__(self) -> None:
        for name, value in (("overhead", self.overhead), ("per_sample", self.per_sample)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError(f"{name} is {value!r}: give a whole number of nanoseconds, 0 or more")

    @property
    def longest(self) -> int | None:
        """None: it is given for any micro-batch."""
        return None

    def at(self, micro_batch: int) -> int:
        """Return the time of a micro-batch."""
        return self.overhead + self.per_sample * micro_batch


@dataclass(frozen=True)
class MeasuredTime:
    """Measured times; between two of them that of the larger micro-batch, beyond the largest none.

    Attributes:
        times: micro-batch and nanoseconds, by rising micro-batch. Falling times are refused.
    """

    times: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.times))
        object.__setattr__(self, "times", ordered)
        if not ordered:
            raise InputError("there are no measured times: give one at least")
        if any(batch < 1 or time < 0 for batch, time in ordered) or len({batch for batch, _ in ordered}) < len(ordered):
            raise InputError("measured times need micro-batches of 1 or more, each once, and times of 0 or more")
        for (one, before), (other, after) in pairwise(ordered):
            if after < before:
                raise InputError(f"a micro-batch of {other:,} takes less ({after:,}) than one of {one:,} ({before:,}): measure again")

    @property
    def longest(self) -> int | None:
        """The largest micro-batch that was measured."""
        return self.times[-1][0]

    def at(self, micro_batch: int) -> int:
        """Return the time of a micro-batch.

        Raises:
            InputError: it is larger than all that were measured.
        """
        for batch, time in self.times:
            if batch >= micro_batch:
                return time
        raise InputError(f"no micro-batch as large as {micro_batch:,} was timed: the largest is {self.times[-1][0]:,}")


class Binds(StrEnum):
    """Which of two constraints binds."""

    NEITHER = "neither"
    MEMORY = "memory"
    DEADLINE = "deadline"
    BOTH = "both"


@dataclass(frozen=True)
class InTime:
    """Micro-batches from ``first`` to ``last`` that fit and are in time with ``steps`` accumulated; ``time`` is that of ``first``."""

    first: int
    last: int
    steps: int
    time: int
    padded: int


@dataclass(frozen=True)
class Feasible(Shown):
    """The micro-batches that fit into memory and meet a deadline.

    Attributes:
        global_batch: samples of a step.
        memory_batch: the largest micro-batch that memory allows.
        deadline: the time a step may take; None for any.
        ranges: the micro-batches, by rising size; each range takes equally many steps.
        binds: which constraint takes away micro-batches that the other leaves.
        fastest: the micro-batch (of all that memory allows) with the least time, and that time; None if memory allows none.
    """

    global_batch: int
    memory_batch: int
    deadline: int | None
    ranges: tuple[InTime, ...]
    binds: Binds
    fastest: tuple[int, int] | None

    @property
    def batches(self) -> tuple[int, ...]:
        """All feasible micro-batches; only for small numbers of them."""
        return tuple(batch for each in self.ranges for batch in range(each.first, each.last + 1))

    def __repr__(self) -> str:
        return f"Feasible({sum(each.last - each.first + 1 for each in self.ranges):,} micro-batches, {self.binds} binds)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        told = [("memory allows", f"{self.memory_batch:,}"), ("binds", str(self.binds))]
        return told + [(f"{each.first:,} to {each.last:,}", f"{each.steps:,} micro-batches, {each.time:,}") for each in self.ranges]


def step_time(global_batch: int, micro_batch: int, time: TimeModel) -> int:
    """Return the time of a step whose last micro-batch is padded."""
    return -(-global_batch // micro_batch) * time.at(micro_batch)


def feasible(global_batch: int, memory_batch: int, time: TimeModel, deadline: int | None = None) -> Feasible:
    """Enumerate the micro-batches up to *memory_batch* that make *global_batch* within *deadline*.

    Memory bounds them from above. The deadline mostly bounds them from below, as overheads are paid for each micro-batch; both together may
    leave none, or a set with holes.

    Args:
        global_batch: samples of a step, 1 or more.
        memory_batch: the largest micro-batch that fits.
        time: how long a micro-batch takes.
        deadline: the time that a step may take, in the unit of *time*; None for any.

    Raises:
        InputError: an argument is out of range.
    """
    check_global_batch(global_batch)
    if deadline is not None and deadline < 0:
        raise InputError(f"the deadline is {deadline:,}: give a time of 0 or more")
    known = global_batch if time.longest is None else min(global_batch, time.longest)
    within = tuple(sorted(_ranges(global_batch, min(known, memory_batch), time, deadline), key=lambda each: each.first))
    anywhere = tuple(_ranges(global_batch, known, time, deadline))
    memory_takes = any(each.last > memory_batch for each in anywhere)
    allowed = min(known, memory_batch)
    deadline_takes = sum(each.last - each.first + 1 for each in within) < max(allowed, 0)
    binds = {(0, 0): Binds.NEITHER, (1, 0): Binds.MEMORY, (0, 1): Binds.DEADLINE, (1, 1): Binds.BOTH}[memory_takes, deadline_takes]
    firsts = [(step_time(global_batch, first, time), first) for first, _, _ in blocks(global_batch, allowed)]
    fastest = None if not firsts else min(firsts)[::-1]
    return Feasible(global_batch, memory_batch, deadline, within, binds, fastest)


def _ranges(global_batch: int, most: int, time: TimeModel, deadline: int | None) -> Iterable[InTime]:
    for first, last, steps in blocks(global_batch, most):
        found = last
        if deadline is not None:
            room = deadline // steps

            def in_time(more: int, first: int = first, room: int = room) -> bool:
                return time.at(first + more) <= room

            found = first + largest(in_time, last - first).value
        if found >= first:
            yield InTime(first, found, steps, steps * time.at(first), steps * first - global_batch)
