"""Makes a smaller trace of a large one: a window of its events, and its largest storages."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import DeviceTrace, Events, MemoryState, Span, Trace
from lifecycle_sim.events.trace import Bool, Int64
from lifecycle_sim.replay.allocator.recording import replayable
from lifecycle_sim.replay.belonging import NOBODY, OF_STORAGES, storage_of_events
from lifecycle_sim.replay.device import DeviceReplay, replay_all, replay_device
from lifecycle_sim.replay.lifetimes import Lifetimes
from lifecycle_sim.replay.moment import moment
from lifecycle_sim.replay.placement import live_after, placed
from lifecycle_sim.replay.regions import regions
from lifecycle_sim.replay.tiling import Live, tile
from lifecycle_sim.units import format_bytes


@dataclass(frozen=True)
class Excerpt:
    """A smaller trace, and what was left out or had to be made up, a line each."""

    trace: Trace
    notes: tuple[str, ...]


def excerpt(
    trace: Trace, device: str | int | None = None, window: tuple[int | None, int | None] | None = None, largest: int | None = None
) -> Excerpt:
    """Return the part of *trace* that was asked for.

    Args:
        trace: the trace.
        device: keep this device alone; by default all of them.
        window: the first event to keep and the one to stop before, None for the ends of the record. Levels inside are those of the
            whole record. What is live after the window is in its final state.
        largest: how many storages to keep of each device, those with the most bytes that live in the window; of equals the older.

    Raises:
        InputError: there is no such device; several have events and a window was asked for; the window is not within the record; or
            identities that are needed are missing.
    """
    if window is None and largest is None:
        return Excerpt(trace if device is None else replace(trace, devices=(trace.device(device),)), ())
    if window is not None and device is None and len(trace.devices) > 1:
        names = ", ".join(each.device for each in trace.devices)
        raise InputError(f"a window of events is one of a device, and this trace has {len(trace.devices)}: choose one of {names}")
    notes: list[str] = []
    devices = []
    for replayed in replay_all(trace) if device is None else (replay_device(trace, device),):
        recorded = replayed.recorded
        if window is not None:
            recorded = _window(replayed, *_bounds(recorded, *window), notes)
            replayed = replay_device(replace(trace, devices=(recorded,)), recorded.device)
        if largest is not None:
            recorded = _largest(replayed, largest, notes)
        devices.append(recorded)
    return Excerpt(replace(trace, devices=tuple(devices)), tuple(notes))


def _bounds(recorded: DeviceTrace, first: int | None, stop: int | None) -> tuple[int, int]:
    n = len(recorded)
    low, high = 0 if first is None else first, n if stop is None else stop
    if not (0 <= low < high <= n or (low, high) == (0, n)):
        raise InputError(
            f"{recorded.device}: no events from {low:,} to before {high:,}: it has {n:,} events, numbered from 0, so take two numbers "
            f"from 0 to {n:,}, the smaller first"
        )
    return low, high


def _window(replayed: DeviceReplay, first: int, stop: int, notes: list[str]) -> DeviceTrace:
    recorded, n = replayed.recorded, len(replayed.recorded)
    if (first, stop) == (0, n):
        return recorded
    chosen = np.zeros(n, np.bool_)
    chosen[first:stop] = True
    notes.append(
        f"{recorded.device}: kept events {first:,} to {stop - 1:,}, numbered from 0 again; "
        f"left out {n - (stop - first):,} of {n:,} events, {first:,} before them and {n - stop:,} after"
    )
    if replayed.lifetimes is None:
        return replace(_only(recorded, chosen, first, stop, notes), start=int(replayed.timeline.levels[first]), final=None)
    made_up = None
    if recorded.final is None:
        prepared = placed(replayed)
        made_up = prepared.made_up
        notes.append(f"{recorded.device}: {prepared.made_up}")
        recorded = prepared.recorded
        if stop < n:
            replayed = replay_device(replace(replayed.trace, devices=(recorded,)), recorded.device)
    final = recorded.final if stop == n else _state_after(replayed, stop - 1, made_up, notes)
    return replace(_only(recorded, chosen, first, stop, notes), start=None, final=final)


def _state_after(replayed: DeviceReplay, event: int, made_up: str | None, notes: list[str]) -> MemoryState:
    """The state after *event*: that of the allocator, where it reproduces the recording; else one that is put together.

    For that the segments are walked back from the end, and the live storages put into them.
    """
    recorded, found = replayed.recorded, replayed.identified_lifetimes()
    if made_up is None and (exact := _state_by_the_allocator(replayed, event)) is not None:
        return exact
    owner = storage_of_events(recorded.events, found)
    live = live_after(recorded, found, owner, event)
    final, known = recorded.final, found.live_at(event) & found.leaked
    if final is not None and known.any():
        live = _with_known_blocks(live, found.address[known], final)
    state, without_room = tile(regions(recorded).at(event), live)
    notes.append(
        f"{recorded.device}: the blocks after the window are put together from what was live: "
        "those freed later are as large as the request rounded up to 512 bytes"
    )
    if without_room:
        notes.append(f"{recorded.device}: {without_room:,} storages after the window had no room among the others and are left out")
    return state


def _state_by_the_allocator(replayed: DeviceReplay, event: int) -> MemoryState | None:
    """The state after *event* as the allocator has it, None where it does not reproduce the recording."""
    if replayed.device not in replayable(replayed.trace):
        return None
    try:
        exact = moment(replayed, event)
    except InputError:  # the record's release or settings are none that the allocator knows
        return None
    return None if exact.differences else exact.state


def _with_known_blocks(live: Live, unfreed: Int64, final: MemoryState) -> Live:
    """Give storages that are live to the end the size that their block has there."""
    active = np.flatnonzero(final.blocks.state > 0)
    active = active[np.argsort(final.blocks.address[active], kind="stable")]
    at = np.searchsorted(final.blocks.address[active], live.address)
    row = active[np.minimum(at, len(active) - 1)] if len(active) else np.zeros(len(live), np.int64)
    if not len(active):
        return live
    same = (final.blocks.address[row] == live.address) & np.isin(live.address, unfreed) & (final.blocks.requested[row] == live.requested)
    return replace(live, size=np.where(same, final.blocks.size[row], live.size))


def _largest(replayed: DeviceReplay, count: int, notes: list[str]) -> DeviceTrace:
    recorded, found = replayed.recorded, replayed.identified_lifetimes()
    if count >= len(found) and not replayed.unidentified:
        return recorded
    kept = np.zeros(len(found), np.bool_)
    kept[np.lexsort((found.alloc, -found.size))[:count]] = True
    owner = storage_of_events(recorded.events, found)
    about_storages = np.isin(recorded.events.kind, OF_STORAGES)
    chosen = ~about_storages | ((owner != NOBODY) & np.append(kept, False)[owner])
    left_out, size = int((~kept).sum()), int(found.size[~kept].max(initial=0))
    at_peak = int(found.size[~kept & found.live_at(replayed.peak.event)].sum(dtype=object)) + replayed.unidentified
    notes.append(
        f"{recorded.device}: kept the largest {int(kept.sum()):,} of {len(found):,} storages; left out {left_out:,} of "
        f"{format_bytes(size)} at most with {int((~chosen).sum()):,} events, {format_bytes(at_peak)} together at the peak"
    )
    start = None if recorded.start is None else int(found.size[kept & found.before_window].sum(dtype=object))
    result = replace(_only(recorded, chosen, 0, len(recorded), notes), start=start)
    if recorded.final is None:
        return result
    return replace(result, final=_without(recorded.final, found, kept))


def _without(final: MemoryState, found: Lifetimes, kept: Bool) -> MemoryState:
    """Return *final* with the blocks of storages that are not *kept* free."""
    blocks = final.blocks
    stays = (blocks.state > 0) & np.isin(blocks.address, found.address[kept & found.leaked])
    rows = np.flatnonzero(stays)
    live = Live(
        address=blocks.address[rows],
        requested=blocks.requested[rows],
        size=blocks.size[rows],
        state=blocks.state[rows],
        stack=blocks.stack[rows],
        category=blocks.category[rows],
        stream=final.segments.stream[blocks.segment[rows]],
        pool=final.segments.pool[blocks.segment[rows]],
    )
    return tile(final.segments, live)[0]


def _only(recorded: DeviceTrace, chosen: Bool, low: int, high: int, notes: list[str]) -> DeviceTrace:
    """Return *recorded* with the *chosen* events alone, from *low* to before *high*; spans with neither end there are dropped."""
    events = Events(*(getattr(recorded.events, column.name)[chosen] for column in fields(Events)))
    position = np.concatenate([np.zeros(1, np.int64), np.cumsum(chosen)])
    spans, dropped = [], 0
    for span in recorded.spans:
        begins, ends = low <= span.start < high or span.start == high == len(recorded), low < span.stop <= high or span.stop == low == 0
        if not begins and not ends:
            dropped += 1
            continue
        spans.append(Span(span.kind, span.name, int(position[span.start]), int(position[span.stop]), span.closed and begins and ends))
    if dropped:
        notes.append(f"{recorded.device}: left out {dropped:,} spans that neither begin nor end in what was kept")
    return replace(recorded, events=events, spans=tuple(sorted(spans, key=lambda span: (span.start, -span.stop))))
