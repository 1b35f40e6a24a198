"""What the trace of a capture tells of each storage."""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle_sim.events import NO_LABEL, Category, Kind, Trace

OPTIMIZER = "optimizer"


@dataclass(frozen=True)
class StorageFacts:
    """One storage of a capture.

    Attributes:
        category: what it is for.
        phase: the phase in which it is allocated, "" outside of all.
        label: the name of a parameter, gradient or state; else the operator that makes it.
    """

    category: Category
    phase: str
    label: str


def storages_of(trace: Trace) -> dict[int, StorageFacts]:
    """Return the facts of the storages of *trace*, a capture, by their numbers."""
    recorded = trace.devices[0]
    events = recorded.events
    phases = [""] * len(events)
    for span in recorded.spans:
        if span.kind == "phase" and span.name != "recompute":
            phases[span.start : span.stop] = [span.name] * (span.stop - span.start)
    rows = zip(events.kind.tolist(), events.address.tolist(), events.category.tolist(), events.label.tolist(), phases, strict=True)
    return {
        address: StorageFacts(Category(category), phase, "" if label == NO_LABEL else trace.labels[label])
        for kind, address, category, label, phase in rows
        if kind == Kind.ALLOC
    }
