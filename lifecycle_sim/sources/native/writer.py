"""Writes a Trace as JSON lines, in the grammar that people write by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lifecycle_sim.errors import TraceFormatError, TraceInvariantError
from lifecycle_sim.events import NO_LABEL, NO_STACK, BlockState, Category, DeviceTrace, Kind, MemoryState, Trace
from lifecycle_sim.sources.native.grammar import APART, Header, encoder, must_be_sound

_VERBS = [kind.name.lower() for kind in Kind]
_CATEGORIES = [category.word for category in Category]
_STATES = [state.name.lower() for state in BlockState]


def write_jsonl(trace: Trace) -> bytes:
    """Return *trace* as JSON lines: header, tables of frames, stacks and labels, then each device with its events.

    Values that a reader would assume anyway are left out; so is the time of an event that has the time of the one before it.

    Raises:
        TraceInvariantError: columns differ in length or refer to nothing.
        TraceFormatError: a text that is not Unicode, or settings that JSON cannot hold.
    """
    must_be_sound(trace, TraceInvariantError, "cannot write")
    encode = encoder().encode
    try:
        header, apart = _header(trace)
        return b"\n".join([encode(header), *map(encode, apart), *map(encode, _tables(trace)), *map(encode, _devices(trace)), b""])
    except (UnicodeEncodeError, TypeError) as error:
        raise TraceFormatError(f"cannot write the trace as JSON lines: {error}") from None


def _header(trace: Trace) -> tuple[Header, list[dict[str, Any]]]:
    """The header, and the lines of the settings that are too long for it."""
    header = Header.of(trace)
    outer, inner = APART
    within = header.settings.get(outer)
    if not isinstance(within, Mapping) or inner not in within:
        return header, []
    header.settings[outer] = {name: value for name, value in within.items() if name != inner}
    return header, [{"setting": APART, "value": within[inner]}]


def _tables(trace: Trace) -> Iterator[dict[str, Any]]:
    yield from ({"frame": frame} for frame in trace.stacks.frames)
    yield from ({"stack": stack} for stack in trace.stacks.stacks)
    yield from ({"label": label} for label in trace.labels)


def _devices(trace: Trace) -> Iterator[dict[str, Any]]:
    for device in trace:
        line = {"device": device.device, "basis": device.basis, "start": device.start, "identified": device.identified}
        if device.capacity is not None:
            line["capacity"] = device.capacity
        if device.final is not None:
            line["final"] = True
        yield line
        yield from _events(device)
        for span in device.spans:
            line = {"span": span.name, "kind": span.kind, "start": span.start, "stop": span.stop}
            yield line if span.closed else line | {"closed": False}
        if device.final is not None:
            yield from _final(device.final)


def _events(device: DeviceTrace) -> Iterator[dict[str, Any]]:
    events, last_time = device.events, 0
    columns = (
        events.kind,
        events.address,
        events.size,
        events.time,
        events.stream,
        events.stack,
        events.label,
        events.category,
        events.pool,
    )
    for kind, address, size, time, stream, stack, label, category, pool in zip(*(column.tolist() for column in columns), strict=True):
        line = {_VERBS[kind]: address if address != -1 else None, "size": size}
        if time != last_time:
            line["time"] = last_time = time
        if stream:
            line["stream"] = stream
        if stack != NO_STACK:
            line["stack"] = stack
        if label != NO_LABEL:
            line["label"] = label
        if category:
            line["category"] = _CATEGORIES[category]
        if pool:
            line["pool"] = pool
        yield line


def _final(final: MemoryState) -> Iterator[dict[str, Any]]:
    """Yield the lines of the segments in order, each block as soon as its segment is there."""
    segments, blocks = final.segments, final.blocks
    written = 0
    neutral = {
        "stream": 0,
        "pool": 0,
        "small": False,
        "expandable": False,
        "allocated": -1,
        "active": -1,
        "requested": -1,
        "stack": NO_STACK,
    }

    def segment(row: int) -> dict[str, Any]:
        values = {name: getattr(segments, name)[row].item() for name in neutral}
        line = {"segment": segments.address[row].item(), "size": segments.size[row].item()}
        return line | {name: value for name, value in values.items() if value != neutral[name]}

    columns = (blocks.segment, blocks.address, blocks.size, blocks.requested, blocks.state, blocks.stack, blocks.category)
    for row, address, size, requested, state, stack, category in zip(*(column.tolist() for column in columns), strict=True):
        while written <= row:
            yield segment(written)
            written += 1
        line = {"block": address, "size": size, "requested": requested, "state": _STATES[state]}
        if row != written - 1:
            line["within"] = row
        if stack != NO_STACK:
            line["stack"] = stack
        if category:
            line["category"] = _CATEGORIES[category]
        yield line
    for row in range(written, len(segments)):
        yield segment(row)
