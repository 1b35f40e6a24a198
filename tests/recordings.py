"""A plain reader for the events, frames and annotations of one device of a recorded snapshot: no final state, no checks."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Frame, Kind, Span, StackBuilder, Trace


class _PlainData(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def read_events(path: Path, start: int | None = None, annotations: bool = True) -> Trace:
    with path.open("rb") as file:
        recorded = _PlainData(file).load()
    entries, stacks = recorded["device_traces"][0], StackBuilder()
    frames = [[Frame(f["name"], f["filename"], f["line"]) for f in entry.get("frames", ())] for entry in entries]
    times = [entry["time_us"] for entry in entries]
    events = Events.of(
        [Kind[entry["action"].upper()] for entry in entries],
        [entry.get("addr", 0) for entry in entries],
        [entry["size"] for entry in entries],
        time=times,
        stack=[stacks.add(stack) for stack in frames],
    )
    spans, begun = [], {}
    for mark in recorded["external_annotations"] if annotations else ():
        position = int(np.searchsorted(times, mark["time_us"]))
        if mark["stage"] == "START":
            begun[mark["name"]] = position
        else:
            spans.append(Span("annotation", mark["name"], begun.pop(mark["name"], 0), position))
    device = DeviceTrace("cuda:0", events, Basis.REQUESTED, start=start, spans=tuple(spans))
    return Trace((device,), "cuda-snapshot", Evidence.MEASURED, Clock.NANOSECONDS, stacks=stacks.table())
