"""``lifecycle-sim plot``: draw a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import capacity_option, device_option, output_options, parameter_option
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import name_of, open_trace
from lifecycle_sim.output.atomic import refuse_to_overwrite
from lifecycle_sim.output.verdict import verdict
from lifecycle_sim.replay import DeviceReplay, replay_device
from lifecycle_sim.replay.grouping import BY

KINDS = ("timeline", "lifecycle", "composition", "size-span", "levels", "address-map", "address-time")
Axis = Literal["event", "time"]
OVER_EVENTS = ("timeline", "lifecycle")
BY_STATE = "state"
"""What only blocks can be coloured by, and are by default."""
BY_OF_BLOCKS = (BY_STATE, "owner", "category")
BY_HELP = (
    f"What the colours stand for: {', '.join(BY)}; by default categories or owners, where they are known. "
    f"In an address map one of {', '.join(BY_OF_BLOCKS)}."
)
X_HELP = "The horizontal axis; by default time in a scenario, where events of one instant stand together, and events in a recording."
SUFFIXES = (".png", ".svg", ".pdf")


@click.command("plot")
@click.argument("source")
@output_options
@click.option("--kind", type=click.Choice(KINDS), default="timeline", show_default=True, help="What to draw.")
@click.option("--by", type=click.Choice((*BY, BY_STATE)), metavar="GROUPING", help=BY_HELP)
@click.option("--at", type=click.IntRange(-1), metavar="EVENT", help="Draw the address map after this event; -1 is the start.")
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
    at: int | None,
    x: Axis | None,
    capacity: int | None,
    parameters: dict[str, int],
    device: str | None,
) -> None:
    """Draw SOURCE: its level over events or time, live intervals, composition at the peak, sizes × spans, levels, or addresses.

    The levels of a recording are requested, allocated, active and reserved bytes. An address map shows the segments and blocks at the end
    of a recording or after any event, address-time all storages at their addresses over events.

    The figure shows one device: the one with the highest peak, unless --device names another. Its format is that of the file's suffix:
    .png, .svg or .pdf. The exit code is 1 if that device does not fit into --capacity, or that cannot be told; the figure is drawn all
    the same.

    \b
    Example:
      lifecycle-sim plot snapshot.pickle -o timeline.png --by owner
      lifecycle-sim plot snapshot.pickle -o map.png --kind address-map
    """
    if Path(output).suffix.lower() not in SUFFIXES:
        raise click.BadParameter(f"{output!r} ends in none of {', '.join(SUFFIXES)}", param_hint="--output")
    if capacity is not None and kind not in ("timeline", "levels"):
        raise click.UsageError("--capacity is a line in a timeline: leave it out, or choose --kind timeline or levels")
    if x is not None and kind not in OVER_EVENTS:
        raise click.UsageError(f"--kind {kind} has no axis to choose: leave --x out, or choose --kind {' or '.join(OVER_EVENTS)}")
    if by is not None and kind in ("size-span", "levels"):
        what = "a size × span chart shows" if kind == "size-span" else "levels are those of"
        raise click.UsageError(f"{what} all storages alike: leave --by out")
    if at is not None and kind != "address-map":
        raise click.UsageError("--at is the event of an address map: leave it out, or choose --kind address-map")
    if by is not None and (by not in BY_OF_BLOCKS if kind == "address-map" else by == BY_STATE):
        choices = BY_OF_BLOCKS if kind == "address-map" else BY
        raise click.UsageError(f"--kind {kind} cannot be coloured by {by}: choose one of {', '.join(choices)}")
    refuse_to_overwrite(output, force)
    trace = open_trace(source, parameters)
    replayed = replay_device(trace, device)
    with progress(f"drawing {output}"):
        draw(replayed, kind, by, at, x or default_x(replayed), capacity, output, force, Path(name_of(source)).name)
    ctx.exit(Exit.YES if capacity is None or verdict(replayed, capacity).fits else Exit.NO)


def default_x(replayed: DeviceReplay) -> Axis:
    """What a horizontal axis shows when nobody said: time in a scenario that takes some, else events."""
    times = replayed.recorded.events.time
    return "time" if replayed.trace.format == "scenario" and len(times) and times[-1] > times[0] else "event"


def draw(
    replayed: DeviceReplay,
    kind: str,
    by: str | None,
    at: int | None,
    x: Axis,
    capacity: int | None,
    output: str,
    force: bool,
    title: str = "",
) -> None:
    """Draw one figure and write it."""
    from lifecycle_sim.output import figures
    from lifecycle_sim.replay.allocator.recording import open_loop
    from lifecycle_sim.replay.moment import moment
    from lifecycle_sim.replay.steady import steady_state

    grouping = "auto" if by is None else by
    if kind == "timeline":
        axes = figures.timeline(replayed, by=grouping, steady=steady_state(replayed), capacity=capacity, x=x, title=title)
    elif kind == "lifecycle":
        axes = figures.lifecycle_chart(replayed, by=grouping, x=x, title=title)
    elif kind == "composition":
        axes = figures.composition(replayed, by=grouping, title=title)
    elif kind == "size-span":
        axes = figures.size_span(replayed, title=title)
    elif kind == "levels":
        loop = open_loop(replayed.trace, replayed.device)
        tell_differences(replayed, loop.difference_count)
        axes = figures.levels(replayed, loop.levels, capacity)
    elif kind == "address-map":
        held = None if at is None else moment(replayed, at)
        if held is not None:
            tell_differences(replayed, held.differences)
        state = None if held is None else held.state
        axes = figures.address_map(replayed, state, at, by=BY_STATE if by is None else by)
    else:
        axes = figures.address_time(replayed, by=grouping)
    figures.save(axes, output, force)


def tell_differences(replayed: DeviceReplay, count: int) -> None:
    """Say on standard error if the allocator, replayed, did not decide as recorded: blocks and levels may then be others."""
    if count:
        click.echo(
            f"{replayed.device}: the allocator, replayed, differs from the recording {count:,} times: see lifecycle-sim allocator", err=True
        )
