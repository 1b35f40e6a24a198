"""Plans under a budget of what the allocator makes of them: searched on requested bytes, verified on allocated or reserved ones, corrected.

The allocator never holds less than was asked for, so that rows of requested bytes tell too little, if anything: a plan that turns out above
the budget is excluded and the next cheapest is tried. Where many such plans in a row turn out above it, the search goes on below the
bytes that were missing; of what it finds then, what is not needed is taken out, and how much cheaper another plan might be is stated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Trace
from lifecycle_sim.program.remat import Edit, edit
from lifecycle_sim.program.remat.plans import Plan, PlanAnswer
from lifecycle_sim.program.remat.problem import RegionProblem
from lifecycle_sim.program.remat.search import plan_regions
from lifecycle_sim.program.remat.trace import edited_trace
from lifecycle_sim.program.step_graph import StepGraph
from lifecycle_sim.program.stored_steps import graphs_of
from lifecycle_sim.study.prediction import LEVELS, StepLevels, predict

TRIES = 12
"""Plans in order of cost that the allocator is asked about before the search goes on below the bytes that were missing."""


class PlannedLevels:
    """What the allocator makes of a capture under plans: each is edited into every step and replayed from the process's beginning, once.

    Args:
        trace: a capture of training steps without checkpointing.
        early_stop: whether recomputation stops at the last tensor needed.
        rng_state: bytes of generator state that each call keeps on the device.
        settings: allocator options in PyTorch's syntax.
    """

    def __init__(self, trace: Trace, early_stop: bool = True, rng_state: int = 0, settings: str = "") -> None:
        self._trace = replace(trace, devices=(replace(trace.devices[0], capacity=None),))
        self._graphs: tuple[StepGraph, ...] = tuple(graphs_of(trace))
        self._options = early_stop, rng_state
        self._settings = settings
        self._known: dict[frozenset[str], StepLevels] = {}
        names = [span.name for span in trace.devices[0].spans if span.kind == "step"]
        self._last = names.index(self._graphs[-1].name)

    def of(self, modules: Collection[str]) -> StepLevels:
        """Return the levels of the last step if all calls of *modules* are recomputed in every step."""
        chosen = frozenset(modules)
        if chosen not in self._known:
            trace = self._edited(chosen) if chosen else self._trace
            self._known[chosen] = predict(trace, settings=self._settings).steps[self._last]
        return self._known[chosen]

    def _edited(self, chosen: frozenset[str]) -> Trace:
        edits: list[Edit] = []
        for graph in self._graphs:
            first = edits[-1].first_new + len(edits[-1].copies) if edits else None
            calls = [number for number, call in enumerate(graph.calls) if call.grad and call.module in chosen]
            early_stop, rng_state = self._options
            edits.append(edit(graph, calls, (), early_stop, rng_state, first))
        return edited_trace(self._trace, edits)


def plan_on_level(
    problem: RegionProblem,
    levels: Callable[[Collection[str]], StepLevels],
    level: str,
    budget: int,
    *,
    solver: str,
    seconds: float,
    tries: int = TRIES,
) -> PlanAnswer:
    """Return a plan whose peak of *level* is at most *budget* bytes, the cheapest if that can be proven.

    Args:
        problem: what there is to choose from, on requested bytes.
        levels: what the allocator makes of a plan.
        level: ``"allocated"`` or ``"reserved"``.
        budget: bytes of that level.
        solver: as in :func:`~lifecycle_sim.program.remat.search.plan_regions`.
        seconds: how long one search may take.
        tries: plans in order of cost that are verified one by one.

    Raises:
        InputError: no such level, or what the search raises.
    """
    if level not in LEVELS:
        raise InputError(f"basis {level!r} is not known: the levels are {', '.join(LEVELS)}")

    def peak(names: Collection[str]) -> int:
        return int(getattr(levels(names), level))

    # Of what is held with nothing recomputed, each row says no more on this level either: requested ≤ allocated ≤ reserved.
    verified = replace(problem, evaluate=peak, binding=None, basis=level)
    answer = plan_regions(verified, budget, solver=solver, seconds=seconds, corrections=tries)
    if answer.plan is not None or answer.proven:
        return answer
    corrections, limit, seen = answer.corrections, budget, answer.tightest
    while limit >= 0:
        lower = plan_regions(problem, limit, solver=solver, seconds=seconds)
        if lower.plan is None:
            break
        found = _on(lower.plan, lower.plan.chosen, problem, peak, answer.least)
        if found.peak <= budget:
            for name in sorted(found.chosen, key=lambda name: -problem.cost(problem.numbers([name]))):
                without = _on(found, [each for each in found.chosen if each != name], problem, peak, answer.least)
                found = without if without.peak <= budget else found
            return PlanAnswer(budget, found, found.proven, None, corrections, answer.exact, answer.least)
        corrections += 1
        seen = found if seen is None or found.peak < seen.peak else seen
        limit = lower.plan.peak - max(1, found.peak - budget)
    return PlanAnswer(budget, None, False, seen, corrections, answer.exact, answer.least)


def _on(plan: Plan, chosen: Collection[str], problem: RegionProblem, peak: Callable[[Collection[str]], int], least: int) -> Plan:
    """*plan* with what is *chosen*, and its peak on another level: as cheap as can be only if nothing cheaper is left."""
    numbers = problem.numbers(chosen)
    cost = problem.cost(numbers)
    names = problem.names(numbers)
    return replace(plan, chosen=names, cost=cost, peak=peak(names), bound=min(least, cost), proven=cost <= least)
