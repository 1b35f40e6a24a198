"""What if the allocator had other settings, or the device another size: the same requests, replayed.

Every row of the answer is a replay of the whole window by the allocator's model; the first has the settings that were recorded, and its
error against the recorded reserved bytes is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Assumption, Kind
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.allocator.beginning import Beginning, beginning_of
from lifecycle_sim.replay.allocator.device import Device
from lifecycle_sim.replay.allocator.model import Allocator
from lifecycle_sim.replay.allocator.recording import rebuild, recorded_settings
from lifecycle_sim.replay.allocator.release import Release
from lifecycle_sim.replay.allocator.requests import Requests, requests_of
from lifecycle_sim.replay.allocator.rerun import Outcome, Progress, carry_out, outcome
from lifecycle_sim.replay.allocator.rounding import segment_size
from lifecycle_sim.replay.allocator.settings import AllocatorSettings, parse_options
from lifecycle_sim.study.executor import Executor, run_jobs
from lifecycle_sim.study.what_if_assumptions import assumptions_of

Start = Literal["empty", "rebuilt", "placed"]
CapacitySource = Literal["given", "source", "out of memory"]


@dataclass(frozen=True, eq=False)
class Question:
    """The requests of a device, and under what they were made.

    Attributes:
        device: the device's name.
        requests: what was asked of the allocator.
        recorded: the settings recorded with it, or the defaults.
        release: the PyTorch release to behave like.
        chosen: what had to be assumed to choose release and settings.
        capacity: bytes that can be had from the device; None if nothing tells.
        capacity_from: what tells.
        beginning: what was there before the window; None where the window begins on an empty device, or where it cannot be told.
        empty: whether the window begins on an empty device.
        recorded_peak: the peak of the recorded reserved bytes; None where none were recorded.
        replayed: what it was made from.
    """

    device: str
    requests: Requests
    recorded: AllocatorSettings
    release: Release
    chosen: tuple[Assumption, ...]
    capacity: int | None
    capacity_from: CapacitySource | None
    beginning: Beginning | None
    empty: bool
    recorded_peak: int | None
    replayed: DeviceReplay


@dataclass(frozen=True)
class WhatIfRow:
    """One replay.

    Attributes:
        name: the options string, or what stands for it.
        settings: the settings.
        start: how it began: on an empty device; with the segments and blocks of the recording, ``rebuilt``; or on an empty device on
            which the storages older than the window were ``placed`` first.
        capacity: bytes that could be had; None is no bound.
        outcome: what came of it.
        note: something to know about these settings.
    """

    name: str
    settings: AllocatorSettings
    start: Start
    capacity: int | None
    outcome: Outcome
    note: str | None = None

    @property
    def fits(self) -> bool | None:
        """Whether every request was met within the capacity; None without one."""
        return None if self.capacity is None and self.outcome.failure is None else self.outcome.failure is None


@dataclass(frozen=True)
class WhatIf:
    """The same requests under several settings.

    Attributes:
        device: the device's name.
        release: the PyTorch release that was modelled.
        capacity: bytes that could be had, None if there was no bound; ``capacity_from`` says what tells it.
        capacity_from: see there.
        rows: the answers, the first with the recorded settings.
        placed: the recorded settings begun like the rows that begin ``placed``; None where the first row does already.
        recorded_peak: peak of the recorded reserved bytes, None where none were recorded.
        assumptions: what had to be assumed.
    """

    device: str
    release: str
    capacity: int | None
    capacity_from: CapacitySource | None
    rows: tuple[WhatIfRow, ...]
    placed: WhatIfRow | None
    recorded_peak: int | None
    assumptions: tuple[Assumption, ...]

    @property
    def error(self) -> int | None:
        """The first row's reserved peak less the recorded one; None where none was recorded, or the device was another."""
        return self._error_of(self.rows[0])

    @property
    def placed_error(self) -> int | None:
        """Likewise with the older storages placed first: how far the other rows can be trusted."""
        return None if self.placed is None else self._error_of(self.placed)

    def _error_of(self, row: WhatIfRow) -> int | None:
        came = row.outcome
        cut = came.failure is not None and not came.failure.recorded
        if self.recorded_peak is None or cut or (self.capacity_from != "out of memory" and came.retries):
            return None
        return row.outcome.peak_reserved - self.recorded_peak


@dataclass(frozen=True, eq=False)
class Job:
    """One replay: requests, and all that decides what becomes of them. ``attempts`` is whether recorded failures are tried again."""

    requests: Requests
    settings: AllocatorSettings
    release: Release
    capacity: int | None
    beginning: Beginning | None
    attempts: bool


def what_if_allocator(
    replayed: DeviceReplay,
    settings: Sequence[str] = (),
    *,
    capacity: int | None = None,
    release: Release | str | None = None,
    workers: int | None = 1,
    executor: Executor | None = None,
) -> WhatIf:
    """Replay what was recorded on a device under its own settings and under each of *settings*.

    Args:
        replayed: the device's replay.
        settings: options strings in PyTorch's syntax, each on top of the defaults.
        capacity: bytes of the device; by default those that the source states, else those that an out-of-memory event tells, else no bound.
        release: the PyTorch release to behave like; by default the recording's.
        workers: processes to spread the replays over; see :func:`~lifecycle_sim.study.executor.run_jobs`.
        executor: what to spread them with instead.

    Raises:
        InputError: an options string that the release does not know, a device that cannot be replayed, a bad capacity.
    """
    question = ask(replayed, capacity, release)
    chosen = [(text.strip() or "default", parse_options(text, question.release)) for text in settings]
    return answer(question, chosen, workers, executor)


