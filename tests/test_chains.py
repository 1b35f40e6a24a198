"""Chains: published optima, exhaustive search, and schedules that are followed move by move."""

from __future__ import annotations

import csv
import heapq
import itertools
import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError
from lifecycle_sim.program import load_scenario
from lifecycle_sim.program import run as run_program
from lifecycle_sim.program.remat.chains import Chain, ChainStep, Run, best_chain_time, plan_chain, play_chain
from lifecycle_sim.program.remat.chen import least_peak_segments, square_root_segments
from lifecycle_sim.program.remat.knapsack import knapsack
from lifecycle_sim.program.remat.moves import Act, Move, Store, play
from lifecycle_sim.program.remat.revolve import binomial_schedule, fewest_advances, fewest_mixed_forwards, repetitions
from lifecycle_sim.program.remat.two_level import two_level_plan
from lifecycle_sim.replay import replay_device
from tests.chain_runs import LayerRun, keep_all_runs, peak_of, revolve_runs, segment_runs
from tests.conftest import ROOT


def fewest_mixed_slowly(steps: int, slots: int) -> int | None:
    """The same question by the definition: keep the first step's data, or a checkpoint and split."""

    @cache
    def best(n: int, s: int) -> int | None:
        if n == 1:
            return 1
        if not s:
            return None
        ways = [1 + rest if (rest := best(n - 1, s - 1)) else None]
        ways += [m + right + left if (right := best(n - m, s - 1)) and (left := best(m, s)) else None for m in range(1, n)]
        return min((way for way in ways if way), default=None)

    return best(steps, slots)


