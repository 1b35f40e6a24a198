"""Checks a Trace against itself: the invariants that hold for every trace, whatever it was read from.

Findings are errors when the trace cannot be what it says, and warnings when it is readable but something was lost or looks odd. Every
rule is one vectorised pass; each device yields one finding a rule at most, with how often the rule is broken and where first, so that
the report does not grow with the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.events.findings import Finding, Severity
from lifecycle_sim.events.kinds import Basis, BlockState, Category, Clock, Kind
from lifecycle_sim.events.segments import held_in_segments
from lifecycle_sim.events.trace import Blocks, DeviceTrace, Events, MemoryState, Segments, Trace

_ENDS = (Kind.FREE, Kind.FREE_COMPLETED)
_LOSSES = ("alloc_of_live", "double_free", "event_of_unknown")
"""Findings that, in a recording, show that events are missing."""
_NEED_LIVE = (Kind.FREE_REQUESTED, Kind.ANNOTATE, Kind.SHARE, Kind.RELEASE)


def check(trace: Trace) -> tuple[Finding, ...]:
    """Return what is wrong with *trace*, in the order of its devices; nothing if it is sound.

    A device record is complete when its start level is 0 and no final state was recorded (scenarios, hand-written traces, minimalloc
    instances). There a free of the unknown or an allocation of a live storage is an error. In a recording the latter is a loss that
    replay accounts for, and a warning; the former only shows that the window starts mid-run, and is no finding. Time is checked where the
    trace has a clock. Storages of zero bytes are normal in payload figures.
    """
    findings = list(check_structure(trace))
    broken = {finding.device for finding in findings if finding.severity == "error"}
    for device in trace:
        if device.device not in broken:
            lifecycles = tuple(_lifecycles(device))
            findings += [*_time(device, trace.clock), *_sizes(device), *lifecycles, *_final(device)]
            findings += held_in_segments(device, any(finding.code in _LOSSES for finding in lifecycles))
    return tuple(findings)


def check_structure(trace: Trace) -> tuple[Finding, ...]:
    """Return what makes *trace* unusable: columns of unequal length, unknown kinds, negative sizes, references into nothing."""
    findings = []
    names = [device.device for device in trace]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        findings.append(
            _whole("duplicate_device", f"more than one record for {', '.join(twice)}: events of one device belong in one record")
        )
    if len(set(trace.labels)) < len(trace.labels):
        findings.append(_whole("duplicate_label", "the table of labels holds a label twice", "warning"))
    stacks = trace.stacks
    if any(not 0 <= frame < len(stacks.frames) for stack in stacks.stacks for frame in stack):
        findings.append(_whole("frame_out_of_range", f"a stack refers to a frame outside the table of {len(stacks.frames)}"))
    for device in trace:
        findings += _references(device, trace)
    return tuple(findings)


def _whole(code: str, text: str, severity: Severity = "error") -> Finding:
    return Finding(None, None, code, text, severity)


def _found(device: DeviceTrace, wrong: NDArray[np.bool_], code: str, text: str, severity: Severity = "error") -> Iterator[Finding]:
    """Yield one finding about the events marked in *wrong*, if any."""
    count = int(np.count_nonzero(wrong))
    if count:
        yield Finding(device.device, int(wrong.argmax()), code, text, severity, count)


def _state_found(device: DeviceTrace, wrong: Any, code: str, text: str, severity: Severity = "error") -> Iterator[Finding]:
    """Yield one finding about the segments or blocks marked in *wrong*, if any."""
    count = int(np.count_nonzero(wrong))
    if count:
        yield Finding(device.device, None, code, text, severity, count)


def _references(device: DeviceTrace, trace: Trace) -> Iterator[Finding]:
    events = device.events
    tables: list[Events | Segments | Blocks] = [events]
    if device.final is not None:
        tables += [device.final.segments, device.final.blocks]
    ragged = [type(table).__name__ for table in tables if len({len(getattr(table, field.name)) for field in fields(table)}) > 1]
    if ragged:
        yield Finding(device.device, None, "column_length", f"the columns of {', '.join(ragged)} differ in length", "error", len(ragged))
        return
    limits = {"stack": (-1, len(trace.stacks)), "label": (-1, len(trace.labels)), "pool": (0, len(trace.pools))}
    yield from _found(device, events.kind > max(Kind), "unknown_kind", f"an event's kind is above {max(Kind)}, the last that is known")
    yield from _found(device, events.category > max(Category), "unknown_category", f"a category is above {max(Category)}")
    yield from _found(device, events.size < 0, "negative_size", "a size is negative")
    for name, (low, stop) in limits.items():
        column = getattr(events, name)
        text = f"an event's {name} is outside the trace's table of {stop}"
        yield from _found(device, (column < low) | (column >= stop), f"{name}_out_of_range", text)
    if device.final is not None:
        yield from _state_references(device, device.final, limits)
    wrong_spans = sum(not 0 <= span.start <= span.stop <= len(events) for span in device.spans)
    yield from _state_found(device, np.ones(wrong_spans), "span_out_of_range", f"a span leaves the device's {len(events):,} events")


def _state_references(device: DeviceTrace, final: MemoryState, limits: dict[str, tuple[int, int]]) -> Iterator[Finding]:
    segments, blocks = final.segments, final.blocks
    outside = (blocks.segment < 0) | (blocks.segment >= len(segments))
    yield from _state_found(device, outside, "block_segment_out_of_range", f"a block is in none of the {len(segments):,} segments")
    for what, sizes in (("segment", segments.size), ("block", blocks.size)):
        yield from _state_found(device, sizes < 0, "negative_size", f"a {what}'s size is negative")
    yield from _state_found(device, blocks.state > max(BlockState), "unknown_state", f"a block's state is above {max(BlockState)}")
    yield from _state_found(device, blocks.category > max(Category), "unknown_category", f"a block's category is above {max(Category)}")
    for what, table, name in (("segment", segments, "stack"), ("segment", segments, "pool"), ("block", blocks, "stack")):
        column, (low, stop) = getattr(table, name), limits[name]
        text = f"a {what}'s {name} is outside the trace's table of {stop}"
        yield from _state_found(device, (column < low) | (column >= stop), f"{name}_out_of_range", text)


def _time(device: DeviceTrace, clock: Clock) -> Iterator[Finding]:
    if clock is not Clock.NONE:
        backwards = np.concatenate(([False], np.diff(device.events.time) < 0))
        yield from _found(device, backwards, "time_backwards", "time goes back; the order of the events is kept", "warning")


def _sizes(device: DeviceTrace) -> Iterator[Finding]:
    events = device.events
    allocs = events.kind == Kind.ALLOC
    if device.basis is not Basis.PAYLOAD:
        zero = allocs & (events.size == 0)
        yield from _found(device, zero, "zero_size", "an allocation of 0 bytes, which no allocator records", "warning")
    change = np.where(allocs, events.size, np.where(np.isin(events.kind, _ENDS), -events.size, 0))
    if float(np.abs(change.astype(np.float64)).sum()) + abs(device.start or 0) >= 2**63:
        yield Finding(device.device, None, "level_too_large", "the sizes add up to more than 2^63 bytes: levels cannot be told", "error")
    elif device.start is not None:
        below = device.start + np.cumsum(change) < 0
        text = "more bytes were freed than were ever there"
        yield from _found(device, below, "level_below_zero", text, "error" if _complete(device) else "warning")


def _complete(device: DeviceTrace) -> bool:
    return device.start == 0 and device.final is None


def _lifecycles(device: DeviceTrace) -> Iterator[Finding]:
    """Check that each storage is allocated, then freed, in turn.

    The events of one storage are brought together by a stable sort; ``before`` is the position of the last alloc or free of the same
    address before each of them, or -1:

        address  A     A     A     A        B
        kind     alloc free  free  alloc    free
        before   -1    0     1     2        -1
                             │              └ of the unknown (was live before the window)
                             └ double free
    """
    events, complete = device.events, _complete(device)
    if not device.identified:
        return
    severity: Severity = "error" if complete else "warning"
    rows = np.flatnonzero(np.isin(events.kind, (Kind.ALLOC, *_ENDS, *_NEED_LIVE)))
    rows = rows[np.argsort(events.address[rows], kind="stable")]
    kind, address, size = events.kind[rows], events.address[rows], events.size[rows]
    is_alloc, is_end = kind == Kind.ALLOC, np.isin(kind, _ENDS)

    position = np.arange(len(rows))
    last_change = np.maximum.accumulate(np.where(is_alloc | is_end, position, -1))
    before = np.concatenate(([-1], last_change[:-1])) if len(rows) else position
    unseen = (before < 0) | (address[before] != address)
    live = ~unseen & is_alloc[before]

    def mark(wrong: NDArray[np.bool_]) -> NDArray[np.bool_]:
        marks = np.zeros(len(events), bool)
        marks[rows[wrong]] = True
        return marks

    text = "a storage is allocated at an address that is still live"
    yield from _found(device, mark(is_alloc & live), "alloc_of_live", text, severity)
    yield from _found(device, mark(is_end & ~live & ~unseen), "double_free", "a storage is freed that was freed before", severity)
    if complete:
        yield from _found(device, mark(is_end & unseen), "free_of_unknown", "a storage is freed that was never allocated")
    stale = ~is_alloc & ~is_end & ~live & (complete | ~unseen)
    yield from _found(device, mark(stale), "event_of_unknown", "an event concerns a storage that is not live", severity)
    differs = is_end & live & (size != size[before])
    yield from _found(device, mark(differs), "size_mismatch", "a free gives another size than the allocation", severity)


def _final(device: DeviceTrace) -> Iterator[Finding]:
    """Check the recorded end: blocks tile segments, and the recorded totals of each segment are the sums over its blocks."""
    if device.final is None:
        return
    segments, blocks = device.final.segments, device.final.blocks
    yield from _state_found(
        device, (segments.size < 0) | (segments.address < 0), "negative_size", "a segment's size or address is negative"
    )
    yield from _state_found(device, blocks.size < 0, "negative_size", "a block's size is negative")
    by_address = np.argsort(segments.address, kind="stable")
    ends = (segments.address + segments.size)[by_address]
    overlap = segments.address[by_address][1:] < ends[:-1]
    yield from _state_found(device, overlap, "segments_overlap", "two segments share addresses")
    yield from _tiling(device, segments, blocks)

    allocated, active = blocks.state == BlockState.ALLOCATED, blocks.state != BlockState.INACTIVE
    totals = {
        "allocated": np.where(allocated, blocks.size, 0),
        "active": np.where(active, blocks.size, 0),
        "requested": np.where(active, blocks.requested, 0),
    }
    for name, amounts in totals.items():
        recorded, total = getattr(segments, name), np.zeros(len(segments), np.int64)
        np.add.at(total, blocks.segment, amounts)
        text = f"a segment's recorded {name} bytes are not the sum over its blocks"
        yield from _state_found(device, (recorded >= 0) & (recorded != total), f"{name}_total", text)
    above = active & (blocks.requested > blocks.size)
    yield from _state_found(device, above, "requested_above_size", "an active block is smaller than what was asked for", "warning")


def _tiling(device: DeviceTrace, segments: Segments, blocks: Blocks) -> Iterator[Finding]:
    order = np.lexsort((blocks.address, blocks.segment))
    segment, address, size, state = blocks.segment[order], blocks.address[order], blocks.size[order], blocks.state[order]
    opens = np.concatenate(([True], segment[1:] != segment[:-1])) if len(order) else np.zeros(0, bool)
    closes = np.roll(opens, -1)
    previous_end = np.concatenate(([0], (address + size)[:-1])) if len(order) else address
    misplaced = address != np.where(opens, segments.address[segment], previous_end)
    misplaced |= closes & (address + size != (segments.address + segments.size)[segment])
    untiled = np.ones(len(segments), bool)
    untiled[segment] = False
    untiled[segment[misplaced]] = True
    yield from _state_found(device, untiled, "not_tiled", "the blocks of a segment leave a hole, overlap or overrun it")

    inactive = state == BlockState.INACTIVE
    beside = ~opens[1:] & (address == previous_end)[1:] & inactive[1:] & inactive[:-1] & ~segments.expandable[segment[1:]]
    text = "two free blocks lie side by side in one segment; the allocator merges such blocks"
    yield from _state_found(device, beside, "unmerged_blocks", text, "warning")
