"""The largest batch, or the longest sequence, seen to fit by runs of it and of the next; no run of these runs out of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.batch.decision import Binding
from lifecycle_sim.study.batch.fitted import Fitted, fit
from lifecycle_sim.study.batch.measured import StepPeaks
from lifecycle_sim.study.batch.runs import Measure, Place
from lifecycle_sim.study.batch.seeking import Seen, Sought, seek, seek_all
from lifecycle_sim.units import format_exact

Axis = Literal["batch", "seq"]
LIMIT = 2**20
"""The largest count that is looked for if nothing else is said."""
NEIGHBOURS = 2
"""How many counts on each side are looked at where peaks need not rise."""


@dataclass(frozen=True)
class Verified(Shown):
    """A largest batch (or length) that was seen to fit.

    Attributes:
        axis: what was searched: ``"batch"`` or ``"seq"``.
        value: the largest; 0 if 1 does not fit, -1 if not even what does not depend on it fits.
        other: what was held: the length at which batches were searched, or the batch at which lengths were; None for no length.
        budget, headroom: bytes there are, and bytes of them to be left free.
        limit: the largest that was allowed.
        basis: what the bytes count; they are simulated.
        binding: what keeps it from being larger.
        at, above: the peaks at it, and at the next; None where it is not positive, or the limit binds.
        runs: all runs that were made, by rising count.
        sought: how it was found.
        fitted: the model of all runs over the batch, None where they support none.
        fitted_basis: what the model's bytes count: the basis, or allocated bytes where peaks in the basis fall.
        refusal: why there is no model.
    """

    axis: Axis
    value: int
    other: int | None
    budget: int
    headroom: int
    limit: int
    basis: str
    binding: Binding
    at: StepPeaks | None
    above: StepPeaks | None
    runs: tuple[StepPeaks, ...]
    sought: Sought
    fitted: Fitted | None
    fitted_basis: str | None
    refusal: str | None

    @property
    def batch(self) -> int:
        """The batch: the one found, or the one that lengths were searched at."""
        return self.value if self.axis == "batch" else self.other or 0

    @property
    def seq(self) -> int | None:
        """The length of sequences: the one that batches were searched at, or the one found."""
        return self.other if self.axis == "batch" else self.value

    @property
    def left(self) -> int | None:
        """Bytes that it leaves below budget less headroom."""
        return None if self.at is None else self.budget - self.headroom - self.at.peak(self.basis)

    @property
    def deficit(self) -> int | None:
        """Bytes that the next needs above budget less headroom."""
        return None if self.above is None else self.above.peak(self.basis) - (self.budget - self.headroom)

    @property
    def phase(self) -> str | None:
        """The phase in which bytes of the basis first reach their peak at the next, or here if there is none."""
        shown = self.above or self.at
        return None if shown is None else shown.phase_of(self.basis)

    @property
    def category(self) -> str | None:
        """The category that holds most then."""
        shown = self.above or self.at
        return None if shown is None else shown.category_of(self.basis)

    @property
    def requested_phase(self) -> str | None:
        """The phase in which requested bytes peak there."""
        shown = self.above or self.at
        return None if shown is None else shown.phase

    @property
    def requested_category(self) -> str | None:
        """The category that holds most at the peak of requested bytes."""
        shown = self.above or self.at
        return max(shown.held, key=lambda name: shown.held[name]) if shown is not None and shown.held else None

    @property
    def growing(self) -> str | None:
        """The category that grew most from the smallest run to the next, each at its peak of requested bytes."""
        shown, first = self.above or self.at, self.runs[0]
        if shown is None or shown is first:
            return None
        growth = {name: size - first.held.get(name, 0) for name, size in shown.held.items()}
        return max(growth, key=lambda name: growth[name]) if growth and max(growth.values()) > 0 else None

    @property
    def reach(self) -> Fraction:
        """The value over the largest of the counts that it was first predicted from."""
        return Fraction(max(self.value, 0), self.sought.calibrated)

    def __repr__(self) -> str:
        holes = f", {len(self.sought.holes)} holes" if self.sought.holes else ""
        return f"Verified({self.axis} {self.value:,}, bound by {self.binding}, {self.basis} bytes, {len(self.runs)} runs{holes})"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        told = [(f"largest {self.axis}", f"{self.value:,}"), ("bound by", str(self.binding)), ("basis", f"{self.basis} bytes, simulated")]
        told += [("left", format_exact(self.left))] if self.left is not None else []
        told += [("deficit of the next", format_exact(self.deficit))] if self.deficit is not None else []
        return [*told, ("runs", f"{len(self.runs)} in {self.sought.rounds} rounds")]


def find_largest(
    measure: Measure,
    budget: int,
    others: Sequence[int | None] = (None,),
    *,
    axis: Axis = "batch",
    basis: str = "reserved",
    headroom: int = 0,
    limit: int = LIMIT,
    window: int | None = None,
) -> tuple[Verified, ...]:
    """Find the largest batch at each of some lengths, or the longest sequence at each of some batches, by runs on both sides.

    Args:
        measure: what runs a step, see :func:`~lifecycle_sim.study.batch.runs.capture_runs`.
        budget: bytes there are.
        others: the lengths to find batches at, None for steps that have none; or the batches to find lengths at.
        axis: what to find.
        basis: what the bytes count.
        headroom: bytes of the budget to leave free.
        limit: the largest that is allowed.
        window: how many neighbours on both sides to measure; by default 2 where peaks need not rise, which is in reserved bytes.

    Raises:
        InputError: an argument is out of range.
    """
    problems = [f"budget is {budget:,} and headroom {headroom:,}: give 0 or more"] if budget < 0 or headroom < 0 else []
    problems += [f"limit is {limit:,}: give 1 or more"] if limit < 1 else []
    problems += ["there is nothing to search at: give a length or a batch"] if not others else []
    problems += [f"{other} is given twice" for number, other in enumerate(others) if other in others[:number]]
    problems += ["lengths are searched at batches: give some"] if axis == "seq" and None in others else []
    if problems:
        raise InputError(problems)
    neighbours = window if window is not None else NEIGHBOURS if basis == "reserved" else 0
    runs: dict[Place, StepPeaks] = {}

    def place(other: int | None, count: int) -> Place:
        return (other, count) if axis == "batch" else (count, other or 0)

    def peaks(pairs: Sequence[tuple[int | None, int]]) -> list[Seen]:
        places = [place(*pair) for pair in pairs]
        runs.update(zip(places, measure(places), strict=True))
        return [Seen(runs[each].peak(basis), runs[each].phases) for each in places]

    room = budget - headroom
    found = seek_all({other: seek(room, limit, neighbours) for other in others}, peaks)
    return tuple(
        _verified(axis, other, sought, {count: runs[place(other, count)] for count in sought.peaks}, budget, headroom, basis)
        for other, sought in found.items()
    )


def _verified(
    axis: Axis, other: int | None, sought: Sought, runs: dict[int, StepPeaks], budget: int, headroom: int, basis: str
) -> Verified:
    value = sought.value
    at, above = runs.get(value), runs.get(value + 1) if value < sought.limit else None
    binding = Binding.LIMIT if above is None else Binding.MEMORY
    if value == 0 and runs[min(runs)].states_together > budget - headroom:
        value, binding = -1, Binding.FIXED
    fitted, fitted_basis, refusal = _model(list(runs.values()), basis) if axis == "batch" else (None, None, None)
    made = tuple(runs[count] for count in sorted(runs))
    return Verified(
        axis, value, other, budget, headroom, sought.limit, basis, binding, at, above, made, sought, fitted, fitted_basis, refusal
    )


def _model(runs: Sequence[StepPeaks], basis: str) -> tuple[Fitted | None, str | None, str | None]:
    refusal = None
    for each in dict.fromkeys((basis, "allocated")):
        if each in runs[0].levels:
            try:
                return fit(run.probe(each) for run in runs), each, refusal
            except InputError as error:
                refusal = refusal or " ".join(error.problems)
    return None, None, refusal
