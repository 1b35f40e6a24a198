"""Plans and frontiers as questions: sizes with units, results that show themselves, strategies beside the frontier."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lifecycle_sim.errors import InputError, UnitError
from lifecycle_sim.program.remat.symmetry import stacks_by_name
from lifecycle_sim.study.plan import frontier, plan
from tests.region_models import even_stack, problem_of, simulate

MIB = 2**20


def problem(blocks: int = 4):
    plain = problem_of(even_stack(blocks))
    return replace(plain, stacks=stacks_by_name(plain.candidates))


def test_a_plan_under_a_budget_with_a_unit():
    found = plan(problem(), "200 MiB")
    assert (found.fits, found.proven, found.exact, found.corrections) == (True, True, True, 0)
    assert found.base_peak == simulate(even_stack(4), ())
    assert found.plan.peak == simulate(even_stack(4), found.plan.chosen) <= 200 * MIB < found.base_peak
    assert found == plan(problem(), 200 * MIB)
    assert "proven the least" in repr(found)
    assert len(repr(found)) < 250
    assert "simulated" in found._repr_html_()


def test_a_budget_that_no_plan_meets_is_an_answer():
    found = plan(problem(), "10 MiB")
    assert (found.fits, found.plan, found.proven) == (False, None, True)
    assert found.tightest.peak == frontier(problem(), solver="branch").points[-1].peak
    assert "no plan within 10,485,760 B requested, proven" in repr(found)
    assert "least peak found" in found._repr_html_()


def test_a_search_cut_short_shows_what_is_not_proven():
    found = plan(problem(9), "300 MiB", solver="branch", seconds=0.02)
    assert not found.proven
    assert "not proven" in found._repr_html_() or "is needed" in found._repr_html_()


def test_the_frontier_with_usual_and_own_strategies():
    found = frontier(problem(), strategies={"mine": ("blocks.3", "blocks.0.part_a")}, solver="branch")
    assert found.proven
    assert found.points[0].chosen == ()
    assert [p.cost for p in found.points] == sorted({p.cost for p in found.points})
    assert [p.peak for p in found.points] == sorted({p.peak for p in found.points}, reverse=True)
    assert [each.name for each in found.strategies][-1] == "mine"
    assert found.at("1 GiB") == found.points[0]
    assert found.at(1) is None
    assert found.at(found.points[2].peak) == found.points[2]
    assert "dominated" in found._repr_html_()
    assert f"{len(found.points)} plans" in repr(found)


def test_what_is_no_budget_or_region_is_refused():
    with pytest.raises(UnitError):
        plan(problem(), "8")
    with pytest.raises(InputError, match="budget of -1 is none"):
        plan(problem(), -1)
    with pytest.raises(InputError, match=r"no candidate 'blocks\.9'"):
        frontier(problem(), strategies={"mine": ("blocks.9",)}, solver="branch")
