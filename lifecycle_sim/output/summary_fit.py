"""The answers of ``fit`` as records: the largest batch by a formula, by a model, or seen by runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lifecycle_sim.output.summary import Record
from lifecycle_sim.study.batch.accumulated import RUN, Accumulated
from lifecycle_sim.study.batch.accumulation import accumulations
from lifecycle_sim.study.batch.configurations import Compared, Job
from lifecycle_sim.study.batch.deadline import Feasible
from lifecycle_sim.study.batch.decision import NO_LIMIT, Binding, Decision
from lifecycle_sim.study.batch.fitted import Fitted
from lifecycle_sim.study.batch.frontier import Frontier
from lifecycle_sim.study.batch.growth import Growth
from lifecycle_sim.study.batch.helps import what_could_help
from lifecycle_sim.study.batch.left_out import residuals
from lifecycle_sim.study.batch.search import FeasibleRange, largest
from lifecycle_sim.study.batch.verified import Verified

SHOWN = 12
"""How many rows of a kind are shown."""


def fit_document(name: str, kind: str, **more: Any) -> Record:
    """Return the versioned document that ``fit`` answers with.

    Args:
        name: what was asked about.
        kind: ``"formula"``, ``"probes"``, ``"captures"``, ``"scenario"``, ``"configurations"`` or ``"growth"``.
        more: the parts of the answer; those that are None are left out.
    """
    return {"schema": "lifecycle-sim/fit/1", "source": {"name": name, "kind": kind}} | {k: v for k, v in more.items() if v is not None}


def _answer(**given: Any) -> Record:
    """An answer with all keys in their order."""
    levels = ("at", "above", "left", "deficit", "margin", "lost", "reach", "shape", "basis", "evidence", "verified")
    keys = ("axis", "seq", "batch", "binding", "phase", "category", "growing", *levels)
    return {key: given.get(key) for key in keys}


def formula_record(found: FeasibleRange) -> Record:
    """The answer to plain numbers."""
    binding = Binding.FIXED if found.batch < 0 else Binding.LIMIT if found.capped else Binding.MEMORY
    return _answer(
        axis="batch",
        batch=found.batch,
        binding=str(binding),
        at=found.at,
        above=None if found.capped else found.above,
        left=found.headroom,
        deficit=found.deficit,
        margin=0,
        lost=0,
        basis="payload",
        evidence="given",
        verified=False,
    ) | {"evaluations": found.evaluations}


def decision_record(decision: Decision) -> Record:
    """The answer of a fitted model."""
    return _answer(
        axis="batch",
        seq=decision.seq,
        batch=decision.batch,
        binding=str(decision.binding),
        phase=decision.phase,
        at=decision.at,
        above=decision.above,
        left=decision.left,
        deficit=decision.deficit,
        margin=decision.margin,
        lost=decision.lost,
        reach=_ratio(decision.reach.numerator, decision.reach.denominator),
        shape=str(decision.shape),
        basis=decision.basis,
        evidence="fitted",
        verified=False,
    )


def verified_record(found: Verified) -> Record:
    """The answer of runs on both sides, with what was run and what it rests on."""
    shown = found.above or found.at
    at, above = (None if each is None else each.peak(found.basis) for each in (found.at, found.above))
    segment = None if found.fitted is None else found.fitted.segments[0]
    margin = lost = None
    if segment is not None and found.fitted is not None and found.value > 0 and segment.verified:
        margin = segment.upper(found.value) - segment.estimate(found.value)
        lost = 0
    missing = max(0, found.deficit or 0)
    smallest = found.runs[0]
    gradients = smallest.states.get("gradient", 0)
    return _answer(
        axis=found.axis,
        seq=found.seq,
        batch=found.batch,
        binding=str(found.binding),
        phase=found.phase,
        category=found.category,
        growing=found.growing,
        at=at,
        above=above,
        left=found.left,
        deficit=found.deficit,
        margin=margin,
        lost=lost,
        reach=_ratio(found.reach.numerator, found.reach.denominator),
        shape=None if segment is None else str(segment.shape),
        basis=found.basis,
        evidence=str(smallest.evidence),
        verified=found.value > 0,
    ) | {
        "value": found.value,
        "requested_phase": found.requested_phase,
        "requested_category": found.requested_category,
        "calibrated": found.sought.calibrated,
        "proposed": found.sought.proposed,
        "rounds": found.sought.rounds,
        "runs": [
            {"batch": run.batch, "seq": run.seq, "levels": dict(run.levels), "phase": run.phase_of(found.basis)} for run in found.runs
        ],
        "scanned": list(found.sought.scanned),
        "holes": list(found.sought.holes),
        "fit_above": list(found.sought.above),
        "with_retries": None
        if found.above is None or found.above.fits is None
        else {"fits": found.above.fits, "retries": found.above.retries},
        "held": {} if shown is None else dict(shown.held_of(found.basis)),
        "states": dict(smallest.states),
        "states_together": smallest.states_together,
        "accumulation_needs": max(0, gradients - (found.at or smallest).held.get("gradient", 0)),
        "refusal": found.refusal,
        "model_basis": found.fitted_basis,
        "lines": [] if found.fitted is None else _lines(found.fitted),
        "helps": []
        if found.value > 0
        else [
            {"means": each.means, "text": each.text, "bytes": each.saves, "enough": each.enough}
            for each in what_could_help(smallest, max(missing, found.runs[0].peak(found.basis) - (found.budget - found.headroom)))
        ],
    }


def budget_record(budget: int, headroom: int, limit: int | None, card: str | None = None) -> Record:
    """What there is."""
    return {"bytes": budget, "headroom": headroom, "limit": None if limit in (None, NO_LIMIT) else limit, "card": card}


def model_record(fitted: Fitted) -> Record:
    """The model: its lines, and what it says of each probe with and without it."""
    return {
        "basis": fitted.basis,
        "evidence": str(fitted.evidence),
        "by": fitted.by,
        "segments": [
            {
                "seq": segment.seq,
                "shape": str(segment.shape),
                "first": segment.whole.first,
                "last": segment.whole.last,
                "margin": segment.margin,
            }
            for segment in fitted.segments
        ],
        "lines": _lines(fitted),
        "probes": [
            {
                "batch": each.probe.batch,
                "seq": each.probe.seq,
                "bytes": each.probe.peak,
                "above": each.above,
                "error_left_out": each.error,
                "upper_left_out": each.upper,
                "covered": each.covered,
                "between": each.between,
            }
            for each in residuals(fitted)
        ],
    }


def _lines(fitted: Fitted) -> list[Record]:
    return [
        {"seq": segment.seq, "phase": name, "fixed": line.fixed, "per_unit": line.per_unit, "unit": segment.unit}
        for segment in fitted.segments
        for name, line in segment.lines
    ]


def excluded_record(fitted: Fitted, budget: int, seq: int | None) -> Record:
    """What two probes can say: from which batch on nothing fits."""
    segment, units = fitted.segment(seq)
    found = largest(lambda batch: not fitted.excludes(batch, budget, seq), NO_LIMIT)
    return {
        "seq": seq,
        "first_excluded": found.refuted,
        "bytes": None if found.refuted is None else segment.estimate(found.refuted * units),
    }


def accumulation_records(global_batch: int, largest_batch: int) -> Record:
    """The ways to a global batch, the fewest micro-batches first."""
    found = accumulations(global_batch, largest_batch)
    rows = [{"micro_batch": each.micro_batch, "accumulated": each.steps, "padded": each.padded} for each in found[:SHOWN]]
    return {"global_batch": global_batch, "count": len(found), "shown": rows}


def accumulated_record(found: Accumulated) -> Record:
    """The run of the largest way to a global batch, and of the next larger one, which does not fit."""
    larger = found.larger
    return {
        "micro_batches": 1 if found.way is not None and found.way.steps == 1 else RUN,
        "micro_batch": None if found.way is None else found.way.micro_batch,
        "at": None if found.at is None else found.at.peak(found.basis),
        "left": found.left,
        "larger": None if larger is None else {"micro_batch": larger.batch, "deficit": larger.peak(found.basis) - found.room},
        "runs": len(found.runs),
    }


def feasible_record(found: Feasible, timed: int | None = None) -> Record:
    """Memory and deadline; *timed* is the largest micro-batch whose time is known, None for any."""
    return {
        "global_batch": found.global_batch,
        "memory_batch": found.memory_batch,
        "deadline": found.deadline,
        "timed": timed,
        "binds": str(found.binds),
        "count": sum(each.last - each.first + 1 for each in found.ranges),
        "fastest": None if found.fastest is None else {"micro_batch": found.fastest[0], "time": found.fastest[1]},
        "shown": [
            {"first": each.first, "last": each.last, "accumulated": each.steps, "time": each.time, "padded": each.padded}
            for each in _ends(found.ranges)
        ],
    }


def _ends(rows: Sequence[Any]) -> Iterable[Any]:
    return rows if len(rows) <= SHOWN else [*rows[: SHOWN // 2], *rows[-SHOWN // 2 :]]


def configurations_record(job: Job, found: Sequence[Compared]) -> Record:
    """Ways to run a job."""
    return {
        "title": job.title,
        "basis": job.basis,
        "global_batch": job.global_batch,
        "steps": job.steps,
        "deadline": job.deadline,
        "rows": [
            {
                "name": each.configuration.name,
                "memory_batch": each.memory.batch,
                "micro_batch": each.micro_batch,
                "accumulated": each.accumulated,
                "padded": each.padded,
                "micro_batch_time_per_sample": each.configuration.time.per_sample,
                "step_time": each.step_time,
                "total_time": each.total_time,
                "samples": each.samples,
                "binds": str(each.feasible.binds),
                "quality": each.configuration.quality,
                "quality_data": each.configuration.quality_data,
                "training_data": each.configuration.training_data,
            }
            for each in found
        ],
    }


def growth_record(found: Growth, seq: int) -> Record:
    """What a doubled sequence does."""
    return {
        "seq": seq,
        "before": found.before,
        "after": found.after,
        "phases": list(found.phases),
        "owners_count": len(found.owners),
        "owners": [
            {"owner": each.owner, "before": each.before, "after": each.after, "terms": dict(each.terms)} for each in found.owners[:SHOWN]
        ],
        "quadratic": [{"operator": name, "bytes": size} for name, size in found.quadratic.items()],
        "kernels": {"only_shorter": list(found.kernels[0]), "only_longer": list(found.kernels[1])},
        "unmatched": list(found.unmatched),
        "caches": dict(found.caches),
    }


def frontier_record(found: Frontier) -> Record:
    """The largest batch at each length, and the peaks around it."""
    return {
        "lengths": list(found.lengths),
        "batches": list(found.batches),
        "largest": list(found.largest),
        "room": found.room,
        "basis": found.basis,
        "peaks": [list(row) for row in found.peaks],
        "measured": [list(row) for row in found.measured],
    }


def _ratio(value: int, of: int) -> Record:
    return {"numerator": value, "denominator": of}
