"""Makes recorded requests of an allocator, and tells what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Kind
from lifecycle_sim.events.kinds import GIVES_BACK, TAKES
from lifecycle_sim.events.trace import UInt8
from lifecycle_sim.replay.allocator.model import Allocator
from lifecycle_sim.replay.allocator.pools import PoolId
from lifecycle_sim.replay.allocator.requests import BEFORE, Action, Requests
from lifecycle_sim.replay.allocator.rounding import SMALL_REQUEST

_ALLOC, _FREE, _GIVE_UP, _FINISH = int(Action.ALLOC), int(Action.FREE), int(Action.GIVE_UP), int(Action.FINISH)
_FLUSH, _OWN_FLUSH, _DROP, _ATTEMPT = int(Action.FLUSH), int(Action.OWN_FLUSH), int(Action.DROP), int(Action.ATTEMPT)


@dataclass(frozen=True)
class Failure:
    """The request at which memory ran out.

    Attributes:
        request: its place among the requests.
        event: the event of the trace that made it; -1 for a storage older than the window.
        recorded: whether it failed in the recording too.
        requested: bytes asked for.
        rounded: the size of the block that would have served it.
        segment: bytes that would have had to come from the device; PyTorch's message prints these.
        stream: the stream it was for.
        pool: the pool it was for.
        small: whether the small pool was to serve it.
        allocated: bytes of the blocks that were handed out.
        active: those and the blocks that awaited their free.
        reserved: bytes held from the device after everything that could be given back was.
        given_back: bytes given back in the attempt.
        device_free: bytes that the device still had.
        limit: the memory limit in force.
    """

    request: int
    event: int
    recorded: bool
    requested: int
    rounded: int
    segment: int
    stream: int
    pool: PoolId
    small: bool
    allocated: int
    active: int
    reserved: int
    given_back: int
    device_free: int
    limit: int | None


@dataclass(frozen=True)
class Outcome:
    """What came of the requests, from the beginning of the window on; bytes.

    Attributes:
        peak_reserved: most bytes held from the device, with ``peak_event``, the first event of the trace with that level (-1: before).
        peak_event: that event.
        peak_allocated: most bytes in blocks that are handed out.
        requested_at_peak: bytes asked for by active blocks when the reserved bytes were at their peak.
        internal_at_peak: likewise rounding and unsplit tails.
        external_at_peak: likewise what is held and in no active block; the three add up to ``peak_reserved``.
        end_reserved: bytes held at the end.
        device_allocs: how often the device was asked successfully: segments and mapped ranges (``num_device_alloc``).
        device_frees: how often memory went back to it (``num_device_free``).
        retries: second attempts after a flush (``num_alloc_retries``).
        attempts: how many of the requests that failed in the recording were made.
        attempts_met: how many of them succeeded.
        failure: where memory first ran out; None where every request was met. Unless it failed in the recording too, the levels end there.
    """

    peak_reserved: int
    peak_event: int
    peak_allocated: int
    requested_at_peak: int
    internal_at_peak: int
    external_at_peak: int
    end_reserved: int
    device_allocs: int
    device_frees: int
    retries: int
    attempts: int
    attempts_met: int
    failure: Failure | None


@dataclass(frozen=True)
class Progress:
    """How far requests were carried out.

    Attributes:
        start: number of log rows before the window began.
        asked: the request of each successful allocation, in order.
        retries_before: retries before the window began.
        attempts: requests that had failed in the recording and were made again.
        attempts_met: how many of them succeeded.
        failure: the first request that failed, None if none did.
    """

    start: int
    asked: list[int]
    retries_before: int
    attempts: int
    attempts_met: int
    failure: Failure | None


def carry_out(
    requests: Requests,
    allocator: Allocator,
    *,
    live: Mapping[int, int] | None = None,
    pending: Mapping[int, int] | None = None,
    until: int | None = None,
    attempts: bool = False,
    own_flushes: bool = True,
) -> Progress:
    """Make *requests* of *allocator*, up to the first that is not met and was met in the recording.

    Args:
        requests: what to ask.
        allocator: whom; it is changed.
        live: where the storages older than the window are, by their number, if the allocator holds them already; they are then not
            asked for.
        pending: likewise those whose free is pending.
        until: the request before which to stop; None is the end.
        attempts: make the requests that failed in the recording too; the program went on after these, so one that fails again is no end.
        own_flushes: give back what the recorded allocator gave back of its own accord.
    """
    held: dict[int, int] = dict(live or {})
    waiting = {storage: (0, address) for storage, address in (pending or {}).items()}
    asked: list[int] = []
    counters, record = allocator.counters, allocator.__len__
    skipped = 0 if live is None else requests.older
    stop = len(requests) if until is None else until
    start, retries_before = len(allocator), 0
    tried = met = 0
    failure: Failure | None = None
    malloc, free = allocator.malloc, allocator.free
    columns = (requests.action, requests.storage, requests.size, requests.stream, requests.pool)
    rows = zip(*(column[skipped:stop].tolist() for column in columns), strict=True)
    for at, (action, storage, size, stream, pool) in enumerate(rows, skipped):
        if at == requests.older:
            start, retries_before = len(allocator), counters.alloc_retries
        if action == _ALLOC:
            before = record()
            address = malloc(size, stream) if pool == 0 else _diverted(allocator, requests.pools[pool], size, stream)
            if address is None:
                return Progress(start, asked, retries_before, tried, met, failure or _failure(allocator, requests, at, before))
            held[storage] = address
            asked.append(at)
        elif action == _FREE:
            if storage in held:
                free(held.pop(storage))
            elif storage in waiting:
                _finish(allocator, waiting, storage)
        elif action == _GIVE_UP:
            if storage in held:
                address = held.pop(storage)
                allocator.defer(address)
                free(address)
                waiting[storage] = counters.sync_all_streams, address
        elif action == _FINISH:
            _finish(allocator, waiting, storage)
        elif action == _DROP:
            _drop(allocator, requests.pools[pool])
        elif action == _FLUSH or (action == _OWN_FLUSH and own_flushes):
            allocator.empty_cache()
        elif action == _ATTEMPT and attempts:
            before = record()
            tried += 1
            address = malloc(size, stream) if pool == 0 else _diverted(allocator, requests.pools[pool], size, stream)
            if address is None:
                failure = failure or _failure(allocator, requests, at, before)
                continue
            asked.append(at)
            met += 1
            free(address)
    if requests.older >= stop:
        start, retries_before = len(allocator), counters.alloc_retries
    return Progress(start, asked, retries_before, tried, met, failure)


def ask_once(requests: Requests, allocator: Allocator, at: int, size: int | None = None) -> int | None:
    """Ask for what request number *at* asks for, or for *size* bytes in its stead; return the address, None where memory ran out."""
    size, stream, pool = int(requests.size[at]) if size is None else size, int(requests.stream[at]), int(requests.pool[at])
    return allocator.malloc(size, stream) if pool == 0 else _diverted(allocator, requests.pools[pool], size, stream)


def _diverted(allocator: Allocator, pool: PoolId, size: int, stream: int) -> int | None:
    """Ask for a block of a private pool, to which this one request is diverted."""
    if not allocator.has_pool(pool):
        allocator.create_pool(pool)
    allocator.begin_pool(pool)
    address = allocator.malloc(size, stream)
    allocator.end_pool(pool)
    allocator.release_pool(pool)
    return address


def _drop(allocator: Allocator, pool: PoolId) -> None:
    """Give up a private pool, as the end of a ``MemPool`` does, and give back what is free in it."""
    if allocator.has_pool(pool):
        with suppress(InputError):  # given up before, with blocks of it still live
            allocator.release_pool(pool)
        allocator.empty_cache(pool)


def _finish(allocator: Allocator, waiting: dict[int, tuple[int, int]], storage: int) -> None:
    """End the wait of a storage's free, unless a flush has waited for it already."""
    synchronized, address = waiting.pop(storage, (-1, 0))
    if synchronized == allocator.counters.sync_all_streams:
        allocator.finish(address)


