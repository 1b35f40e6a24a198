"""Reads the pages of ``torch.cuda._memory_viz.profile_plot``: a run of torch's profiler in the shape of a memory snapshot.

The shape tells less than it seems to. Its segments are no memory held from a device but spans from the lowest to the highest address;
their blocks have no addresses. The last device is always the CPU, whatever its number. What existed before the profile is in no event, only
in its free or in a block at the end. A storage is freed and allocated anew wherever its version, and with it perhaps its category, changes.
A frame holds what the profiler calls a Python function, ``model.py(12): forward``, in its name, and "none" as the file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lifecycle_sim.events import Basis, Category, DeviceTrace, Events, Frame, Kind, MemoryState, StackTable, Trace
from lifecycle_sim.sources.python_functions import frame_of
from lifecycle_sim.sources.snapshot import read_snapshot

_PARTS = {"device_traces", "segments"}
_SEGMENT = {"device", "address", "total_size", "stream", "blocks"}
_NO_FILE = "none"
_CATEGORIES = {category.word: category for category in Category}


def is_profile_plot(document: Any) -> bool:
    """Whether *document* is the snapshot in a page of ``profile_plot``: every real snapshot says more of its segments."""
    if not isinstance(document, dict) or document.keys() != _PARTS:
        return False
    segments, traces = document["segments"], document["device_traces"]
    if not isinstance(segments, list) or not isinstance(traces, list) or not segments:
        return False
    devices = range(len(traces))
    return all(
        isinstance(segment, dict) and segment.keys() == _SEGMENT and type(segment["device"]) is int and segment["device"] in devices
        for segment in segments
    )


def read_profile_plot(document: dict[str, Any]) -> Trace:
    """Return the trace in *document*, for which :func:`is_profile_plot` holds.

    A free is one event where the page has two. The start level follows from the end. Bytes are those of the profiler: block sizes on
    CUDA, requested bytes on the CPU. Categories are torch's; ``autograd_detail`` has no counterpart and is read as unknown, and so is what
    existed before, of which the page says nothing.

    Raises:
        SnapshotError: a part of the page is not as it should be; one line for each problem, with the path of the value.
    """
    trace = read_snapshot(document)
    last = f"cuda:{len(document['device_traces']) - 1}"
    devices = []
    for device in trace.devices:
        entries = document["device_traces"][int(device.device.removeprefix("cuda:"))]
        events = _events(device.events, [_category(entry) for entry in entries])
        name, basis = ("cpu", Basis.REQUESTED) if device.device == last else (device.device, Basis.ALLOCATED)
        devices.append(DeviceTrace(name, events, basis, start=_start(events, device.final)))
    stacks = StackTable(tuple(map(_frame, trace.stacks.frames)), trace.stacks.stacks)
    kept = tuple(each for each in trace.assumptions if each.code == "no_time")
    return replace(trace, devices=tuple(devices), format="profile-plot", release=None, stacks=stacks, assumptions=kept)


def _category(entry: dict[str, Any]) -> Category:
    word = entry.get("category")
    return _CATEGORIES.get(word, Category.UNKNOWN) if isinstance(word, str) else Category.UNKNOWN


def _frame(frame: Frame) -> Frame:
    return frame_of(frame.name) if frame.filename == _NO_FILE else frame


def _events(found: Events, categories: list[Category]) -> Events:
    """Return *found* with categories, and with each free as one event."""
    kept = found.kind != Kind.FREE_REQUESTED
    kind = found.kind[kept]
    return Events.of(
        np.where(kind == Kind.FREE_COMPLETED, Kind.FREE, kind),
        found.address[kept],
        found.size[kept],
        stack=found.stack[kept],
        category=np.array(categories, np.uint8)[kept],
    )


def _start(events: Events, final: MemoryState | None) -> int:
    """Return the level before *events*: what the end holds, less what they add to it."""
    change = np.where(events.kind == Kind.ALLOC, events.size, 0) - np.where(events.kind == Kind.FREE, events.size, 0)
    return (0 if final is None else final.requested) - int(change.sum())
