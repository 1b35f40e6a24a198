"""A Trace as a CUDA memory snapshot: what ``torch.cuda.memory._dump_snapshot`` writes, with the keys of a stated release in its order.

Frames are one dict each and stacks one list each, shared by all that refer to them, as PyTorch shares them: pickle's memo then writes each
once, and the file stays small.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import NO_LABEL, NO_STACK, BlockState, DeviceTrace, Evidence, Kind, MemoryState, StackTable, Trace
from lifecycle_sim.sources.guards import collector_paused
from lifecycle_sim.sources.snapshot.clock import Microseconds
from lifecycle_sim.sources.snapshot.context import INT64_MAX, MOST_BYTES
from lifecycle_sim.sources.snapshot.era import EVIDENCE_KEY
from lifecycle_sim.sources.snapshot.events import ACTIONS
from lifecycle_sim.sources.snapshot.marks import Marks, marks_of
from lifecycle_sim.sources.snapshot.reader import PINNED, PINNED_INDEX
from lifecycle_sim.sources.snapshot.segments import LAST_DEVICE

PROTOCOL = 4
FORMAT = "cuda-snapshot"
NEWEST = (2, 14)

_ACTION_OF = {kind: action for action, kind in ACTIONS.items()} | {Kind.OTHER: "other"}
_STATE_OF = {
    BlockState.INACTIVE: "inactive",
    BlockState.ALLOCATED: "active_allocated",
    BlockState.PENDING_FREE: "active_pending_free",
}
_RELEASE = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?![0-9])")
Release = tuple[int, int]


@dataclass(frozen=True)
class Written:
    """A snapshot's pickle, and what it says otherwise than the trace, a line each."""

    data: bytes
    notes: tuple[str, ...]


def write_snapshot(trace: Trace) -> Written:
    """Return *trace* as a snapshot, with the keys of the release that wrote the trace, or of 2.14 where no release did.

    Events, final states, stacks, pools, settings and spans are written; categories have no place in a snapshot. A label is written as
    user_metadata (as compile_context before 2.10), a span as the two marks of an annotation.

    Raises:
        InputError: a device has no identities, no final state, or kinds of events that snapshots do not have.
    """
    indices = device_indices(trace)
    problems = [problem for device in trace for problem in _problems(device)]
    if problems:
        raise InputError(problems)
    release = max(_own_release(trace), _needed_release(trace))
    clock, marks = _clock_and_marks(trace, indices)
    with collector_paused():
        tables = _Tables.of(trace)
        document: dict[str, Any] = {"segments": [], "device_traces": [[] for _ in range(max(indices, default=-1) + 1)]}
        host_segments, host_traces = [], []
        for index, device in sorted(zip(indices, trace, strict=True), key=lambda pair: pair[0]):
            entries = _entries(device, tables, clock.of_events(device.events) if release >= (2, 2) else None, release, index)
            segments = _segments(device.final, index, tables, release) if device.final is not None else []
            if index == PINNED_INDEX:
                host_segments, host_traces = segments, entries
            else:
                document["segments"] += segments
                document["device_traces"][index] = entries
        notes = [] if clock.note is None or release < (2, 2) else [clock.note]
        if release >= (2, 3):
            document["allocator_settings"] = _settings(trace)
        if release >= (2, 5):
            document["external_annotations"] = marks.annotations
            notes += [
                f"{name}: {count:,} spans read back with another begin or end: events share their microsecond, or spans of one name cross"
                for name, count in marks.moved.items()
            ]
        if release >= (2, 14):
            document["host_segments"], document["host_traces"] = host_segments, host_traces
        return Written(pickle.dumps(document, PROTOCOL), tuple(notes))


def device_indices(trace: Trace) -> list[int]:
    """Return the number of each device in a snapshot: that of ``cuda:1`` is 1, of pinned memory -1, of others the next that is free.

    Raises:
        InputError: a number is higher than any device has.
    """
    wanted = [device.device for device in trace]
    own = {name: int(name[5:]) for name in wanted if name.startswith("cuda:") and name[5:].isdigit()} | {PINNED: PINNED_INDEX}
    beyond = [name for name, number in own.items() if number > LAST_DEVICE]
    if beyond:
        raise InputError(f"{beyond[0]}: a snapshot's devices are numbered from 0 to {LAST_DEVICE}")
    unused = iter(sorted(set(range(len(wanted) + len(own))) - set(own.values())))
    return [own[name] if name in own else next(unused) for name in wanted]


