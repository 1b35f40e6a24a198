"""The facts of ``lifecycle-sim sweep`` as records."""

from __future__ import annotations

from lifecycle_sim.output.summary import Record
from lifecycle_sim.study.grid import Predicted, Spread, Sweep, SweepPoint

FIGURES = {
    "payload": "counted from the shapes: parameters, buffers, gradients, optimizer state and one batch, each storage once; no activations",
    "requested": "what the program asks the card's allocator for, with the known scratch of kernels; simulated",
    "allocated": "the blocks that this takes; simulated",
    "reserved": "what the allocator holds from the card: this is what runs out; simulated",
    "time": "one real step on the CPU of this machine; measured",
    "rss": "process RSS: what that run's process holds of this machine's memory, with the interpreter, torch's code, threads; measured",
    "capture": "time and process RSS of the capture itself, which needs no card; measured",
}
NOT_CARRIED_OVER = (
    "No figure of the card is derived from the process RSS or the time of a run on the CPU: other operators, other temporaries, another "
    "allocator. Where a point has no prediction, there is none."
)


def sweep_document(source: str, sweep: Sweep) -> Record:
    """Return the versioned document that ``sweep`` answers with."""
    first = next((point.predicted for point in sweep.points if point.predicted is not None), None)
    threads = {run.threads for point in sweep.points for run in point.runs}
    return {
        "schema": "lifecycle-sim/sweep/1",
        "source": {"name": source},
        "card": {"name": sweep.profile.name, "capacity": sweep.capacity},
        "versions": {} if first is None else dict(first.versions),
        "warmup": None if first is None else first.warmup,
        "steps": None if first is None else first.steps,
        "repeats": sweep.repeats,
        "threads": max(threads, default=None),
        "figures": FIGURES,
        "not_carried_over": NOT_CARRIED_OVER,
        "points": [_point(point) for point in sweep.points],
        "complete": sweep.complete,
        "fits": sweep.fits,
    }


def _point(point: SweepPoint) -> Record:
    return {
        "parameters": dict(point.parameters),
        **(_predicted(point.predicted) if point.predicted is not None else dict.fromkeys(("payload", "prediction", "capture"))),
        "run": _run(point),
        "problems": list(point.problems),
    }


def _predicted(found: Predicted) -> Record:
    payload, levels = found.payload, found.levels
    return {
        "payload": {
            "parameters": payload.parameters,
            "buffers": payload.buffers,
            "gradients": payload.gradients,
            "optimizer_state": payload.optimizer_state,
            "inputs": payload.inputs,
            "total": payload.total,
        },
        "prediction": {
            "requested": {"peak": levels.requested, "end": levels.requested_after},
            "allocated": {"peak": levels.allocated, "end": levels.allocated_after},
            "reserved": {"peak": levels.reserved, "end": levels.reserved_after},
            "fits": found.fits,
        },
        "capture": {"nanoseconds": round(found.seconds * 1e9), "rss": found.rss},
    }


def _run(point: SweepPoint) -> Record | None:
    took, held = point.nanoseconds, point.rss
    if took is None or held is None:
        return None
    return {
        "repeats": len(point.runs),
        "nanoseconds": _spread(took),
        "rss_peak": _spread(held),
        "rss_before": _spread(Spread.of([run.rss_before for run in point.runs])),
        "rss_after": _spread(Spread.of([run.rss_after for run in point.runs])),
        "peak_since_start": any(run.peak_since_start for run in point.runs),
    }


def _spread(spread: Spread) -> Record:
    return {"least": spread.least, "middle": spread.middle, "most": spread.most}
