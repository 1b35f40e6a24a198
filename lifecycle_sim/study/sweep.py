"""The usual settings of the allocator, tried one after the other and ranked."""

from __future__ import annotations

from dataclasses import replace

from lifecycle_sim.errors import InputError
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.allocator.release import Release
from lifecycle_sim.replay.allocator.settings import AllocatorSettings, parse_options
from lifecycle_sim.study.executor import Executor
from lifecycle_sim.study.what_if import WhatIf, WhatIfRow, answer, ask

USUAL = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "large_segment_size_mb:32",
    "large_segment_size_mb:64",
    "expandable_segments:True,roundup_power2_divisions:8",
    "expandable_segments:True,max_split_size_mb:128",
    "expandable_segments:True,large_segment_size_mb:32",
    "max_split_size_mb:128,roundup_power2_divisions:8",
)
WITH_CAPACITY = (
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.99",
    "garbage_collection_threshold:0.8,max_split_size_mb:128,per_process_memory_fraction:0.99",
)
"""Garbage collection needs a memory limit; this one leaves it all but one percent of the device."""


def sweep_allocator(
    replayed: DeviceReplay,
    settings: tuple[str, ...] = (),
    *,
    capacity: int | None = None,
    release: Release | str | None = None,
    workers: int | None = 1,
    executor: Executor | None = None,
) -> WhatIf:
    """Try the usual settings, and *settings* besides, on what was recorded on a device.

    The rows after the first are ranked: those in which every request was met come first, then those with the lower reserved peak, then
    those with fewer calls of the device; where memory runs out, later is better. Settings that the release does not know are left out.
    The arguments are those of :func:`~lifecycle_sim.study.what_if.what_if_allocator`.
    """
    question = ask(replayed, capacity, release)
    chosen = [(text.strip() or "default", parse_options(text, question.release)) for text in settings]
    names = {name for name, _ in chosen}
    usual = USUAL if question.capacity is None else USUAL + WITH_CAPACITY
    chosen += [
        (text or "default", known)
        for text in usual
        if (text or "default") not in names and (known := _known(text, question.release)) is not None and known != question.recorded
    ]
    found = answer(question, chosen, workers, executor)
    return replace(found, rows=(found.rows[0], *sorted(found.rows[1:], key=rank)))


def rank(row: WhatIfRow) -> tuple[int, int, int, int]:
    """What rows are ranked by, the best first."""
    came = row.outcome
    if came.failure is None:
        return 0, 0, came.peak_reserved, came.device_allocs
    return 1, -came.failure.request, came.peak_reserved, came.device_allocs


def _known(text: str, release: Release) -> AllocatorSettings | None:
    try:
        return parse_options(text, release)
    except InputError:
        return None
