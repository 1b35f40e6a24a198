"""Which regions to recompute: the cheapest plan under a budget, and every plan that is cheapest at its peak.

The search is in :mod:`lifecycle_sim.program.remat.search`. Every peak in the results was simulated exactly; what the search could not prove
is said, with the gap that is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Kind, Trace
from lifecycle_sim.program.remat import chosen_regions
from lifecycle_sim.program.remat.plans import Frontier, Plan, PlanAnswer
from lifecycle_sim.program.remat.problem import RegionProblem
from lifecycle_sim.program.remat.search import SECONDS, frontier_of_regions, plan_regions
from lifecycle_sim.program.remat.step_problem import Price, flops_of, problem_of_step
from lifecycle_sim.program.remat.strategies import Strategy, compare_strategies, usual_strategies
from lifecycle_sim.program.stored_steps import graphs_of
from lifecycle_sim.study.plan_levels import PlannedLevels, plan_on_level
from lifecycle_sim.study.recompute import CPU_RNG_STATE, Captured
from lifecycle_sim.study.roofline import Rates, rates_of, time_of
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


def region_problem(
    captured: Captured | Trace,
    modules: str | Iterable[str] | None = None,
    *,
    objective: str = "flops",
    early_stop: bool = True,
    preserve_rng: bool = True,
    rates: Rates | None = None,
) -> RegionProblem:
    """Return the region problem of the last step of a capture: its modules, its rows, and the exact edit.

    Args:
        captured: a capture of training steps without checkpointing, or its trace.
        modules: paths or patterns of the modules to choose from; by default blocks and the larger parts directly in them.
        objective: what a plan costs: ``"flops"`` of the operators that run again, or their ``"time"`` in nanoseconds, by the card's
            roofline: a lower bound, which ranks plans and tells no date.
        early_stop: whether recomputation stops at the last tensor needed, as is torch's default.
        preserve_rng: whether each call keeps the state of the random number generators.
        rates: what the card does at most, in place of what is known of the card of the capture.

    Raises:
        InputError: the capture holds no operators, nothing in it can be recomputed, or the objective is unknown.
    """
    trace = captured if isinstance(captured, Trace) else captured.trace
    graph = graphs_of(trace)[-1]
    recorded = trace.devices[0]
    events = recorded.events
    before = int(np.where(events.kind == Kind.ALLOC, events.size, -events.size)[: graph.start].sum())
    chosen = None
    if modules is not None:
        calls = chosen_regions(graph, [modules] if isinstance(modules, str) else modules, "modules")
        chosen = {graph.calls[number].module for number in calls}
    if objective not in ("flops", "time"):
        raise InputError(f"there is no objective {objective!r}: give 'flops' or 'time'")
    price: Price = flops_of if objective == "flops" else _nanoseconds(trace, rates)
    unit = "FLOP" if objective == "flops" else "ns"
    rng_state = _rng_state(trace, preserve_rng)
    return problem_of_step(graph, chosen, before=before, price=price, unit=unit, early_stop=early_stop, rng_state=rng_state).problem


def _nanoseconds(trace: Trace, rates: Rates | None) -> Price:
    header = trace.settings.get("capture", {})
    card = rates if rates is not None else rates_of(str(header.get("device", {}).get("name")))
    return lambda operators: ceil((time_of(operators, card, None) or 0.0) * 10**9)


Asked = RegionProblem | Captured | Trace


def plan(
    asked: Asked,
    budget: int | str,
    modules: str | Iterable[str] | None = None,
    *,
    objective: str = "flops",
    early_stop: bool = True,
    solver: str = "auto",
    seconds: float = SECONDS,
    basis: str = "requested",
    preserve_rng: bool = True,
) -> RegionPlan:
    """Return which regions to recompute, at least cost, so that the peak is at most *budget*; of equal costs the lower peak.

    The peak of a capture is that of its last step: of the requested bytes, or of what the allocator's model makes of them. On allocated
    and reserved bytes plans are searched on requested bytes and verified one by one; ``proven`` tells whether that found the cheapest.

    Args:
        asked: a capture of training steps without checkpointing, its trace, or a region problem made by hand.
        budget: bytes, or a size such as ``"8 GiB"``.
        modules: of a capture: paths or patterns of the modules to choose from; by default blocks and the larger parts in them.
        objective: of a capture: ``"flops"`` or ``"time"``, as in :func:`region_problem`.
        early_stop: of a capture: whether recomputation stops at the last tensor needed.
        solver: ``"branch"``, ``"highs"`` (extra ``plan``), or ``"auto"``: branch and bound for up to 12 candidates.
        seconds: how long one search may take before its best plan is taken and its gap stated.
        basis: of a capture: what the budget counts, ``"requested"``, ``"allocated"`` or ``"reserved"`` bytes.
        preserve_rng: of a capture: whether each call keeps the state of the random number generators.

    Raises:
        InputError: a budget that is none, an unknown solver or basis, or what :func:`region_problem` raises.
        MissingExtraError: HiGHS is needed and not installed.
    """
    limit = _bytes(budget, "budget")
    problem = _problem(asked, modules, objective, early_stop, preserve_rng)
    if isinstance(asked, RegionProblem) and basis not in ("requested", problem.basis):
        raise InputError(
            f"a region problem counts {problem.basis} bytes: what the allocator makes of a plan can be asked of a capture alone"
        )
    if isinstance(asked, RegionProblem) or basis == "requested":
        answer: PlanAnswer = plan_regions(problem, limit, solver=solver, seconds=seconds)
        base_peak, basis = problem.evaluate(()), problem.basis
    else:
        trace = asked if isinstance(asked, Trace) else asked.trace
        levels = PlannedLevels(trace, early_stop, _rng_state(trace, preserve_rng))
        answer = plan_on_level(problem, levels.of, basis, limit, solver=solver, seconds=seconds)
        base_peak = getattr(levels.of(()), basis)
    return RegionPlan(
        budget=answer.budget,
        fits=answer.plan is not None,
        plan=answer.plan,
        proven=answer.proven,
        base_peak=base_peak,
        tightest=answer.tightest,
        corrections=answer.corrections,
        exact=answer.exact,
        candidates=len(problem.candidates),
        unit=problem.unit,
        basis=basis,
    )


def frontier(
    asked: Asked,
    modules: str | Iterable[str] | None = None,
    *,
    objective: str = "flops",
    early_stop: bool = True,
    strategies: Mapping[str, Sequence[str]] | None = None,
    solver: str = "auto",
    seconds: float = SECONDS,
    step: int | None = None,
) -> RegionFrontier:
    """Return every plan that is cheapest at its peak, and choices that people make held against them.

    Args:
        asked: as in :func:`plan`.
        modules: as in :func:`plan`.
        objective: as in :func:`plan`.
        early_stop: as in :func:`plan`.
        strategies: names of regions by the name of a choice, beside the usual ones (all blocks, every second, the first half, …).
        solver: as in :func:`plan`.
        seconds: how long one search may take; each point takes two or three.
        step: bytes between a peak and the next budget: 1, or with HiGHS 512, by default.

    Raises:
        InputError: an unknown solver, a step below 1, a strategy with an unknown region, or what :func:`region_problem` raises.
        MissingExtraError: HiGHS is needed and not installed.
    """
    problem = _problem(asked, modules, objective, early_stop)
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


def _rng_state(trace: Trace, preserve_rng: bool) -> int:
    """Bytes of generator state that each call keeps on the device of *trace*."""
    return CPU_RNG_STATE if preserve_rng and trace.devices[0].device == "cpu" else 0


def _problem(
    asked: Asked, modules: str | Iterable[str] | None, objective: str, early_stop: bool, preserve_rng: bool = True
) -> RegionProblem:
    if not isinstance(asked, RegionProblem):
        return region_problem(asked, modules, objective=objective, early_stop=early_stop, preserve_rng=preserve_rng)
    if modules is not None:
        raise InputError("a region problem has its candidates: modules can be chosen of a capture alone")
    return asked


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
