"""Summaries of peaks: the facts about a device, who holds its bytes, and its steady state."""

from __future__ import annotations

from collections.abc import Sequence

from lifecycle_sim.events import Category
from lifecycle_sim.output.summary import Record, summarise
from lifecycle_sim.output.summary_steady import steady_record
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.attribution import Attribution, attribute
from lifecycle_sim.replay.steady import steady_state


def default_by(replayed: DeviceReplay) -> str | None:
    """What to share a level out by when nobody said.

    In a scenario the names of storages; in a recording owners where stacks are known, else labels, else categories, else sizes; where
    events carry no identity, categories or nothing.
    """
    found, categories = replayed.lifetimes, replayed.recorded.events.category
    if found is not None and replayed.trace.format == "scenario" and (found.label >= 0).any():
        return "label"
    if found is not None and (found.stack >= 0).any():
        return "owner"
    if found is not None and (found.label >= 0).any():
        return "label"
    return "category" if (categories != Category.UNKNOWN).any() else None if found is None else "size"


def owners_record(replayed: DeviceReplay, attribution: Attribution) -> Record:
    """Who holds the bytes at an event; the shares add up to the level. ``frames`` is the stack of a share's biggest storage."""
    stacks = replayed.trace.stacks
    return {
        "by": attribution.by,
        "event": attribution.event,
        "time": attribution.time,
        "bytes": attribution.total,
        "groups": attribution.groups,
        "shares": [
            {
                "key": share.key,
                "bytes": share.size,
                "count": share.count,
                "frames": [str(frame) for frame in stacks.frames_of(share.stack)],
            }
            for share in attribution.shares
        ],
    }


def peak_summary(
    replayed: DeviceReplay,
    by: str | None = None,
    at: int | None = None,
    top: int = 10,
    steps: Sequence[int] | str | None = None,
    capacity: int | None = None,
) -> Record:
    """Return the facts about a device, with who holds its bytes and its steady state.

    Args:
        replayed: what was recorded on the device.
        by: what to share the level out by; by default what :func:`default_by` says.
        at: the event after which; by default the peak.
        top: how many shares to name.
        steps: where steps end, or the annotation that names them; by default they are looked for.
        capacity: bytes to compare the peaks with.

    Raises:
        InputError: there is no such event, the level cannot be shared out by *by*, or *steps* does not fit.
    """
    chosen = default_by(replayed) if by is None else by
    owners = None if chosen is None else owners_record(replayed, attribute(replayed, chosen, at, top))
    steady = steady_record(steady_state(replayed, steps, top))
    return summarise(replayed, capacity) | {"owners": owners, "steady_state": steady}
