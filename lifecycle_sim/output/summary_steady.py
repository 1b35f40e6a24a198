"""Summaries of steady states: what steps leave behind, what they need on top, and what drifts."""

from __future__ import annotations

from lifecycle_sim.output.summary import Record
from lifecycle_sim.replay.steady import SteadyState

STEPS_SHOWN = 20


def steady_record(steady: SteadyState) -> Record:
    """A steady state. ``since`` counts steps from 0; ``drift`` is the change of level from the first step's end to the last one's."""
    numbered = list(enumerate(steady.steps))
    kept = numbered if len(numbered) <= STEPS_SHOWN else [*numbered[: STEPS_SHOWN - 1], numbered[-1]]
    return {
        "how": steady.how,
        "level": steady.level,
        "since": steady.since,
        "transient": steady.transient,
        "peak": None if steady.peak is None else {"bytes": steady.peak.size, "event": steady.peak.event},
        "drift": {
            "bytes": sum(steady.drift),
            "steps": len(steady.drift),
            "owners": [{"key": drift.key, "bytes": drift.size, "count": drift.count} for drift in steady.drifting],
        },
        "steps": {
            "count": len(numbered),
            "shown": [
                {
                    "number": number,
                    "start": step.start,
                    "stop": step.stop,
                    "peak": step.peak.size,
                    "event": step.peak.event,
                    "level": step.level,
                    "same": step.same,
                }
                for number, step in kept
            ],
        },
    }
