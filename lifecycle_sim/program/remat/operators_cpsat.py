"""Operator plans of larger graphs: OR-tools' CP-SAT (extra ``plan``) over the intervals for which results are kept.

Source of the formulation: B. Bartan, H. Li, H. Teague, C. Lott, B. Dilkina, "Moccasin: efficient tensor rematerialization for neural
networks", ICML 2023. Operators run for the first time in the order of the graph; in stage k, before operator k does, earlier ones may
run again, in the order of the graph. Each run keeps its result for an interval; intervals that overlap must fit. The order is a
restriction: a plan that first runs operators in another order may be cheaper.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from lifecycle_sim.errors import InputError, MissingExtraError
from lifecycle_sim.program.remat.operators import OperatorAnswer, OperatorGraph, OperatorPlan, play_operators


def plan_large_graph(graph: OperatorGraph, limit: int, *, copies: int = 3, seconds: float = 60.0, workers: int = 1) -> OperatorAnswer:
    """Return the cheapest plan of *graph* within *limit* bytes among those that run operators for the first time in their order.

    Args:
        graph: the operators.
        limit: bytes.
        copies: how often an operator may run at most.
        seconds: after which the best plan so far is taken, its gap stated.
        workers: threads of the solver; answers are the same from run to run with one.

    Raises:
        InputError: less than one copy.
        MissingExtraError: OR-tools is not installed.
    """
    if copies < 1:
        raise InputError(f"{copies} copies are none: give 1 or more")
    cp_model = _cp_model()
    model = cp_model.CpModel()
    total = len(graph)
    last = total * (total + 1) // 2
    latest = _latest_stages(graph)
    runs: list[list[_Run]] = []
    for number in range(total):
        first = _slot(number, number)
        slots = cp_model.Domain.FromValues([_slot(stage, number) for stage in range(number + 1, latest[number] + 1)])
        own = [_Run(model, graph.sizes[number], model.new_constant(first), None, last)]
        for _ in range(copies - 1 if latest[number] > number else 0):
            own.append(_Run(model, graph.sizes[number], model.new_int_var_from_domain(slots, ""), model.new_bool_var(""), last))
        for before, after in pairwise(own):
            model.add(after.start >= before.end).only_enforce_if(after.there)
            if before.there is not None:
                model.add_implication(after.there, before.there)
        runs.append(own)
    for number in range(total):
        for run in runs[number]:
            for read in set(graph.reads[number]):
                from_runs = []
                for source in runs[read]:
                    chosen = model.new_bool_var("")
                    model.add(source.start < run.start).only_enforce_if(chosen)
                    model.add(source.end > run.start).only_enforce_if(chosen)
                    if source.there is not None:
                        model.add_implication(chosen, source.there)
                    from_runs.append(chosen)
                if run.there is None:
                    model.add_at_least_one(from_runs)
                else:
                    model.add_bool_or([*from_runs, run.there.Not()])
    model.add_cumulative([run.interval for own in runs for run in own], [run.size for own in runs for run in own], limit)
    extra = sum(graph.costs[number] * run.there for number, own in enumerate(runs) for run in own if run.there is not None)
    model.minimize(extra)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = float(seconds)
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    scope = f"plans that run operators for the first time in the graph's order, each at most {copies:,} times"
    if status == cp_model.INFEASIBLE:
        return OperatorAnswer(limit, None, True, scope)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return OperatorAnswer(limit, None, False, scope)
    order = sorted(
        (solver.value(run.start), number) for number, own in enumerate(runs) for run in own if run.there is None or solver.value(run.there)
    )
    sequence = tuple(number for _, number in order)
    cost, peak = play_operators(graph, sequence)
    bound = min(graph.cost + round(solver.best_objective_bound), cost)
    proven = status == cp_model.OPTIMAL and peak <= limit
    plan = OperatorPlan(sequence, cost, cost - graph.cost, peak, cost if proven else bound, proven, "CP-SAT")
    return OperatorAnswer(limit, plan if peak <= limit else None, proven, scope)


def _latest_stages(graph: OperatorGraph) -> list[int]:
    """The last stage in which a run of each operator is of use: that of its last reader, which may itself run again for a later one."""
    latest = list(range(len(graph)))
    for number in reversed(range(len(graph))):
        for read in graph.reads[number]:
            latest[read] = max(latest[read], latest[number])
    return latest


def _slot(stage: int, number: int) -> int:
    """When operator *number* runs in *stage*: stage k has k + 1 places, and the last is operator k's own."""
    return stage * (stage + 1) // 2 + number


class _Run:
    """One run of an operator: when it starts, up to when its result is kept (not including), whether it is there at all (None: always)."""

    def __init__(self, model: Any, size: int, start: Any, there: Any, last: int) -> None:
        self.size, self.start, self.there = size, start, there
        self.end = model.new_int_var(1, last, "")
        length = model.new_int_var(1, last, "")
        if there is None:
            self.interval = model.new_interval_var(start, length, self.end, "")
        else:
            self.interval = model.new_optional_interval_var(start, length, self.end, there, "")


def _cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise MissingExtraError("ortools", "plan", "planning operator by operator for large graphs") from None
    return cp_model
