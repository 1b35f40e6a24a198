"""Summaries of other what-ifs about a step: strategies one at a time, storages dropped between bounds, scenarios with recomputed ranges."""

from __future__ import annotations

from collections.abc import Iterable

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.summary_recompute import communication_record, cost_record, transfers_record
from lifecycle_sim.replay import replay_device
from lifecycle_sim.replay.attribution import attribute
from lifecycle_sim.study.dropped import Dropped
from lifecycle_sim.study.prediction import LEVELS
from lifecycle_sim.study.recompute_scenario import ProgramCost, RecomputedProgram
from lifecycle_sim.study.strategies import Rung


def ladder_record(rungs: Iterable[Rung]) -> Record:
    """Return a row for each rung; the first is the step as captured."""
    rows = list(rungs)
    return {"device": rows[0].found.trace.devices[0].device, "rungs": [rung_record(rung) for rung in rows]}


def rung_record(rung: Rung) -> Record:
    """One rung: levels, categories at the peak, cost."""
    found = rung.found
    shares = attribute(replay_device(found.trace), "category", found.binding.event, None).shares
    return {
        "added": rung.name,
        "trains_otherwise": rung.trains_otherwise,
        "peak": {level: getattr(found.edited, level) for level in LEVELS},
        "categories": [{"category": share.key, "bytes": share.size} for share in shares],
        "cost": cost_record(found.ran),
        "lower_bound": found.bound,
        "communication": communication_record(found.communication),
        "transfers": transfers_record(found.transfers),
        "fits": found.prediction.fits,
        "notes": list(found.notes),
    }


def dropped_record(found: Dropped, capacity: int | None = None) -> Record:
    """Return the bounds of a peak without storages, and what they are held against."""
    return {
        "device": found.device,
        "basis": str(found.basis),
        "evidence": str(found.evidence),
        "approximation": {
            "owners": list(found.patterns),
            "storages": found.storages,
            "bytes": found.size,
            "regions": found.regions,
            "backward": found.backward,
        },
        "peak": {"base": found.base, "lower": found.lower, "upper": found.upper},
        "capacity": capacity,
    }


def scenario_record(found: RecomputedProgram, capacity: int | None = None) -> Record:
    """Return a program as it stands and with ranges recomputed, in payload bytes, and what they are held against."""
    return {
        "device": found.program.device,
        "title": found.program.title,
        "ranges": [
            {"operators": list(operators), "again": list(again), "before": before, "saved": list(saved)}
            for operators, again, before, saved in found.ranges
        ],
        "program": {"base": _program_cost(found.base), "edited": _program_cost(found.edited)},
        "capacity": capacity,
    }


def _program_cost(cost: ProgramCost) -> Record:
    return {"peak": cost.peak, "operators": cost.operators, "busy": cost.busy, "makespan": cost.makespan}
