"""Draws a timeline: occupancy over events or time, stacked by what holds it, with the exact peak."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from lifecycle_sim.events import Span
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.output.downsample import choose_positions
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.lanes import draw_spans
from lifecycle_sim.output.figures.marks import dress_events, mark_gaps, mark_oom, mark_peak, peak_text
from lifecycle_sim.output.figures.scale import EventScale
from lifecycle_sim.output.figures.series import chosen_grouping, series
from lifecycle_sim.output.figures.ticks import byte_ticks
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.steady import SteadyState
from lifecycle_sim.units import format_bytes

ROOM_FOR_TEXT, ROOM_FOR_TWO_LINES = 0.13, 0.2
CAPACITY_IN_VIEW = 1.5
DENSE = 500
Entries = list[tuple[Artist, str]]


def timeline(
    replayed: DeviceReplay,
    by: str | None = "auto",
    steady: SteadyState | int | None = None,
    capacity: int | None = None,
    x: Literal["event", "time"] = "event",
    top: int = 8,
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """Draw the timeline of one device, stacked by group, with its exact peak.

    Long timelines are drawn at about 2000 events, among them the peak. The legend tells what each group holds at the peak. Where the
    recording lost events, the bounds of the peak stand beside it and the gaps are shown; allocations that failed are crosses. In a
    notebook, a cell that ends in the axes of a figure of its own shows the figure.

    Args:
        replayed: what was recorded on one device.
        by: what to group by, see :func:`~lifecycle_sim.replay.grouping.group`; None draws the total alone, and so does a record
            without identities; ``"auto"`` takes the category where categories are known, else the owner where stacks are.
        steady: the steady state, or its level in bytes, drawn as a line; the steps of a steady state are named along the top.
        capacity: bytes to compare with; by default what the record states.
        x: ``"event"``, or ``"time"`` where the trace has a clock.
        top: how many groups to tell apart; the others are one.
        ax: where to draw; by default on a figure of its own.
        title: what was recorded, such as the name of the file, for the line below the headline.

    Raises:
        InputError: *by* is not a known grouping, or *x* is ``"time"`` and there is no clock.
    """
    scale, by = EventScale.of(replayed, x), chosen_grouping(replayed, by)
    ax = style.new_axes(ax)
    entries = _draw_total(ax, replayed, scale) if by is None else _draw_stack(ax, replayed, scale, by, top)
    entries += _draw_reserved(ax, replayed, scale)
    entries += _draw_limits(ax, replayed, scale, steady, replayed.recorded.capacity if capacity is None else capacity)
    if (gaps := mark_gaps(ax, replayed, scale)) is not None:
        entries.append((gaps, "the recording lost events"))
    if (failed := mark_oom(ax, replayed, scale)) is not None:
        entries.append(failed)
    lanes = draw_spans(ax, replayed, scale, _spans_of(steady))
    mark_peak(ax, replayed, scale)
    moment = "at the snapshot" if style.state_only(replayed) else "at the peak"
    style.legend(ax, [*entries, *lanes.entries], f"{moment}, by {by}" if by else None)
    ax.set_xlim(*scale.limits)
    dress_events(ax, replayed, scale)
    ax.set_ylabel(style.level_basis(replayed))
    byte_ticks(ax.yaxis, style.is_relative(replayed))
    style.dress(ax, f"Occupancy of {replayed.device}", replayed, above=lanes.height, title=title)
    return ax


def _draw_total(ax: Axes, replayed: DeviceReplay, scale: EventScale) -> Entries:
    positions = _positions(replayed)
    edges, levels = scale.edges(positions), _held(replayed.timeline.levels[positions])
    ax.fill_between(edges, levels, step="post", color=style.SEQUENCE[0], alpha=0.25, linewidth=0, zorder=2)
    (line,) = ax.plot(edges, levels, drawstyle="steps-post", color=style.SEQUENCE[0], linewidth=1.0, zorder=5, gid="total")
    return [(line, f"{style.level_text(replayed, replayed.peak.size)}  {replayed.timeline.basis}")]


def _draw_stack(ax: Axes, replayed: DeviceReplay, scale: EventScale, by: str, top: int) -> Entries:
    """Stack the groups of *replayed*; return for the legend what each holds at the peak, from the top of the stack down."""
    positions = _positions(replayed)
    stack, edges = series(replayed, by, positions, top), scale.edges(positions)
    colours = style.colours(by, stack.ranking)
    at_peak = int(positions.searchsorted(replayed.peak.event + 1))
    floor = np.zeros(len(edges))
    entries: Entries = []
    for key, name, levels in zip(stack.keys, style.short_names(stack.keys), stack.levels, strict=True):
        ceiling = floor + _held(levels)
        look: dict[str, Any] = {"facecolor": colours[key], "edgecolor": style.HATCHING, "hatch": style.hatch(key), "linewidth": 0}
        ax.fill_between(edges, floor, ceiling, step="post", zorder=2, gid=f"area {key}", **look)
        entries.append((style.swatch(key, colours[key]), f"{format_bytes(int(levels[at_peak]))}  {name}"))
        floor = ceiling
    total = _held(replayed.timeline.levels[positions])
    ax.plot(edges, total, drawstyle="steps-post", color=style.INK, linewidth=0.7 if len(edges) < DENSE else 0.4, zorder=5, gid="total")
    return entries[::-1]


def _draw_reserved(ax: Axes, replayed: DeviceReplay, scale: EventScale) -> Entries:
    reserved = replayed.reserved
    if reserved is None or not reserved.peak_size:
        return []
    positions = choose_positions(reserved.levels)
    edges, levels = scale.edges(positions), _held(reserved.levels[positions])
    (line,) = ax.plot(edges, levels, drawstyle="steps-post", color=style.RESERVED, linewidth=1.2, zorder=4, gid="reserved")
    return [(line, f"reserved, at most {format_bytes(reserved.peak_size)}")]


def _draw_limits(ax: Axes, replayed: DeviceReplay, scale: EventScale, steady: SteadyState | int | None, capacity: int | None) -> Entries:
    """Draw steady state and capacity, and set the vertical limits; a capacity far above all levels is told but not drawn to scale."""
    entries: Entries = []
    level, since = (steady.level, steady.since) if isinstance(steady, SteadyState) else (steady, None)
    highest = max(replayed.peak.size, replayed.peak.upper or 0, level or 0, replayed.reserved.peak_size if replayed.reserved else 0, 1)
    if level is not None:
        begin = float(scale.at[0])
        if isinstance(steady, SteadyState) and since is not None:
            begin = scale.event(steady.steps[since].start)
        (line,) = ax.plot(
            [begin, float(scale.at[-1])], [level, level], color=style.STEADY, linewidth=1.3, linestyle=(0, (4, 2)), zorder=5, gid="steady"
        )
        entries.append(
            (line, f"steady state {style.level_text(replayed, level)}" + ("" if since is None else f", from step {since + 1} on"))
        )
    if capacity is not None and style.is_relative(replayed):
        entries.append((Line2D([], [], linestyle="none"), f"capacity {format_bytes(capacity)}, not comparable"))
    elif capacity is not None and capacity > CAPACITY_IN_VIEW * highest:
        entries.append((Line2D([], [], linestyle="none"), f"capacity {format_bytes(capacity)}, above the figure"))
    elif capacity is not None:
        line = ax.axhline(capacity, color=style.CAPACITY, linewidth=1.4, linestyle=(0, (6, 1.5, 1, 1.5)), zorder=5, gid="capacity")
        entries.append((line, f"capacity {format_bytes(capacity)}"))
        highest = max(highest, capacity)
    lowest = min(0, int(replayed.timeline.levels.min()))
    room = ROOM_FOR_TWO_LINES if "\n" in peak_text(replayed) else ROOM_FOR_TEXT
    ax.set_ylim(float(lowest), highest + room * (highest - lowest))
    return entries


def _spans_of(steady: SteadyState | int | None) -> list[Span]:
    """The steps of *steady*, numbered from 1 as people count them."""
    return (
        [Span("step", f"step {k}", step.start, step.stop) for k, step in enumerate(steady.steps, start=1)]
        if isinstance(steady, SteadyState)
        else []
    )


def _positions(replayed: DeviceReplay) -> Int64:
    return choose_positions(replayed.timeline.levels, keep=[replayed.peak.event + 1])


def _held(levels: NDArray[Any]) -> NDArray[Any]:
    """Levels as a step that holds to the end of the axis."""
    return np.append(levels, levels[-1]).astype(float)
