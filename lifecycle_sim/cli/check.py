"""``lifecycle-sim check``: does a recording contradict itself, and what did it lose."""

from __future__ import annotations

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import on_source
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import name_of, open_trace, replays
from lifecycle_sim.events.check import check
from lifecycle_sim.output.summary import document
from lifecycle_sim.output.summary_check import check_record, is_sound, whole_findings


@click.command("check")
@on_source
@click.pass_context
def command(ctx: click.Context, source: str, parameters: dict[str, int], device: str | None, as_json: bool) -> None:
    """Check SOURCE against itself: structure, losses, and the replayed end against the recorded one.

    The exit code is 1 when problems are found.

    \b
    Example:
      lifecycle-sim check snapshot.pickle
    """
    trace = open_trace(source, parameters)
    with progress("checking"):
        findings = check(trace)
    devices = [check_record(replayed, findings) for replayed in replays(trace, device)]
    whole = whole_findings(findings)
    sound = is_sound(whole, devices)
    answer(document("check", trace, name_of(source), devices, findings=whole, sound=sound), as_json)
    ctx.exit(Exit.YES if sound else Exit.NO)
