"""Which regions to recompute, as a mixed-integer program solved by HiGHS (package highspy, extra ``plan``): for many candidates.

HiGHS works in floats with tolerances, so its word is never taken for a figure: bytes are given in thousands, choices are rounded, and
the plan's cost and rows are summed again in integers. A plan that passes the limit by less than a tolerance is excluded and the
search goes on; the bound on the cost is rounded up to a multiple of what all costs are multiples of. Costs that differ by
less than a billionth of the largest are not told apart. No known plan is given to begin from: with one, release 1.16 called a plan
optimal that was not.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from math import ceil, gcd
from typing import Any

import numpy as np

from lifecycle_sim.errors import MissingExtraError
from lifecycle_sim.program.remat.branch import Found
from lifecycle_sim.program.remat.symmetry import Ordered
from lifecycle_sim.program.remat.table import RowTable

BYTES = 1000
"""Bytes to a unit of the program: rows may be missed by a millionth of it, far less than a byte."""

Entries = dict[int, float]


def highs() -> Any:
    """Return the module highspy.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import highspy
    except ImportError:
        raise MissingExtraError("highspy", "plan", "planning with more candidates than branch and bound takes") from None
    return highspy


def _quiet(module: Any) -> Any:
    """A solver that prints nothing: some releases print a banner as soon as callbacks are enabled, which is in the constructor."""

    def enable_callbacks(solver: Any) -> None:
        solver.silent()
        module.Highs.enableCallbacks(solver)

    return type("QuietHighs", (module.Highs,), {"enableCallbacks": enable_callbacks})()


