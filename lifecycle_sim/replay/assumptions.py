"""Puts into words what a replay had to assume."""

from __future__ import annotations

import numpy as np

from lifecycle_sim.events import Assumption, DeviceTrace, Kind
from lifecycle_sim.events.trace import Bool
from lifecycle_sim.replay.lifetimes import Lifetimes
from lifecycle_sim.replay.loss import Gap
from lifecycle_sim.replay.pairing import release_kinds
from lifecycle_sim.replay.timeline import Timeline

NO_HISTORY = (
    "no allocation or free was recorded: this is what was held when the snapshot was taken, and whether it was ever more cannot be told; "
    "record with torch.cuda.memory: _record_memory_history(max_entries=1000000) before the model is built, _dump_snapshot(path) after the "
    "peak; that also tells which allocation failed"
)


def is_relative(recorded: DeviceTrace) -> bool:
    """Whether levels count from an unknown start: it is not recorded, and neither is an end that storages could be followed back from."""
    return recorded.start is None and (recorded.final is None or not recorded.identified)


def assumptions_of(
    recorded: DeviceTrace, found: Lifetimes | None, gaps: tuple[Gap, ...], start: int, timeline: Timeline, history: bool
) -> tuple[Assumption, ...]:
    """Return what had to be assumed to replay *recorded*, in the order in which it matters; without *history*, that it is only a state."""
    if not history:
        return (Assumption("no_history", 0 if found is None else len(found), NO_HISTORY, timeline.end),)
    told: list[Assumption] = []
    relative = is_relative(recorded)
    if found is not None:
        told += _losses(found, gaps)
        told += _older_than_window(found)
        unidentified = start - int(found.size[found.before_window].sum(dtype=object))
        if unidentified:
            text = "bytes were there before the first event and belong to no storage that the recording names"
            told.append(Assumption("unidentified_start", 1, text, unidentified))
        if relative:
            text = "no final state was recorded: storages that live through the whole window without an event are not counted"
            told.append(Assumption("no_final_state", 1, text))
    elif relative:
        told.append(Assumption("relative_level", 1, "the level before the first event is not recorded: all levels are relative to it"))
    if int(timeline.levels.min()) < 0 and not relative:
        below = int((timeline.levels < 0).sum())
        told.append(Assumption("negative_level", below, "the level falls below zero: more was freed than the recording accounts for"))
    return tuple(told + _missing_actions(recorded))


def _missing_actions(recorded: DeviceTrace) -> list[Assumption]:
    seen = np.bincount(recorded.events.kind, minlength=len(Kind))
    if Kind.FREE_REQUESTED in release_kinds(recorded):
        text = "free_completed was not recorded: bytes are taken as free once the free was requested"
        return [Assumption("free_requested_as_free", int(seen[Kind.FREE_REQUESTED]), text)]
    if seen[Kind.FREE_COMPLETED] > 1 and not seen[Kind.FREE_REQUESTED]:
        text = "free_requested was not recorded: how long a free was pending cannot be told"
        return [Assumption("no_free_requested", int(seen[Kind.FREE_COMPLETED]), text)]
    return []


def _losses(found: Lifetimes, gaps: tuple[Gap, ...]) -> list[Assumption]:
    told = []
    if gaps:
        places = ", ".join(f"event {gap.position}" for gap in gaps[:3]) + (f" and {len(gaps) - 3} more" if len(gaps) > 3 else "")
        text = f"the recording lost events; the fewest gaps that explain it lie before {places}; what lived and died inside one is not seen"
        told.append(Assumption("gap", len(gaps), text))
    for code, lost, text in (
        ("lost_free", found.lost_free, "storages were allocated and their free was not recorded; it is placed in a gap"),
        (
            "lost_alloc",
            found.lost_alloc,
            "storages were freed or live at the end and their allocation was not recorded; it is placed in a gap",
        ),
    ):
        if lost.any():
            told.append(_counted(code, lost, text, found))
    unsettled = (found.alloc_earliest < 0) & (found.alloc_latest >= 0)
    if unsettled.any():
        text = "storages were live before the window or came to life in a gap: the recording does not tell which"
        told.append(_counted("start_unsettled", unsettled, text, found))
    return told


def _older_than_window(found: Lifetimes) -> list[Assumption]:
    told = []
    older = found.before_window
    if (freed := older & ~found.leaked).any():
        text = "storages are freed without an allocation: they were live before the first event"
        told.append(_counted("freed_without_alloc", freed, text, found))
    if (kept := older & found.leaked).any():
        text = "storages are live at the end without an event: they were live throughout"
        told.append(_counted("live_throughout", kept, text, found))
    return told


def _counted(code: str, chosen: Bool, text: str, found: Lifetimes) -> Assumption:
    return Assumption(code, int(np.count_nonzero(chosen)), text, int(found.size[chosen].sum(dtype=object)))
