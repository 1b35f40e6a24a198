"""The largest whole number for which something holds: bisection that proves both sides, on integers of any size.

``-1``, ``0`` and a positive answer are kept apart: what is fixed does not fit; it fits and nothing besides; so much fits. Floating-point
numbers are refused, as they are wrong from 2^53 on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.units import format_exact


@dataclass(frozen=True)
class Largest(Shown):
    """The largest number for which a predicate holds, and what proves it.

    Attributes:
        value: the number; -1 if the predicate does not hold even for 0.
        limit: the largest number that was allowed.
        proved: whether the predicate was seen to hold for ``value``. False for -1 alone: there is nothing to hold.
        refuted: the number above ``value`` for which the predicate was seen not to hold; None if the limit bound.
        evaluations: how often the predicate was asked.
    """

    value: int
    limit: int
    proved: bool
    refuted: int | None
    evaluations: int

    @property
    def capped(self) -> bool:
        """Whether it is the limit that bound."""
        return self.refuted is None

    def __repr__(self) -> str:
        bound = "the limit" if self.capped else f"{self.refuted:,} fails"
        return f"Largest({self.value:,}, {bound}, {self.evaluations} evaluations)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        above = f"the limit, {self.limit:,}, binds" if self.capped else f"{self.refuted:,} fails"
        return [("largest", f"{self.value:,}"), ("above it", above), ("evaluations", f"{self.evaluations:,}")]


@dataclass(frozen=True)
class FeasibleRange(Shown):
    """The batches that fit into a budget when bytes are ``fixed + per_sample · batch``.

    Attributes:
        batch: the largest that fits, at most ``limit``; 0 if only the fixed bytes do, -1 if they do not. All from 0 to it fit.
        limit: the largest batch that was allowed.
        fixed, per_sample, budget: bytes, as given.
        evaluations: how often bytes were compared.
    """

    batch: int
    limit: int
    fixed: int
    per_sample: int
    budget: int
    evaluations: int

    def bytes_at(self, batch: int) -> int:
        """Return the bytes of *batch*."""
        return self.fixed + self.per_sample * batch

    @property
    def capped(self) -> bool:
        """Whether the limit bound, and not the budget."""
        return self.batch == self.limit

    @property
    def at(self) -> int | None:
        """Bytes at the largest batch, the witness that it fits; None if nothing does."""
        return None if self.batch < 0 else self.bytes_at(self.batch)

    @property
    def above(self) -> int:
        """Bytes at the next batch: the witness that it does not fit, unless the limit bound."""
        return self.bytes_at(self.batch + 1)

    @property
    def headroom(self) -> int | None:
        """Bytes of the budget that the largest batch leaves; None if nothing fits."""
        return None if self.at is None else self.budget - self.at

    @property
    def deficit(self) -> int | None:
        """Bytes that the next batch needs above the budget; None if the limit bound, for then it is not asked."""
        return None if self.capped else self.above - self.budget

    def __repr__(self) -> str:
        return f"FeasibleRange({self.batch:,} of at most {self.limit:,}, {self.evaluations} evaluations)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        told = [("largest batch", f"{self.batch:,}"), ("limit", f"{self.limit:,}"), ("budget", format_exact(self.budget))]
        if self.headroom is not None:
            told.append(("headroom", format_exact(self.headroom)))
        if self.deficit is not None:
            told.append((f"deficit at {self.batch + 1:,}", format_exact(self.deficit)))
        return told


def largest(predicate: Callable[[int], bool], limit: int) -> Largest:
    """Return the largest number from 0 to *limit* for which *predicate* holds.

    The predicate must be monotone: if it fails for a number, it fails for all above. It is asked about 0 first, then about midpoints
    rounded up, so that a range of two always shrinks; at most ``limit.bit_length() + 1`` times, each number once.

    Args:
        predicate: what must hold.
        limit: the largest number allowed, 0 or more.

    Raises:
        InputError: *limit* is no whole number, or negative.
    """
    _whole("limit", limit)
    if not predicate(0):
        return Largest(-1, limit, False, 0, 1)
    low, above, evaluations = 0, limit + 1, 1  # the predicate holds for low, and fails for above or above is past the limit
    while above - low > 1:
        middle = (low + above) // 2
        evaluations += 1
        if predicate(middle):
            low = middle
        else:
            above = middle
    return Largest(low, limit, True, None if above > limit else above, evaluations)


def max_batch(fixed: int, per_sample: int, budget: int, limit: int) -> int:
    """Return the largest batch up to *limit* for which ``fixed + per_sample · batch`` is at most *budget*.

    Args:
        fixed: bytes that are there with any batch: 0 or more.
        per_sample: bytes that a sample adds: 1 or more.
        budget: bytes there are: 0 or more.
        limit: the largest batch allowed: 0 or more.

    Returns:
        The batch; 0 if only the fixed bytes fit, -1 if not even they do.

    Raises:
        InputError: an argument is no whole number, or out of its range.
    """
    return feasible_range(fixed, per_sample, budget, limit).batch


def feasible_range(fixed: int, per_sample: int, budget: int, limit: int) -> FeasibleRange:
    """Return what :func:`max_batch` returns with its witnesses, headroom and deficit; the arguments are the same.

    The fixed bytes are compared first, and then at most ``limit.bit_length()`` batches.

    Raises:
        InputError: an argument is no whole number, or out of its range.
    """
    problems = [
        problem
        for name, value, least in (("fixed", fixed, 0), ("per_sample", per_sample, 1), ("budget", budget, 0), ("limit", limit, 0))
        if (problem := _problem(name, value, least)) is not None
    ]
    if problems:
        raise InputError(problems)
    if fixed > budget:
        return FeasibleRange(-1, limit, fixed, per_sample, budget, 0)
    found = largest(lambda batch: batch == 0 or fixed + per_sample * batch <= budget, limit)
    return FeasibleRange(found.value, limit, fixed, per_sample, budget, found.evaluations - 1)


def _whole(name: str, value: int, least: int = 0) -> None:
    if (problem := _problem(name, value, least)) is not None:
        raise InputError(problem)


def _problem(name: str, value: object, least: int) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{name} is {value!r}, not a whole number: give an int; floating-point numbers are not exact from 2**53 on"
    if value < least:
        why = "a sample must add bytes, or every batch fits" if name == "per_sample" else "it cannot be negative"
        return f"{name} is {value:,}: give {least} or more, for {why}"
    return None
