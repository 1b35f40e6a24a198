"""Summaries of recordings replayed by the allocator: what it predicted, the four levels, where reserved bytes go."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Trace
from lifecycle_sim.output.summary import Record, assumption_record, state_record
from lifecycle_sim.replay.allocator.recording import OpenLoop, open_loop
from lifecycle_sim.replay.allocator.settings import AllocatorSettings
from lifecycle_sim.replay.allocator.waste import waste

LEVELS = ("requested", "allocated", "active", "reserved")


def allocator_record(trace: Trace, told: OpenLoop, at: int | None = None) -> Record:
    """Return what came of replaying one device.

    Args:
        trace: the recording.
        told: the replay of all its events.
        at: the event after which reserved bytes are shared out, -1 for the start; by default the peak of reserved bytes.

    Raises:
        InputError: there is no such event.
    """
    return {
        "device": told.device,
        "events": told.events,
        "compared": told.compared,
        "exact": told.exact,
        "allocator": _chosen_record(told),
        "predicted": {name: asdict(score) for name, score in told.scores.items()},
        "layout": None if told.layout is None else {"equal": told.layout.equal, **asdict(told.layout)},
        "reserved_error": told.reserved_error,
        "differences": {"count": told.difference_count, "first": [asdict(each) for each in told.differences]},
        "levels": {name: _level_record(told, name) for name in LEVELS},
        "start": state_record(told.start.state) | _start_record(told),
        "waste": _waste_record(trace, told, int(np.argmax(told.levels.reserved)) - 1 if at is None else at),
        "assumptions": [assumption_record(each) for each in told.assumptions],
    }


def reproduced(devices: list[Record]) -> bool:
    """Whether every device was reproduced exactly."""
    return all(device["exact"] for device in devices)


def _chosen_record(told: OpenLoop) -> Record:
    """Release and settings; of the settings those that differ from PyTorch's defaults."""
    chosen, defaults = told.chosen, asdict(AllocatorSettings())
    changed = {name: value for name, value in asdict(chosen.settings).items() if value != defaults[name]}
    if "roundup_power2_divisions" in changed:
        changed["roundup_power2_divisions"] = list(changed["roundup_power2_divisions"])
    return {
        "release": str(chosen.release),
        "release_given": chosen.given,
        "release_told": chosen.told,
        "options": chosen.options,
        "settings": changed,
    }


def _level_record(told: OpenLoop, name: str) -> Record:
    """Start, end and peak of a level; ``upper`` is what the peak may be at most, for what the recording leaves open."""
    levels = getattr(told.levels, name)
    upper = levels + told.slack if name in ("allocated", "active") else levels
    event = int(np.argmax(levels)) - 1
    return {
        "start": int(levels[0]),
        "end": int(levels[-1]),
        "peak": {"bytes": int(levels[event + 1]), "event": event, "upper": int(upper.max())},
    }


def _start_record(told: OpenLoop) -> Record:
    state, sizes = told.start.state, told.start.open_sizes
    return {
        "segments": len(state.segments),
        "blocks": len(state.blocks),
        "open_sizes": {"count": len(sizes), "settled": sum(size.settled_by is not None for size in sizes)},
    }


def _waste_record(trace: Trace, told: OpenLoop, event: int) -> Record:
    if not -1 <= event < told.events:
        raise InputError(f"event {event} is not in the recording: it has events 0 to {told.events - 1}, and -1 for the start")
    there = told.start.state if event < 0 else open_loop(trace, told.device, told.chosen.release, stop=event + 1).final
    shared = waste(there, told.chosen.settings, told.chosen.release)
    return {
        "event": event,
        "reserved": shared.reserved,
        "requested": shared.requested,
        "internal": {"bytes": shared.internal, "rounding": shared.rounding, "tails": shared.tails},
        "external": {"bytes": shared.external, "pieces": shared.pieces, "whole": shared.whole, "largest_piece": shared.largest_piece},
        "pending": shared.pending,
    }
