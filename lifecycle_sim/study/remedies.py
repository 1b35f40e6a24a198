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
from lifecycle_sim.study.executor import Executor, run_jobs
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


@dataclass(frozen=True, eq=False)
class _Trial:
    """A replay of the whole recording with a remedy; it is past the request that failed if it fails later than request *at*, or not."""

    means: Means
    name: str
    job: Job
    at: int


def remedies(
    question: Question, job: Job, failure: Failure, allocator: Allocator, workers: int | None = 1, executor: Executor | None = None
) -> tuple[Remedy, ...]:
    """Return what was tried against a failure.

    Args:
        question: the requests and their circumstances.
        job: the replay in which it failed.
        failure: where.
        allocator: as it was after the failure; it is changed.
        workers: processes to spread the replays over; see :func:`~lifecycle_sim.study.executor.run_jobs`.
        executor: what to spread them with instead.
    """
    trials = [_flush(job, failure), *_control(job, failure), *_other_settings(question, job, failure)]
    jobs = [each.job for each in trials]
    came = run_jobs(_failure_of, jobs, len(job.requests) * len(jobs), workers, executor)
    return (
        *(_remedy(trial, failed) for trial, failed in zip(trials, came, strict=True)),
        *_more_capacity(job, failure),
        *_smaller_request(job, failure, allocator),
    )


def _failure_of(job: Job) -> Failure | None:
    return run_job(job)[1].failure


def _remedy(trial: _Trial, came: Failure | None, size: int | None = None, total: int | None = None) -> Remedy:
    met = came is None or came.request > trial.at
    return Remedy(trial.means, trial.name, met, came is None, size, total, came)


def _flush(job: Job, failure: Failure) -> _Trial:
    """``empty_cache()`` just before the request."""
    at, requests = failure.request, job.requests
    added = {"action": int(Action.FLUSH), "storage": -1, "size": 0, "stream": 0, "pool": 0, "event": failure.event}
    columns: dict[str, Any] = {name: np.insert(getattr(requests, name), at, value) for name, value in added.items()}
    return _Trial("flush", "empty_cache() just before", replace(job, requests=replace(requests, **columns)), at + 1)


def _other_settings(question: Question, job: Job, failure: Failure) -> list[_Trial]:
    """Expandable segments or none, and other split limits, on top of what was in force."""
    now = question.recorded
    limits = [limit * MIB for limit in SPLIT_LIMITS if limit * MIB >= now.large_segment_size and limit * MIB != now.max_split_size]
    others = [replace(now, expandable_segments=not now.expandable_segments)]
    others += [replace(now, max_split_size=limit) for limit in ([None] if now.max_split_size is not None else []) + limits]
    return [
        _Trial("settings", _changed(now, settings), replace(job, settings=settings, beginning=None), failure.request)
        for settings in others
        if not settings.expandable_segments or question.release >= Release(2, 1)
    ]


def _control(job: Job, failure: Failure) -> list[_Trial]:
    """The recorded settings, begun as the other settings must begin: what they do better than this is theirs."""
    name = "the recorded settings, begun placed"
    return [] if job.beginning is None else [_Trial("start", name, replace(job, beginning=None), failure.request)]


def _changed(now: AllocatorSettings, then: AllocatorSettings) -> str:
    """The option that differs, as one would write it."""
    if now.expandable_segments != then.expandable_segments:
        return f"expandable_segments:{then.expandable_segments}"
    return "no max_split_size_mb" if then.max_split_size is None else f"max_split_size_mb:{then.max_split_size // MIB}"


def _more_capacity(job: Job, failure: Failure) -> list[Remedy]:
    """The least capacity with which the request is met, and that with which all are."""
    at = failure.request
    met = _least_capacity(job, failure, lambda came: came is None or came.request > at, at + 1)
    if met is None:
        return []
    found = [_larger(job, failure, met, "more of the device (a smaller headroom)")]
    if (then := found[0].failure) is not None:
        fits = _least_capacity(replace(job, capacity=met), then, lambda came: came is None)
        if fits is not None:
            found.append(_larger(job, failure, fits, "more of the device, for all that follows too"))
    return found


def _larger(job: Job, failure: Failure, capacity: int, name: str) -> Remedy:
    trial = _Trial("capacity", name, replace(job, capacity=capacity), failure.request)
    return _remedy(trial, _failure_of(trial.job), capacity - (job.capacity or 0), capacity)


def _least_capacity(job: Job, failure: Failure, enough: Callable[[Failure | None], bool], until: int | None = None) -> int | None:
    """A multiple of the device's granularity with which a replay is good *enough*, and with one unit less is not.

    Every failure tells what it lacked, which is most often the answer: it is tried, and one unit less. Else they are bisected between.

    Args:
        job: a replay that is not good enough.
        failure: how it fails.
        enough: what is.
        until: the request before which that is decided; by default the end.
    """

    def replayed(units: int) -> Failure | None:
        return run_job(replace(job, capacity=units * GRANULARITY), until)[1].failure

    low, step = (job.capacity or 0) // GRANULARITY, 1
    came: Failure | None = failure
    while True:
        lacked = 0 if came is None else -(-(came.segment - came.device_free) // GRANULARITY)
        step = max(step, lacked)
        if (low + step) * GRANULARITY > 1 << 62:
            return None
        came = replayed(low + step)
        if enough(came):
            break
        low, step = low + step, step * 2
    high = low + step
    middle = high - 1
    while middle > low:
        if enough(replayed(middle)):
            high = middle
        else:
            low = middle
        middle = (low + high) // 2
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
