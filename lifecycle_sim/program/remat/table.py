"""The rows of a region problem as arrays, for the searches: levels of a plan, and what a plan that is half decided holds at least."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.program.remat.problem import RegionProblem, Row, When

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class RowTable:
    """Rows by conditions: ``base[r] + Σ sizes[r, c]`` over the conditions c that hold.

    Attributes:
        rows: the rows, in order.
        conditions: the conditions that occur.
        base: bytes of each row in any case.
        sizes: bytes of each row under each condition.
        costs: what each candidate costs.
    """

    def __init__(self, problem: RegionProblem, more: Sequence[Row] = ()) -> None:
        self.rows: tuple[Row, ...] = (*problem.rows, *more)
        self.costs = [candidate.cost for candidate in problem.candidates]
        numbers: dict[When, int] = {}
        for row in self.rows:
            for when, _ in row.held:
                numbers.setdefault(when, len(numbers))
        self.conditions: tuple[When, ...] = tuple(numbers)
        self.base: Ints = np.array([row.base for row in self.rows], np.int64)
        self.sizes: Ints = np.zeros((len(self.rows), len(self.conditions)), np.int64)
        for index, row in enumerate(self.rows):
            for when, size in row.held:
                self.sizes[index, numbers[when]] += size
        self.conflicts: tuple[frozenset[int], ...] = tuple(
            frozenset(other for pair in problem.conflicts if index in pair for other in pair if other != index)
            for index in range(len(self.costs))
        )

    def peak(self, plan: Iterable[int]) -> tuple[int, int]:
        """Return the largest row of *plan*, and its number."""
        chosen = frozenset(plan)
        holds = np.array([when.holds(chosen) for when in self.conditions], bool)
        levels = self.base + (self.sizes[:, holds].sum(axis=1) if holds.size else 0)
        happens = np.array([row.only_if <= chosen for row in self.rows], bool)
        number = int(np.where(happens, levels, -1).argmax())
        return int(levels[number]), number

    def cost(self, plan: Iterable[int]) -> int:
        """Return what *plan* costs."""
        return sum(self.costs[index] for index in plan)
