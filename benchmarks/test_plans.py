"""How long planning takes: one plan and the whole frontier of identical blocks, and how both grow with their number."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from lifecycle_sim.program.remat.operators_cpsat import plan_large_graph
from lifecycle_sim.program.remat.problem import RegionProblem
from lifecycle_sim.program.remat.symmetry import stacks_by_name
from lifecycle_sim.study.plan import frontier, plan
from tests.region_models import even_stack, problem_of
from tests.test_operator_plans import training_graph


def problem(blocks: int) -> RegionProblem:
    plain = problem_of(even_stack(blocks))
    return replace(plain, stacks=stacks_by_name(plain.candidates))


def test_one_plan_of_24_blocks(benchmark):
    pytest.importorskip("highspy")
    asked = problem(24)
    found = benchmark.pedantic(plan, (asked, asked.evaluate(()) // 2), rounds=3)
    assert found.proven


def test_the_frontier_of_24_identical_blocks(benchmark):
    pytest.importorskip("highspy")
    found = benchmark.pedantic(frontier, (problem(24),), rounds=1)
    assert found.proven
    assert len(found.points) == 49


def test_growth_with_blocks():
    pytest.importorskip("highspy")
    seconds = {}
    for blocks in (6, 12, 24):
        begin = time.perf_counter()
        found = frontier(problem(blocks))
        seconds[blocks] = time.perf_counter() - begin
        assert len(found.points) == 2 * blocks + 1
        print(f"{blocks} blocks, {3 * blocks} candidates: {len(found.points)} plans in {seconds[blocks]:.2f} s")
    assert seconds[24] < 200 * seconds[6], "twice as many points, each of a program four times as large"


def test_an_operator_plan_of_41_operators(benchmark):
    pytest.importorskip("ortools")
    graph = training_graph(20)
    found = benchmark.pedantic(plan_large_graph, (graph, 74), rounds=1)
    assert found.proven
