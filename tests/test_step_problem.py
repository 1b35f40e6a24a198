"""Plans of captured steps: rows against the exact edit, and frontiers against all subsets, on the handed captures."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.remat import edit
from lifecycle_sim.program.remat.problem import RegionProblem
from lifecycle_sim.program.remat.search import frontier_of_regions
from lifecycle_sim.program.remat.step_problem import problem_of_step, usual_modules
from lifecycle_sim.program.remat.table import RowTable
from tests.remat_fixtures import NAMES, read_fixture


def plans_of(problem: RegionProblem, most: int) -> list[frozenset[int]]:
    count = len(problem.candidates)
    plans = [frozenset(c) for size in range(most + 1) for c in combinations(range(count), size)]
    return [plan for plan in plans if problem.allowed(plan)]


@pytest.mark.parametrize("name", NAMES)
def test_rows_tell_the_exact_peak(name: str, shared: Path) -> None:
    graph, _ = read_fixture(shared / "data" / "recompute" / "whatif_fixtures", name)
    problem = problem_of_step(graph).problem
    table = RowTable(problem)
    wrong = [
        (problem.names(plan), table.peak(plan)[0], peak)
        for plan in plans_of(problem, 3)
        if (peak := problem.evaluate(problem.names(plan))) != table.peak(plan)[0]
    ]
    assert wrong == []


def brute_frontier(problem: RegionProblem) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    values = [(problem.cost(plan), problem.evaluate(problem.names(plan))) for plan in plans_of(problem, len(problem.candidates))]
    for cost, peak in sorted(values):
        if not kept or peak < kept[-1][1]:
            kept.append((cost, peak))
    return kept


@pytest.mark.parametrize("name", NAMES)
def test_the_frontier_of_a_capture_is_that_of_all_subsets_of_blocks(name: str, shared: Path) -> None:
    graph, measured = read_fixture(shared / "data" / "recompute" / "whatif_fixtures", name)
    blocks = [path for path in usual_modules(graph) if path.rpartition(".")[2].isdigit()]
    asked = problem_of_step(graph, blocks)
    frontier = frontier_of_regions(asked.problem, solver="branch")
    assert (frontier.proven, frontier.exact, frontier.corrections) == (True, True, 0)
    assert [(plan.cost, plan.peak) for plan in frontier.points] == brute_frontier(asked.problem)
    real = {tuple(sorted(plan["plan"])): plan for plan in measured}
    met = [plan for plan in frontier.points if tuple(sorted(plan.chosen)) in real]
    assert len(met) >= 2
    for plan in met:
        told = real[tuple(sorted(plan.chosen))]
        assert (plan.peak - asked.before, plan.cost) == (told["measured_peak"], told["extra_flops"]), "as measured with torch's checkpoint"


def test_blocks_with_their_parts(shared: Path) -> None:
    graph, _ = read_fixture(shared / "data" / "recompute" / "whatif_fixtures", NAMES[0])
    some = [path for path in usual_modules(graph) if path.startswith("blocks.")]
    assert len(some) == 12
    problem = problem_of_step(graph, some).problem
    assert [len(stack) for stack in problem.stacks] == [4]
    frontier = frontier_of_regions(problem, solver="branch")
    assert frontier.proven
    assert [(plan.cost, plan.peak) for plan in frontier.points] == brute_frontier(problem)


def test_what_cannot_be_planned_is_refused(shared: Path) -> None:
    graph, _ = read_fixture(shared / "data" / "recompute" / "whatif_fixtures", NAMES[0])
    asked = problem_of_step(graph, ["blocks.0", "no.such"])
    assert asked.left_out == (("no.such", "nothing is saved in it"),)
    with pytest.raises(InputError, match="no module can be recomputed"):
        problem_of_step(graph, ["no.such"])
    with pytest.raises(InputError, match="are less than the"):
        problem_of_step(graph, before=1)
    assert edit(graph, asked.calls[0]).again
