"""Plans under budgets of what the allocator holds, and the largest batch that some plan lets fit."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import CliRunner

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from lifecycle_sim.program.remat.problem import Candidate, RegionProblem, unless_chosen
from lifecycle_sim.program.remat.rows import Hold, rows_of_holds
from lifecycle_sim.study.batch_plans import LIMIT, largest_batch
from lifecycle_sim.study.plan import region_problem
from lifecycle_sim.study.plan_levels import PlannedLevels, plan_on_level
from lifecycle_sim.study.prediction import StepLevels
from tests.conftest import ROOT

STEP = str(ROOT / "scenarios" / "capture" / "gpt_step.jsonl.gz")
SOME = ["blocks.0", "blocks.3", "blocks.6", "blocks.9"]


@pytest.fixture(scope="module")
def trace() -> ls.Trace:
    return ls.read_trace(STEP)


@pytest.fixture(scope="module")
def reserved(trace: ls.Trace) -> dict[tuple[str, ...], int]:
    """What the allocator reserves under every plan of :data:`SOME`, as a what-if tells it."""
    subsets = [subset for size in range(len(SOME) + 1) for subset in combinations(SOME, size)]
    base = ls.predict(trace).steps[-1].reserved
    return {subset: ls.what_if(trace, subset).edited.reserved if subset else base for subset in subsets}


def test_a_plan_within_reserved_bytes_is_the_cheapest_of_all(trace: ls.Trace, reserved: dict[tuple[str, ...], int]) -> None:
    problem = region_problem(trace, SOME)
    for budget in sorted({*reserved.values(), *(peak - 1 for peak in reserved.values())})[::5]:
        costs = [problem.cost(problem.numbers(subset)) for subset, peak in reserved.items() if peak <= budget]
        found = ls.plan(trace, budget, SOME, solver="branch", basis="reserved")
        assert (found.fits, found.basis) == (bool(costs), "reserved")
        if found.plan is not None:
            assert found.plan.peak == reserved[found.plan.chosen] <= budget
            if found.proven:
                assert found.plan.cost == min(costs)
            assert found.plan.bound <= min(costs) <= found.plan.cost
    assert found.base_peak == reserved[()]


def test_allocated_bytes_are_those_of_the_what_if(trace: ls.Trace) -> None:
    levels, told = PlannedLevels(trace), ls.what_if(trace, SOME)
    assert (levels.of(SOME), levels.of(())) == (told.edited, told.base)
    found = ls.plan(trace, levels.of(SOME).allocated, SOME, solver="branch", basis="allocated")
    assert (found.proven, found.plan.peak) == (True, levels.of(found.plan.chosen).allocated)


# ── a problem made by hand: six parts of 10 bytes, 100 besides, and an allocator that wastes ─────────────────────────────────────────────


def six(waste: dict[int, int]) -> tuple[RegionProblem, object]:
    """Parts that cost 1, 2, … to recompute; *waste* are the bytes reserved beside those requested, by how many are recomputed."""
    candidates = tuple(Candidate(f"part.{number}", number + 1) for number in range(6))
    holds = [Hold("fixed", 100, 0, 2), *(Hold(number, 10, 0, 2, unless_chosen(number)) for number in range(6))]

    def requested(names: tuple[str, ...]) -> int:
        return 160 - 10 * len(names)

    def levels(names: tuple[str, ...]) -> StepLevels:
        size = requested(names)
        return StepLevels("step", size, size, size + waste.get(len(names), 0), 0, 0, 0)

    return RegionProblem(candidates=candidates, rows=rows_of_holds(holds, [], ["step", "step", "step"]), evaluate=requested), levels


def ask(waste: dict[int, int], budget: int, tries: int):
    problem, levels = six(waste)
    return plan_on_level(problem, levels, "reserved", budget, solver="branch", seconds=10, tries=tries)


def test_plans_that_turn_out_above_the_budget_are_excluded_in_order_of_cost() -> None:
    found = ask({1: 20, 2: 20}, 150, tries=100)
    assert (found.plan.chosen, found.plan.cost, found.plan.peak, found.proven) == (("part.0", "part.1", "part.2"), 6, 130, True)
    assert found.corrections >= 3


def test_after_too_many_the_search_goes_on_below_and_states_what_is_left() -> None:
    found = ask(dict.fromkeys(range(6), 20), 150, tries=2)
    assert found.plan.peak <= 150
    assert len(found.plan.chosen) == 3, "what is not needed is taken out"
    assert (found.proven, found.plan.proven) == (False, False)
    assert 0 < found.plan.bound < found.plan.cost
    nothing = ask(dict.fromkeys(range(7), 80), 150, tries=2)
    assert (nothing.plan, nothing.proven) == (None, False)
    assert nothing.tightest is not None


def test_what_no_row_admits_is_proven_not_to_fit() -> None:
    found = ask({}, 99, tries=2)
    assert (found.plan, found.proven) == (None, True)


def test_unknown_levels_and_problems_by_hand_are_refused(trace: ls.Trace) -> None:
    with pytest.raises(ls.InputError, match="basis 'active' is not known"):
        ls.plan(trace, "4 GiB", SOME, basis="active")
    with pytest.raises(ls.InputError, match="of a capture alone"):
        ls.plan(region_problem(trace, SOME), "4 GiB", basis="reserved")


# ── the largest batch ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("budget", "basis"), [("4.5 GiB", "requested"), ("5.6 GiB", "reserved")])
def test_a_limit_of_one_asks_for_the_capture_as_it_is(trace: ls.Trace, budget: str, basis: str) -> None:
    asked: list[int] = []

    def capture_at(batch: int) -> ls.Trace:
        asked.append(batch)
        return trace

    found = largest_batch(capture_at, budget, SOME, basis=basis, limit=1, solver="branch")
    assert (asked, found.largest.batch, found.refuted, found.proven) == ([1], 1, None, True)
    assert found.largest.found == ls.plan(trace, budget, SOME, basis=basis, solver="branch")
    assert largest_batch(capture_at, "1 GiB", SOME, basis=basis, solver="branch").largest is None


@pytest.mark.parametrize(("most", "limit"), [(0, LIMIT), (1, LIMIT), (2, LIMIT), (5, LIMIT), (16, 16), (13, 13), (23, LIMIT)])
def test_the_largest_batch_is_found_with_witnesses_on_both_sides(monkeypatch: pytest.MonkeyPatch, trace: ls.Trace, most: int, limit: int):
    """With the plan's answer put in its place: batches up to *most* fit, and from half of it on something has to be recomputed."""
    seen: list[int] = []

    def planned(_trace, budget, *_args, **_options):
        batch = seen[-1]
        chosen = () if 2 * batch <= most else ("blocks.0",)
        point = None if batch > most else ls.frontier(six({})[0], solver="branch").points[0]
        point = point and point.__class__(**{**point.__dict__, "chosen": chosen, "cost": len(chosen) * batch})
        return ls.RegionPlan(budget, point is not None, point, True, batch, None, 0, True, 1, "FLOP", "reserved")

    monkeypatch.setattr("lifecycle_sim.study.batch_plans.plan", planned)
    found = largest_batch(lambda batch: seen.append(batch) or trace, 1 << 30, limit=limit)
    assert (found.largest.batch if found.largest else 0) == most
    assert found.refuted is None if most == limit else found.refuted.batch == most + 1
    assert len(seen) == len(set(seen)) <= 2 * max(1, most).bit_length() + 1
    assert [row.batch for row in found.rows] == sorted(seen)
    if most > 1:
        assert found.without == max(batch for batch in seen if 2 * batch <= most)


