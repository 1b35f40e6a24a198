"""The largest batch by a fitted model, with all that makes the answer checkable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.batch.curve import Shape
from lifecycle_sim.study.batch.fitted import Fitted, Segment
from lifecycle_sim.study.batch.search import largest
from lifecycle_sim.units import format_exact

NO_LIMIT = 2**63 - 1


class Binding(StrEnum):
    """What keeps the batch from being larger."""

    MEMORY = "memory"
    LIMIT = "limit"
    CALIBRATED_RANGE = "calibrated range"
    """Nothing was measured beyond."""
    FIXED = "fixed part"
    """The bytes that are there with any batch are above the budget."""
    SMALLEST_PROBE = "smallest probe"
    """The smallest batch that was measured is above the budget: smaller ones were not."""


@dataclass(frozen=True)
class Decision(Shown):
    """The largest batch that a fitted model shows to fit.

    Attributes:
        batch: the batch; 0 if none fits but the fixed part does, -1 if not even that does (both by the estimate).
        seq: tokens of a sequence, None where there are none.
        budget, headroom: bytes there are, and bytes of them to be left free.
        limit: the largest batch that was allowed.
        binding: what keeps it from being larger.
        phase: the phase that is highest just above it, where peaks are told by phase.
        at: the bound of the bytes at the batch; None if it is not positive.
        above: the bound at the next batch, or the estimate where there is no bound; None if the limit binds.
        margin: bytes that the bound is above the estimate, at the batch.
        lost: batches lost to that: by the estimate so many more would fit.
        reach: the batch over the largest that was probed.
        shape: how the peaks go.
        basis: what the bytes count; they are fitted.
    """

    batch: int
    seq: int | None
    budget: int
    headroom: int
    limit: int
    binding: Binding
    phase: str | None
    at: int | None
    above: int | None
    margin: int
    lost: int
    reach: Fraction
    shape: Shape
    basis: str

    @property
    def left(self) -> int | None:
        """Bytes that the batch leaves below budget less headroom."""
        return None if self.at is None else self.budget - self.headroom - self.at

    @property
    def deficit(self) -> int | None:
        """Bytes that the next batch needs above budget less headroom."""
        return None if self.above is None else self.above - (self.budget - self.headroom)

    def __repr__(self) -> str:
        return f"Decision(batch {self.batch:,}, bound by {self.binding}, {self.basis} bytes, fitted)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        told = [("largest batch", f"{self.batch:,}"), ("bound by", str(self.binding)), ("shape", str(self.shape))]
        told += [("margin", format_exact(self.margin)), ("batches lost to it", f"{self.lost:,}")]
        return told + ([("left", format_exact(self.left))] if self.left is not None else [])


def decide(
    fitted: Fitted, budget: int, seq: int | None = None, *, limit: int | None = None, headroom: int = 0, widen: int | Fraction = 1
) -> Decision:
    """Return the largest batch that *fitted* shows to fit into *budget*.

    Args:
        fitted: the model, with three probes at least.
        budget: bytes there are.
        seq: tokens of a sequence, where the probes tell them.
        limit: the largest batch allowed; by default any.
        headroom: bytes of the budget to leave free.
        widen: how many times the largest batch that was probed the answer may be; 1 stays in the calibrated range.

    Raises:
        InputError: the probes cannot say yes, or an argument is out of range.
    """
    problems = [
        f"{name} is {value!r}: give a whole number, 0 or more"
        for name, value in (("budget", budget), ("headroom", headroom), ("limit", 0 if limit is None else limit))
        if isinstance(value, bool) or not isinstance(value, int) or value < 0
    ]
    problems += [f"widen is {widen}: give 1 or more"] if Fraction(widen) < 1 else []
    if problems:
        raise InputError(problems)
    segment, units = fitted.segment(seq)
    allowed, room = NO_LIMIT if limit is None else limit, budget - headroom
    reach = int(segment.whole.last * Fraction(widen)) // units
    fitted.upper(min(allowed, reach), seq, widen)  # says why, if the probes support no bound
    probed = _largest_probe_that_fits(segment, units, min(allowed, reach), room)
    by_bound = largest(lambda batch: fitted.upper(batch, seq, widen) <= room, min(allowed, reach)).value
    by_estimate = largest(lambda batch: segment.estimate(batch * units) <= room, min(allowed, reach)).value
    batch = max(by_bound, probed)
    if batch < 1:
        fixed_fits = segment.estimate(0) <= room
        batch, binding = (0, _binding_of_none(allowed, segment.whole.first > units)) if fixed_fits else (-1, Binding.FIXED)
    else:
        binding = Binding.MEMORY if batch < min(allowed, reach) else Binding.LIMIT if allowed <= reach else Binding.CALIBRATED_RANGE
    at = None if batch < 1 else segment.probed(batch * units) if batch == probed else fitted.upper(batch, seq, widen)
    above = None
    if binding is not Binding.LIMIT:
        above = fitted.upper(batch + 1, seq, widen) if batch + 1 <= reach else segment.estimate((batch + 1) * units)
    return Decision(
        batch=batch,
        seq=seq,
        budget=budget,
        headroom=headroom,
        limit=allowed,
        binding=binding,
        phase=segment.phase((batch + 1) * units),
        at=at,
        above=above,
        margin=0 if at is None else at - segment.estimate(batch * units),
        lost=max(0, by_estimate - max(batch, 0)),
        reach=Fraction(max(batch, 0) * units, segment.whole.last),
        shape=segment.shape,
        basis=fitted.basis,
    )


def _largest_probe_that_fits(segment: Segment, units: int, most: int, room: int) -> int:
    """A batch that was seen to fit, whatever the bound; 0 if there is none."""
    return max(
        (count // units for count, peak in segment.whole.points if peak <= room and count % units == 0 and count // units <= most),
        default=0,
    )


def _binding_of_none(allowed: int, smaller_ones: bool) -> Binding:
    return Binding.LIMIT if allowed == 0 else Binding.SMALLEST_PROBE if smaller_ones else Binding.MEMORY


def decide_all(
    fitted: Fitted,
    budget: int,
    lengths: Sequence[int | None] = (),
    *,
    limit: int | None = None,
    headroom: int = 0,
    widen: int | Fraction = 1,
) -> tuple[Decision, ...]:
    """Return a decision for each of *lengths*, by default those that were probed; batches of mixed lengths take the least of them."""
    asked = lengths or lengths_of(fitted)
    return tuple(decide(fitted, budget, seq, limit=limit, headroom=headroom, widen=widen) for seq in asked)


def lengths_of(fitted: Fitted) -> tuple[int | None, ...]:
    """Return the lengths that were probed, rising; one None where there are none."""
    return tuple(dict.fromkeys(sorted((probe.seq for probe in fitted.probes), key=lambda seq: seq or 0)))
