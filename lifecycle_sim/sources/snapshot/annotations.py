"""External annotations, the START and END marks of named ranges, as spans of events.

time of events    10   20   20   30   40
index              0    1    2    3    4
START at 20 → the first event with time ≥ 20: 1
END at 30   → the first event with time > 30: 4        the span is [1, 4)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from lifecycle_sim.events import Events, Span
from lifecycle_sim.sources.document_problems import Where
from lifecycle_sim.sources.snapshot.context import Context
from lifecycle_sim.sources.snapshot.events import LATEST


@dataclass(frozen=True)
class Mark:
    """One end of an annotated range, with its time in nanoseconds."""

    name: str
    opens: bool
    time: int


def read_marks(annotations: Any, where: Where, context: Context) -> dict[int, list[Mark]]:
    """Return the marks on each device, in their order. What is not a START or END with a name and a time is counted and left out."""
    marks: dict[int, list[Mark]] = defaultdict(list)
    for i, annotation in enumerate(context.listing(annotations, where, "annotations")):
        place: Where = (*where, i)
        if not isinstance(annotation, dict):
            context.problems.wrong(place, annotation, "an annotation: a dict with stage, name, device and time_us")
            continue
        if not {"stage", "name", "time_us"} <= annotation.keys():
            context.assume("annotation_left_out", 1, "annotations that are not a START or END with a name and a time are left out")
            continue
        device = context.integer(annotation, "device", place, low=-1, default=0)
        name = context.text(annotation, "name", place)
        time = context.integer(annotation, "time_us", place, low=-LATEST, high=LATEST)
        stage = context.text(annotation, "stage", place)
        if stage not in ("START", "END"):
            context.problems.wrong((*place, "stage"), annotation["stage"], "'START' or 'END'")
        marks[device].append(Mark(name, stage == "START", time * 1000))
    return marks


def place_marks(marks: list[Mark], events: Events, timed: int, context: Context) -> tuple[Span, ...]:
    """Return the ranges between *marks* as spans of *events*, by start, an outer one before those in it.

    Ranges of one name nest. A START without END lasts to the end of the window and an END without START began at its beginning;
    both are counted and not ``closed``. Nothing can be placed among events without times.
    """
    if len(events) and not timed:
        context.assume("annotation_unplaced", len(marks), "annotations cannot be placed among events without times and are left out")
        return ()
    times = np.maximum.accumulate(events.time)
    at = np.array([mark.time for mark in marks], np.int64)
    first, behind = np.searchsorted(times, at, "left").tolist(), np.searchsorted(times, at, "right").tolist()
    spans: list[Span] = []
    open_starts: dict[str, list[int]] = defaultdict(list)
    for i, mark in enumerate(marks):
        if mark.opens:
            open_starts[mark.name].append(first[i])
        elif open_starts[mark.name]:
            start = open_starts[mark.name].pop()
            spans.append(Span("annotation", mark.name, start, max(behind[i], start)))
        else:
            spans.append(Span("annotation", mark.name, 0, behind[i], closed=False))
    for name, starts in open_starts.items():
        spans.extend(Span("annotation", name, start, len(events), closed=False) for start in starts)
    unclosed = sum(not span.closed for span in spans)
    context.assume("unclosed_annotation", unclosed, "annotations with one end only are taken to reach to the edge of the window")
    return tuple(sorted(spans, key=lambda span: (span.start, -span.stop)))
