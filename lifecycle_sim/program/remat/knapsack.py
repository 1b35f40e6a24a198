"""The knapsack: what to keep, of things each with a size and a worth, so that the sizes fit and the worth is greatest. Exact.

It is the plan that counts saved bytes alone: what to keep within a budget of bytes if nothing else is ever held. A peak is not a sum of
saved bytes, so region plans use it as a bound only.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from lifecycle_sim.errors import InputError

Number = int | float | Fraction


class Kept(NamedTuple):
    """What is kept: indices, ascending, and the sums of their sizes and worths, exact fractions."""

    indices: tuple[int, ...]
    size: Fraction
    worth: Fraction


def knapsack(sizes: Sequence[Number], worths: Sequence[Number], budget: Number) -> Kept:
    """Return what to keep within *budget* for the greatest worth; of equal worths the smaller size.

    Branch and bound on worth per size with the fractional bound, in exact fractions: a float stands for exactly the number it is.

    Raises:
        InputError: lists of different lengths, a number that is not finite, or a negative one.
    """
    if len(sizes) != len(worths):
        raise InputError(f"{len(sizes):,} sizes and {len(worths):,} worths: give one of each")
    try:
        weight, value, room = [Fraction(each) for each in sizes], [Fraction(each) for each in worths], Fraction(budget)
    except (ValueError, OverflowError):
        raise InputError("a size, a worth or the budget is not a finite number") from None
    if room < 0 or min((*weight, *value), default=0) < 0:
        raise InputError("a size, a worth or the budget is negative: give 0 or more")
    order = sorted(range(len(weight)), key=lambda index: (-value[index] / weight[index] if weight[index] else -2 * sum(value) - 1, index))
    order = [index for index in order if weight[index] <= room and value[index]]
    best = Kept((), Fraction(0), Fraction(0))
    todo: list[tuple[int, Fraction, Fraction, tuple[int, ...]]] = [(0, Fraction(0), Fraction(0), ())]
    while todo:
        at, size, worth, kept = todo.pop()
        if (worth, -size) > (best.worth, -best.size):
            best = Kept(tuple(sorted(kept)), size, worth)
        if at == len(order) or worth + _bound(order, weight, value, at, room - size) < best.worth:
            continue
        index = order[at]
        todo.append((at + 1, size, worth, kept))
        if size + weight[index] <= room:
            todo.append((at + 1, size + weight[index], worth + value[index], (*kept, index)))
    return best


def _bound(order: Sequence[int], weight: Sequence[Fraction], value: Sequence[Fraction], at: int, room: Fraction) -> Fraction:
    """The worth of what is left from *at* if the last thing may be kept in part."""
    worth = Fraction(0)
    for index in order[at:]:
        if weight[index] > room:
            return worth + value[index] * room / weight[index]
        room -= weight[index]
        worth += value[index]
    return worth