def _problems(device: DeviceTrace) -> list[str]:
    if not device.identified:
        return [
            f"{device.device}: its events are amounts without identities, so no snapshot can be made of it: record addresses "
            "(torch.profiler with profile_memory, or a memory snapshot), or choose another device"
        ]
    events, problems = device.events, []
    if device.final is None:
        problems.append(f"{device.device}: has no final state, which a snapshot's segments are made of")
    foreign = sorted({Kind(kind).name for kind in np.unique(events.kind).tolist()} & {"FREE", "SHARE", "RELEASE"})
    if foreign:
        problems.append(f"{device.device}: holds {', '.join(foreign)} events, for which snapshots have no action")
    inert = np.isin(events.kind, (Kind.OOM, Kind.SNAPSHOT, Kind.OTHER))
    if ((events.address < 0) | (events.size < 0) | ((events.address > INT64_MAX - np.maximum(events.size, 0)) & ~inert)).any():
        problems.append(f"{device.device}: holds addresses or sizes that are negative or do not fit 64 bits")
    total = float(events.size[~inert].sum(dtype=np.float64))
    if total > MOST_BYTES:
        problems.append(f"{device.device}: sizes add up to about {total:.3g} bytes over all events, which must stay below 2^62")
    return problems


def _own_release(trace: Trace) -> Release:
    """The oldest of the releases that may have written *trace*: its keys are what the file had."""
    match = _RELEASE.match(trace.release or "")
    return (int(match[1]), int(match[2])) if match else NEWEST


def _needed_release(trace: Trace) -> Release:
    """The oldest release whose files have a place for all that *trace* holds."""
    needs = {
        (2, 1): any(d.final is not None and (d.final.segments.pool.any() or d.final.segments.expandable.any()) for d in trace),
        (2, 2): any(device.events.time.any() for device in trace),
        (2, 3): bool(trace.settings and trace.format == FORMAT) or trace.evidence is Evidence.SIMULATED,
        (2, 5): any(device.spans for device in trace),
        (2, 8): any((device.events.label != NO_LABEL).any() for device in trace),
        (2, 12): any(device.events.pool.any() for device in trace),
        NEWEST: any(device.device == PINNED for device in trace),
    }
    return max((release for release, needed in needs.items() if needed), default=(2, 0))


def _clock_and_marks(trace: Trace, indices: list[int]) -> tuple[Microseconds, Marks]:
    """How times are written, and the marks of spans; simulated events are moved apart where spans would else be lost among them."""
    clock = Microseconds.of(trace)
    marks = marks_of(trace, indices, clock)
    if marks.moved and trace.evidence is Evidence.SIMULATED:
        clock = clock.with_events_apart()
        marks = marks_of(trace, indices, clock)
    return clock, marks


def _settings(trace: Trace) -> dict[str, Any]:
    """The allocator's settings; where *trace* was simulated they say so, under a key of their own. Settings of scenarios are none."""
    recorded = trace.settings if trace.format == FORMAT else {}
    settings = {key: dict(value) if isinstance(value, Mapping) else value for key, value in recorded.items()}
    return settings | {EVIDENCE_KEY: str(trace.evidence)} if trace.evidence is Evidence.SIMULATED else settings


@dataclass(frozen=True)
class _Tables:
    """The objects that entries, segments and blocks share. The last element of each, at -1, stands for none."""

    stacks: list[list[dict[str, Any]]]
    labels: list[str]
    pools: list[tuple[int, int]]

    @classmethod
    def of(cls, trace: Trace) -> _Tables:
        return cls(_frame_lists(trace.stacks), [*trace.labels, ""], list(trace.pools))


def _frame_lists(table: StackTable) -> list[list[dict[str, Any]]]:
    frames = [{"name": frame.name, "filename": frame.filename, "line": frame.line} for frame in table.frames]
    return [*([frames[number] for number in stack] for stack in table.stacks), []]


