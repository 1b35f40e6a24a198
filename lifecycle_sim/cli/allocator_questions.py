"""The questions of ``lifecycle-sim allocator`` besides the report: what if, and why did it fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from lifecycle_sim.cli.options import read_size
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import replays, the_only
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Trace
from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.summary_what_if import what_if_record
from lifecycle_sim.output.summary_why import why_record
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.study.sweep import sweep_allocator
from lifecycle_sim.study.what_if import WhatIf, what_if_allocator
from lifecycle_sim.study.why import why_out_of_memory

Command = TypeVar("Command", bound=Callable[..., Any])

SET_HELP = 'What if these were the settings: an options string as in PYTORCH_CUDA_ALLOC_CONF, such as "max_split_size_mb:128"; repeatable.'
SWEEP_HELP = "What if: try the usual settings and rank them."
CAPACITY_HELP = 'What if the device had this many bytes, such as "24 GiB".'
WHY_HELP = "Why memory ran out, or would with --capacity, and what would have made it fit."
EVENT_HELP = "With --why: which out-of-memory event of the recording; by default the first."
WORKERS_HELP = "With --set or --sweep: processes to spread the replays over; by default as many as are worth it."
NOT_SIMULATED = ("pinned", "cpu")


def question_options(command: Command) -> Command:
    """``--set``, ``--sweep``, ``--capacity``, ``--why``, ``--event`` and ``--workers``."""
    for add in (
        click.option("--workers", type=click.IntRange(1), metavar="N", help=WORKERS_HELP),
        click.option("--event", type=click.IntRange(0), metavar="EVENT", help=EVENT_HELP),
        click.option("--why", is_flag=True, help=WHY_HELP),
        click.option("--capacity", metavar="SIZE", callback=read_size, help=CAPACITY_HELP),
        click.option("--sweep", is_flag=True, help=SWEEP_HELP),
        click.option("--set", "settings", multiple=True, metavar="OPTIONS", help=SET_HELP),
    ):
        command = add(command)
    return command


def check_question(settings: Sequence[str], sweep: bool, capacity: int | None, why: bool, event: int | None, at: int | None) -> None:
    """Check that the options ask one question.

    Raises:
        UsageError: they do not.
    """
    if why and (settings or sweep):
        raise click.UsageError("--why tries other settings by itself: leave --set and --sweep out")
    if event is not None and not why:
        raise click.UsageError("--event chooses the failure that --why explains: add --why, or use --at")
    if event is not None and capacity is not None:
        raise click.UsageError("--event is a failure of the recorded device and --capacity makes another device: choose one")
    if at is not None and (why or settings or sweep or capacity is not None):
        raise click.UsageError("--at belongs to the report on the recording: leave it out")


def what_if_answers(
    trace: Trace,
    device: str | None,
    settings: Sequence[str],
    sweep: bool,
    capacity: int | None,
    release: str | None,
    workers: int | None,
) -> list[Record]:
    """Replay each device under other settings."""

    def ask(replayed: DeviceReplay) -> WhatIf:
        if sweep:
            return sweep_allocator(replayed, tuple(settings), capacity=capacity, release=release, workers=workers)
        return what_if_allocator(replayed, settings, capacity=capacity, release=release, workers=workers)

    chosen = _simulated(trace, device)
    with progress("replaying under other settings"):
        return [_head(each) | {"what_if": what_if_record(ask(each), sweep)} for each in chosen]


def why_answers(trace: Trace, device: str | None, event: int | None, capacity: int | None, release: str | None) -> list[Record]:
    """Explain the failures of each device."""
    chosen = _simulated(trace, device)
    if event is not None:
        the_only(chosen, "--event")
    with progress("replaying what would have helped"):
        return [
            _head(each) | {"why": why_record(why_out_of_memory(each, event=event, capacity=capacity, release=release))} for each in chosen
        ]


def _head(replayed: DeviceReplay) -> Record:
    return {"device": replayed.device, "events": len(replayed.timeline)}


def _simulated(trace: Trace, device: str | None) -> tuple[DeviceReplay, ...]:
    """The devices whose memory comes from the caching allocator, or the one that was asked for."""
    chosen = tuple(each for each in replays(trace, device) if device is not None or each.device not in NOT_SIMULATED)
    if not chosen:
        names = ", ".join(each.device for each in trace)
        raise InputError(f"no memory of the CUDA caching allocator was recorded, only {names}: its settings change nothing there")
    return chosen
