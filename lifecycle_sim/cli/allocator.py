"""``lifecycle-sim allocator``: a recording replayed by the caching allocator on its own."""

from __future__ import annotations

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import on_source
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import name_of, open_trace, the_only
from lifecycle_sim.events import Trace
from lifecycle_sim.output.summary import document
from lifecycle_sim.output.summary_allocator import allocator_record, reproduced
from lifecycle_sim.replay.allocator.recording import OpenLoop, open_loop, replayable

AT_HELP = "Share out the reserved bytes after this event instead of at their peak; -1 is the start."
RELEASE_HELP = 'The PyTorch release whose rules hold, such as "2.11"; by default what the file tells.'


@click.command("allocator")
@on_source
@click.option("--at", type=click.IntRange(-1), metavar="EVENT", help=AT_HELP)
@click.option("--release", metavar="RELEASE", help=RELEASE_HELP)
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    parameters: dict[str, int],
    device: str | None,
    as_json: bool,
    at: int | None,
    release: str | None,
) -> None:
    """Replay SNAPSHOT by PyTorch's caching allocator on its own, and tell where it decides as recorded.

    It is told the requests and frees, the addresses of new segments, and when memory was given back; which block a request gets, when
    segments are obtained and which ones go, it decides by itself. Then: requested, allocated, active and reserved bytes with their
    peaks, and where the reserved bytes go. The exit code is 1 if anything differs from the recording.

    \b
    Examples:
      lifecycle-sim allocator snapshot.pickle
      lifecycle-sim allocator snapshot.pickle --at 1200 --release 2.11 --json
    """
    trace = open_trace(source, parameters)
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
