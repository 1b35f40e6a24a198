"""Summaries of single events: the allocation that reached the peak, and those that failed; who asked for them and inside what."""

from __future__ import annotations

from typing import Any

import numpy as np

from lifecycle_sim.events import Kind, Span
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.owners import NO_OWNER, owner_frames

Record = dict[str, Any]

OOM_SHOWN = 5
SPAN_KINDS = ("annotation", "operator", "phase", "step")


def reached_record(replayed: DeviceReplay) -> Record | None:
    """The allocation whose event attains the peak; None where another event does, or the level is highest before the first."""
    event, events = replayed.peak.event, replayed.recorded.events
    if event < 0 or events.kind[event] != Kind.ALLOC:
        return None
    return {"event": event, "bytes": int(events.size[event]), **asked_record(replayed, event)}


def asked_record(replayed: DeviceReplay, event: int) -> Record:
    """Who asked for the bytes of *event*: the owner, the whole stack, the storage's label, and the innermost range of each kind."""
    stacks, number = replayed.trace.stacks, int(replayed.recorded.events.stack[event])
    return {
        "owner": owner_of(replayed, number),
        "frames": [str(frame) for frame in stacks.frames_of(number)],
        "label": replayed.trace.label(int(replayed.recorded.events.label[event])),
        "inside": where_record(replayed, event, SPAN_KINDS),
    }


def owner_of(replayed: DeviceReplay, number: int) -> str | None:
    """The owner of what stack *number* allocates, None where there is no stack."""
    table = replayed.trace.stacks
    if number < 0:
        return None
    frame = owner_frames(type(table)(table.frames, (table.stacks[number],)))[0]
    return None if frame == NO_OWNER else str(table.frames[frame])


def where_record(replayed: DeviceReplay, event: int, kinds: tuple[str, ...] = ("operator", "phase", "step")) -> Record:
    """The innermost range of each of *kinds* that holds *event*, each None where there is none."""
    held: dict[str, Span] = {}
    for span in replayed.recorded.spans:
        if span.start <= event < span.stop and (span.kind not in held or span.start >= held[span.kind].start):
            held[span.kind] = span
    return {kind: held[kind].name if kind in held else None for kind in kinds}


def failed_allocations(replayed: DeviceReplay) -> Int64:
    """The events at which an allocation failed."""
    return np.flatnonzero(replayed.recorded.events.kind == Kind.OOM)


def oom_record(replayed: DeviceReplay) -> Record:
    """The allocations that failed: how many, the first few, and the last."""
    failed = failed_allocations(replayed).tolist()
    return {
        "count": len(failed),
        "first": [failure_record(replayed, event) for event in failed[:OOM_SHOWN]],
        "last": failure_record(replayed, failed[-1]) if failed else None,
    }


def failure_record(replayed: DeviceReplay, event: int) -> Record:
    """One allocation that failed. ``bytes`` is the request as the allocator rounded it; the levels are those at that moment."""
    events = replayed.recorded.events
    return {
        "event": event,
        "time": replayed.time_of(event),
        "bytes": int(events.size[event]),
        "device_free": int(events.address[event]),
        "level": replayed.timeline.at(event),
        "reserved": None if replayed.reserved is None else replayed.reserved.at(event),
        **asked_record(replayed, event),
    }


def same_storages(replayed: DeviceReplay, one: int, other: int) -> bool:
    """Whether the same storages are live after both events, as nothing changed the level between them."""
    levels = replayed.timeline.levels[min(one, other) + 1 : max(one, other) + 2]
    return (
        bool((levels == levels[0]).all())
        and not np.isin(
            replayed.recorded.events.kind[min(one, other) + 1 : max(one, other) + 1],
            (Kind.ALLOC, Kind.FREE, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED),
        ).any()
    )
