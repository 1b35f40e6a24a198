"""Checks that what was handed out has room in the segments held from the device.

::

    segments     [0 ........ 2 MiB)[2 MiB .... 4 MiB)           [10 MiB .. 12 MiB)
    one run      [0 .......................... 4 MiB)           [10 MiB .. 12 MiB)
    alloc        at 3 MiB of 512 KiB: inside                     at 11 MiB of 2 MiB: ends beyond its run, an error

Segments that lie side by side are taken as one run, for the pages of an expandable segment are recorded one by one. An address in no
segment that is known says nothing: its segment was given back before the window.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lifecycle_sim.events.findings import Finding, Severity
from lifecycle_sim.events.kinds import GIVES_BACK, TAKES, Basis, Kind
from lifecycle_sim.events.trace import DeviceTrace, Int64

MOST = 2.0**62
_ENDS = (Kind.FREE, Kind.FREE_COMPLETED)


def held_in_segments(device: DeviceTrace, lossy: bool) -> Iterator[Finding]:
    """Yield an error where an allocation overruns its segment, or more is handed out than was reserved.

    Args:
        device: the record; its segments must be known, from its final state or because it is complete.
        lossy: whether events are missing. Then an overrun is a warning, for a segment may have come and gone unseen, and levels are not
            compared.
    """
    severity: Severity = "warning" if lossy else "error"
    if device.basis is Basis.PAYLOAD or not len(device.events) or _beyond_64_bits(device):
        return
    begins, ends = _runs(device)
    if device.final is not None and len(begins):
        yield from _overruns(device, begins, ends, severity)
    if not lossy:
        yield from _above_reserved(device)


def _beyond_64_bits(device: DeviceTrace) -> bool:
    """Whether sums of sizes or ends of segments may pass 2^62, which is told of by other rules."""
    sizes, ends = device.events.size, device.events.address.astype(np.float64) + device.events.size
    total, furthest = float(sizes.sum(dtype=np.float64)), float(ends.max(initial=0))
    if device.final is not None:
        segments, blocks = device.final.segments, device.final.blocks
        total += float(segments.size.sum(dtype=np.float64)) + float(np.abs(blocks.requested.astype(np.float64)).sum())
        furthest = max(furthest, float((segments.address.astype(np.float64) + segments.size).max(initial=0)))
    return max(total, furthest) >= MOST


def _overruns(device: DeviceTrace, begins: Int64, ends: Int64, severity: Severity) -> Iterator[Finding]:
    events = device.events
    allocs = np.flatnonzero(events.kind == Kind.ALLOC)
    address, size = events.address[allocs], events.size[allocs]
    run = np.searchsorted(begins, address, side="right") - 1
    beyond = (run >= 0) & (address < ends[run]) & (size > ends[run] - address)
    if beyond.any():
        text = "an allocation is larger than what is left of its segment"
        yield Finding(device.device, int(allocs[beyond.argmax()]), "beyond_segment", text, severity, int(beyond.sum()))


def _runs(device: DeviceTrace) -> tuple[Int64, Int64]:
    """Where the runs of adjacent segments that ever were held begin and end, in the order of their addresses."""
    events, final = device.events, device.final
    told = np.isin(events.kind, (*TAKES, *GIVES_BACK))
    begins, sizes = events.address[told], events.size[told]
    if final is not None:
        begins, sizes = np.concatenate([begins, final.segments.address]), np.concatenate([sizes, final.segments.size])
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate((begins + sizes)[order]) if len(order) else begins
    first = np.concatenate([[True], begins[1:] > ends[:-1]]) if len(order) else np.zeros(0, bool)
    return begins[first], ends[np.concatenate([first[1:], [True]])] if len(order) else ends


def _above_reserved(device: DeviceTrace) -> Iterator[Finding]:
    """Compare the two levels after each event, both followed back from the final state, or from an empty start."""
    events, final = device.events, device.final
    grows = np.isin(events.kind, TAKES)
    if final is None and not (device.start == 0 and grows.any()):
        return
    ends = _ENDS if np.isin(events.kind, (Kind.FREE_COMPLETED, Kind.FREE)).any() else (*_ENDS, Kind.FREE_REQUESTED)
    level = np.cumsum(np.where(events.kind == Kind.ALLOC, events.size, 0) - np.where(np.isin(events.kind, ends), events.size, 0))
    reserved = np.cumsum(np.where(grows, events.size, 0) - np.where(np.isin(events.kind, GIVES_BACK), events.size, 0))
    if final is not None:
        held = final.requested if Kind.FREE_REQUESTED not in ends else int(final.blocks.requested[final.blocks.state == 1].sum())
        level, reserved = level + (held - int(level[-1])), reserved + (final.reserved - int(reserved[-1]))
    above = level > reserved
    if above.any():
        text = f"more bytes are {device.basis} than are reserved"
        yield Finding(device.device, int(above.argmax()), "above_reserved", text, "error", int(above.sum()))
