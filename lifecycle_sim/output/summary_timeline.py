"""Summaries of timelines: bounded points that keep every extremum that matters, and peaks of streams and ranges."""

from __future__ import annotations

from lifecycle_sim.errors import InputError
from lifecycle_sim.output.downsample import choose_positions
from lifecycle_sim.output.summary import Record, certainty_record, levels_record, peak_record, time_record
from lifecycle_sim.replay import DeviceReplay, Timeline

FEWEST_POINTS = 5
BY = ("stream", "span")


def points_record(timeline: Timeline, points: int) -> Record:
    """A timeline at *points* events at most, the first, the last and the peak among them; event -1 is the level before the first event.

    Raises:
        InputError: *points* is below 5.
    """
    if points < FEWEST_POINTS:
        raise InputError(f"a timeline needs at least {FEWEST_POINTS} points, not {points}")
    positions = choose_positions(timeline.levels, points - 2).tolist()
    return {"event": [position - 1 for position in positions], "bytes": [int(timeline.levels[position]) for position in positions]}


def timeline_record(replayed: DeviceReplay, points: int, by: str | None = None, top: int = 20) -> Record:
    """Return the timeline of one device, with that of its reserved bytes, and the peaks *by* stream or span.

    Raises:
        InputError: *points* is below 5, *by* is not known, or it is ``"stream"`` and the record's events carry no identity.
    """
    timeline, reserved = replayed.timeline, replayed.reserved
    record: Record = {
        "device": replayed.device,
        "events": len(timeline),
        "basis": str(timeline.basis),
        "evidence": str(timeline.evidence),
        **certainty_record(replayed),
        "peak": peak_record(replayed.peak),
        "start": timeline.start,
        "end": timeline.end,
        "time": time_record(replayed),
        "points": points_record(timeline, points),
        "reserved": None if reserved is None else levels_record(reserved) | {"points": points_record(reserved, points)},
    }
    if by is not None:
        rows = _parts(replayed, by)
        empty = sum(span.start == span.stop for span in replayed.recorded.spans) if by == "span" else 0
        record["parts"] = {"by": by, "count": len(rows), "empty": empty, "shown": rows[:top]}
    return record


def _parts(replayed: DeviceReplay, by: str) -> list[Record]:
    """The peak of each stream or span, highest first; equal ones in their own order. Spans without an event are left out."""
    if by == "stream":
        rows = [
            {"stream": stream, "bytes": timeline.peak_size, "event": timeline.peak_event, "start": timeline.start, "end": timeline.end}
            for stream, timeline in replayed.stream_timelines().items()
        ]
    elif by == "span":
        rows = []
        for span in (span for span in replayed.recorded.spans if span.start < span.stop):
            peak = replayed.span_peak(span)
            names: Record = {"kind": span.kind, "name": span.name, "first": span.start, "stop": span.stop, "closed": span.closed}
            rows.append(names | {"bytes": peak.size, "event": peak.event})
    else:
        raise InputError(f"a timeline cannot be parted by {by!r}: choose one of {', '.join(BY)}")
    return sorted(rows, key=lambda row: -row["bytes"])
