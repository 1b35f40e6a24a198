"""Why memory ran out: what was asked for, what was free in which pieces, and what would have made it fit, each found by replaying it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Assumption, BlockState, Kind
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.allocator.model import Allocator
from lifecycle_sim.replay.allocator.pools import PoolId
from lifecycle_sim.replay.allocator.release import Release
from lifecycle_sim.replay.allocator.requests import Action
from lifecycle_sim.replay.allocator.rerun import Failure, Outcome, ask_once, outcome
from lifecycle_sim.replay.allocator.settings_text import options_text
from lifecycle_sim.study.remedies import Remedy, remedies
from lifecycle_sim.study.what_if import Job, Question, Start, ask, job_for, run_job, start_of
from lifecycle_sim.study.what_if_assumptions import assumptions_of

PIECES_KEPT = 10


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
        raise InputError(f'{replayed.device}: the recording has no out-of-memory entry; say how large the device is: --capacity "24 GiB"')
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
    only = replace(
        requests, action=np.where((requests.action == Action.ATTEMPT) & (np.arange(len(requests)) != at), Action.OWN_FLUSH, requests.action)
    )
    _, progress = run_job(replace(job, requests=only), until=at + 1)
    if progress.failure is None:
        raise InputError(
            f"event {event:,} of {question.device}: the model meets this request with the {question.capacity:,} bytes that the entry tells"
        )
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
        remedies=remedies(question, job, failure, allocator),
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