def _failure(allocator: Allocator, requests: Requests, at: int, before: int) -> Failure:
    """Describe the request that the allocator has just refused; *before* is how many events it had recorded until then."""
    refused, levels, events = allocator.failures[-1], allocator.levels(), allocator.events()
    back = np.isin(events.kind[before:], GIVES_BACK)
    return Failure(
        request=at,
        event=int(requests.event[at]),
        recorded=bool(requests.action[at] == Action.ATTEMPT),
        requested=refused.requested,
        rounded=refused.rounded,
        segment=refused.segment,
        stream=refused.stream,
        pool=refused.pool,
        small=refused.rounded <= SMALL_REQUEST,
        allocated=int(levels.allocated[-1]),
        active=int(levels.active[-1]),
        reserved=refused.reserved,
        given_back=int(events.size[before:][back].sum()),
        device_free=refused.device_free,
        limit=refused.limit,
    )


def outcome(requests: Requests, allocator: Allocator, progress: Progress) -> Outcome:
    """Return what came of *requests*, of which *allocator* was asked with the result *progress*."""
    levels, kind = allocator.levels(), allocator.events().kind
    start = progress.start
    reserved = levels.reserved[start:]
    top = start + int(reserved.argmax())
    settled = top
    if top > start:  # the level after row top - 1, which got the memory: look at the waste once the block is handed out
        after = np.flatnonzero(np.isin(kind[top - 1 :], (Kind.ALLOC, Kind.OOM)))
        settled = top + int(after[0]) if len(after) else top
    peak = int(levels.reserved[settled])
    grown = kind[start:]
    return Outcome(
        peak_reserved=int(reserved.max()),
        peak_event=_event_of(requests, kind, progress, top) if top > start else BEFORE,
        peak_allocated=int(levels.allocated[start:].max()),
        requested_at_peak=int(levels.requested[settled]),
        internal_at_peak=int(levels.internal_waste[settled]),
        external_at_peak=peak - int(levels.active[settled]),
        end_reserved=allocator.reserved,
        device_allocs=int(np.isin(grown, TAKES).sum()),
        device_frees=int(np.isin(grown, GIVES_BACK).sum()),
        retries=allocator.counters.alloc_retries - progress.retries_before,
        attempts=progress.attempts,
        attempts_met=progress.attempts_met,
        failure=progress.failure,
    )


def _event_of(requests: Requests, kind: UInt8, progress: Progress, row: int) -> int:
    """The event of the trace that made the request under way at log row *row* - 1."""
    done = int((kind[: row - 1] == Kind.ALLOC).sum())
    if done < len(progress.asked):
        return int(requests.event[progress.asked[done]])
    return progress.failure.event if progress.failure is not None else int(requests.event[-1])