def test_the_published_values_of_binomial_checkpointing(shared: Path) -> None:
    rows = list(csv.DictReader((shared / "data/recompute/revolve_binomial.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 1377
    mixed = 0
    for row in rows:
        steps, slots = int(row["n"]), int(row["c"])
        assert (repetitions(steps, slots), fewest_advances(steps, slots)) == (int(row["r"]), int(row["advances"]))
        assert steps + fewest_advances(steps, slots) == int(row["total_forward"])
        if row["mixed_total_forward"]:
            mixed += 1
            assert fewest_mixed_forwards(steps, slots) == int(row["mixed_total_forward"])
    assert mixed == 1104


def test_the_values_that_the_literature_gives() -> None:
    assert [fewest_advances(10, 3), fewest_advances(100, 10), fewest_advances(1000, 10)] == [15, 222, 3636]
    assert (100 + fewest_advances(100, 10), fewest_mixed_forwards(100, 10)) == (322, 237)
    assert fewest_advances(1, 1) == 0
    assert 10**12 < fewest_advances(10**12, 64) < 11 * 10**12, "no table is made"


@given(st.integers(1, 60), st.integers(1, 12))
def test_binomial_schedules_do_what_they_say(steps: int, slots: int) -> None:
    played = play(steps, binomial_schedule(steps, slots))
    assert (played.advances, played.reads, played.writes) == (fewest_advances(steps, slots), 0, 0)
    assert played.ram <= slots
    assert played.forwards == steps + played.advances
    if steps <= 16:
        assert fewest_mixed_forwards(steps, slots) == fewest_mixed_slowly(steps, slots)


def test_a_long_schedule_is_as_short_as_it_should_be() -> None:
    assert play(3000, binomial_schedule(3000, 1)).advances == 3000 * 2999 // 2
    assert play(20_000, binomial_schedule(20_000, 7)).advances == fewest_advances(20_000, 7)


def test_the_published_values_of_two_levels(shared: Path) -> None:
    rows = json.loads((shared / "data/recompute/hrevolve_two_level.json").read_text(encoding="utf-8"))
    assert len(rows) == 180
    others = 0
    for row in rows:
        plan = two_level_plan(row["n"], row["ram"], row["disk"], write=row["wd"], read=row["rd"])
        assert row["total_forward"] in plan.forwards
        played = play(row["n"], plan.schedule)
        assert played.advances + row["wd"] * played.writes + row["rd"] * played.reads == plan.cost
        assert played.forwards == plan.forwards[0]
        assert played.ram <= row["ram"]
        assert played.disk <= row["disk"]
        others += len(plan.forwards) > 1
    assert others >= 47


def two_levels_by_search(steps: int, ram: int, disk: int, write: int, read: int) -> int:
    """The least cost of any schedule at all: Dijkstra over where the run stands and what the slots keep."""
    start = (0, steps, frozenset[tuple[int, Store]]())
    least, queue, number = {start: 0}, [(0, 0, start)], itertools.count(1)
    room = {Store.RAM: ram, Store.DISK: disk}
    while queue:
        cost, _, state = heapq.heappop(queue)
        at, left, slots = state
        if not left:
            return cost
        if cost > least[state]:
            continue
        after = []
        if at >= 0:
            if at == left - 1:
                after.append((0, (-1, left - 1, slots)))
            elif at < left - 1:
                after.append((1, (at + 1, left, slots)))
            for store, slot_cost in ((Store.RAM, 0), (Store.DISK, write)):
                if sum(1 for _, each in slots if each is store) < room[store]:
                    after.append((slot_cost, (at, left, slots | {(at, store)})))
        for slot in slots:
            after.append((0, (at, left, slots - {slot})))
            after.append((read if slot[1] is Store.DISK else 0, (slot[0], left, slots)))
        for spent, new in after:
            if cost + spent < least.get(new, 1 << 60):
                least[new] = cost + spent
                heapq.heappush(queue, (cost + spent, next(number), new))
    raise AssertionError("no schedule")


@pytest.mark.parametrize(("ram", "disk"), [(0, 1), (1, 0), (1, 1), (2, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize(("write", "read"), [(0, 0), (1, 1), (3, 0), (0, 3), (1, 4)])
def test_no_schedule_on_two_levels_is_cheaper(ram: int, disk: int, write: int, read: int) -> None:
    for steps in range(1, 7):
        plan = two_level_plan(steps, ram, disk, write=write, read=read)
        without_input = two_levels_by_search(steps, ram, disk, write, read) if steps > 1 else 0
        # The plan keeps the chain's input in a slot even where a single step needs none.
        assert plan.cost == (without_input if steps > 1 else (0 if ram else write)), steps
        played = play(steps, plan.schedule)
        assert played.advances + write * played.writes + read * played.reads == plan.cost


def test_without_disk_two_levels_are_one() -> None:
    for steps, slots in itertools.product((1, 2, 7, 30), (1, 2, 5)):
        plan = two_level_plan(steps, slots, 0, write=9, read=9)
        assert (plan.cost, plan.forwards) == (fewest_advances(steps, slots), (steps + fewest_advances(steps, slots),))
    assert two_level_plan(1200, 1, 0, write=1, read=1).cost == 1200 * 1199 // 2


CHAIN_COLUMNS = ("uf", "ub", "wa", "wabar", "wd", "of", "ob")


def test_the_published_values_of_chains_of_unequal_stages(shared: Path) -> None:
    cases = json.loads((shared / "data/recompute/hetero_chain_optima.json").read_text(encoding="utf-8"))
    points = better = 0
    for case in cases:
        chain = Chain(*(tuple(case["chain"][key]) for key in CHAIN_COLUMNS))
        assert chain.least_time == case["ideal_time"]
        for point in case["points"]:
            plan = plan_chain(chain, point["M"])
            assert plan is not None
            assert plan.time == point["persistent"]
            assert plan.peak <= point["M"]
            assert play_chain(chain, plan.schedule) == (plan.time, plan.peak)
            assert best_chain_time(chain, point["M"]) == point["general"]
            points += 1
            better += point["general"] < point["persistent"]
    assert (len(cases), points, better) == (40, 450, 167)


SMALL = st.integers(0, 5)


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    stages = draw(st.integers(1, 4)) + 2
    column = st.lists(SMALL, min_size=stages, max_size=stages).map(tuple)
    output, more = draw(column), draw(column)
    data = tuple(a + b for a, b in zip(output, more, strict=True))
    return Chain(draw(column), draw(column), output, data, draw(column), draw(column), draw(column))


@given(chains(), st.integers(0, 40))
@settings(max_examples=60)
def test_a_persistent_plan_fits_and_is_never_faster_than_the_best_of_all(chain: Chain, limit: int) -> None:
    plan, best = plan_chain(chain, limit), best_chain_time(chain, limit)
    if plan is None:
        assert plan_chain(chain, 10_000) is not None
        return
    assert play_chain(chain, plan.schedule) == (plan.time, plan.peak)
    assert plan.peak <= limit
    assert best is not None
    assert chain.least_time <= best <= plan.time
    assert plan.extra == plan.time - chain.least_time


def test_chains_without_room_and_with_bad_figures() -> None:
    one = (0, 1, 0)
    chain = Chain(one, one, (4, 4, 0), (0, 8, 0), (4, 4, 0), (0, 0, 0), (0, 0, 0))
    assert plan_chain(chain, 3) is None
    assert best_chain_time(chain, 3) is None
    assert plan_chain(chain, 19) is None
    assert plan_chain(chain, 20) is not None  # input 4, data 8, both gradients 4
    with pytest.raises(InputError, match="smaller than its output"):
        Chain(one, one, (4, 4, 0), (0, 3, 0), one, one, one)
    with pytest.raises(InputError, match="as many times as sizes"):
        Chain((0, 1), one, one, one, one, one, one)
    with pytest.raises(InputError, match="negative"):
        Chain(one, one, one, one, one, one, (0, 0, -1))
    with pytest.raises(InputError, match="too many"):
        best_chain_time(Chain(*([(0,) * 20] * 7)), 1)
    with pytest.raises(InputError, match="lacks what it needs"):
        play_chain(chain, [ChainStep(Run.BACKWARD, 2)])
    with pytest.raises(InputError, match="ends before the backward run of stage 2"):
        play_chain(chain, [ChainStep(Run.KEEP_ALL, 1)])


def test_the_square_root_cut(shared: Path) -> None:
    for row in json.loads((shared / "data/recompute/chen_sqrt.json").read_text(encoding="utf-8")):
        cut = square_root_segments(row["n"])
        assert (len(cut.starts), cut.peak, cut.extra_forwards) == (row["best_segments"], row["peak_units"], row["extra_forward"])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8))
def test_the_cut_of_unequal_steps_is_the_best(steps: list[tuple[int, int]]) -> None:
    data, inputs = [a for a, _ in steps], [b for _, b in steps]
    cut = least_peak_segments(data, inputs)
    peaks = []
    for chosen in itertools.product((False, True), repeat=len(steps) - 1):
        starts = [0, *(index + 1 for index, yes in enumerate(chosen) if yes)]
        stops = [*starts[1:], len(steps)]
        peaks.append(sum(inputs[a] for a in starts) + max(sum(data[a:b]) for a, b in zip(starts, stops, strict=True)))
    assert cut.peak == min(peaks)
    stops = [*cut.starts[1:], len(steps)]
    assert cut.peak == sum(inputs[a] for a in cut.starts) + max(sum(data[a:b]) for a, b in zip(cut.starts, stops, strict=True))


def test_equal_steps_are_cut_as_by_the_square_root() -> None:
    for steps in (1, 4, 9, 30, 64):
        assert least_peak_segments([1] * steps, [1] * steps).peak <= square_root_segments(steps).peak


def test_the_knapsack_is_exact_where_others_miss(shared: Path) -> None:
    cases = json.loads((shared / "data/recompute/torch_knapsack_refs.json").read_text(encoding="utf-8"))
    assert len(cases) == 60
    missed = dict.fromkeys(("greedy", "ilp", "dp", "dp_hirschberg"), 0)
    for case in cases:
        kept = knapsack(case["memory"], case["runtime"], case["budget"])
        assert float(kept.worth) == pytest.approx(case["optimum"], rel=1e-12)
        assert kept.size <= Fraction(case["budget"])
        for solver in missed:
            theirs = sum(Fraction(case["runtime"][index]) for index in case[solver]["saved"])
            fits = sum(Fraction(case["memory"][index]) for index in case[solver]["saved"]) <= Fraction(case["budget"])
            assert not fits or theirs <= kept.worth
            missed[solver] += not fits or float(theirs) < float(kept.worth) * (1 - 1e-9)
    assert missed["ilp"] == 14
    assert missed["greedy"] > 0


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=9), st.integers(0, 40))
def test_the_knapsack_against_all_subsets(things: list[tuple[int, int]], budget: int) -> None:
    sizes, worths = [a for a, _ in things], [b for _, b in things]
    kept = knapsack(sizes, worths, budget)
    every = [subset for count in range(len(things) + 1) for subset in itertools.combinations(range(len(things)), count)]
    fitting = [(sum(worths[i] for i in s), -sum(sizes[i] for i in s)) for s in every if sum(sizes[i] for i in s) <= budget]
    assert (kept.worth, -kept.size) == max(fitting)
    assert (sum(sizes[i] for i in kept.indices), sum(worths[i] for i in kept.indices)) == (kept.size, kept.worth)


def test_numbers_that_are_none_are_refused() -> None:
    for call in (
        lambda: fewest_advances(0, 1),
        lambda: fewest_advances(3, 0),
        lambda: fewest_mixed_forwards(True, 1),
        lambda: two_level_plan(3, 0, 0, write=1, read=1),
        lambda: two_level_plan(3, 1, 1, write=-1, read=1),
        lambda: square_root_segments(0),
        lambda: least_peak_segments([1], []),
        lambda: least_peak_segments([-1], [1]),
        lambda: knapsack([1], [], 1),
        lambda: knapsack([1.0], [float("nan")], 1),
        lambda: knapsack([1], [1], -1),
    ):
        with pytest.raises(InputError):
            call()


@pytest.mark.parametrize(
    "schedule",
    [
        [Move(Act.REVERSE, 0)],
        [Move(Act.RESTORE, 0)],
        [Move(Act.DROP, 0)],
        [Move(Act.SAVE, 1)],
        [Move(Act.ADVANCE, 0, 2)],
        [Move(Act.ADVANCE, 0, 1), Move(Act.REVERSE, 1)],
    ],
)
def test_impossible_schedules_are_refused(schedule: list[Move]) -> None:
    with pytest.raises(InputError):
        play(2, schedule)


SIZES = {"x": 16 * 2**20, "data": 64 * 2**20, "grad": 16 * 2**20}


@pytest.mark.parametrize(
    ("name", "runs", "forwards", "expected"), [("chain_segments", segment_runs(9), 18, 256), ("chain_revolve", revolve_runs(9, 3), 22, 144)]
)
def test_the_chain_scenarios_are_what_the_planners_say(name: str, runs: Iterator[LayerRun], forwards: int, expected: int) -> None:
    program = load_scenario(ROOT / "scenarios" / f"{name}.toml")
    planned = list(runs)
    assert [(each.reads, each.writes, each.frees) for each in program.operators] == [(run.reads, run.writes, run.frees) for run in planned]
    assert sum(run.what in ("forward", "keep") for run in planned) == forwards
    trace = run_program(program)
    assert replay_device(trace).peak.size == peak_of(planned, SIZES) == expected * 2**20
    assert trace.settings["makespan"] == (forwards + 2 * 9) * 10**6
    assert peak_of(list(keep_all_runs(9)), SIZES) == 608 * 2**20
