"""Summaries of peaks: the facts about a device, who holds its bytes, and its steady state."""

from __future__ import annotations

from collections.abc import Sequence

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Category
from lifecycle_sim.output.summary import Record, summarise
from lifecycle_sim.output.summary_moments import failed_allocations, same_storages
from lifecycle_sim.output.summary_steady import steady_record
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.attribution import UNIDENTIFIED_KEY, Attribution, attribute
from lifecycle_sim.replay.grouping import BY_STACK, NOT_TOLD, OLDER_NO_STACK_KEY, SPAN_KINDS
from lifecycle_sim.replay.steady import steady_state

AT_OOM = "oom"
"""Stands for the last event at which an allocation failed."""

MUCH = 0.25
"""Part of a level from which on it is worth saying that it has no stacks."""


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
        "note": note_on(replayed, attribution),
    }


def note_on(replayed: DeviceReplay, attribution: Attribution) -> str | None:
    """What the recording lacks for the shares to tell more; None where they tell enough."""
    by, total = attribution.by, attribution.total
    held = {share.key: share.size for share in attribution.shares}
    if total and sum(held.get(key, 0) for key in (*NOT_TOLD, UNIDENTIFIED_KEY)) == total:
        return _nothing_told(replayed, by)
    older = held.get(OLDER_NO_STACK_KEY, 0)
    if older > MUCH * total:
        part = f"{100 * older / total:.1f} % is older than the window and has no stack"
        return f"{part}: start recording before the model is built to see its owners."
    return None


def _nothing_told(replayed: DeviceReplay, by: str) -> str:
    if by in SPAN_KINDS and not any(span.kind in SPAN_KINDS[by] for span in replayed.recorded.spans):
        return f"No {by} is recorded here, so the level cannot be shared out by {by}."
    if by in SPAN_KINDS:
        return f"Nothing that is held here was allocated inside a recorded {by}."
    if by in BY_STACK:
        return "No stack is recorded of what is held here: torch.cuda.memory._record_memory_history() records stacks from then on."
    return f"No {by} is recorded of what is held here, so the level cannot be shared out by {by}."


def event_of(replayed: DeviceReplay, at: int | str | None) -> int | None:
    """Return the event that *at* stands for: a number, ``"oom"`` for the last failed allocation, or None, which stays None.

    Raises:
        InputError: no allocation failed.
    """
    if at != AT_OOM:
        return None if at is None else int(at)
    failed = failed_allocations(replayed)
    if not len(failed):
        raise InputError(f"{replayed.device}: no failed allocation is recorded: say at which event instead")
    return int(failed[-1])


def peak_summary(
    replayed: DeviceReplay,
    by: str | None = None,
    at: int | str | None = None,
    top: int = 10,
    steps: Sequence[int] | str | None = None,
    capacity: int | None = None,
) -> Record:
    """Return the facts about a device, with who holds its bytes and its steady state.

    Args:
        replayed: what was recorded on the device.
        by: what to share the level out by; by default what :func:`default_by` says.
        at: the event after which, ``"oom"`` for the last failed allocation; by default the peak, and besides the last failed allocation
            where other storages were live then.
        top: how many shares to name.
        steps: where steps end, or the annotation that names them; by default they are looked for.
        capacity: bytes to compare the peaks with.

    Raises:
        InputError: there is no such event, the level cannot be shared out by *by*, or *steps* does not fit.
    """
    chosen = default_by(replayed) if by is None else by
    event = event_of(replayed, at)
    failed = failed_allocations(replayed)
    at_oom = at is None and len(failed) and not same_storages(replayed, replayed.peak.event, int(failed[-1]))

    def owners(event: int | None) -> Record | None:
        return None if chosen is None else owners_record(replayed, attribute(replayed, chosen, event, top))

    steady = steady_state(replayed, steps, top)
    record = summarise(replayed, capacity)
    if (reached := record["reached_by"]) is not None:
        held = [number for number, step in enumerate(steady.steps) if step.start <= reached["event"] < step.stop]
        reached["step"] = held[0] if held and len(steady.steps) > 1 else None
    return record | {
        "owners": owners(event),
        "owners_at_oom": owners(int(failed[-1])) if at_oom else None,
        "steady_state": steady_record(steady),
    }
