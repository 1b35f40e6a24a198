"""Region plans: rows against a simulator that knows none, searches against all subsets, and what happens when rows are wrong."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError, MissingExtraError
from lifecycle_sim.program.remat.milp import Milp
from lifecycle_sim.program.remat.problem import Candidate, RegionProblem, Row, When, if_chosen, unless_chosen
from lifecycle_sim.program.remat.rows import Hold, Rerun, rows_of_holds, without_dominated
from lifecycle_sim.program.remat.search import frontier_of_regions, plan_regions
from lifecycle_sim.program.remat.strategies import compare_strategies, usual_strategies
from lifecycle_sim.program.remat.symmetry import ordered_pairs, stacks_by_name
from lifecycle_sim.program.remat.table import RowTable
from tests.region_models import Part, Stack, even_stack, holds_of, problem_of, simulate

highspy = pytest.importorskip  # asked for in the tests that need it, so that the others run without


def every_plan(problem: RegionProblem) -> list[frozenset[int]]:
    count = len(problem.candidates)
    plans = [frozenset(chosen) for size in range(count + 1) for chosen in combinations(range(count), size)]
    return [plan for plan in plans if problem.allowed(plan)]


def truth(problem: RegionProblem) -> dict[frozenset[int], tuple[int, int]]:
    """Cost and exact peak of every plan."""
    return {plan: (problem.cost(plan), problem.evaluate(problem.names(plan))) for plan in every_plan(problem)}


def brute_frontier(values: list[tuple[int, int]]) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for cost, peak in sorted(values):
        if not kept or peak < kept[-1][1]:
            kept.append((cost, peak))
    return kept


SIZE = st.integers(0, 9)
PART = st.builds(Part, SIZE, SIZE, SIZE, st.integers(0, 6))
BLOCK = st.lists(PART, min_size=1, max_size=2).map(tuple)
STACKS = st.builds(Stack, st.lists(BLOCK, min_size=1, max_size=4).map(tuple), SIZE, st.integers(0, 25), st.integers(0, 9), st.booleans())


@given(STACKS)
@settings(max_examples=60)
def test_rows_tell_the_peak_of_every_plan(stack: Stack) -> None:
    problem = problem_of(stack)
    table = RowTable(problem)
    for plan, (_, peak) in truth(problem).items():
        told, number = table.peak(plan)
        assert told == peak == table.rows[number].level(plan)


@pytest.mark.parametrize("solver", ["branch", "highs"])
def test_what_costs_nothing_and_lowers_nothing_is_not_chosen(solver: str) -> None:
    if solver == "highs":
        highspy("highspy")

    @given(st.lists(st.builds(Part, SIZE, SIZE, SIZE, st.integers(0, 1)).map(lambda part: (part,)), min_size=1, max_size=4), SIZE)
    @settings(max_examples=15)
    def holds(blocks: list[tuple[Part, ...]], entry: int) -> None:
        problem = problem_of(Stack(tuple(blocks), entry, 10, 0, False))
        costs = {each.name: each.cost for each in problem.candidates}
        for point in frontier_of_regions(problem, solver=solver, step=1).points:
            for name in point.chosen:
                without = tuple(each for each in point.chosen if each != name)
                assert costs[name] or problem.evaluate(without) > point.peak

    holds()


@given(STACKS, st.sampled_from(["branch", "highs"]))
@settings(max_examples=40)
def test_the_frontier_is_that_of_all_subsets(stack: Stack, solver: str) -> None:
    if solver == "highs":
        highspy("highspy")
    problem = problem_of(stack)
    frontier = frontier_of_regions(problem, solver=solver, step=1)
    assert [(plan.cost, plan.peak) for plan in frontier.points] == brute_frontier(list(truth(problem).values()))
    assert (frontier.proven, frontier.exact, frontier.corrections) == (True, True, 0)
    for plan in frontier.points:
        assert simulate(stack, plan.chosen) == plan.peak == plan.told
        assert (plan.gap, plan.bound) == (0.0, plan.cost)


WHEN = st.one_of(
    st.frozensets(st.integers(0, 11), min_size=1, max_size=3).map(lambda chosen: When(chosen=chosen)),
    st.frozensets(st.integers(0, 11), min_size=1, max_size=3).map(lambda group: unless_chosen(*group)),
    st.builds(
        When,
        st.frozensets(st.integers(0, 11), max_size=2),
        st.frozensets(st.frozensets(st.integers(0, 11), min_size=1, max_size=2), max_size=2),
    ),
)
HELD = st.dictionaries(WHEN.filter(lambda when: bool(when.chosen or when.unless)), st.integers(1, 50), max_size=8).map(
    lambda held: tuple(held.items())
)
ROWS = st.builds(Row, st.integers(0, 50), HELD, st.frozensets(st.integers(0, 11), max_size=2))


@st.composite
def problems(draw: st.DrawFn) -> RegionProblem:
    """Any rows at all over twelve candidates or fewer, told exactly."""
    rows = (replace(draw(ROWS), only_if=frozenset()), *draw(st.lists(ROWS, max_size=6)))
    candidates = tuple(Candidate(f"c{index}", draw(st.integers(0, 9))) for index in range(12))
    pairs = draw(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda pair: pair[0] < pair[1]), max_size=4))

    def peak(names: tuple[str, ...]) -> int:
        chosen = [int(name[1:]) for name in names]
        return max(level for row in rows if (level := row.level(chosen)) is not None)

    return RegionProblem(candidates, rows, peak, tuple(pairs))


@given(problems(), st.integers(0, 260))
@settings(max_examples=12)
def test_the_plan_of_twelve_candidates_is_that_of_all_subsets(problem: RegionProblem, budget: int) -> None:
    values = list(truth(problem).values())
    fitting = [value for value in values if value[1] <= budget]
    answer = plan_regions(problem, budget)
    assert answer.proven
    if fitting:
        assert answer.plan is not None
        assert (answer.plan.cost, answer.plan.peak) == min(fitting)
        assert answer.plan.solver == "branch and bound"
    else:
        assert answer.plan is None
        assert answer.tightest is not None
        assert answer.tightest.peak == min(peak for _, peak in values)


@given(problems(), st.integers(0, 260))
@settings(max_examples=25)
def test_highs_finds_the_same(problem: RegionProblem, budget: int) -> None:
    highspy("highspy")
    one, other = plan_regions(problem, budget, solver="branch"), plan_regions(problem, budget, solver="highs")
    assert (one.proven, other.proven) == (True, True)
    assert (one.plan is None) == (other.plan is None)
    if one.plan and other.plan:
        assert (one.plan.cost, one.plan.peak) == (other.plan.cost, other.plan.peak)
    elif one.tightest and other.tightest:
        assert one.tightest.peak == other.tightest.peak


@given(st.lists(ROWS, min_size=1, max_size=12))
@settings(max_examples=30)
def test_rows_that_are_left_out_never_bind(rows: list[Row]) -> None:
    kept = without_dominated(rows)
    assert set(kept) <= set(rows)
    for plan in (frozenset(chosen) for size in (0, 1, 2, 12) for chosen in combinations(range(12), size)):
        levels = [row.level(plan) for row in rows]
        assert max((level for level in levels if level is not None), default=None) == max(
            (level for row in kept if (level := row.level(plan)) is not None), default=None
        )


BYTES = 2**20


@pytest.mark.parametrize("blocks", [4, 6])
def test_alike_blocks_are_ordered_and_nothing_is_lost(blocks: int) -> None:
    highspy("highspy")
    plain = problem_of(even_stack(blocks, parts_too=blocks == 4))
    problem = replace(plain, stacks=stacks_by_name(plain.candidates))
    assert [len(stack) for stack in problem.stacks] == [blocks]
    pairs = ordered_pairs(problem, RowTable(problem))
    assert [pair.proven for pair in pairs] == [True] * (blocks - 1)
    with_order = frontier_of_regions(problem, solver="highs")
    assert with_order.proven
    assert [(p.cost, p.peak) for p in with_order.points] == [(p.cost, p.peak) for p in frontier_of_regions(plain, solver="branch").points]


@given(st.lists(PART, min_size=1, max_size=2).map(tuple), st.integers(2, 4), SIZE, st.integers(0, 25), st.integers(0, 9))
@settings(max_examples=15)
def test_an_order_that_is_called_proven_is_without_loss(block: tuple[Part, ...], count: int, entry: int, head: int, mask: int) -> None:
    highspy("highspy")
    plain = problem_of(Stack((block,) * count, entry, head, mask))
    problem = replace(plain, stacks=stacks_by_name(plain.candidates))
    frontier = frontier_of_regions(problem, solver="highs", step=1)
    assert [(plan.cost, plan.peak) for plan in frontier.points] == brute_frontier(list(truth(plain).values()))
    assert frontier.proven


def later_is_better() -> RegionProblem:
    """Two blocks that look alike, of which only recomputing the later helps: the guess of the order is wrong."""
    rows = (Row(10, ((unless_chosen(1), 5),)), Row(3, ((unless_chosen(0), 1),)))
    candidates = (Candidate("blocks.0", 7), Candidate("blocks.1", 7))
    return RegionProblem(candidates, rows, lambda plan: 10 if "blocks.1" in plan else 15, stacks=(((0,), (1,)),))


def test_where_the_order_is_a_guess_the_search_falls_back() -> None:
    highspy("highspy")
    problem = later_is_better()
    assert [pair.proven for pair in ordered_pairs(problem, RowTable(problem))] == [False]
    guessed = Milp(RowTable(problem), ordered_pairs(problem, RowTable(problem))).least_cost(12)
    assert guessed.plan == {0, 1}, "the guess alone recomputes both"
    answer = plan_regions(problem, 12, solver="highs")
    assert answer.plan is not None
    assert (answer.plan.chosen, answer.plan.cost, answer.proven) == (("blocks.1",), 7, True)


@pytest.mark.parametrize("solver", ["branch", "highs"])
@pytest.mark.parametrize("with_rows", [False, True])
def test_rows_that_tell_too_little_are_made_up_for(solver: str, with_rows: bool) -> None:
    if solver == "highs":
        highspy("highspy")
    part = Part(saved=9, output=1, temporary=30, cost=2)
    stack = Stack(((part, part),) * 3, entry=1, head=2)
    exact = problem_of(stack)
    table = RowTable(exact)
    short = tuple(row for row in exact.rows if not row.only_if)  # what recomputing holds for a while is left out
    assert len(short) < len(exact.rows)
    problem = replace(exact, rows=short, binding=(lambda plan: table.rows[table.peak(exact.numbers(plan))[1]]) if with_rows else None)
    frontier = frontier_of_regions(problem, solver=solver, step=1)
    assert [(p.cost, p.peak) for p in frontier.points] == [(p.cost, p.peak) for p in frontier_of_regions(exact, solver="branch").points]
    assert frontier.corrections > 0
    assert not frontier.exact
    assert frontier.proven, "rows that tell too little can only make a plan look too good, and each plan is simulated"


def test_rows_that_tell_too_much_prove_nothing() -> None:
    exact = problem_of(even_stack(2))
    problem = replace(exact, rows=tuple(replace(row, base=row.base + 1) for row in exact.rows))
    frontier = frontier_of_regions(problem)
    assert not frontier.proven
    assert not frontier.exact
    assert all(simulate(even_stack(2), plan.chosen) == plan.peak == plan.told - 1 for plan in frontier.points)


def test_without_or_classes_a_shared_tensor_is_counted_for_every_block() -> None:
    stack = even_stack(3, mask=30 * BYTES)
    every = tuple(f"blocks.{b}" for b in range(3))
    exact = problem_of(stack)
    told, _ = RowTable(exact).peak(exact.numbers(every))
    assert told == simulate(stack, every)
    holds, reruns = holds_of(stack)
    apart = [replace(hold, storage=("mask", number)) if hold.storage == "mask" else hold for number, hold in enumerate(holds)]
    rows = rows_of_holds(apart, reruns)
    assert max(level for row in rows if (level := row.level(exact.numbers(every))) is not None) == told + 2 * 30 * BYTES


def test_a_search_that_runs_out_of_time_says_its_gap() -> None:
    problem = problem_of(even_stack(9))
    answer = plan_regions(problem, 300 * BYTES, solver="branch", seconds=0.05)
    assert not answer.proven
    if answer.plan is not None:
        assert not answer.plan.proven
        assert answer.plan.bound <= answer.plan.cost
        assert answer.plan.gap >= 0
        assert simulate(even_stack(9), answer.plan.chosen) == answer.plan.peak <= 300 * BYTES


def test_usual_strategies_beside_the_frontier() -> None:
    stack = even_stack(4)
    plain = problem_of(stack)
    problem = replace(plain, stacks=stacks_by_name(plain.candidates))
    frontier = frontier_of_regions(problem, solver="branch")
    named = usual_strategies(problem)
    assert dict(named)["every second block"] == ("blocks.0", "blocks.2")
    assert dict(named)["part_a in all blocks"] == tuple(f"blocks.{b}.part_a" for b in range(4))
    told = {strategy.name: strategy for strategy in compare_strategies(problem, frontier, named)}
    assert set(told) == {
        "none",
        "all blocks",
        "every second block",
        "first half of the blocks",
        "last half of the blocks",
        "part_a in all blocks",
        "part_b in all blocks",
    }
    assert (told["none"].peak, told["none"].cost, told["none"].dominated) == (simulate(stack, ()), 0, False)
    assert told["first half of the blocks"].peak < told["last half of the blocks"].peak, "checkpoint the early blocks"
    assert told["last half of the blocks"].dominated
    for strategy in told.values():
        assert strategy.peak == simulate(stack, strategy.chosen)
        assert strategy.least is not None
        assert strategy.least <= strategy.cost
        better = [plan for plan in frontier.points if (plan.cost, plan.peak) != (strategy.cost, strategy.peak)]
        assert strategy.dominated == any(plan.cost <= strategy.cost and plan.peak <= strategy.peak for plan in better)
    with pytest.raises(InputError, match="in conflict"):
        compare_strategies(problem, frontier, (("both", ("blocks.0", "blocks.0.part_a")),))
    with pytest.raises(InputError, match=r"no candidate 'blocks\.9'"):
        compare_strategies(problem, frontier, (("none such", ("blocks.9",)),))
    nested = RegionProblem(
        tuple(Candidate(name, 1) for name in ("h.0", "h.0.mlp", "h.1", "h.1.mlp")),
        (Row(1),),
        lambda plan: 1,
        ((0, 1), (2, 3)),
        (((0, 1), (2, 3)),),
    )
    assert dict(usual_strategies(nested))["all blocks"] == ("h.0", "h.1")
    assert dict(usual_strategies(nested))["mlp in all blocks"] == ("h.0.mlp", "h.1.mlp")
    assert usual_strategies(RegionProblem((Candidate("a", 1),), (Row(1),), lambda plan: 1)) == (("none", ()), ("all", ("a",)))


def test_stacks_are_told_by_their_names_and_costs() -> None:
    names = [
        "encoder.layer.0.attn",
        "encoder.layer.0",
        "encoder.layer.1.attn",
        "encoder.layer.1",
        "encoder.layer.2",
        "h.3",
        "h.4",
        "head",
        "h.10",
    ]
    candidates = [Candidate(name, 1) for name in names]
    assert stacks_by_name(candidates) == (((1, 0), (3, 2)), ((5,), (6,)))
    candidates[3] = Candidate("encoder.layer.1", 2)
    assert stacks_by_name(candidates) == (((5,), (6,)),)


def test_holds_of_one_storage_count_once() -> None:
    holds = [
        Hold("a", 8, 0, 4),
        Hold("a", 8, 2, 6, unless_chosen(0)),
        Hold("a", 8, 2, 6, if_chosen(0, 1)),
        Hold("b", 4, 5, 7),
        Hold("b", 4, 1, 1),
        Hold("c", 0, 0, 9),
    ]
    assert rows_of_holds(holds, labels=["first", "second"]) == (Row(12, (), frozenset(), "event 5"),)
    rows = rows_of_holds([Hold("a", 8, 0, 9, unless_chosen(0)), Hold("b", 1, 4, 5)], [Rerun(frozenset({0}), 4, 6, "again")])
    assert rows == (Row(6, ((unless_chosen(0), 8),), frozenset({0}), "again"), Row(1, ((unless_chosen(0), 8),), frozenset(), "event 4"))
    with pytest.raises(InputError, match="two sizes, 8 and 9 bytes"):
        rows_of_holds([Hold("a", 8, 0, 1), Hold("a", 9, 0, 1)])


def test_problems_that_make_no_sense_are_refused_with_all_that_is_wrong() -> None:
    with pytest.raises(InputError) as caught:
        RegionProblem(
            (Candidate("a", 1), Candidate("a", -1)), (Row(-1, ((if_chosen(7), 3),), frozenset({0})),), lambda plan: 0, stacks=(((0,), ()),)
        )
    assert len(caught.value.problems) == 6
    problem = RegionProblem((Candidate("a", 1),), (Row(1),), lambda plan: 1)
    with pytest.raises(InputError, match="no solver 'simplex'"):
        plan_regions(problem, 1, solver="simplex")
    with pytest.raises(InputError, match="negative"):
        plan_regions(problem, -1)
    with pytest.raises(InputError, match="give 1 or more"):
        frontier_of_regions(problem, step=0)


def test_without_highspy_many_candidates_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    problem = problem_of(even_stack(6))
    with pytest.raises(MissingExtraError, match=r"pip install 'lifecycle-sim\[plan\]'"):
        plan_regions(problem, 10**9)
    assert plan_regions(problem, 10**9, solver="branch").plan is not None


def test_the_solver_prints_nothing() -> None:
    highspy("highspy")
    code = (
        "from tests.region_models import *; from lifecycle_sim.program.remat.search import plan_regions;"
        "plan_regions(problem_of(even_stack(5)), 250 << 20, solver='highs')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")
