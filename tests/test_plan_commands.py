"""``lifecycle-sim plan`` and ``frontier`` on the capture that ships, and ``ls.plan`` and ``ls.frontier`` beside them."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from lifecycle_sim.output.tables_plan import names_text
from lifecycle_sim.study.plan import region_problem
from tests.conftest import ROOT

STEP = str(ROOT / "scenarios" / "capture" / "gpt_step.jsonl.gz")
BLOCKS = ["--modules", "blocks.*", "--solver", "branch"]


def ask(*arguments):
    return CliRunner(catch_exceptions=False).invoke(main, list(arguments))


@pytest.fixture(scope="module")
def trace():
    return ls.read_trace(STEP)


def test_a_plan_is_what_the_what_if_of_it_says(trace):
    result = ask("plan", STEP, "--budget", "4.5 GiB", *BLOCKS, "--json")
    (device,) = json.loads(result.stdout)["devices"]
    plan = device["plan"]
    assert (result.exit_code, device["fits"], device["proven"], device["exact_rows"], device["corrections"]) == (0, True, True, True, 0)
    told = ls.what_if(trace, plan["modules"])
    assert plan["peak"] == told.edited.requested <= device["budget"] < device["base_peak"] == told.base.requested
    assert plan["cost"] == told.extra.flops
    assert [row["planned"] for row in device["levels"]] == [told.edited.requested, told.edited.allocated, told.edited.reserved]
    found = ls.plan(trace, "4.5 GiB", "blocks.*", solver="branch")
    assert (list(found.plan.chosen), found.plan.cost, found.plan.peak) == (plan["modules"], plan["cost"], plan["peak"])


def test_a_budget_that_no_plan_meets_is_told_with_exit_code_1():
    result = ask("plan", STEP, "--budget", "1 GiB", *BLOCKS)
    assert result.exit_code == 1
    assert "no plan stays within the budget" in result.stdout
    assert "least peak" in result.stdout


def test_a_budget_above_the_peak_needs_nothing():
    result = ask("plan", STEP, "--budget", "40 GiB", *BLOCKS, "--json")
    (device,) = json.loads(result.stdout)["devices"]
    assert (device["plan"]["modules"], device["plan"]["cost"]) == ([], 0)
    assert all(row["base"] == row["planned"] for row in device["levels"])


def test_the_frontier_ends_where_everything_is_recomputed(trace):
    result = ask("frontier", STEP, *BLOCKS, "--json")
    (device,) = json.loads(result.stdout)["devices"]
    assert (result.exit_code, device["proven"]) == (0, True)
    peaks = [each["peak"] for each in device["points"]]
    assert peaks == sorted(set(peaks), reverse=True)
    assert device["points"][0]["modules"] == []
    told = ls.what_if(trace, device["points"][-1]["modules"])
    assert peaks[-1] == told.edited.requested
    named = {each["name"]: each for each in device["strategies"]}
    assert named["all blocks"]["peak"] == ls.what_if(trace, "blocks.*").edited.requested
    found = ls.frontier(trace, "blocks.*", solver="branch")
    assert [each.peak for each in found.points] == peaks
    text = ask("frontier", STEP, *BLOCKS).stdout
    assert "each plan is proven the cheapest at its peak" in text
    assert "Usual choices" in text


def test_time_is_a_lower_bound_and_ranks_plans(trace):
    result = ask("plan", STEP, "--budget", "4.5 GiB", *BLOCKS, "--objective", "time", "--json")
    (device,) = json.loads(result.stdout)["devices"]
    assert device["unit"] == "ns"
    seconds = ls.what_if(trace, device["plan"]["modules"]).extra.seconds
    assert device["plan"]["cost"] == pytest.approx(seconds * 10**9, rel=1e-6)
    assert " at least" in ask("plan", STEP, "--budget", "4.5 GiB", *BLOCKS, "--objective", "time").stdout


def test_what_cannot_be_asked_is_refused(trace, monkeypatch):
    wrong = ask("plan", STEP, "--budget", "4 GiB", "--modules", "block.*")
    assert (wrong.exit_code, "did you mean" in wrong.stderr) == (3, True)
    assert ask("plan", STEP, "--budget", "4 GiB", "--device", "h100").exit_code == 3
    unknown = ask("plan", STEP, "--budget", "4 GiB", "--modules", "zz")
    assert (unknown.exit_code, "modules 'zz' chooses no module" in unknown.stderr) == (3, True)
    assert ask("frontier", str(ROOT / "scenarios" / "torch214_stub_small.pickle")).exit_code == 3
    with pytest.raises(ls.InputError, match="no objective 'money'"):
        ls.plan(trace, "4 GiB", objective="money")
    with pytest.raises(ls.InputError, match="has its candidates"):
        ls.plan(region_problem(trace), "4 GiB", "blocks.*")
    monkeypatch.setitem(sys.modules, "highspy", None)
    missing = ask("frontier", STEP)
    assert (missing.exit_code, "lifecycle-sim[plan]" in missing.stderr) == (4, True)


def test_names_that_follow_each_other_are_told_as_one():
    assert names_text([], 4) == "nothing"
    assert names_text(["h.0", "h.1", "h.2.mlp", "h.3.mlp", "h.5", "head"], 9) == "h.0–1, h.5, h.2–3.mlp, head"
    assert names_text(["a", "b", "c"], 2) == "a, b and 1 more"