def ask(replayed: DeviceReplay, capacity: int | None = None, release: Release | str | None = None, event: int | None = None) -> Question:
    """Return the question that :func:`what_if_allocator` answers: the requests and what is known of their circumstances.

    With *event*, an out-of-memory entry, the capacity is what that entry tells, unless one is given.

    Raises:
        InputError: pinned or ordinary memory, or amounts without identities.
    """
    trace, recorded = replayed.trace, replayed.recorded
    if recorded.device in ("pinned", "cpu"):
        raise InputError(f"{recorded.device}: this memory does not come from the CUDA caching allocator, so its settings change nothing")
    chosen = recorded_settings(trace)
    settings = chosen.settings
    rebuilt = None if recorded.final is None else rebuild(recorded, settings, chosen.release, len(trace.pools))
    had = _told_by_failure(replayed, settings, event)
    requests = requests_of(replayed, rebuilt, settings.garbage_collection_threshold > 0, had)
    empty = requests.older == 0 and (rebuilt is None or rebuilt.state.reserved == 0)
    known, source = _capacity(replayed, capacity, settings, event)
    return Question(
        device=recorded.device,
        requests=requests,
        recorded=settings,
        release=chosen.release if release is None else Release.parse(release),
        chosen=() if release is not None else chosen.assumptions,
        capacity=known,
        capacity_from=source,
        beginning=None if rebuilt is None or empty else beginning_of(requests, rebuilt.state, rebuilt.reservations),
        empty=empty,
        recorded_peak=None if replayed.reserved is None else replayed.reserved.peak_size,
        replayed=replayed,
    )


def answer(
    question: Question, settings: Sequence[tuple[str, AllocatorSettings]], workers: int | None = 1, executor: Executor | None = None
) -> WhatIf:
    """Answer *question* for the recorded settings and for each of *settings*, with their names."""
    rows = [("recorded" if question.recorded_peak is not None else "default", question.recorded), *settings]
    jobs = [job_for(question, each) for _, each in rows]
    if jobs[0].beginning is not None:
        jobs.append(job_for(question, question.recorded, placed=True))
    found = run_jobs(_replay, jobs, len(question.requests) * len(jobs), workers, executor)
    made = [
        WhatIfRow(name, each, start_of(question, job), question.capacity, came, _note(each))
        for (name, each), job, came in zip([*rows, rows[0]], jobs, found, strict=False)
    ]
    return WhatIf(
        device=question.device,
        release=str(question.release),
        capacity=question.capacity,
        capacity_from=question.capacity_from,
        rows=tuple(made[: len(rows)]),
        placed=made[-1] if jobs[0].beginning is not None else None,
        recorded_peak=question.recorded_peak,
        assumptions=assumptions_of(question, {row.start for row in made}),
    )


def job_for(question: Question, settings: AllocatorSettings, capacity: int | None = None, placed: bool = False) -> Job:
    """Return the replay of *question* under *settings*, by default with the capacity that is known."""
    room = question.capacity if capacity is None else capacity
    beginning = question.beginning if settings == question.recorded and not placed else None
    if beginning is not None and room is not None and beginning.state.reserved > room:
        beginning = None
    return Job(question.requests, settings, question.release, room, beginning, attempts=room is not None)


def run_job(job: Job, until: int | None = None) -> tuple[Allocator, Progress]:
    """Carry out a replay, up to a request; return the allocator as it is then."""
    device = Device(job.capacity)
    requests, beginning = job.requests, job.beginning
    if beginning is None:
        allocator, live, pending = Allocator(device, job.settings, job.release), None, None
    else:
        allocator, live, pending = beginning.allocator(device, job.settings, job.release), beginning.live, beginning.pending
    progress = carry_out(
        requests, allocator, live=live, pending=pending, until=until, attempts=job.attempts, own_flushes=job.capacity is None
    )
    return allocator, progress


def _replay(job: Job) -> Outcome:
    return outcome(job.requests, *run_job(job))


def start_of(question: Question, job: Job) -> Start:
    """Return how a replay begins."""
    if job.beginning is not None:
        return "rebuilt"
    return "empty" if question.empty else "placed"


def _note(settings: AllocatorSettings) -> str | None:
    if settings.garbage_collection_threshold > 0 and settings.per_process_memory_fraction in (None, 1.0):
        return "garbage collection needs a memory limit, such as per_process_memory_fraction:0.95, and does nothing without one"
    return None


def _capacity(
    replayed: DeviceReplay, given: int | None, settings: AllocatorSettings, event: int | None
) -> tuple[int | None, CapacitySource | None]:
    """The bytes that can be had from the device, and what tells it."""
    if given is not None:
        if given <= 0:
            raise InputError(f"capacity of {given} bytes: a device has more than none")
        return given, "given"
    recorded = replayed.recorded
    if recorded.capacity is not None and event is None:
        return recorded.capacity, "source"
    told = _told_by_failure(replayed, settings, event)
    return told, None if told is None else "out of memory"


def _told_by_failure(replayed: DeviceReplay, settings: AllocatorSettings, event: int | None) -> int | None:
    """The bytes that could be had when memory ran out in the recording, at *event* or first; None if it never did."""
    recorded = replayed.recorded
    failed = np.flatnonzero(recorded.events.kind == Kind.OOM) if event is None else [event]
    if not len(failed) or replayed.reserved is None:
        return None
    first = int(failed[0])
    held, free = replayed.reserved.at(first), int(recorded.events.address[first])
    segment = segment_size(int(recorded.events.size[first]), settings.large_segment_size)
    return held + min(free, segment - 1)
