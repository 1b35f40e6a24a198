"""What would have made a failed request fit: each remedy is tried by replaying the whole recording with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from lifecycle_sim.replay.allocator.device import GRANULARITY
from lifecycle_sim.replay.allocator.model import Allocator
from lifecycle_sim.replay.allocator.release import Release
from lifecycle_sim.replay.allocator.requests import Action
from lifecycle_sim.replay.allocator.rerun import Failure, ask_once
from lifecycle_sim.replay.allocator.rounding import MIN_BLOCK, SMALL_REQUEST
from lifecycle_sim.replay.allocator.settings import AllocatorSettings
from lifecycle_sim.study.what_if import Job, Question, run_job

MIB = 1 << 20
SPLIT_LIMITS = (32, 64, 128, 256, 512)
MEDIUM_REQUEST = 10 * MIB
"""Requests below this get a segment of a fixed size, so that a larger one may fit where a smaller one does not."""

Means = Literal["flush", "start", "settings", "capacity", "smaller request"]


@dataclass(frozen=True)
class Remedy:
    """Something that might have made it fit, and what came of it when it was replayed.

    Attributes:
        means: what kind of thing.
        name: an options string, or what was done.
        met: whether the request that failed was met.
        fits: whether every other request of the recording was met too; None where only the one request was tried.
        size: for ``capacity`` the bytes that the device needs more, for ``smaller request`` the bytes that had to be asked less.
        total: for ``capacity`` the capacity with them, for ``smaller request`` the largest request that is met.
        failure: where memory ran out instead, if it did.
    """

    means: Means
    name: str
    met: bool
    fits: bool | None
    size: int | None = None
    total: int | None = None
    failure: Failure | None = None


def remedies(question: Question, job: Job, failure: Failure, allocator: Allocator) -> tuple[Remedy, ...]:
    """Return what was tried against a failure.

    Args:
        question: the requests and their circumstances.
        job: the replay in which it failed.
        failure: where.
        allocator: as it was after the failure; it is changed.
    """
    return (
        _flush(job, failure),
        *_control(job, failure),
        *_other_settings(question, job, failure),
        *_more_capacity(job, failure),
        *_smaller_request(job, failure, allocator),
    )


def _tried(job: Job, failure: Failure, means: Means, name: str, **figures: int | None) -> Remedy:
    """Replay a job; tell whether it gets past the request that failed, and to the end."""
    came = run_job(job)[1].failure
    met = came is None or came.request > failure.request
    return Remedy(means, name, met, came is None, failure=came, **figures)


def _flush(job: Job, failure: Failure) -> Remedy:
    """``empty_cache()`` just before the request."""
    at, requests = failure.request, job.requests
    added = {"action": int(Action.FLUSH), "storage": -1, "size": 0, "stream": 0, "pool": 0, "event": failure.event}
    columns: dict[str, Any] = {name: np.insert(getattr(requests, name), at, value) for name, value in added.items()}
    later = replace(failure, request=at + 1)
    return _tried(replace(job, requests=replace(requests, **columns)), later, "flush", "empty_cache() just before")


def _other_settings(question: Question, job: Job, failure: Failure) -> list[Remedy]:
    """Expandable segments or none, and other split limits, on top of what was in force."""
    now = question.recorded
    limits = [limit * MIB for limit in SPLIT_LIMITS if limit * MIB >= now.large_segment_size and limit * MIB != now.max_split_size]
    others = [replace(now, expandable_segments=not now.expandable_segments)]
    others += [replace(now, max_split_size=limit) for limit in ([None] if now.max_split_size is not None else []) + limits]
    return [
        _tried(replace(job, settings=settings, beginning=None), failure, "settings", _changed(now, settings))
        for settings in others
        if not settings.expandable_segments or question.release >= Release(2, 1)
    ]


def _control(job: Job, failure: Failure) -> list[Remedy]:
    """The recorded settings, begun as the other settings must begin: what they do better than this is theirs."""
    return [] if job.beginning is None else [_tried(replace(job, beginning=None), failure, "start", "the recorded settings, begun placed")]


def _changed(now: AllocatorSettings, then: AllocatorSettings) -> str:
    """The option that differs, as one would write it."""
    if now.expandable_segments != then.expandable_segments:
        return f"expandable_segments:{then.expandable_segments}"
    return "no max_split_size_mb" if then.max_split_size is None else f"max_split_size_mb:{then.max_split_size // MIB}"


def _more_capacity(job: Job, failure: Failure) -> list[Remedy]:
    """The least capacity with which the request is met, and that with which all are."""
    found: list[Remedy] = []
    for name, enough in (
        ("more of the device (a smaller headroom)", lambda came: came is None or came.request > failure.request),
        ("more of the device, for all that follows too", lambda came: came is None),
    ):
        capacity = _least_capacity(job, enough)
        if capacity is not None and not (found and found[0].total == capacity):
            found.append(
                _tried(replace(job, capacity=capacity), failure, "capacity", name, size=capacity - (job.capacity or 0), total=capacity)
            )
    return found


def _least_capacity(job: Job, enough: Callable[[Failure | None], bool]) -> int | None:
    """The least multiple of the device's granularity with which a replay is good *enough* while it is not with one unit less."""

    def good(units: int) -> bool:
        return enough(run_job(replace(job, capacity=units * GRANULARITY))[1].failure)

    low = (job.capacity or 0) // GRANULARITY
    step = 1
    while not good(low + step):
        if (low + step) * GRANULARITY > 1 << 62:
            return None
        low, step = low + step, step * 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high * GRANULARITY


def _smaller_request(job: Job, failure: Failure, allocator: Allocator) -> list[Remedy]:
    """The largest smaller request that is met in its place; *allocator* is as it was after the failure.

    After a failure all that is whole has been given back, so that asking, freeing and flushing leaves everything as it was, and many sizes
    can be tried. PyTorch does not look among the free blocks again after that flush, though, so the answer is replayed from the start,
    and where it does not hold, every size is.
    """

    def met_afterwards(units: int) -> bool:
        address = ask_once(job.requests, allocator, failure.request, units * MIN_BLOCK)
        if address is None:
            return False
        allocator.free(address)
        allocator.empty_cache()
        return True

    def met(units: int) -> bool:
        again, _ = run_job(job, until=failure.request)
        return ask_once(job.requests, again, failure.request, units * MIN_BLOCK) is not None

    units = _largest_met(met_afterwards, failure.requested)
    if units is not None and not met(units):
        units = _largest_met(met, failure.requested)
    if units is None:
        return [Remedy("smaller request", "asking for less", False, None)]
    size = units * MIN_BLOCK
    return [Remedy("smaller request", "asking for less", True, None, failure.requested - size, size)]


def _largest_met(met: Callable[[int], bool], requested: int) -> int | None:
    """Bisect for the largest smaller request that is met, in units of ``MIN_BLOCK``; None if none is.

    Segments are larger for requests just below 10 MiB than for that size, so each range of sizes is searched for itself, from above.
    """
    top = (requested - 1) // MIN_BLOCK
    for first in (MEDIUM_REQUEST // MIN_BLOCK, SMALL_REQUEST // MIN_BLOCK + 1, 1):
        low, high = first, top + 1
        if low <= top and met(low):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if met(middle) else (low, middle)
            return low
        top = min(top, low - 1)
    return None
