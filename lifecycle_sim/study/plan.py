"""Which regions to recompute: the cheapest plan under a budget, and every plan that is cheapest at its peak.

The search is in :mod:`lifecycle_sim.program.remat.search`. Every peak in the results was simulated exactly; what the search could not prove
is said, with the gap that is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.program.remat.plans import Frontier, Plan, PlanAnswer
from lifecycle_sim.program.remat.problem import RegionProblem
from lifecycle_sim.program.remat.search import SECONDS, frontier_of_regions, plan_regions
from lifecycle_sim.program.remat.strategies import Strategy, compare_strategies, usual_strategies
from lifecycle_sim.units import format_exact, parse_bytes


@dataclass(frozen=True)
class RegionPlan(Shown):
    """The answer to: which regions to recompute so that the peak stays within a budget.

    Attributes:
        budget: bytes, on the basis.
        fits: whether there is a plan within it.
        plan: the cheapest found, or None.
        proven: the plan is the cheapest of all; without a plan: there is none.
        base_peak: simulated peak in bytes without recomputation.
        tightest: where there is no plan, the one with the least peak found.
        corrections: plans that the rows admitted and the simulator did not.
        exact: the rows told the exact peak of every plan that was looked at.
        candidates: how many regions there were to choose from.
        unit: what costs count.
        basis: what bytes count.
    """

    budget: int
    fits: bool
    plan: Plan | None
    proven: bool
    base_peak: int
    tightest: Plan | None
    corrections: int
    exact: bool
    candidates: int
    unit: str
    basis: str

    def __repr__(self) -> str:
        if self.plan is None:
            return f"RegionPlan(no plan within {self.budget:,} B {self.basis}, {'proven' if self.proven else 'not proven'})"
        return (
            f"RegionPlan({len(self.plan.chosen):,} of {self.candidates:,} regions, peak {self.plan.peak:,} B {self.basis}, "
            f"cost {self.plan.cost:,} {self.unit}, {_certainty(self.plan, self.proven)})"
        )

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        found = [
            ("budget", f"{format_exact(self.budget)} {self.basis}"),
            ("peak without recomputation", f"{format_exact(self.base_peak)} {self.basis}, simulated"),
        ]
        if self.plan is None:
            found.append(("plan", f"none within the budget{'' if self.proven else ' was found; that there is none is not proven'}"))
            if self.tightest is not None:
                found.append(("least peak found", f"{format_exact(self.tightest.peak)} at {self.tightest.cost:,} {self.unit}"))
            return found
        return [
            *found,
            ("peak", f"{format_exact(self.plan.peak)} {self.basis}, simulated"),
            ("cost", f"{self.plan.cost:,} {self.unit}, {_certainty(self.plan, self.proven)}"),
            ("binds at", self.plan.event),
            ("recompute", ", ".join(self.plan.chosen) or "nothing"),
        ]


@dataclass(frozen=True)
class RegionFrontier(Shown):
    """Every plan that is cheapest at its peak, and usual choices held against them.

    Attributes:
        points: the plans, from the cheapest to the lowest peak.
        strategies: usual choices, each with its exact peak, what that peak costs at least, and whether a plan beats it.
        proven: every point is the cheapest at its peak, and no plan goes below the last.
        step: peaks that differ by less bytes are not told apart.
        corrections: plans that the rows admitted and the simulator did not.
        exact: the rows told the exact peak of every plan that was looked at.
        candidates: how many regions there were to choose from.
        unit: what costs count.
        basis: what bytes count.
    """

    points: tuple[Plan, ...]
    strategies: tuple[Strategy, ...]
    proven: bool
    step: int
    corrections: int
    exact: bool
    candidates: int
    unit: str
    basis: str

    def at(self, peak: int | str) -> Plan | None:
        """Return the cheapest plan with a peak of at most *peak*, bytes or a size such as ``"8 GiB"``; None if there is none."""
        limit = _bytes(peak, "peak")
        return next((plan for plan in self.points if plan.peak <= limit), None)

    def __repr__(self) -> str:
        if not self.points:
            return "RegionFrontier(no plan)"
        return (
            f"RegionFrontier({len(self.points):,} plans, peaks {self.points[0].peak:,} to {self.points[-1].peak:,} B {self.basis}, "
            f"costs {self.points[0].cost:,} to {self.points[-1].cost:,} {self.unit}, {'proven' if self.proven else 'not all proven'})"
        )

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        return [
            ("plans", f"{len(self.points):,}, {'each proven cheapest at its peak' if self.proven else 'not all proven'}"),
            *(
                (f"{plan.cost:,} {self.unit}", f"{format_exact(plan.peak)} {self.basis}, {len(plan.chosen):,} regions")
                for plan in self.points
            ),
            *(
                (each.name, f"{format_exact(each.peak)} at {each.cost:,} {self.unit}{', dominated' if each.dominated else ''}")
                for each in self.strategies
            ),
        ]


def plan(problem: RegionProblem, budget: int | str, *, solver: str = "auto", seconds: float = SECONDS) -> RegionPlan:
    """Return which regions to recompute, at least cost, so that the peak is at most *budget*; of equal costs the lower peak.

    Args:
        problem: the regions, the rows, and the simulator that has the last word.
        budget: bytes, or a size such as ``"8 GiB"``.
        solver: ``"branch"``, ``"highs"`` (extra ``plan``), or ``"auto"``: branch and bound for up to 12 candidates.
        seconds: how long one search may take before its best plan is taken and its gap stated.

    Raises:
        InputError: a budget that is none, or an unknown solver.
        MissingExtraError: HiGHS is needed and not installed.
    """
    answer: PlanAnswer = plan_regions(problem, _bytes(budget, "budget"), solver=solver, seconds=seconds)
    return RegionPlan(
        budget=answer.budget,
        fits=answer.plan is not None,
        plan=answer.plan,
        proven=answer.proven,
        base_peak=problem.evaluate(()),
        tightest=answer.tightest,
        corrections=answer.corrections,
        exact=answer.exact,
        candidates=len(problem.candidates),
        unit=problem.unit,
        basis=problem.basis,
    )


def frontier(
    problem: RegionProblem,
    *,
    strategies: Mapping[str, Sequence[str]] | None = None,
    solver: str = "auto",
    seconds: float = SECONDS,
    step: int | None = None,
) -> RegionFrontier:
    """Return every plan that is cheapest at its peak, and choices that people make held against them.

    Args:
        problem: as in :func:`plan`.
        strategies: names of regions by the name of a choice, beside the usual ones (all blocks, every second, the first half, …).
        solver: as in :func:`plan`.
        seconds: how long one search may take; each point takes two or three.
        step: bytes between a peak and the next budget: 1, or with HiGHS 512, by default.

    Raises:
        InputError: an unknown solver, a step below 1, or a strategy with an unknown region.
        MissingExtraError: HiGHS is needed and not installed.
    """
    named = (*usual_strategies(problem), *((name, tuple(regions)) for name, regions in (strategies or {}).items()))
    problem.numbers([region for _, regions in named for region in regions])
    found: Frontier = frontier_of_regions(problem, solver=solver, seconds=seconds, step=step)
    return RegionFrontier(
        points=found.points,
        strategies=compare_strategies(problem, found, named),
        proven=found.proven,
        step=found.step,
        corrections=found.corrections,
        exact=found.exact,
        candidates=len(problem.candidates),
        unit=problem.unit,
        basis=problem.basis,
    )


def _bytes(size: int | str, what: str) -> int:
    if isinstance(size, str):
        return parse_bytes(size, round_down=True)
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise InputError(f"a {what} of {size!r} is none: give bytes as a whole number, or a size such as '8 GiB'")
    return size


def _certainty(found: Plan, proven: bool) -> str:
    if proven:
        return "proven the least"
    return f"at least {found.bound:,} is needed" if found.bound else "not proven the least"
