"""``lifecycle-sim allocator``: a recording replayed by the caching allocator on its own, or under other settings, or to its failure."""

from __future__ import annotations

import click

from lifecycle_sim.cli.allocator_questions import check_question, question_options, what_if_answers, why_answers
from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import on_source
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import name_of, open_trace, the_only
from lifecycle_sim.events import Trace
from lifecycle_sim.output.summary import document
from lifecycle_sim.output.summary_allocator import allocator_record, reproduced
from lifecycle_sim.output.summary_what_if import what_ifs_fit
from lifecycle_sim.replay.allocator.recording import OpenLoop, open_loop, replayable

AT_HELP = "Share out the reserved bytes after this event instead of at their peak; -1 is the start."
RELEASE_HELP = 'The PyTorch release whose rules hold, such as "2.11"; by default what the file tells.'


@click.command("allocator")
@on_source
@click.option("--at", type=click.IntRange(-1), metavar="EVENT", help=AT_HELP)
@click.option("--release", metavar="RELEASE", help=RELEASE_HELP)
@question_options
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    parameters: dict[str, int],
    device: str | None,
    as_json: bool,
    at: int | None,
    release: str | None,
    settings: tuple[str, ...],
    sweep: bool,
    capacity: int | None,
    why: bool,
    event: int | None,
    workers: int | None,
) -> None:
    """Replay SOURCE by PyTorch's caching allocator: as recorded, under other settings, or to where memory runs out.

    By itself it takes a snapshot, lets the allocator decide on its own, and tells where it decides as recorded.

    It is told the requests and frees, the addresses of new segments, and when memory was given back; which block a request gets, when
    segments are obtained and which ones go, it decides by itself. Then: requested, allocated, active and reserved bytes with their
    peaks, and where the reserved bytes go. The exit code is 1 if anything differs from the recording.

    With --set, --sweep or --capacity it takes any trace and replays its requests under those settings, the recorded or default ones
    first. The exit code is 1 if a capacity is known and nothing fits.

    With --why it tells what was asked for when memory ran out, what was free, and what would have made it fit. The exit code is 1 if
    memory ran out.

    \b
    Examples:
      lifecycle-sim allocator snapshot.pickle
      lifecycle-sim allocator snapshot.pickle --at 1200 --release 2.11 --json
      lifecycle-sim allocator snapshot.pickle --set expandable_segments:True --capacity "24 GiB"
      lifecycle-sim allocator snapshot.pickle --sweep
      lifecycle-sim allocator snapshot.pickle --why
    """
    check_question(settings, sweep, capacity, why, event, at)
    trace = open_trace(source, parameters)
    if why:
        devices = why_answers(trace, device, event, capacity, release)
        fits: bool | None = all(each["why"]["fits"] for each in devices)
    elif settings or sweep or capacity is not None:
        devices = what_if_answers(trace, device, settings, sweep, capacity, release, workers)
        fits = what_ifs_fit(devices)
    else:
        report(ctx, trace, source, device, as_json, at, release)
        return
    answer(document("allocator", trace, name_of(source), devices, fits=fits), as_json)
    ctx.exit(Exit.NO if fits is False else Exit.YES)


def report(ctx: click.Context, trace: Trace, source: str, device: str | None, as_json: bool, at: int | None, release: str | None) -> None:
    """Tell how the allocator on its own compares with the recording."""
    told = replays(trace, device, release)
    if at is not None:
        the_only(told, "--at")
    with progress("sharing out"):
        devices = [allocator_record(trace, each, at) for each in told]
    exact = reproduced(devices)
    answer(document("allocator", trace, name_of(source), devices, exact=exact), as_json)
    ctx.exit(Exit.YES if exact else Exit.NO)


def replays(trace: Trace, device: str | None, release: str | None) -> tuple[OpenLoop, ...]:
    """Replay the device that was asked for, or all whose record allows it."""
    names: list[str | None] = [device]
    if device is None:
        names = [*replayable(trace)] or names
    with progress("replaying"):
        return tuple(open_loop(trace, name, release) for name in names)
