"""Replays one device of a trace: what it means, how certain that is, and what had to be assumed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Assumption, Clock, DeviceTrace, Kind, Span, Trace
from lifecycle_sim.events.kinds import GIVES_BACK, TAKES
from lifecycle_sim.replay.assumptions import assumptions_of, is_relative
from lifecycle_sim.replay.lifetimes import Lifetimes, lifetimes
from lifecycle_sim.replay.loss import Gap
from lifecycle_sim.replay.pairing import release_kinds
from lifecycle_sim.replay.timeline import Peak, Timeline, accumulate_levels
from lifecycle_sim.units import format_exact


@dataclass(frozen=True)
class Reconciliation:
    """The replayed end state against the recorded one, in requested bytes.

    Attributes:
        start: level before the first event.
        change: what the recorded events add to it.
        recorded_end: level of the recorded final state, None where there is none.
    """

    start: int
    change: int
    recorded_end: int | None

    @property
    def replayed_end(self) -> int:
        """Where the recorded events lead from the start."""
        return self.start + self.change

    @property
    def difference(self) -> int | None:
        """By how many bytes the replayed end differs from the recorded one; None if no end was recorded."""
        return None if self.recorded_end is None else self.replayed_end - self.recorded_end


@dataclass(frozen=True, eq=False)
class DeviceReplay(Shown):
    """What the events of one device mean.

    Attributes:
        trace: the whole trace.
        recorded: the device's own record in it.
        timeline: level of the record's basis (requested, payload or allocated bytes) over events.
        reserved: bytes held from the device over events, None where the record tells nothing of segments.
        peak: maximum of ``timeline``, with bounds.
        lifetimes: one row a storage, None where events carry no identity.
        unidentified: bytes that were there throughout but belong to no storage that could be named.
        gaps: where the recording lost events.
        reconciliation: replayed end against recorded end.
        assumptions: everything that had to be assumed, in reading and in replaying.
    """

    trace: Trace
    recorded: DeviceTrace
    timeline: Timeline
    reserved: Timeline | None
    peak: Peak
    lifetimes: Lifetimes | None
    unidentified: int
    gaps: tuple[Gap, ...]
    reconciliation: Reconciliation
    assumptions: tuple[Assumption, ...]

    @property
    def device(self) -> str:
        """The device's name."""
        return self.recorded.device

    @property
    def history(self) -> bool:
        """Whether allocations and frees were recorded. If not, the level is the one of the recorded state, and nobody knows the peak."""
        return told_of_changes(self.trace, self.recorded)

    @property
    def relative(self) -> bool:
        """Whether all levels count from a start that is not known, because neither it nor the state at the end was recorded."""
        return is_relative(self.recorded)

    def __repr__(self) -> str:
        peak = self.peak
        bounds = "" if peak.exact else f" (between {peak.lower:,} and {'unknown' if peak.upper is None else format(peak.upper, ',')})"
        return (
            f"DeviceReplay({self.device!r}, {len(self.recorded.events):,} events, "
            f"peak {peak.size:,} B {self.timeline.basis} after event {peak.event}{bounds}, {len(self.assumptions)} assumptions)"
        )

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows: device, levels, and each assumption in a line of its own."""
        told = [("device", self.device), *self.timeline.facts()]
        if not self.history:
            told = [("held at the snapshot" if name == "peak" else name, value) for name, value in told if name not in ("start", "end")]
        if not self.peak.exact:
            upper = "unknown" if self.peak.upper is None else format_exact(self.peak.upper)
            told.insert(2, ("bounds", f"{format_exact(self.peak.lower)} to {upper}"))
        if self.reserved is not None:
            told.append(("reserved peak", format_exact(self.reserved.peak_size)))
        if self.reconciliation.difference is not None:
            told.append(("replayed end − recorded end", format_exact(self.reconciliation.difference)))
        return told + [("assumed", f"{each.count:,}: {each.text}") for each in self.assumptions]

    @property
    def start_bounds(self) -> tuple[int, int | None]:
        """The least and the greatest level before the first event that the recording allows; equal where it is certain, None if unknown."""
        if self.relative:
            return self.timeline.start, None
        if self.lifetimes is None or not self.gaps:
            return self.timeline.start, self.timeline.start
        found = self.lifetimes
        surely, maybe = found.alloc_latest < 0, found.alloc_earliest < 0
        return self.unidentified + int(found.size[surely].sum(dtype=object)), self.unidentified + int(found.size[maybe].sum(dtype=object))

    def time_of(self, event: int) -> int | None:
        """Return the time of *event* in the trace's clock, None if there is no clock or the event is -1."""
        return _time_of(self.trace, self.recorded, event)

    def identified_lifetimes(self) -> Lifetimes:
        """Return the lifetimes, or say why there are none.

        Raises:
            InputError: the record's events carry no identity.
        """
        if self.lifetimes is None:
            raise InputError(
                f"{self.device}: this {self.trace.format} record has amounts without identities, so lifetimes and owners cannot be told; "
                "timeline and peak can. Record addresses (torch.profiler with profile_memory, or a memory snapshot) to have them"
            )
        return self.lifetimes

    def stream_timelines(self) -> dict[int, Timeline]:
        """Return one timeline for each stream, by its raw handle; they add up to ``timeline`` less ``unidentified``."""
        found = self.identified_lifetimes()
        return {
            int(stream): Timeline(found.levels(found.stream == stream), self.timeline.basis, self.timeline.evidence)
            for stream in np.unique(found.stream)
        }

    def span_peak(self, span: Span) -> Peak:
        """Return the peak inside *span*: the highest level from just before its first event to just after its last."""
        window = self.timeline.levels[span.start : span.stop + 1]
        event = span.start - 1 + int(np.argmax(window))
        size = lower = self.timeline.at(event)
        if self.gaps and self.lifetimes is not None:
            lower = min(size, int(self.lifetimes.lower_levels()[span.start : span.stop + 1].max()) + self.unidentified)
        return Peak(size, event, self.time_of(event), lower, size if self.peak.exact else None)


