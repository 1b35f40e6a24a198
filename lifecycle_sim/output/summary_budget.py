"""The facts of ``lifecycle-sim budget`` as records."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from lifecycle_sim.output.summary import Record
from lifecycle_sim.study.budget.allocation import Allocation
from lifecycle_sim.study.budget.experiment import Repetition
from lifecycle_sim.study.budget.planner import EVIDENCE, Candidate
from lifecycle_sim.study.budget.report import (
    NOT_COUNTED,
    BudgetReport,
    LargestBatch,
    Opening,
    PlannedTime,
    PlannedWork,
    StepMemory,
    WeightFile,
)
from lifecycle_sim.study.budget.shapes import DEFINITIONS
from lifecycle_sim.study.budget.speed import StepTime
from lifecycle_sim.study.budget.states import StateBudget
from lifecycle_sim.study.budget.tokens import TokenCount

PARTS = {
    "plan": ("opening",),
    "weights": ("weight_file",),
    "states": ("states",),
    "step": ("memory",),
    "batch": ("largest_batch",),
    "work": ("work",),
    "time": ("time",),
    "candidates": ("allocations", "candidates"),
    "experiment": ("experiment",),
    "missing": ("missing",),
    "not-counted": ("not_counted",),
}
"""What can be shown by itself, and the keys of the document that it is made of."""


def only(document: Record, parts: Collection[str]) -> Record:
    """Return *document* with the *parts* named and no others, as it is if none are."""
    if not parts:
        return document
    kept = {key for part in parts for key in PARTS[part]}
    hidden = {key for keys in PARTS.values() for key in keys} - kept
    return document | {key: [] if isinstance(document[key], list) else None for key in hidden} | {"compared": document}


def budget_document(source: str, report: BudgetReport) -> Record:
    """Return the versioned document that ``budget`` answers with. All bytes are payload but those of a captured step, which are
    requested.
    """
    return {
        "schema": "lifecycle-sim/budget/1",
        "source": {"name": source, "title": report.title},
        "basis": "payload",
        "opening": None if report.opening is None else _opening(report.opening),
        "weight_file": None if report.weight_file is None else _weight_file(report.weight_file),
        "states": [{"name": name, **_states(budget)} for name, budget in report.states],
        "memory": None if report.memory is None else _memory(report.memory),
        "largest_batch": None if report.largest is None else _largest(report.largest),
        "tokens": None if report.tokens is None else _tokens(report.tokens),
        "work": None if report.work is None else _work(report.work),
        "time": None if report.time is None else _time(report.time),
        "allocations": [_allocation(each) for each in report.allocations],
        "candidates": [_candidate(each) for each in report.candidates],
        "same_loss": report.same_loss,
        "experiment": [_repetition(each) for each in report.experiment],
        "missing": [{"name": name, "text": EVIDENCE[name]} for name in report.missing],
        "not_counted": [{"name": name, "text": NOT_COUNTED[name]} for name in report.not_counted],
    }


def _short(value: float | Fraction | None) -> float | None:
    """*value* to nine digits: what lies behind differs from one machine to the next."""
    return None if value is None else float(f"{float(value):.9g}")


def _opening(opening: Opening) -> Record:
    return {
        "mode": opening.mode,
        "parameters": opening.parameters,
        "trainable": opening.trainable,
        "definition": opening.definition,
        "definition_text": None if opening.definition is None else DEFINITIONS[opening.definition],
        "batch": opening.batch,
        "sequence": opening.sequence,
        "tokens": opening.tokens,
        "types": [{"what": what, "type": kind} for what, kind in opening.types.items()],
        "optimizer": opening.optimizer,
        "frozen": {"count": len(opening.frozen), "shown": list(opening.frozen[:4])},
        "sharding": opening.sharding,
        "from_file": opening.from_file,
    }


def _weight_file(found: WeightFile) -> Record:
    return {
        "name": found.name,
        "tensors": found.tensors,
        "elements": found.elements,
        "bytes": found.size,
        "types": list(found.types),
        "file_bytes": found.file_size,
    }


def _states(budget: StateBudget) -> Record:
    return {
        "parameters": budget.parameters,
        "trainable": budget.trainable,
        "optimizer": budget.optimizer,
        "rows": [
            {
                "category": row.category,
                "name": row.name,
                "type": row.kind or None,
                "elements": row.elements,
                "bytes": row.size,
                "whole": row.whole,
                "before_first_step": row.size if row.eager else 0,
                "formula": row.formula,
            }
            for row in budget.rows
        ],
        "total": budget.total,
        "before_first_step": budget.before_first_step,
        "counters": budget.counters,
        "notes": list(budget.notes),
    }


def _memory(memory: StepMemory) -> Record:
    return {
        "evidence": memory.evidence,
        "basis": memory.basis,
        "states": memory.states,
        "activations": memory.activations,
        "most_activations": memory.most_activations,
        "temporaries": memory.temporaries,
        "peak": memory.peak,
        "event": memory.event,
        "inside": memory.inside,
        "first_step": memory.first,
        "reserved": memory.reserved,
        "margin": memory.margin,
        "needed": memory.needed,
        "capacity": memory.capacity,
        "fits": memory.fits,
    }


def _largest(largest: LargestBatch) -> Record:
    return {
        "batch": largest.batch,
        "verified": largest.verified,
        "probes": [{"batch": batch, "peak": peak} for batch, peak in largest.probes],
        "text": largest.text,
    }


def _tokens(tokens: TokenCount) -> Record:
    return {
        "positions": tokens.positions,
        "processed": tokens.processed,
        "distinct": tokens.distinct,
        "samples": tokens.samples,
        "steps": tokens.steps,
        "epochs": _short(tokens.epochs),
        "padding": _short(tokens.padding),
    }


def _work(work: PlannedWork) -> Record:
    return {
        "counted": work.counted,
        "tokens": work.tokens,
        "flops": work.flops,
        "attention": work.attention,
        "factor": _short(work.factor),
        "step": work.step,
        "step_tokens": work.step_tokens,
        "step_six_n": None if work.step_tokens is None else 6 * work.counted * work.step_tokens,
    }


def _time(time: PlannedTime) -> Record:
    return {
        "theoretical": time.theoretical,
        "peak": time.peak,
        "device": time.device,
        "devices": time.devices,
        "tokens_per_second": _short(time.throughput),
        "samples_per_second": _short(time.samples),
        "measured": time.measured,
        "time": time.time,
        "saving": time.saving,
        "utilisation": _short(time.utilisation),
        "with_attention": time.with_attention,
        "steps": None if time.steps is None else _steps(time.steps),
    }


def _steps(steps: StepTime) -> Record:
    return {
        "step": steps.step,
        "fastest": steps.fastest,
        "slowest": steps.slowest,
        "measured": steps.measured,
        "warmup": steps.warmup,
        "parts": [{"name": name, "time": size} for name, size in steps.parts.items()],
        "rest": steps.rest,
    }


def _allocation(each: Allocation) -> Record:
    return {
        "approach": each.approach,
        "constants": each.constants,
        "work": each.work,
        "parameters": each.parameters,
        "tokens": each.tokens,
        "loss": _short(each.loss),
        "extrapolated": each.extrapolated,
        "fitted": None if each.fitted is None else [_short(end) for end in each.fitted],
    }


def _candidate(each: Candidate) -> Record:
    return {
        "parameters": each.parameters,
        "tokens": each.tokens,
        "training": each.training,
        "inference": each.inference,
        "total": each.total,
        "epochs": _short(each.epochs),
        "loss": _short(each.loss),
        "extrapolated": each.extrapolated,
        "missing": list(each.missing),
    }


def _repetition(each: Repetition) -> Record:
    return {
        "rate": each.rate,
        "distinct": each.distinct,
        "accesses": each.accesses,
        "fewest": each.fewest,
        "most": each.most,
        "flops": each.flops,
        "loss_before": _short(each.before),
        "loss_after": _short(each.after),
        "loss_seen": _short(each.seen),
        "gain": _short(each.gain),
        "gains": [_short(gain) for gain in each.gains],
    }