def _entries(device: DeviceTrace, tables: _Tables, times: Any, release: Release, index: int) -> list[dict[str, Any]]:
    """The trace entries of *device*. Where stacks were recorded, an event without one has an empty one; a snapshot's marker has none."""
    events = device.events
    actions = [_ACTION_OF.get(Kind(kind), "") for kind in range(len(Kind))]
    keys = ["action", "addr", "size", "stream"]
    columns: list[Any] = [map(actions.__getitem__, events.kind.tolist()), events.address.tolist(), events.size.tolist()]
    columns.append(events.stream.tolist())
    if times is not None:
        keys.append("time_us")
        columns.append(times.tolist())
    labels = map(tables.labels.__getitem__, events.label.tolist())
    outside = "" if index == PINNED_INDEX else "N/A"
    if release >= (2, 10):
        keys += ["compile_context", "user_metadata"]
        columns += [[outside] * len(events), labels]
    elif release >= (2, 8):
        keys.append("compile_context")
        columns.append([label or outside for label in labels])
    if release >= (2, 12):
        keys.append("pool_id")
        columns.append(map(tables.pools.__getitem__, events.pool.tolist()))
    if (events.stack != NO_STACK).any():
        keys.append("frames")
        columns.append(map(tables.stacks.__getitem__, events.stack.tolist()))
    entries = [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]
    if "frames" in keys:
        for row in np.flatnonzero((events.kind == Kind.SNAPSHOT) & (events.stack == NO_STACK)).tolist():
            del entries[row]["frames"]
    for row in np.flatnonzero(events.kind == Kind.OOM).tolist():
        entries[row] = {"device_free" if key == "addr" else key: value for key, value in entries[row].items()}
    return entries


def _segments(final: MemoryState, index: int, tables: _Tables, release: Release) -> list[dict[str, Any]]:
    segments, blocks = final.segments, final.blocks
    order = np.argsort(blocks.segment, kind="stable")
    columns = (blocks.segment, blocks.address, blocks.size, blocks.requested, blocks.state, blocks.stack)
    tiles: list[list[dict[str, Any]]] = [[] for _ in range(len(segments))]
    allocated, active, requested = [0] * len(segments), [0] * len(segments), [0] * len(segments)
    for segment, address, size, asked, state, stack in zip(*(column[order].tolist() for column in columns), strict=True):
        tiles[segment].append(_block(address, size, asked, BlockState(state), tables.stacks[stack], release))
        if state != BlockState.INACTIVE:
            active[segment] += size
            requested[segment] += asked
            allocated[segment] += size if state == BlockState.ALLOCATED else 0
    written = []
    for row in range(len(segments)):
        recorded = [int(column[row]) for column in (segments.allocated, segments.active, segments.requested)]
        sums = [own if said < 0 else said for said, own in zip(recorded, (allocated[row], active[row], requested[row]), strict=True)]
        segment = {
            "device": index,
            "address": int(segments.address[row]),
            "total_size": int(segments.size[row]),
            "allocated_size": sums[0],
            "active_size": sums[1],
            "requested_size": sums[2],
            "stream": int(segments.stream[row]),
            "segment_type": "small" if segments.small[row] else "large",
        }
        if release >= (2, 1):
            segment["segment_pool_id"] = tables.pools[int(segments.pool[row])]
            segment["is_expandable"] = bool(segments.expandable[row])
            if segments.stack[row] == NO_STACK:
                segment["frames"] = tables.stacks[NO_STACK]
        segment["blocks"] = tiles[row]
        if release >= (2, 1) and segments.stack[row] != NO_STACK:  # PyTorch fills frames in when all else is there
            segment["frames"] = tables.stacks[int(segments.stack[row])]
        written.append(segment)
    return written


def _block(address: int, size: int, requested: int, state: BlockState, frames: list[Any], release: Release) -> dict[str, Any]:
    """One block; before 2.1 its address was not written, and its stack stood in a history of its own."""
    if release >= (2, 1):
        return {"address": address, "size": size, "requested_size": requested, "state": _STATE_OF[state], "frames": frames}
    block: dict[str, Any] = {"size": size, "requested_size": requested, "state": _STATE_OF[state]}
    if state != BlockState.INACTIVE and frames:
        block["history"] = [{"addr": address, "real_size": requested, "frames": frames}]
    return block