def test_the_card_is_the_budget_if_none_is_given(trace: ls.Trace) -> None:
    result = CliRunner(catch_exceptions=False).invoke(main, ["plan", STEP, "--modules", "blocks.[03]", "--json"])
    (device,) = json.loads(result.stdout)["devices"]
    assert (device["budget"], device["basis"], device["plan"]["modules"]) == (trace.devices[0].capacity, "reserved", [])


# ── as commands, on a program ───────────────────────────────────────────────────────────────────────────────────────────────────────────

PROGRAM = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 8192), nn.Linear(8192, 256)
    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)).square())

def build_model():
    return nn.Sequential(*(Block() for _ in range(3)))

def make_batch(batch: int = 4):
    return torch.randn(batch, 512, 256)

def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)

def step(model, optimizer, batch):
    model(batch).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_largest_batch_and_verify_as_a_command(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: captures need it")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    arguments = ["plan", str(file), "--modules", "[0-2]", "--solver", "branch", "--budget", "450 MiB", "--largest-batch", "--verify"]
    result = CliRunner(catch_exceptions=False).invoke(main, [*arguments, "--most", "3", "--json"])
    assert result.exit_code == 0, result.stderr
    (device,) = json.loads(result.stdout)["devices"]
    found, batch = device["largest_batch"], device["largest_batch"]["batch"]
    assert (device["basis"], device["fits"], found["proven"]) == ("reserved", True, True)
    rows = {row["batch"]: row for row in found["batches"]}
    assert (rows[batch]["fits"], rows[batch + 1]["fits"]) == (True, False)
    assert rows[batch]["plan"] == device["plan"]
    assert device["verified"]["exact"]
    assert device["verified"]["levels"][-1] == {"level": "reserved", "told": device["plan"]["peak"], "captured": device["plan"]["peak"]}
    assert (batch, found["without_plan"], device["plan"]["modules"]) == (2, 1, ["0"])


def test_the_tables_tell_the_batches_and_what_was_verified(trace: ls.Trace, capsys: pytest.CaptureFixture[str]) -> None:
    from lifecycle_sim.output.summary_plan import batch_record, plan_record, verified_record
    from lifecycle_sim.output.tables import print_tables
    from lifecycle_sim.output.tables_plan import tables
    from lifecycle_sim.study.applied import VerifiedPlan

    batches = largest_batch(lambda _: trace, "5.8 GiB", SOME, limit=1, solver="branch")
    levels = PlannedLevels(trace)
    told = levels.of(()), levels.of(batches.largest.found.plan.chosen)
    record = plan_record(trace, batches.largest.found, told)
    for wrong, expected in ((None, "nothing differs: 9 operators"), ("operator 3 is another", "the step differs: operator 3 is another")):
        verified = VerifiedPlan(batches.largest.found.plan.chosen, (told[::-1],) if wrong else (told[1:] * 2,), 9, wrong, trace)
        assert verified.exact is not bool(wrong)
        device = record | {"verified": verified_record(verified), "largest_batch": batch_record(batches)}
        document = {"schema": "lifecycle-sim/plan/1", "source": _source(trace), "devices": [device], "fits": True}
        print_tables(tables(document))
        text = capsys.readouterr().out
        assert expected in " ".join(text.split())
        assert "1: the limit of 1 binds" in text


def _source(trace: ls.Trace) -> dict[str, object]:
    from lifecycle_sim.output.summary import source_record

    return source_record(trace, "step.jsonl")


def test_what_asks_for_a_program_is_refused_for_a_capture() -> None:
    for option in ("--verify", "--largest-batch"):
        result = CliRunner().invoke(main, ["plan", STEP, option])
        assert (result.exit_code, "give a FILE.py" in result.stderr) == (2, True)
    result = CliRunner().invoke(main, ["plan", "x.py", "--largest-batch", "--batch", "3"])
    assert (result.exit_code, "leave --batch out" in result.stderr) == (2, True)
