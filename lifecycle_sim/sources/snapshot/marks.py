"""Spans as the START and END marks of annotations: the other way of :mod:`lifecycle_sim.sources.snapshot.annotations`.

A mark's time is that of the event it stands at, so that it reads back at the same event; where several events share one time, it can
stand only before or after all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lifecycle_sim.events import DeviceTrace, Span, Trace
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.sources.snapshot.annotations import Mark, place_marks
from lifecycle_sim.sources.snapshot.clock import NANOSECONDS, Microseconds
from lifecycle_sim.sources.snapshot.context import Context

END_OF_LONGER, WHOLE, START_OF_LONGER = 0, 1, 2
"""The order of marks at one time: what was open ends, what begins and ends here does, then what stays open begins."""


@dataclass(frozen=True)
class Marks:
    """The spans of a trace as annotations, by time, with how many spans of each device read back otherwise, where any do."""

    annotations: list[dict[str, Any]]
    moved: dict[str, int]


def marks_of(trace: Trace, indices: Sequence[int], clock: Microseconds) -> Marks:
    """Return the spans of all devices of *trace* as annotations."""
    found: list[tuple[int, dict[str, Any]]] = []
    moved = {}
    for index, device in zip(indices, trace, strict=True):
        if not device.spans:
            continue
        times = np.maximum.accumulate(clock.of_events(device.events))
        marks = _marks(device.spans, times)
        found += [(time, {"stage": stage, "name": name, "device": index, "time_us": time}) for time, stage, name in marks]
        if count := _moved(device, times, marks):
            moved[device.device] = count
    found.sort(key=lambda mark: mark[0])
    return Marks([annotation for _, annotation in found], moved)


def _marks(spans: Sequence[Span], times: Int64) -> list[tuple[int, str, str]]:
    """The marks of *spans* in their order: (time, stage, name)."""
    placed: list[tuple[int, int, int, int, str, str]] = []
    end = len(times)
    for number, span in enumerate(spans):
        start, stop = _begin(span, times), _stop(span, times)
        both = span.closed
        if both or span.start > 0 or span.stop == end:
            rank = WHOLE if both and start == stop else START_OF_LONGER
            placed.append((start, rank, number, 0, "START", span.name))
        if both or (span.start == 0 and span.stop < end):
            rank = WHOLE if both and start == stop else END_OF_LONGER
            placed.append((stop, rank, -number if rank == END_OF_LONGER else number, 1, "END", span.name))
    placed.sort()
    return [(time, stage, name) for time, _, _, _, stage, name in placed]


def _begin(span: Span, times: Int64) -> int:
    """A time at which a START is read as the event ``span.start``."""
    if span.start < len(times) and span.start < span.stop:
        return int(times[span.start])
    return int(times[span.start - 1]) + 1 if span.start else (int(times[0]) - 1 if len(times) else 0)


def _stop(span: Span, times: Int64) -> int:
    """A time at which an END is read as just before the event ``span.stop``."""
    if span.stop > span.start:
        return int(times[span.stop - 1])
    return _begin(span, times)


def _moved(device: DeviceTrace, times: Int64, marks: Sequence[tuple[int, str, str]]) -> int:
    """How many spans of *device* are not among those that reading *marks* gives."""
    events = replace(device.events, time=times * NANOSECONDS)
    read = place_marks([Mark(name, stage == "START", time * NANOSECONDS) for time, stage, name in marks], events, len(events), Context())
    back = {(span.name, span.start, span.stop, span.closed) for span in read}
    return sum((span.name, span.start, span.stop, span.closed) not in back for span in device.spans)
