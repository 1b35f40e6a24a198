"""Summaries: results as records of plain data, ready for JSON, from which the tables for people are made too.

Every record is a dict whose keys have a fixed order and whose values are strings, integers, booleans, None, lists and such dicts; bytes
are integers. Its size does not grow with the number of events.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lifecycle_sim.events import Assumption, MemoryState, Trace
from lifecycle_sim.output.summary_moments import oom_record, reached_record
from lifecycle_sim.output.verdict import verdict
from lifecycle_sim.replay import DeviceReplay, Peak, Timeline

Record = dict[str, Any]


def document(command: str, trace: Trace, source: str, devices: Iterable[Record], **more: Any) -> Record:
    """Return the versioned document that *command* answers with."""
    return {"schema": f"lifecycle-sim/{command}/1", "source": source_record(trace, source), "devices": list(devices), **more}


def source_record(trace: Trace, source: str) -> Record:
    """What was read: the name that was asked for, and what it turned out to be."""
    return {
        "name": source,
        "format": trace.format,
        "release": trace.release,
        "evidence": str(trace.evidence),
        "clock": str(trace.clock),
        "devices": [recorded.device for recorded in trace],
        "events": len(trace),
    }


def summarise(replayed: DeviceReplay, capacity: int | None = None) -> Record:
    """Return the facts about one device: peak, levels, out-of-memory entries, assumptions, reconciliation, verdict.

    Args:
        replayed: what was recorded on the device.
        capacity: bytes to compare the peaks with; by default the capacity that the source states, if any.
    """
    timeline = replayed.timeline
    return {
        "device": replayed.device,
        "events": len(timeline),
        "basis": str(timeline.basis),
        "evidence": str(timeline.evidence),
        **certainty_record(replayed),
        "peak": peak_record(replayed.peak),
        "reached_by": reached_record(replayed),
        "start": timeline.start,
        "start_bounds": list(replayed.start_bounds),
        "end": timeline.end,
        "time": time_record(replayed),
        "reserved": None if replayed.reserved is None else levels_record(replayed.reserved),
        "recorded_end": None if replayed.recorded.final is None else state_record(replayed.recorded.final),
        "storages": storages_record(replayed),
        "oom": oom_record(replayed),
        "assumptions": [assumption_record(assumption) for assumption in replayed.assumptions],
        "reconciliation": reconciliation_record(replayed),
        "capacity": capacity_record(replayed, capacity),
    }


def certainty_record(replayed: DeviceReplay) -> Record:
    """Whether there is more than a state, and whether levels count from an unknown start."""
    return {"history": replayed.history, "relative": replayed.relative}


def peak_record(peak: Peak) -> Record:
    """A peak with its first event and its bounds."""
    return {
        "bytes": peak.size,
        "event": peak.event,
        "time": peak.time,
        "exact": peak.exact,
        "lower": peak.lower,
        "upper": peak.upper,
    }


def time_record(replayed: DeviceReplay) -> Record | None:
    """The times of the first and the last event in the trace's clock, None where there is no clock or no event.

    ``from_zero`` tells times that count from a zero of the source's own, as a scenario's do, from those that count from an epoch.
    """
    first, last = replayed.time_of(min(0, len(replayed.timeline) - 1)), replayed.time_of(len(replayed.timeline) - 1)
    return None if first is None or last is None else {"first": first, "last": last, "from_zero": replayed.trace.times_from_zero}


def levels_record(timeline: Timeline) -> Record:
    """Start, end and peak of a timeline."""
    return {"start": timeline.start, "end": timeline.end, "peak": {"bytes": timeline.peak_size, "event": timeline.peak_event}}


def state_record(state: MemoryState) -> Record:
    """The recorded end state in all four ways of counting."""
    return {"requested": state.requested, "allocated": state.allocated, "active": state.active, "reserved": state.reserved}


def storages_record(replayed: DeviceReplay) -> Record | None:
    """How many storages there were, None where events carry no identity."""
    found = replayed.lifetimes
    if found is None:
        return None
    return {
        "count": len(found),
        "before_window": int(found.before_window.sum()),
        "never_freed": int(found.leaked.sum()),
        "unidentified_bytes": replayed.unidentified,
    }


def assumption_record(assumption: Assumption) -> Record:
    """Something that had to be assumed."""
    return {"code": assumption.code, "count": assumption.count, "bytes": assumption.size, "text": assumption.text}


def reconciliation_record(replayed: DeviceReplay) -> Record:
    """How the replayed end differs from the recorded one: by the recorded events alone, and with the lost ones placed."""
    told = replayed.reconciliation
    return {
        "replayed_end": told.replayed_end,
        "recorded_end": told.recorded_end,
        "difference": told.difference,
        "difference_with_losses_placed": None if told.recorded_end is None else replayed.timeline.end - told.recorded_end,
    }


def capacity_record(replayed: DeviceReplay, capacity: int | None) -> Record | None:
    """The verdict against *capacity* bytes, or against the source's own capacity; None where neither is given."""
    limit = replayed.recorded.capacity if capacity is None else capacity
    if limit is None:
        return None
    judged = verdict(replayed, limit)
    levels = [{"level": each.level, "bytes": each.size, "upper": each.upper, "overflow": each.overflow} for each in judged.levels]
    return {"bytes": limit, "given": capacity is not None, "fits": judged.fits, "levels": levels}


def all_fit(devices: Iterable[Record]) -> bool | None:
    """Whether all *devices* that have a capacity fit: False if one does not; None if that cannot be told, or none has a capacity."""
    answers = [device["capacity"]["fits"] for device in devices if device["capacity"] is not None]
    return False if False in answers else None if None in answers or not answers else True


def surely_fit(devices: Iterable[Record]) -> bool:
    """Whether every one of *devices* that has a capacity surely fits."""
    return all(device["capacity"] is None or device["capacity"]["fits"] is True for device in devices)
