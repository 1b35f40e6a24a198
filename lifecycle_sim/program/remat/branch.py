"""Branch and bound over which regions to recompute: exact, with no package but numpy, for few candidates.

A plan that is half decided holds at least the bytes of the conditions that hold already, whatever is decided next; where that exceeds the
budget, or its cost and the least cost of bringing the worst row down exceed the best plan's, it is given up.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from lifecycle_sim.program.remat.table import Flags, Ints, RowTable


@dataclass(frozen=True)
class Found:
    """What a search came back with.

    Attributes:
        plan: numbers of the candidates chosen, or None if no plan was found.
        cost: what it costs.
        peak: the largest row under it.
        bound: no plan that the rows admit costs less (or, in a search for the least peak, peaks lower).
        proven: the plan attains the bound; without a plan: there is none.
        solver: what was searched with.
    """

    plan: frozenset[int] | None
    cost: int
    peak: int
    bound: int
    proven: bool
    solver: str


class BranchAndBound:
    """The searches on one table of rows."""

    name = "branch and bound"

    def __init__(self, table: RowTable) -> None:
        self.table = table
        count = len(table.costs)
        self.by_choice: list[Flags] = [_flags(when.chosen and index in when.chosen for when in table.conditions) for index in range(count)]
        member = np.zeros((len(table.conditions), count), np.int64)
        for number, when in enumerate(table.conditions):
            for group in when.unless:
                member[number, sorted(group)] = 1
        self.reduction: Ints = table.sizes @ member
        """Bytes by which choosing each candidate can lower each row at most."""
        weight = self.reduction.max(axis=0, initial=0)
        self.order = sorted(range(count), key=lambda index: (-Fraction(int(weight[index]) + 1, table.costs[index] + 1), index))

    def least_cost(self, budget: int | None, cuts: Collection[frozenset[int]] = (), *, seconds: float | None = None) -> Found:
        """Return the plan of least cost within *budget* bytes (None for no limit), of equal costs the one of least peak."""
        return self._search(budget, None, cuts, False, seconds)

    def least_peak(self, most: int | None, cuts: Collection[frozenset[int]] = (), *, seconds: float | None = None) -> Found:
        """Return the plan of least peak that costs at most *most* (None for no limit), of equal peaks the one of least cost."""
        return self._search(None, most, cuts, True, seconds)

    def _search(
        self, budget: int | None, most: int | None, cuts: Collection[frozenset[int]], by_peak: bool, seconds: float | None
    ) -> Found:
        table = self.table
        deadline = None if seconds is None else time.monotonic() + seconds
        best: tuple[int, int] | None = None
        best_plan: frozenset[int] | None = None
        nothing = _flags(False for _ in table.conditions)
        todo: list[tuple[int, frozenset[int], frozenset[int], Flags, int]] = [(0, frozenset(), frozenset(), nothing, 0)]
        visited, finished = 0, True
        while todo:
            visited += 1
            if deadline is not None and visited % 64 == 0 and time.monotonic() > deadline:
                finished = False
                break
            at, chosen, rejected, forced, cost = todo.pop()
            levels = table.base + (table.sizes[:, forced].sum(axis=1) if forced.any() else 0)
            happens = _flags(row.only_if <= chosen for row in table.rows)
            least = int(np.where(happens, levels, -1).max(initial=0))
            if budget is not None and least > budget:
                continue
            dearer = cost
            if budget is not None:
                more = self._least_more(levels, happens, forced, chosen, self.order[at:], budget)
                if more is None:
                    continue
                dearer += more
            if most is not None and dearer > most:
                continue
            if best is not None and ((least, dearer) if by_peak else (dearer, least)) >= best:
                continue
            if at == len(self.order):
                if chosen not in cuts:
                    best, best_plan = ((least, cost) if by_peak else (cost, least)), chosen
                continue
            index = self.order[at]
            without = rejected | {index}
            gone = forced | _flags(any(group <= without for group in when.unless) for when in table.conditions)
            todo.append((at + 1, chosen, without, gone, cost))
            if table.conflicts[index].isdisjoint(chosen):
                todo.append((at + 1, chosen | {index}, rejected, forced | self.by_choice[index], cost + table.costs[index]))
        floor = 0 if finished else min(0 if by_peak else node[4] for node in todo)
        if best is None:
            return Found(None, 0, 0, floor, finished, self.name)
        peak, cost = best if by_peak else best[::-1]
        return Found(best_plan, cost, peak, (best[0] if finished else min(best[0], floor)), finished, self.name)

    def _least_more(self, levels: Ints, happens: Flags, forced: Flags, chosen: frozenset[int], left: list[int], budget: int) -> int | None:
        """The least further cost that can bring every row within *budget*, or None if nothing can."""
        table = self.table
        open_now = _flags(any(group.isdisjoint(chosen) for group in when.unless) for when in table.conditions) & ~forced
        if not open_now.any():
            return 0
        excess = np.where(happens, levels + table.sizes[:, open_now].sum(axis=1) - budget, 0)
        row = int(excess.argmax())
        missing = int(excess[row])
        if missing <= 0:
            return 0
        ways = sorted(
            (Fraction(table.costs[index], can), can, table.costs[index]) for index in left if (can := int(self.reduction[row, index])) > 0
        )
        cost = Fraction(0)
        for rate, can, whole in ways:
            if can >= missing:
                return ceil(cost + rate * missing)
            missing -= can
            cost += whole
        return None


def _flags(values: object) -> Flags:
    return np.fromiter(values, bool)  # type: ignore[call-overload,no-any-return]
