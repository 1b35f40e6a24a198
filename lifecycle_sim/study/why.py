"""Why memory ran out: what was asked for, what was free in which pieces, and what would have made it fit, each found by replaying it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import BlockState, Kind
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.allocator.device import GRANULARITY
from lifecycle_sim.replay.allocator.model import Allocator
from lifecycle_sim.replay.allocator.pools import PoolId
from lifecycle_sim.replay.allocator.release import Release
from lifecycle_sim.replay.allocator.requests import Action
from lifecycle_sim.replay.allocator.rerun import Failure, Outcome, ask_once, outcome
from lifecycle_sim.replay.allocator.rounding import MIN_BLOCK, SMALL_REQUEST
from lifecycle_sim.replay.allocator.settings import AllocatorSettings
from lifecycle_sim.replay.allocator.settings_text import options_text
from lifecycle_sim.study.what_if import Job, Question, Start, ask, job_for, run_job, start_of
from lifecycle_sim.study.what_if_assumptions import Assumption, assumptions_of

MIB = 1 << 20
SPLIT_LIMITS = (32, 64, 128, 256, 512)
PIECES_KEPT = 10
MEDIUM_REQUEST = 10 * MIB
"""Requests below this get a segment of a fixed size, so that a larger one may fit where a smaller one does not."""

Means = Literal["flush", "start", "settings", "capacity", "smaller request"]


@dataclass(frozen=True)
class FreeBlocks:
    """Free blocks of one pool and stream.

    Attributes:
        pool: the pool's id.
        small: whether they are in its small half.
        stream: raw handle.
        size: their bytes.
        count: how many.
        largest: the largest of them.
        usable: whether the request that failed could have been served from them.
    """

    pool: PoolId
    small: bool
    stream: int
    size: int
    count: int
    largest: int
    usable: bool


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


@dataclass(frozen=True)
class Why:
    """Why a request failed.

    Attributes:
        device: the device's name.
        release: the PyTorch release that was modelled.
        settings: the options string in force, empty for the defaults.
        capacity: bytes that could be had from the device.
        capacity_from: what tells it.
        start: how the replay began.
        outcome: what came of the recorded settings.
        failure: the request that failed, and the levels then.
        free: the free blocks that were left, by pool and stream, after everything whole was given back.
        pieces: the largest of them all, in bytes, descending.
        remedies: what would have helped, and what would not.
        assumptions: what had to be assumed.
    """

    device: str
    release: str
    settings: str
    capacity: int
    capacity_from: str
    start: Start
    outcome: Outcome
    failure: Failure
    free: tuple[FreeBlocks, ...]
    pieces: tuple[int, ...]
    remedies: tuple[Remedy, ...]
    assumptions: tuple[Assumption, ...]

    @property
    def free_size(self) -> int:
        """Bytes held from the device in free blocks."""
        return sum(each.size for each in self.free)

    @property
    def free_count(self) -> int:
        """How many free blocks there were."""
        return sum(each.count for each in self.free)

    @property
    def fragmented(self) -> bool:
        """Whether free blocks and the device's own free bytes were enough together, only not in one piece."""
        return self.free_size + self.failure.device_free >= self.failure.rounded


@dataclass(frozen=True)
class AllMet:
    """Nothing failed.

    Attributes:
        device: the device's name.
        release: the PyTorch release that was modelled.
        settings: the options string in force, empty for the defaults.
        capacity: bytes that could be had from the device.
        capacity_from: what tells it.
        start: how the replay began.
        outcome: what came of the requests.
        assumptions: what had to be assumed.
    """

    device: str
    release: str
    settings: str
    capacity: int
    capacity_from: str
    start: Start
    outcome: Outcome
    assumptions: tuple[Assumption, ...]


def why_out_of_memory(
    replayed: DeviceReplay, *, event: int | None = None, capacity: int | None = None, release: Release | str | None = None
) -> Why | AllMet:
    """Tell why memory ran out on a device, or would run out with a *capacity*.

    Args:
        replayed: the device's replay.
        event: an out-of-memory entry of the recording; the first by default.
        capacity: bytes of the device; the first request that is not met within them is explained. By default those that the
            out-of-memory entry tells, or that the source states.
        release: the PyTorch release to behave like; by default the recording's.

    Raises:
        InputError: no such entry, or neither an entry nor a capacity; or a recorded failure that the model does not have.
    """
    failed = np.flatnonzero(replayed.recorded.events.kind == Kind.OOM).tolist()
    if event is not None and event not in failed:
        known = ", ".join(f"{each:,}" for each in failed[:10]) or "none"
        raise InputError(f"event {event:,} of {replayed.device} is no out-of-memory entry: the recording has {known}")
    question = ask(replayed, capacity, release, event if capacity is None else None)
    if question.capacity is None:
        raise InputError(f"{replayed.device}: the recording has no out-of-memory entry; say how large the device is: --capacity \"24 GiB\"")
    job = job_for(question, question.recorded)
    allocator, progress = run_job(job)
    came, failure = outcome(job.requests, allocator, progress), progress.failure
    if event is not None:
        failure = _failure_at(question, job, event)
    if failure is None:
        if question.capacity_from == "out of memory":
            raise InputError(
                f"{replayed.device}: the recording ran out of memory at event {failed[0]:,}, but the model meets that request with the "
                f"{question.capacity:,} bytes that it tells: other memory may have been in use then; give the capacity with --capacity"
            )
        start = start_of(question, job)
        return AllMet(
            device=replayed.device,
            release=str(question.release),
            settings=options_text(question.recorded),
            capacity=question.capacity,
            capacity_from=question.capacity_from or "given",
            start=start,
            outcome=came,
            assumptions=assumptions_of(question, {start}),
        )
    return _explain(question, job, came, failure)


