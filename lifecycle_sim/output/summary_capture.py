"""Summaries of captures: levels of each measured step, what holds its peak, and all that it rests on."""

from __future__ import annotations

from lifecycle_sim.output.summary import Record, assumption_record
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.attribution import attribute
from lifecycle_sim.sources.capture.record import Capture, TermUse
from lifecycle_sim.study.prediction import Prediction

OWNERS_SHOWN = 8


def capture_record(captured: Capture, replayed: DeviceReplay, prediction: Prediction) -> Record:
    """Return what there is to say of *captured*, replayed and given to the allocator's model."""
    steps = captured.steps
    peaks = [replayed.span_peak(step) for step in steps]
    last = peaks[-1].event
    levels = prediction.steps[captured.warmup :]
    profile = captured.profile
    return {
        "device": captured.trace.devices[0].device,
        "card": {
            "name": profile.name,
            "architecture": profile.architecture,
            "processors": profile.processors,
            "threads": profile.threads,
            "capacity": profile.capacity,
            "cublas_workspace": profile.cublas_workspace,
        },
        "versions": dict(captured.versions),
        "warmup": captured.warmup,
        "steps": [
            {
                "name": step.name,
                "requested": {"peak": peak.size, "event": peak.event, "upper": upper, "end": level.requested_after},
                "allocated": {"peak": level.allocated, "end": level.allocated_after},
                "reserved": {"peak": level.reserved, "end": level.reserved_after},
            }
            for step, peak, upper, level in zip(steps, peaks, captured.upper, levels, strict=True)
        ],
        "categories": [{"category": share.key, "bytes": share.size} for share in attribute(replayed, "category", last, None).shares],
        "owners": [{"owner": share.key, "bytes": share.size} for share in attribute(replayed, "owner", last, OWNERS_SHOWN).shares],
        "parameters": {
            "count": sum(not row.buffer for row in captured.parameters),
            "bytes": sum(row.size for row in captured.parameters if not row.buffer),
            "references": sum(len(row.names) for row in captured.parameters if not row.buffer),
        },
        "flops": sum(row.flops for row in captured.operators),
        "terms": [term_record(use) for use in captured.terms],
        "assumptions": [assumption_record(assumption) for assumption in captured.trace.assumptions],
        "out_of_memory": [{"bytes": failure.requested, "reserved": failure.reserved} for failure in prediction.failures],
    }


def term_record(use: TermUse) -> Record:
    """A kernel term: how often it was met, and its bytes or its interval."""
    return {
        "name": use.term.name,
        "count": use.count,
        "most": use.most if use.term.upper is None else None,
        "interval": None if use.term.upper is None else [0, use.term.upper],
        "rule": use.term.rule,
        "source": use.term.source,
    }