class Milp:
    """The searches on one table of rows; *ordered* are pairs of blocks of which the earlier is not chosen less than the later."""

    name = "HiGHS"

    def __init__(self, table: RowTable, ordered: Sequence[Ordered] = ()) -> None:
        self.module = highs()
        self.table = table
        self.count = len(table.costs)
        self.unit = max(gcd(*table.costs) if self.count else 1, 1)
        self.rows: list[tuple[Entries, float]] = []  # Σ entry · variable ≤ limit
        self.condition: list[tuple[Entries, float]] = []  # what each condition adds: entries, and a constant
        self.extra = 0
        for when in table.conditions:
            self.condition.append(self._condition(when.chosen, when.unless))
        for index, others in enumerate(table.conflicts):
            self.rows += [({index: 1.0, other: 1.0}, 1.0) for other in others if other > index]
        for pair in ordered:
            weights = [float(2**place) for place in reversed(range(len(pair.earlier)))]
            entries = {number: -weight for number, weight in zip(pair.earlier, weights, strict=True)}
            entries |= dict(zip(pair.later, weights, strict=True))
            self.rows.append((entries, 0.0))
        self.peak_at = self.count + self.extra
        self._level_rows()

    def _condition(self, chosen: frozenset[int], unless: frozenset[frozenset[int]]) -> tuple[Entries, float]:
        """A condition as a sum of choices, with a variable of its own where it takes one."""
        if not unless and len(chosen) == 1:
            return dict.fromkeys(chosen, 1.0), 0.0
        if not chosen and len(unless) == 1:
            (group,) = unless
            if all(other in self.table.conflicts[index] for index in group for other in group if other != index):
                return dict.fromkeys(group, -1.0), 1.0
        number = self.count + self.extra
        self.extra += 1
        for index in chosen:
            self.rows.append(({index: 1.0, number: -1.0}, 0.0))
        for group in unless:
            self.rows.append(({number: -1.0} | dict.fromkeys(group, -1.0), -1.0))
        return {number: 1.0}, 0.0

    def _level_rows(self) -> None:
        """Every row at most the peak, which is the last variable; rows of events that need not happen are slack where they do not."""
        table = self.table
        least = max((row.base for row in table.rows if not row.only_if), default=0)
        for number, row in enumerate(table.rows):
            entries: Entries = {self.peak_at: -1.0}
            constant = row.base / BYTES
            for place in np.flatnonzero(table.sizes[number]).tolist():
                size = int(table.sizes[number, place]) / BYTES
                parts, fixed = self.condition[place]
                constant += fixed * size
                for index, sign in parts.items():
                    entries[index] = entries.get(index, 0.0) + sign * size
            if row.only_if:
                slack = max(row.base + int(table.sizes[number].sum()) - least, 0) / BYTES
                for index in row.only_if:
                    entries[index] = entries.get(index, 0.0) + slack
                constant -= slack * len(row.only_if)
            self.rows.append((entries, -constant))

    def least_cost(
        self, budget: int | None, cuts: Collection[frozenset[int]] = (), *, most: int | None = None, seconds: float | None = None
    ) -> Found:
        """Return a plan of least cost within *budget* bytes (None for no limit) that costs at most *most*, if that is given."""
        return self._search(budget, most, cuts, False, seconds)

    def least_peak(self, most: int | None, cuts: Collection[frozenset[int]] = (), *, seconds: float | None = None) -> Found:
        """Return a plan of least peak that costs at most *most* (None for no limit)."""
        return self._search(None, most, cuts, True, seconds)

    def _search(
        self, budget: int | None, most: int | None, cuts: Collection[frozenset[int]], by_peak: bool, seconds: float | None
    ) -> Found:
        deadline = None if seconds is None else time.monotonic() + seconds
        costs = np.array([cost // self.unit for cost in self.table.costs], float)
        scale = max(float(costs.max(initial=0.0)) / 1000, 1.0)  # costs of at most a thousand units, each exact where they are few
        own_cuts: list[frozenset[int]] = []
        while True:
            rows = list(self.rows)
            if most is not None:
                rows.append(({index: cost / scale for index, cost in enumerate(costs.tolist())}, (most // self.unit + 0.25) / scale))
            rows += [_excluding(plan, self.count) for plan in (*cuts, *own_cuts)]
            objective = np.zeros(self.peak_at + 1)
            if by_peak:
                objective[self.peak_at] = 1.0
            else:
                objective[: self.count] = costs / scale
            left = None if deadline is None else max(deadline - time.monotonic(), 0.01)
            chosen, bound, proven = self._solve(rows, objective, None if budget is None else budget / BYTES, left)
            floor = 0
            if np.isfinite(bound):
                floor = max(int(bound * BYTES) if by_peak else ceil(bound * scale - 1e-3) * self.unit, 0)
            if chosen is None:
                return Found(None, 0, 0, floor, proven, self.name)
            cost, (peak, _) = self.table.cost(chosen), self.table.peak(chosen)
            if (budget is not None and peak > budget) or (most is not None and cost > most) or chosen in cuts:
                own_cuts.append(chosen)  # within the tolerances of the solver, not within the limit
                if deadline is not None and time.monotonic() > deadline:
                    return Found(None, 0, 0, floor, False, self.name)
                continue
            if by_peak:
                return Found(chosen, cost, peak, min(floor, peak), proven, self.name)
            floor = min(floor, cost)
            return Found(chosen, cost, peak, cost if proven else floor, proven or floor == cost, self.name)

    def _solve(
        self, rows: list[tuple[Entries, float]], objective: Any, ceiling: float | None, seconds: float | None
    ) -> tuple[frozenset[int] | None, float, bool]:
        """Solve once: the choices, the solver's bound, and whether it calls them optimal (or the program infeasible)."""
        module = self.module
        program = module.HighsLp()
        width = self.peak_at + 1
        program.num_col_, program.num_row_ = width, len(rows)
        program.col_cost_ = objective
        program.col_lower_ = np.zeros(width)
        upper = np.ones(width)
        upper[-1] = np.inf if ceiling is None else ceiling
        program.col_upper_ = upper
        program.row_lower_ = np.full(len(rows), -np.inf)
        program.row_upper_ = np.array([limit for _, limit in rows])
        matrix = program.a_matrix_
        matrix.format_ = module.MatrixFormat.kRowwise
        matrix.start_ = np.cumsum([0, *(len(entries) for entries, _ in rows)])
        matrix.index_ = np.array([index for entries, _ in rows for index in entries], np.int32)
        matrix.value_ = np.array([value for entries, _ in rows for value in entries.values()], float)
        kinds = module.HighsVarType
        program.integrality_ = [kinds.kInteger if index < self.count else kinds.kContinuous for index in range(width)]
        solver = _quiet(module)
        for option, value in (("output_flag", False), ("mip_rel_gap", 0.0), ("mip_abs_gap", 1e-9), ("threads", 1), ("random_seed", 0)):
            solver.setOptionValue(option, value)
        if seconds is not None:
            solver.setOptionValue("time_limit", float(seconds))
        solver.passModel(program)
        solver.run()
        status, infeasible = solver.getModelStatus(), module.HighsModelStatus.kInfeasible
        if status == infeasible:
            return None, np.inf, True
        optimal = status == module.HighsModelStatus.kOptimal
        information = solver.getInfo()
        bound = float(information.mip_dual_bound)
        values = list(solver.getSolution().col_value)
        if information.primal_solution_status != 2 or not values:  # no feasible point was found
            return None, bound, False
        return frozenset(index for index in range(self.count) if values[index] > 0.5), bound, optimal


def _excluding(plan: frozenset[int], count: int) -> tuple[Entries, float]:
    """The row that every plan but this one meets."""
    return {index: 1.0 if index in plan else -1.0 for index in range(count)}, len(plan) - 1.0