def _failure_at(question: Question, job: Job, event: int) -> Failure:
    """The failure at one out-of-memory entry.

    Raises:
        InputError: the model meets the request, or never gets there.
    """
    requests = job.requests
    at = int(np.flatnonzero((requests.event == event) & (requests.action == Action.ATTEMPT))[0])
    only = replace(requests, action=np.where((requests.action == Action.ATTEMPT) & (np.arange(len(requests)) != at), Action.OWN_FLUSH, requests.action))
    _, progress = run_job(replace(job, requests=only), until=at + 1)
    if progress.failure is None:
        raise InputError(f"event {event:,} of {question.device}: the model meets this request with the {question.capacity:,} bytes that the entry tells")
    return progress.failure


def _explain(question: Question, job: Job, came: Outcome, failure: Failure) -> Why:
    at = failure.request
    allocator, _ = run_job(job, until=at)
    ask_once(job.requests, allocator, at)
    free, pieces = _free_blocks(allocator, failure)
    start = start_of(question, job)
    return Why(
        device=question.device,
        release=str(question.release),
        settings=options_text(question.recorded),
        capacity=job.capacity or 0,
        capacity_from=question.capacity_from or "given",
        start=start,
        outcome=came,
        failure=failure,
        free=free,
        pieces=pieces,
        remedies=(
            _flush(job, failure),
            *_control(job, failure),
            *_other_settings(question, job, failure),
            *_more_capacity(job, failure),
            *_smaller_request(job, failure, allocator),
        ),
        assumptions=assumptions_of(question, {start}),
    )


def _free_blocks(allocator: Allocator, failure: Failure) -> tuple[tuple[FreeBlocks, ...], tuple[int, ...]]:
    """The free blocks by pool and stream, the usable ones first, and the sizes of the largest."""
    state = allocator.state()
    free = np.flatnonzero(state.blocks.state == BlockState.INACTIVE)
    segment, size = state.blocks.segment[free], state.blocks.size[free]
    segments = state.segments
    places: dict[tuple[int, bool, int], list[int]] = {}
    columns = (segments.pool[segment], segments.small[segment], segments.stream[segment], size)
    for pool, small, stream, bytes_ in zip(*(column.tolist() for column in columns), strict=True):
        places.setdefault((pool, small, stream), []).append(bytes_)
    found = [
        FreeBlocks(
            allocator.pools[pool],
            small,
            stream,
            sum(sizes),
            len(sizes),
            max(sizes),
            (allocator.pools[pool], small, stream) == (failure.pool, failure.small, failure.stream),
        )
        for (pool, small, stream), sizes in sorted(places.items())
    ]
    found.sort(key=lambda each: (not each.usable, -each.size))
    return tuple(found), tuple(sorted(size.tolist(), reverse=True)[:PIECES_KEPT])


# ── remedies ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _tried(job: Job, failure: Failure, means: Means, name: str, **figures: int | None) -> Remedy:
    """Replay a job; tell whether it gets past the request that failed, and to the end."""
    came = run_job(job)[1].failure
    met = came is None or came.request > failure.request
    return Remedy(means, name, met, came is None, failure=came, **figures)


def _flush(job: Job, failure: Failure) -> Remedy:
    """``empty_cache()`` just before the request."""
    at, requests = failure.request, job.requests
    added = {"action": int(Action.FLUSH), "storage": -1, "size": 0, "stream": 0, "pool": 0, "event": failure.event}
    columns = {name: np.insert(getattr(requests, name), at, value) for name, value in added.items()}
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
    found = []
    for name, enough in (
        ("more of the device for this request", lambda came: came is None or came.request > failure.request),
        ("more of the device for the whole recording", lambda came: came is None),
    ):
        capacity = _least_capacity(job, enough)
        if capacity is not None and not (found and found[0].total == capacity):
            found.append(_tried(replace(job, capacity=capacity), failure, "capacity", name, size=capacity - (job.capacity or 0), total=capacity))
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
