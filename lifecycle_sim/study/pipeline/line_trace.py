"""The occupancy of a run of a line as a Trace, so that every question about a trace can be asked of it."""

from __future__ import annotations

import numpy as np

from lifecycle_sim.events import Assumption, Basis, Clock, DeviceTrace, Events, Evidence, Frame, Kind, StackBuilder, Trace
from lifecycle_sim.study.pipeline.line import LineCapacity
from lifecycle_sim.study.pipeline.line_occupancy import Occupancy, occupancy
from lifecycle_sim.study.pipeline.line_run import LineRun

DEVICE = "line"


def line_trace(run: LineRun, occupied: Occupancy | None = None) -> Trace:
    """Return the occupancy of *run* as a trace of one device, called ``"line"``.

    Each piece that an item occupies at a stage, or on the way between two, is a storage: its owner is the stage, its label the item. Frees
    at a time come before allocations at it. Where sizes count no bytes, one byte stands for one of the line's unit, and an assumption
    says so; where a deadlock holds items, they are never freed.
    """
    held = occupancy(run) if occupied is None else occupied
    line, pieces = run.line, held.pieces
    count = len(pieces)
    numbers = np.arange(count)
    freed = np.flatnonzero(~pieces.held.astype(bool))
    kind = np.concatenate([np.full(count, Kind.ALLOC), np.full(len(freed), Kind.FREE)])
    which = np.concatenate([numbers, freed])
    time = np.concatenate([pieces.begin, pieces.end[freed]])
    order = np.lexsort((which, kind == Kind.ALLOC, time))
    stacks = StackBuilder()
    places = {name: line.stages[at].place.line if at < len(line.stages) else 0 for at, name in enumerate(held.places)}
    stack = np.array([stacks.add((Frame(name, line.source, number),)) for name, number in places.items()], np.int64)
    items, label = np.unique(pieces.item, return_inverse=True)
    ordered = which[order]
    events = Events.of(
        kind[order],
        ordered,
        pieces.size[ordered],
        time=time[order],
        stack=stack[pieces.place[ordered]],
        label=label[ordered],
    )
    device = DeviceTrace(device=DEVICE, events=events, basis=Basis.PAYLOAD, start=0, capacity=line.capacity)
    return Trace(
        devices=(device,),
        format="scenario",
        evidence=Evidence.SIMULATED,
        clock=line.clock if line.clock is not Clock.NONE else Clock.TICKS,
        stacks=stacks.table(),
        labels=tuple(run.name(item) for item in items.tolist()),
        settings={
            "title": line.title,
            "parameters": dict(line.parameters),
            "same_instant": "frees-first",
            "capacity_mode": None if line.capacity is None else "wait" if line.mode is LineCapacity.BLOCK else "line",
            "unit": line.unit,
            "seed": line.seed,
            "replication": run.replication,
            "horizon": line.horizon,
            "makespan": run.end,
        },
        assumptions=_unit(run),
    )


def _unit(run: LineRun) -> tuple[Assumption, ...]:
    unit = run.line.unit
    if unit == "B":
        return ()
    text = f"items are counted in {unit}, not in bytes: each B stands for one {unit}"
    return (Assumption("unit_is_no_byte", int((run.entered >= 0).sum()), text),)
