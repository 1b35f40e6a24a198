"""A snapshot's document as a Trace: its parts are read, checked and put together, device by device."""

from __future__ import annotations

from typing import Any

from lifecycle_sim.errors import SnapshotError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Evidence, MemoryState, Trace
from lifecycle_sim.sources.document_problems import describe
from lifecycle_sim.sources.guards import collector_paused
from lifecycle_sim.sources.snapshot.annotations import Mark, place_marks, read_marks
from lifecycle_sim.sources.snapshot.context import Context
from lifecycle_sim.sources.snapshot.era import EVIDENCE_KEY, guess_release, read_settings
from lifecycle_sim.sources.snapshot.events import DeviceEvents, read_events
from lifecycle_sim.sources.snapshot.segments import empty_state, read_segments

PINNED = "pinned"
"""The device name of the pinned host allocator; its index in a file is -1."""
PINNED_INDEX = -1
_PARTS = ("segments", "device_traces", "host_segments", "host_traces")
_HOW = "torch.cuda.memory._dump_snapshot(path) writes one"


def read_snapshot(document: Any) -> Trace:
    """Return the snapshot *document*, a dict as ``torch.cuda.memory._snapshot()`` gives it or the bare list of its segments, as a Trace.

    Every release from 2.0 on is read; keys that a release did not have yet may be missing. A device is in the trace if it has events or
    segments. Where the segments are missing altogether, ``final`` is None. An action that is not known keeps its row, as ``Kind.OTHER``.

    Raises:
        SnapshotError: the structure is not that of a snapshot; one line for each problem, with the path of the value.
    """
    with collector_paused():
        if isinstance(document, list):
            document = {"segments": document}
        if not isinstance(document, dict) or not any(part in document for part in _PARTS):
            raise SnapshotError(f"is no memory snapshot: it is {describe(document)}, without segments and device_traces; {_HOW}")
        return _read(document)


def _read(document: dict[str, Any]) -> Trace:
    context = Context()
    states = read_segments(document["segments"], ("segments",), context) if "segments" in document else {}
    events = _read_traces(document, context)
    if PINNED_INDEX in states:
        context.problems.add(("segments",), "holds a segment with device -1, should be 0 or more: pinned memory is in host_segments")
    host = read_segments(document["host_segments"], ("host_segments",), context) if "host_segments" in document else {}
    host_entries = context.listing(document.get("host_traces", []), ("host_traces",), "trace entries")
    if host_entries:
        events[PINNED_INDEX] = read_events(host_entries, ("host_traces",), context)
    if any(device != PINNED_INDEX for device in host):
        context.problems.add(("host_segments",), "holds a segment with another device than -1")
    states |= host
    marks = read_marks(document.get("external_annotations", []), ("external_annotations",), context)
    settings = read_settings(document.get("allocator_settings", {}), context)
    context.problems.check()

    devices = []
    for index in sorted(events.keys() | states.keys(), key=lambda device: (device == PINNED_INDEX, device)):
        recorded = "host_segments" in document if index == PINNED_INDEX else "segments" in document
        final = states.get(index, empty_state()) if recorded else None
        devices.append(_device(index, events.get(index), final, marks.pop(index, []), context))
    elsewhere = sum(map(len, marks.values()))
    context.assume("annotation_elsewhere", elsewhere, "annotations of devices without events or segments are left out")
    timed = sum(part.timed for part in events.values())
    untimed = sum(len(part) for part in events.values() if not part.timed)
    context.assume("no_time", untimed, "the events have no times: only their order is known")
    return Trace(
        devices=tuple(devices),
        format="cuda-snapshot",
        evidence=Evidence.SIMULATED if settings.get(EVIDENCE_KEY) == Evidence.SIMULATED else Evidence.MEASURED,
        clock=Clock.NANOSECONDS if timed else Clock.NONE,
        stacks=context.stacks.table(),
        labels=tuple(context.labels),
        pools=tuple(context.pools),
        release=guess_release(document),
        settings=settings,
        assumptions=context.assumptions(),
    )


def _read_traces(document: dict[str, Any], context: Context) -> dict[int, DeviceEvents]:
    traces = context.listing(document.get("device_traces", []), ("device_traces",), "lists, one for each device")
    events = {}
    for device, trace in enumerate(traces):
        entries = context.listing(trace, ("device_traces", device), "trace entries")
        if entries:
            events[device] = read_events(entries, ("device_traces", device), context)
    return events


def _device(index: int, part: DeviceEvents | None, final: MemoryState | None, marks: list[Mark], context: Context) -> DeviceTrace:
    part = part or read_events([], (), context)
    name = PINNED if index == PINNED_INDEX else f"cuda:{index}"
    return DeviceTrace(name, part.events, Basis.REQUESTED, final=final, spans=place_marks(marks, part.events, part.timed, context))
