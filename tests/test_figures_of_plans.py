"""Figures of plans and of steps with modules recomputed: what is drawn is what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.patches import Rectangle

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from lifecycle_sim.program.edits.offload import Offload
from lifecycle_sim.program.engine_copies import Link
from lifecycle_sim.program.remat import Happens
from lifecycle_sim.study.recompute import Recompute
from tests.conftest import ROOT

STEP = str(ROOT / "scenarios" / "capture" / "gpt_step.jsonl.gz")


@pytest.fixture(scope="module")
def trace() -> ls.Trace:
    return ls.read_trace(STEP)


@pytest.fixture(scope="module")
def found(trace: ls.Trace) -> Recompute:
    return ls.what_if(trace, "blocks.[0-3]")


@pytest.fixture(scope="module")
def frontier(trace: ls.Trace) -> ls.RegionFrontier:
    return ls.frontier(trace, "blocks.[0-5]", solver="branch")


def drawn(ax, gid):
    return [artist for artist in ax.get_children() if artist.get_gid() == gid]


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_the_frontier_has_a_point_a_plan_and_the_choices_that_a_plan_beats(frontier: ls.RegionFrontier) -> None:
    ax = ls.figures.plan_frontier(frontier, flops=10**12, title="step.jsonl")
    (plans,) = drawn(ax, "plans")
    assert list(plans.get_ydata()) == [plan.peak for plan in frontier.points]
    assert list(plans.get_xdata()) == [pytest.approx(100 * plan.cost / 10**12) for plan in frontier.points]
    beaten = {(point.get_xdata()[0], point.get_ydata()[0]) for point in drawn(ax, "beaten")}
    assert beaten == {(100 * each.cost / 10**12, each.peak) for each in frontier.strategies if each.dominated}
    written = " ".join(text.get_text() for text in ax.texts)
    assert all(each.name in written for each in frontier.strategies)
    assert "each proven the cheapest" in written
    assert "usual choice" in legend_of(ax)
    assert ax.get_ylabel() == "peak, requested bytes, simulated"
    low, high = ax.get_ylim()
    assert low < frontier.points[-1].peak <= frontier.points[0].peak < high
    plain = ls.figures.plan_frontier(frontier, budget=frontier.points[1].peak)
    assert list(drawn(plain, "plans")[0].get_xdata()) == [plan.cost for plan in frontier.points]
    assert len(drawn(plain, "budget")) == 1
    with pytest.raises(ls.InputError, match="the frontier is empty"):
        ls.figures.plan_frontier(ls.RegionFrontier((), (), True, 1, 0, True, 1, "FLOP", "requested"))


def test_plans_that_are_not_proven_are_hollow(frontier: ls.RegionFrontier) -> None:
    from dataclasses import replace

    points = (frontier.points[0], replace(frontier.points[1], proven=False), *frontier.points[2:])
    ax = ls.figures.plan_frontier(replace(frontier, points=points, proven=False))
    (hollow,) = drawn(ax, "plans not proven")
    assert list(hollow.get_ydata()) == [points[1].peak]
    assert "not proven the cheapest" in legend_of(ax)
    assert "no plan peaks so low" not in " ".join(text.get_text() for text in ax.texts)


def test_both_levels_have_their_peaks_and_the_base_stands_still_where_calls_run_again(found: Recompute) -> None:
    ax = ls.figures.recomputed_timeline(found, title="step.jsonl")
    base, edited = (line for line in ax.lines if line.get_drawstyle() == "steps-post")
    assert (max(base.get_ydata()), max(edited.get_ydata())) == (found.base.requested, found.edited.requested)
    ran = [event.happens is Happens.AGAIN for event in found.edits[-1].events if event.happens in (Happens.OPERATOR, Happens.AGAIN)]
    shaded = drawn(ax, "runs again")
    assert sum(each.get_width() for each in shaded) == sum(ran) == found.extra.operators
    assert len(shaded) == 4
    levels = np.asarray(base.get_ydata())
    for each in shaded:
        start, stop = int(each.get_x()), int(each.get_x() + each.get_width())
        assert all(ran[start:stop])
        assert len(set(levels[start + 1 : stop + 1])) == 1
    assert "forward" in [text.get_text() for text in ax.texts]
    assert ax.get_title(loc="left").startswith("Peak 4.84 GiB → ")


def test_each_row_lives_once_and_is_made_again_where_calls_run_again(found: Recompute) -> None:
    ax = ls.figures.recomputed_lifecycles(found, top=25)
    bars = {gid: [patch for patch in ax.patches if patch.get_gid() == gid] for gid in ("lives", "held before", "made again", "runs again")}
    assert len(bars["lives"]) == len(bars["held before"]) == len(ax.get_yticklabels()) == 25
    assert len(bars["made again"]) >= 25

    def ends(bar: Rectangle) -> tuple[float, float]:
        return bar.get_x(), bar.get_x() + bar.get_width()

    stretches = [ends(each) for each in bars["runs again"]]
    for again in bars["made again"]:
        row, (start, stop) = again.get_y(), ends(again)
        assert any(first <= start < last for first, last in stretches), "it is made where a call runs again"
        (before,) = (ends(each) for each in bars["held before"] if each.get_y() == row)
        assert before[0] < start < stop <= before[1] + 0.01 * ax.get_xlim()[1], "where it was held before"
    assert "left out" in ax.get_xlabel()
    with pytest.raises(ls.InputError, match="nothing that was held is made again"):
        ls.figures.recomputed_lifecycles(ls.what_if(found.base_trace, "tokens"))


@pytest.mark.parametrize(
    ("checkpoint", "edits"),
    [((), {"optimizer": "sgd"}), ("blocks.[01]", {"optimizer": "sgd"}), ((), {"sharding": "zero3:8"})],
    ids=["sgd", "sgd and recomputed", "sharded"],
)
def test_other_edits_are_drawn_with_their_own_levels(trace: ls.Trace, checkpoint: Any, edits: dict[str, Any]) -> None:
    found = ls.what_if(trace, checkpoint, **edits)
    ax = ls.figures.recomputed_timeline(found)
    base, edited = (line for line in ax.lines if line.get_drawstyle() == "steps-post")
    assert (max(base.get_ydata()), max(edited.get_ydata())) == (found.base.requested, found.edited.requested)
    assert any(text.endswith("edited") for text in legend_of(ax))
    assert bool(found.calls) == bool(drawn(ax, "runs again")) == any("run again" in text for text in legend_of(ax))
    if found.calls:
        assert ls.figures.recomputed_lifecycles(found).get_yticklabels()
    else:
        with pytest.raises(ls.InputError, match="there is no interval to draw"):
            ls.figures.recomputed_lifecycles(found)


def test_a_step_with_other_operators_goes_on_by_itself_where_they_differ(trace: ls.Trace) -> None:
    plain = ls.what_if(trace, optimizer="sgd")
    ax = ls.figures.recomputed_timeline(plain)
    base, edited = (line for line in ax.lines if line.get_drawstyle() == "steps-post")
    assert len(base.get_xdata()) - len(edited.get_xdata()) == plain.cost.operators - plain.ran.operators > 0


def test_storages_on_the_host_are_fetched_and_not_made_again(trace: ls.Trace) -> None:
    away = Offload(("saved",), Link(25 * 10**9))
    ax = ls.figures.recomputed_lifecycles(ls.what_if(trace, offloaded=away), top=5)
    assert legend_of(ax) == ["lives", "was held as captured", "back from the host"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["frontier", STEP, "--modules", "blocks.[01]", "--solver", "branch"],
        ["whatif", STEP, "--checkpoint", "blocks.*"],
        ["whatif", STEP, "--checkpoint", "blocks.*", "--kind", "lifecycle"],
    ],
)
def test_figures_as_commands(arguments: list[str], tmp_path: Path) -> None:
    target = tmp_path / "figure.svg"
    result = CliRunner(catch_exceptions=False).invoke(main, [*arguments, "-o", str(target)])
    assert result.exit_code == 0
    first = target.read_bytes()
    assert first.startswith(b"<?xml")
    again = CliRunner(catch_exceptions=False).invoke(main, [*arguments, "-o", str(target)])
    assert (again.exit_code, "exists already" in again.stderr) == (2, True)
    assert CliRunner(catch_exceptions=False).invoke(main, [*arguments, "-o", str(target), "--force"]).exit_code == 0
    assert target.read_bytes() == first
    if arguments[0] == "frontier":
        wrong = CliRunner().invoke(main, [*arguments, "-o", str(tmp_path / "figure.jsonl")])
        assert (wrong.exit_code, "ends in none of .png" in wrong.stderr) == (2, True)
