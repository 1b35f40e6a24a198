"""``lifecycle-sim plot``: draw a figure."""

from __future__ import annotations

import os
from typing import Literal

import click

from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import capacity_option, device_option, output_options, parameter_option
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import name_of, open_trace
from lifecycle_sim.output.atomic import refuse_to_overwrite
from lifecycle_sim.output.verdict import verdict
from lifecycle_sim.replay import DeviceReplay, replay
from lifecycle_sim.replay.grouping import BY

KINDS = ("timeline", "lifecycle", "composition", "size-span")
Axis = Literal["event", "time"]
OVER_EVENTS = ("timeline", "lifecycle")
BY_HELP = f"What the colours stand for: {', '.join(BY)}; by default categories or owners, where they are known."
X_HELP = "The horizontal axis; by default time in a scenario, where events of one instant stand together, and events in a recording."
SUFFIXES = (".png", ".svg", ".pdf")


@click.command("plot")
@click.argument("source")
@output_options
@click.option("--kind", type=click.Choice(KINDS), default="timeline", show_default=True, help="What to draw.")
@click.option("--by", type=click.Choice(BY), metavar="GROUPING", help=BY_HELP)
@click.option("--x", type=click.Choice(("event", "time")), help=X_HELP)
@capacity_option
@parameter_option
@device_option
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    output: str,
    force: bool,
    kind: str,
    by: str | None,
    x: Axis | None,
    capacity: int | None,
    parameters: dict[str, int],
    device: str | None,
) -> None:
    """Draw SOURCE: its level over events or time, live intervals, composition at the peak, or sizes × spans.

    The figure shows one device: the one with the highest peak, unless --device names another. Its format is that of the file's suffix:
    .png, .svg or .pdf. The exit code is 1 if that device does not fit into --capacity, or that cannot be told.

    \b
    Example:
      lifecycle-sim plot snapshot.pickle -o timeline.png --by owner
    """
    if not output.lower().endswith(SUFFIXES):
        raise click.BadParameter(f"{output!r} ends in none of {', '.join(SUFFIXES)}", param_hint="--output")
    if capacity is not None and kind != "timeline":
        raise click.UsageError("--capacity is a line in a timeline: leave it out, or choose --kind timeline")
    if x is not None and kind not in OVER_EVENTS:
        raise click.UsageError(f"a {kind} figure has no axis of events: leave --x out, or choose --kind {' or '.join(OVER_EVENTS)}")
    if by is not None and kind == "size-span":
        raise click.UsageError("a size × span chart shows all storages alike: leave --by out")
    refuse_to_overwrite(output, force)
    trace = open_trace(source, parameters)
    replayed = replay(trace, device)
    with progress(f"drawing {output}"):
        draw(replayed, kind, by, x or default_x(replayed), capacity, output, force, os.path.basename(name_of(source)))
    ctx.exit(Exit.YES if capacity is None or verdict(replayed, capacity).fits else Exit.NO)


def default_x(replayed: DeviceReplay) -> Axis:
    """What a horizontal axis shows when nobody said: time in a scenario that takes some, else events."""
    times = replayed.recorded.events.time
    return "time" if replayed.trace.format == "scenario" and len(times) and times[-1] > times[0] else "event"


def draw(
    replayed: DeviceReplay, kind: str, by: str | None, x: Axis, capacity: int | None, output: str, force: bool, title: str = ""
) -> None:
    """Draw one figure and write it."""
    from lifecycle_sim.output import figures
    from lifecycle_sim.replay.steady import steady_state

    grouping = "auto" if by is None else by
    if kind == "timeline":
        axes = figures.timeline(replayed, by=grouping, steady=steady_state(replayed), capacity=capacity, x=x, title=title)
    elif kind == "lifecycle":
        axes = figures.lifecycle_chart(replayed, by=grouping, x=x, title=title)
    elif kind == "composition":
        axes = figures.composition(replayed, by=grouping, title=title)
    else:
        axes = figures.size_span(replayed, title=title)
    figures.save(axes, output, force)
