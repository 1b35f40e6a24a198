"""Summaries of steps with modules recomputed: levels, what binds, cost, and what changes."""

from __future__ import annotations

from collections.abc import Iterable

from lifecycle_sim.output.summary import Record
from lifecycle_sim.program.edits.offload import Transfers
from lifecycle_sim.program.edits.sharding import Communication
from lifecycle_sim.replay.attribution import Share
from lifecycle_sim.study.prediction import LEVELS
from lifecycle_sim.study.recompute import Binding, Cost, Recompute

BILLION = 10**9


def recompute_record(found: Recompute) -> Record:
    """Return what there is to say of *found*; nanoseconds are whole, of a lower bound rounded down."""
    base, edited = found.curves
    return {
        "device": found.trace.devices[0].device,
        "step": found.step,
        "recomputed": {
            "modules": list(found.modules),
            "calls": found.calls,
            "early_stop": found.early_stop,
            "saved_operators": list(found.saved),
        },
        "edits": list(found.edited_by),
        "levels": [
            {
                "level": level,
                "base": {"peak": getattr(found.base, level), "end": getattr(found.base, f"{level}_after")},
                "edited": {"peak": getattr(found.edited, level), "end": getattr(found.edited, f"{level}_after")},
            }
            for level in LEVELS
        ],
        "upper": {"base": found.upper[0], "edited": found.upper[1]},
        "binding": binding_record(found.binding),
        "base_binding": binding_record(found.base_binding),
        "why": found.why,
        "cost": {
            "step": cost_record(found.cost),
            "again": cost_record(found.extra),
            "edited": cost_record(found.ran),
            "lower_bound": found.bound,
        },
        "communication": communication_record(found.communication),
        "transfers": transfers_record(found.transfers),
        "categories": [{"category": key, "base": before, "edited": after} for key, before, after in found.categories],
        "changes": [{"what": row.what, "unit": row.unit, "base": row.base, "edited": row.edited} for row in found.changes],
        "timeline": {"base": list(base), "edited": list(edited)},
        "notes": list(found.notes),
        "out_of_memory": [{"bytes": failure.requested, "reserved": failure.reserved} for failure in found.prediction.failures],
    }


def binding_record(binding: Binding) -> Record:
    """Where a peak is, and who holds it."""
    return {
        "event": binding.event,
        "operator": binding.operator,
        "phase": binding.phase or None,
        "module": binding.module or None,
        "holders": holder_records(binding.holders),
    }


def holder_records(shares: Iterable[Share]) -> list[Record]:
    """Owners and their bytes."""
    return [{"owner": share.key, "bytes": share.size} for share in shares]


def communication_record(told: Communication | None) -> Record | None:
    """What a rank exchanges with the others in a step."""
    if told is None:
        return None
    return {"gathers": told.gathers, "gathered": told.gathered, "reductions": told.reductions, "reduced": told.reduced}


def transfers_record(told: Transfers | None) -> Record | None:
    """What the copies to the host and back come to; times are nanoseconds."""
    if told is None:
        return None
    return {
        "tensors": told.tensors,
        "sent": told.sent,
        "fetched": told.fetched,
        "host_peak": told.host_peak,
        "compute": told.compute,
        "makespan": told.makespan,
        "exposed": told.exposed,
    }


def cost_record(cost: Cost) -> Record:
    """What operators cost."""
    return {
        "operators": cost.operators,
        "flops": cost.flops,
        "moved": cost.moved,
        "nanoseconds": None if cost.seconds is None else int(cost.seconds * BILLION),
    }