def told_of_changes(trace: Trace, recorded: DeviceTrace) -> bool:
    """Whether *trace* holds more of a device than a state: an allocation or a free of any device shows that recording was on for all."""
    kinds = (Kind.ALLOC, Kind.FREE, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED)
    return recorded.final is None or any(np.isin(other.events.kind, kinds).any() for other in trace)


def replay_device(trace: Trace, device: str | int | None = None) -> DeviceReplay:
    """Replay one device of *trace*.

    Args:
        trace: the trace.
        device: its name, such as ``"cuda:1"``, or 1 for that; by default the device with the highest peak.

    Raises:
        InputError: there is no such device, the trace has none at all, or it is no Trace.
    """
    _require_trace(trace)
    if device is not None:
        return _replay(trace, trace.device(device))
    return max(replay_all(trace), key=lambda replayed: replayed.peak.size)


def replay_all(trace: Trace) -> tuple[DeviceReplay, ...]:
    """Replay every device of *trace*, in its order.

    Raises:
        InputError: the trace has no device with events or a recorded state, or it is no Trace.
    """
    _require_trace(trace)
    if not trace.devices:
        raise InputError(f"this {trace.format} trace is empty: no device has events or a recorded state, so there is nothing to replay")
    return tuple(_replay(trace, recorded) for recorded in trace.devices)


def _require_trace(trace: object) -> None:
    if not isinstance(trace, Trace):
        raise InputError(f"what is replayed is a Trace, not {type(trace).__name__}: read a recording with read_trace(path) first")


def _time_of(trace: Trace, recorded: DeviceTrace, event: int) -> int | None:
    return None if event < 0 or trace.clock is Clock.NONE else int(recorded.events.time[event])


def _replay(trace: Trace, recorded: DeviceTrace) -> DeviceReplay:
    events = recorded.events
    change = np.where(events.kind == Kind.ALLOC, events.size, 0) - np.where(np.isin(events.kind, release_kinds(recorded)), events.size, 0)
    found, gaps = lifetimes(recorded) if recorded.identified else (None, ())
    older = int(found.size[found.before_window].sum(dtype=object)) if found is not None else 0
    start = max(older, recorded.start or 0)
    if found is not None and gaps:
        levels = found.levels() + (start - older)
    else:
        levels = accumulate_levels(start, change)
    timeline = Timeline(levels, recorded.basis, trace.evidence)
    reserved = _reserved(trace, recorded)
    history = told_of_changes(trace, recorded)
    total_change = int(change.sum(dtype=object)) if gaps else timeline.end - timeline.start
    recorded_end = recorded.final.requested if recorded.final is not None else None
    return DeviceReplay(
        trace=trace,
        recorded=recorded,
        timeline=timeline,
        reserved=reserved,
        peak=_peak(trace, recorded, timeline, reserved, found if gaps else None, start - older, history),
        lifetimes=found,
        unidentified=start - older,
        gaps=gaps,
        reconciliation=Reconciliation(start, total_change, recorded_end),
        assumptions=trace.assumptions + assumptions_of(recorded, found, gaps, start, timeline, history),
    )


def _reserved(trace: Trace, recorded: DeviceTrace) -> Timeline | None:
    """Bytes held from the device, anchored on the recorded segments, or on an empty start where the record is complete."""
    events = recorded.events
    grows = np.isin(events.kind, TAKES)
    shrinks = np.isin(events.kind, GIVES_BACK)
    if recorded.final is None and not (recorded.start == 0 and grows.any()):
        return None
    change = np.where(grows, events.size, 0) - np.where(shrinks, events.size, 0)
    start = 0 if recorded.final is None else recorded.final.reserved - int(change.sum())
    return Timeline(accumulate_levels(start, change), "reserved", trace.evidence)


def _peak(
    trace: Trace,
    recorded: DeviceTrace,
    timeline: Timeline,
    reserved: Timeline | None,
    lossy: Lifetimes | None,
    unidentified: int,
    history: bool,
) -> Peak:
    """The peak of *timeline*; where events were lost, bounded below by the least levels and above by what was reserved.

    Nothing bounds the peak of a state without history from above. Nor of levels that count from an unknown start, which is at least so
    high that none of them is below zero.
    """
    size, event = timeline.peak_size, timeline.peak_event
    time = _time_of(trace, recorded, event)
    if not history:
        return Peak(size, event, time, size, None)
    if is_relative(recorded):
        return Peak(size, event, time, size - min(0, int(timeline.levels.min())), None)
    if lossy is None:
        return Peak(size, event, time, size, size)
    lower = min(size, int(lossy.lower_levels().max()) + unidentified)
    upper = None if reserved is None else max(size, int(lossy.upper_levels().max()) + unidentified, reserved.peak_size)
    return Peak(size, event, time, lower, upper)
