"""Summaries of plans of recomputation and of frontiers."""

from __future__ import annotations

from lifecycle_sim.events import Trace
from lifecycle_sim.output.summary import Record
from lifecycle_sim.program.remat.plans import Plan
from lifecycle_sim.study.applied import VerifiedPlan
from lifecycle_sim.study.batch_plans import BatchPlans
from lifecycle_sim.study.plan import RegionFrontier, RegionPlan
from lifecycle_sim.study.prediction import LEVELS, StepLevels


def plan_record(trace: Trace, found: RegionPlan, levels: tuple[StepLevels, StepLevels]) -> Record:
    """Return what there is to say of *found*; *levels* are those of the step as captured, and under the plan."""
    base, planned = levels
    return {
        "device": trace.devices[0].device,
        "basis": found.basis,
        "budget": found.budget,
        "fits": found.fits,
        "proven": found.proven,
        "base_peak": found.base_peak,
        "plan": None if found.plan is None else _plan(found.plan),
        "tightest": None if found.tightest is None else _plan(found.tightest),
        "levels": [
            {"level": level, "base": getattr(base, level), "planned": None if found.plan is None else getattr(planned, level)}
            for level in LEVELS
        ],
        "unit": found.unit,
        "candidates": found.candidates,
        "corrections": found.corrections,
        "exact_rows": found.exact,
    }


def verified_record(found: VerifiedPlan) -> Record:
    """Return how the step captured with the plan applied compares with what was told."""
    told, captured = found.predicted, found.captured
    return {
        "exact": found.exact,
        "operators": found.operators,
        "first_difference": found.difference,
        "levels": [{"level": level, "told": getattr(told, level), "captured": getattr(captured, level)} for level in LEVELS],
    }


def batch_record(found: BatchPlans) -> Record:
    """Return the batches that were tried, each with its cheapest plan."""
    largest = found.largest
    return {
        "batch": None if largest is None else largest.batch,
        "without_plan": found.without,
        "limit": found.limit,
        "proven": found.proven,
        "batches": [
            {
                "batch": row.batch,
                "fits": row.fits,
                "proven": row.found.proven,
                "base_peak": row.found.base_peak,
                "flops": row.flops,
                "dominated": row.dominated,
                "plan": None if row.found.plan is None else _plan(row.found.plan),
            }
            for row in found.rows
        ],
    }


def frontier_record(trace: Trace, found: RegionFrontier) -> Record:
    """Return what there is to say of *found*."""
    return {
        "device": trace.devices[0].device,
        "basis": found.basis,
        "unit": found.unit,
        "proven": found.proven,
        "points": [_plan(each) for each in found.points],
        "strategies": [
            {
                "name": each.name,
                "modules": list(each.chosen),
                "cost": each.cost,
                "peak": each.peak,
                "least_cost": each.least,
                "dominated": each.dominated,
            }
            for each in found.strategies
        ],
        "resolution": found.step,
        "candidates": found.candidates,
        "corrections": found.corrections,
        "exact_rows": found.exact,
    }


def _plan(found: Plan) -> Record:
    return {
        "modules": list(found.chosen),
        "cost": found.cost,
        "peak": found.peak,
        "bound": found.bound,
        "proven": found.proven,
        "binds_at": found.event,
        "solver": found.solver,
    }
