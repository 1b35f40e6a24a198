"""``lifecycle-sim plot``: draw a figure."""

from __future__ import annotations

from pathlib import Path

import click

from lifecycle_sim.cli.options import capacity_option, device_option, output_options, parameter_option
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import open_trace
from lifecycle_sim.output.atomic import refuse_to_overwrite
from lifecycle_sim.replay import DeviceReplay, replay
from lifecycle_sim.replay.grouping import BY

KINDS = ("timeline", "lifecycle", "composition", "size-span")
BY_HELP = f"What the colours stand for: {', '.join(BY)}; by default categories or owners, where they are known."
SUFFIXES = (".png", ".svg", ".pdf")


@click.command("plot")
@click.argument("source")
@output_options
@click.option("--kind", type=click.Choice(KINDS), default="timeline", show_default=True, help="What to draw.")
@click.option("--by", type=click.Choice(BY), metavar="GROUPING", help=BY_HELP)
@capacity_option
@parameter_option
@device_option
def command(
    source: str,
    output: str,
    force: bool,
    kind: str,
    by: str | None,
    capacity: int | None,
    parameters: dict[str, int],
    device: str | None,
) -> None:
    """Draw SOURCE: its level over events, live intervals, composition at the peak, or sizes × spans.

    The figure shows one device: the one with the highest peak, unless --device names another. Its format is that of the file's suffix:
    .png, .svg or .pdf.

    \b
    Example:
      lifecycle-sim plot snapshot.pickle -o timeline.png --by owner
    """
    if Path(output).suffix.lower() not in SUFFIXES:
        raise click.BadParameter(f"{output!r} ends in none of {', '.join(SUFFIXES)}", param_hint="--output")
    if capacity is not None and kind != "timeline":
        raise click.UsageError("--capacity is a line in a timeline: leave it out, or choose --kind timeline")
    if by is not None and kind == "size-span":
        raise click.UsageError("a size × span chart shows all storages alike: leave --by out")
    refuse_to_overwrite(output, force)
    trace = open_trace(source, parameters)
    with progress(f"drawing {output}"):
        draw(replay(trace, device), kind, by, capacity, output, force)


def draw(replayed: DeviceReplay, kind: str, by: str | None, capacity: int | None, output: str, force: bool) -> None:
    """Draw one figure and write it."""
    from lifecycle_sim.output import figures
    from lifecycle_sim.replay.steady import steady_state

    grouping = "auto" if by is None else by
    if kind == "timeline":
        axes = figures.timeline(replayed, by=grouping, steady=steady_state(replayed).level, capacity=capacity)
    elif kind == "lifecycle":
        axes = figures.lifecycle_chart(replayed, by=grouping)
    elif kind == "composition":
        axes = figures.composition(replayed, by=grouping)
    else:
        axes = figures.size_span(replayed)
    figures.save(axes, output, force)
