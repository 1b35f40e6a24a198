"""What figures over events have in common: the peak, gaps in a recording, allocations that failed, and the horizontal axis."""

from __future__ import annotations

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation, Transform

from lifecycle_sim.events import Kind
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.lanes import mark_spans
from lifecycle_sim.output.figures.scale import EventScale
from lifecycle_sim.output.figures.ticks import count_ticks, time_ticks
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.units import format_bytes

BEHIND_TEXT = {"facecolor": style.PAPER, "alpha": 0.85, "linewidth": 0, "pad": 1.5}
"""What is put behind a text so that lines do not run through it."""

__all__ = ["BEHIND_TEXT", "dress_events", "mark_gaps", "mark_oom", "mark_peak", "mark_spans", "peak_text"]


def peak_text(replayed: DeviceReplay) -> str:
    """Return the peak in words: its bytes, its event, and its bounds where it is not exact."""
    peak = replayed.peak
    if style.state_only(replayed):
        return f"{format_bytes(peak.size)} at the snapshot\nno history was recorded: the peak is not known"
    place = f"after event {peak.event:,}" if peak.event >= 0 else "before the first event"
    text = f"peak {style.level_text(replayed, peak.size)} {place}"
    if peak.exact or style.is_relative(replayed):
        return text
    if peak.upper is None:
        return f"{text}\nat least {format_bytes(peak.lower)}: nothing bounds it from above"
    return f"{text}\ntrue peak between {format_bytes(peak.lower)} and {format_bytes(peak.upper)}"


def mark_peak(ax: Axes, replayed: DeviceReplay, scale: EventScale) -> None:
    """Mark the exact peak of *replayed* with a point and a text at the top of *ax*, and with a whisker from bound to bound.

    Where only a state was recorded there is nothing to point at, and the text stands in the middle.
    """
    peak = replayed.peak
    if style.state_only(replayed):
        _write(ax, peak_text(replayed), (0.5, 0.985), ax.transAxes, "center")
        return
    where, highest = scale.event(peak.event), peak.size if peak.upper is None else peak.upper
    if not peak.exact and not style.is_relative(replayed):
        spread = [[peak.size - peak.lower], [highest - peak.size]]
        ax.axhspan(peak.lower, highest, color=style.PEAK, alpha=0.1, linewidth=0, zorder=1, gid="bounds")
        ax.errorbar([where], [peak.size], spread, lolims=peak.upper is None, color=style.PEAK, capsize=4, linewidth=1.2, zorder=6)
    ax.plot([where], [peak.size], "o", markersize=5.5, color=style.PEAK, markeredgecolor=style.PAPER, zorder=7, clip_on=False, gid="peak")
    side = _side(scale, where)
    _write(ax, peak_text(replayed), (where, 0.985), ax.get_xaxis_transform(), side, (where, highest))


def _write(
    ax: Axes, text: str, at: tuple[float, float], coordinates: Transform, side: str, points_to: tuple[float, float] | None = None
) -> None:
    """Write *text* in the colour of peaks with its top at *at*, and draw a line to what it points to."""
    aside = ScaledTranslation({"left": 4, "center": 0, "right": -4}[side] / 72, 0, ax.figure.dpi_scale_trans)
    line = {"arrowstyle": "-", "color": style.PEAK, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 3}
    ax.annotate(
        text,
        xy=points_to or at,
        xycoords="data" if points_to else coordinates,
        xytext=at,
        textcoords=coordinates + aside,
        ha=side,
        va="top",
        fontsize=style.NORMAL,
        fontweight="bold",
        color=style.PEAK,
        linespacing=1.3,
        bbox=BEHIND_TEXT,
        zorder=8,
        arrowprops=line | {"relpos": ({"left": 0.0, "center": 0.5, "right": 1.0}[side], 0.0)} if points_to else None,
    )


def _side(scale: EventScale, where: float) -> str:
    share = (where - scale.limits[0]) / scale.width
    return "left" if share < 0.2 else "right" if share > 0.8 else "center"


def mark_gaps(ax: Axes, replayed: DeviceReplay, scale: EventScale) -> Artist | None:
    """Mark where the recording of *replayed* lost events; return what the legend shows for it, None if it lost none."""
    drawn: Artist | None = None
    for gap in replayed.gaps:
        drawn = ax.axvline(scale.event(gap.position), color=style.GAP, linewidth=1.0, linestyle=(0, (2, 2)), zorder=4)
        ax.axvspan(scale.event(gap.first), scale.event(gap.last), color=style.GAP, alpha=0.12, linewidth=0, zorder=0.5)
    return drawn


def mark_oom(ax: Axes, replayed: DeviceReplay, scale: EventScale) -> tuple[Artist, str] | None:
    """Mark the allocations that failed in *replayed*: a cross at the level then, and a dotted line up to what it would have become.

    Returns:
        What the legend shows for them, None if none failed.
    """
    events = replayed.recorded.events
    failed = np.flatnonzero(events.kind == Kind.OOM).tolist()
    if not failed:
        return None
    where, level = [scale.event(event) for event in failed], [replayed.timeline.at(event) for event in failed]
    wanted = [held + int(size) for held, size in zip(level, events.size[failed].tolist(), strict=True)]
    ax.vlines(where, level, wanted, color=style.INK, linewidth=1.0, linestyle=(0, (1, 1.5)), zorder=6, gid="oom asked for")
    (cross,) = ax.plot(
        where, level, "X", markersize=8, color=style.INK, markeredgecolor=style.PAPER, zorder=7, linestyle="none", clip_on=False, gid="oom"
    )
    first = f"event {failed[0]:,}: {format_bytes(int(events.size[failed[0]]))} on top of {style.level_text(replayed, level[0])}"
    more = f", and {len(failed) - 1:,} more" if len(failed) > 1 else ""
    return cross, f"out of memory, {first}{more}"


def dress_events(ax: Axes, replayed: DeviceReplay, scale: EventScale) -> None:
    """Give *ax* the ticks and the label of its horizontal axis; none where no allocation or free was recorded."""
    ax.set_xlabel(scale.label)
    if style.state_only(replayed):
        ax.set_xticks([])
        ax.set_xlabel("no allocation or free was recorded")
    elif scale.counts_events:
        count_ticks(ax.xaxis)
    else:
        time_ticks(ax.xaxis)
