"""What a what-if had to assume, in words."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from lifecycle_sim.events import Assumption
from lifecycle_sim.replay.allocator.requests import Action

if TYPE_CHECKING:
    from lifecycle_sim.study.what_if import Question

_LOSSES = ("gap", "lost_free", "lost_alloc", "start_unsettled", "no_final_state", "unidentified_start")


def assumptions_of(question: Question, starts: Collection[str]) -> tuple[Assumption, ...]:
    """Return what had to be assumed to answer *question*, with rows that began in the ways of *starts*."""
    requests = question.requests
    told = [each for each in question.replayed.assumptions if each.code in _LOSSES]
    told += question.chosen
    if requests.older:
        size = int(requests.size[: requests.older].sum())
        if "rebuilt" in starts:
            text = (
                "storages are older than the window: rows that begin rebuilt find them where they lay, among the segments of the recording"
            )
            told.append(Assumption("older_rebuilt", requests.older, text, size))
        if "placed" in starts:
            text = (
                "storages are older than the window: rows that begin placed allocate them first, one after the other by address, on an "
                "empty device; what the cache held besides, and gaps left by earlier storages, are not there. A row begins rebuilt if its "
                "settings are the recorded ones and its capacity holds what was held"
            )
            told.append(Assumption("older_placed", requests.older, text, size))
    if question.capacity_from == "out of memory":
        text = "the capacity is what the allocator held and what the device had left when memory first ran out in the recording"
        told.append(Assumption("capacity_of_oom", 1, text, question.capacity))
    elif question.capacity is not None:
        text = "the whole capacity can be had: a CUDA context (often 300 to 600 MiB) and other processes on the device come off it"
        told.append(Assumption("capacity_is_free", 1, text, question.capacity))
    unbounded = question.capacity is None
    for action, code, text in (
        (
            Action.GIVE_UP,
            "late_free",
            "frees waited for another stream: they complete where they did in the recording, whatever the settings",
        ),
        (
            Action.FLUSH,
            "flush",
            "times segments were given back: that is taken for the program's empty_cache() and done again; such calls leave no trace "
            "where they give nothing back",
        ),
        (Action.DROP, "pool_dropped", "times a private pool gave segments back: that is taken for its end"),
        (
            Action.OWN_FLUSH,
            "own_flush",
            "times segments were given back before the device was asked again: that is done again at the same events, because no "
            "capacity tells when"
            if unbounded
            else "times the recorded allocator gave segments back before it asked the device again: here it does so when it has to",
        ),
        (
            Action.ATTEMPT,
            "attempt",
            "requests failed in the recording and are left out, because no capacity is known"
            if unbounded
            else "requests failed in the recording: they are made again, and given up at once where they succeed",
        ),
    ):
        if count := requests.count(action):
            told.append(Assumption(code, count, text))
    return tuple(told)
