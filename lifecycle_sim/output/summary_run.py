"""Summaries of scenarios that were run: peak, ends of steps and the static table side by side, and the rules of the run."""

from __future__ import annotations

from typing import Any

from lifecycle_sim.events import Category
from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.summary_moments import where_record
from lifecycle_sim.program.graph import Program, static_table
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.attribution import attribute
from lifecycle_sim.replay.averages import average

STEPS_SHOWN = 20
WAITS_SHOWN = 10


def rules_record(program: Program, settings: Any) -> Record:
    """By which rules the program ran, and how long that took on its own clock."""
    waited = sorted(settings.get("waited", {}).items(), key=lambda pair: (-pair[1], pair[0]))
    return {
        "title": program.title,
        "parameters": dict(sorted(program.parameters.items())),
        "storages": len(program.storages),
        "operators": len(program.operators),
        "planned_events": len(program.events),
        "steps": program.steps,
        "same_instant": program.same_instant.value,
        "capacity_mode": None if program.capacity is None else program.capacity.mode.value,
        "makespan": settings.get("makespan"),
        "horizon": program.horizon,
        "waited": {"count": len(waited), "shown": [{"operator": name, "ticks": ticks} for name, ticks in waited[:WAITS_SHOWN]]},
    }


def steps_record(replayed: DeviceReplay) -> Record:
    """Peak and end of the first steps, and of the last."""
    steps = [span for span in replayed.recorded.spans if span.kind == "step"]
    kept = steps if len(steps) <= STEPS_SHOWN else [*steps[: STEPS_SHOWN - 1], steps[-1]]
    rows = []
    for span in kept:
        peak = replayed.span_peak(span)
        where = where_record(replayed, peak.event)
        end = replayed.timeline.at(span.stop - 1)
        rows.append({"name": span.name, "peak": peak.size, "event": peak.event, "operator": where["operator"], "end": end})
    return {"count": len(steps), "shown": rows}


def static_record(program: Program, replayed: DeviceReplay) -> Record:
    """The static table beside the bytes that are there at the peak and at the end, category by category.

    ``lacks`` is what is there at the peak and in no row of the table; ``counts_absent`` what the table counts and the peak does not hold.
    """
    table = static_table(program)
    at_peak = _by_category(replayed, replayed.peak.event)
    at_end = _by_category(replayed, len(replayed.timeline) - 1)
    rows: list[Record] = [
        {
            "category": category.word,
            "static": table.get(category, 0),
            "peak": at_peak.get(category.word, 0),
            "end": at_end.get(category.word, 0),
            "in_table": category in table,
        }
        for category in Category
        if table.get(category) or category.word in at_peak or category.word in at_end
    ]
    return {
        "total": sum(table.values()),
        "peak": replayed.peak.size,
        "event": replayed.peak.event,
        "where": where_record(replayed, replayed.peak.event),
        "lacks": sum(max(0, row["peak"] - row["static"]) for row in rows),
        "counts_absent": sum(max(0, row["static"] - row["peak"]) for row in rows),
        "categories": rows,
    }


def _by_category(replayed: DeviceReplay, event: int) -> dict[str, int]:
    return {share.key: share.size for share in attribute(replayed, "category", event, None).shares}


def run_record(program: Program, replayed: DeviceReplay) -> Record:
    """What a scenario's run adds to the facts about its device."""
    return {
        "average": average_record(program, replayed),
        "steps": steps_record(replayed),
        "static_table": static_record(program, replayed),
    }


def average_record(program: Program, replayed: DeviceReplay) -> Record | None:
    """The average level from 0 to the scenario's horizon, else to the end of the run; None if no time passes.

    ``area`` is in bytes times the clock's unit, exact; ``bytes`` is the average rounded down.
    """
    end = program.horizon or replayed.trace.settings.get("makespan")
    if not end:
        return None
    told = average(replayed, 0, end)
    return {"over": "run" if program.horizon is None else "horizon", "until": end, "area": told.area, "bytes": told.area // end}
