"""The micro-batch for a global batch, seen to fit by a run that accumulates: from the second one on gradients are there all along."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lifecycle_sim.display import Shown
from lifecycle_sim.study.batch.accumulation import Accumulation, accumulations
from lifecycle_sim.study.batch.measured import StepPeaks
from lifecycle_sim.study.batch.runs import Measure
from lifecycle_sim.study.batch.verified import Verified
from lifecycle_sim.units import format_exact

RUN = 2
"""Micro-batches of an accumulating run: from the third on each does what the second did."""


@dataclass(frozen=True)
class Accumulated(Shown):
    """The largest micro-batch for a global batch that was seen to fit with what it accumulates.

    Attributes:
        way: the micro-batch and how many of them; None if none fits.
        at: the run of it; None if none fits.
        larger: the next larger micro-batch that was run and does not fit, None if there is none.
        runs: all runs, in their order.
        basis: what the bytes count.
        room: budget less headroom, in bytes.
    """

    way: Accumulation | None
    at: StepPeaks | None
    larger: StepPeaks | None
    runs: tuple[StepPeaks, ...]
    basis: str
    room: int

    @property
    def left(self) -> int | None:
        """Bytes that it leaves."""
        return None if self.at is None else self.room - self.at.peak(self.basis)

    def __repr__(self) -> str:
        return f"Accumulated({self.way}, {len(self.runs)} runs)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        if self.way is None or self.left is None:
            return [("micro-batch", "none fits")]
        return [("micro-batch", f"{self.way.micro_batch:,} × {self.way.steps:,}"), ("left", format_exact(self.left))]


def largest_accumulated(single: Measure, several: Measure, found: Verified, global_batch: int) -> Accumulated:
    """Return the largest way to *global_batch* that fits, by runs of it and of the next larger way.

    Args:
        single: what measures a step of one micro-batch.
        several: what measures a step of ``RUN`` micro-batches.
        found: the largest batch without accumulation, which no way goes beyond.
        global_batch: samples wanted, 1 or more.

    Raises:
        InputError: *global_batch* is out of range.
    """
    ways = accumulations(global_batch, found.value)
    room = found.budget - found.headroom
    known = {run.batch: run for run in found.runs}
    seen: dict[int, StepPeaks] = {}
    low, above = -1, len(ways)  # ways are by falling size: those from ``above`` on fit, those up to ``low`` do not
    place = 0
    while above - low > 1:
        way = ways[place]
        measure = single if way.steps == 1 else several
        reuse = known.get(way.micro_batch) if way.steps == 1 else None
        (seen[place],) = (reuse,) if reuse is not None else measure([(found.seq, way.micro_batch)])
        excess = seen[place].peak(found.basis) - room
        if excess <= 0:
            above = place
            place = (low + above) // 2
            continue
        low = place
        wanted = way.micro_batch - int(excess / _slope(found))
        place = next((number for number in range(low + 1, above) if ways[number].micro_batch <= wanted), above - 1)
        place = max(low + 1, min(place, above - 1))
    fits = above < len(ways)
    return Accumulated(ways[above] if fits else None, seen[above] if fits else None, seen.get(low), tuple(seen.values()), found.basis, room)


def _slope(found: Verified) -> Fraction:
    """Bytes that a sample adds, by the smallest and the largest run; 1 where none are added."""
    first, last = found.runs[0], found.runs[-1]
    growth = last.peak(found.basis) - first.peak(found.basis)
    return Fraction(max(1, growth), max(1, last.batch - first.batch)) if growth > 0 else Fraction(1)
