"""What figures over events have in common: the peak, the gaps in a recording, and named spans along the top."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.transforms import Affine2D, Affine2DBase, ScaledTranslation, blended_transform_factory

from lifecycle_sim.events import Span
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.scale import EventScale
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.units import format_bytes

LANE_POINTS, LANE_GAP_POINTS = 10.5, 2.5
LANE_COLOURS = ("#DDE3E8", "#C9D1D8")
CHARACTER_INCHES = 0.062
FEW_SPANS, MOST_IN_A_LANE = 40, 2000
SPAN_KINDS = ("step", "phase")
OTHER_SPAN_KINDS = ("annotation", "operator")


def peak_text(replayed: DeviceReplay) -> str:
    """Return the peak in words: its bytes, its event, and its bounds where it is not exact."""
    peak = replayed.peak
    place = f"at event {peak.event:,}" if peak.event >= 0 else "before the first event"
    text = f"peak {format_bytes(peak.size)} {place}"
    if peak.exact:
        return text
    if peak.upper is None:
        return f"{text}\nat least {format_bytes(peak.lower)}: nothing bounds it from above"
    return f"{text}\ntrue peak between {format_bytes(peak.lower)} and {format_bytes(peak.upper)}"


def mark_peak(ax: Axes, replayed: DeviceReplay, scale: EventScale) -> None:
    """Mark the exact peak of *replayed* with a point and a text at the top of *ax*, and with a whisker from bound to bound."""
    peak = replayed.peak
    where, highest = scale.event(peak.event), peak.size if peak.upper is None else peak.upper
    if not peak.exact:
        spread = [[peak.size - peak.lower], [highest - peak.size]]
        ax.axhspan(peak.lower, highest, color=style.PEAK, alpha=0.1, linewidth=0, zorder=1, gid="bounds")
        ax.errorbar([where], [peak.size], spread, lolims=peak.upper is None, color=style.PEAK, capsize=4, linewidth=1.2, zorder=6)
    ax.plot([where], [peak.size], "o", markersize=5.5, color=style.PEAK, markeredgecolor=style.PAPER, zorder=7, clip_on=False, gid="peak")
    side = _side(scale, where)
    ax.annotate(
        peak_text(replayed),
        xy=(where, highest),
        xytext=(where, 0.985),
        textcoords=("data", "axes fraction"),
        ha=side,
        va="top",
        fontsize=style.NORMAL,
        fontweight="bold",
        color=style.PEAK,
        linespacing=1.3,
        zorder=8,
        arrowprops={
            "arrowstyle": "-",
            "color": style.PEAK,
            "linewidth": 0.8,
            "shrinkA": 0,
            "shrinkB": 3,
            "relpos": ({"left": 0.0, "center": 0.5, "right": 1.0}[side], 0.0),
        },
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


def mark_spans(ax: Axes, replayed: DeviceReplay, scale: EventScale, steps: Iterable[Span] = ()) -> float:
    """Draw the steps and phases of *replayed*, or else its other spans, as lanes above *ax*; return the points of height they take.

    Where the recording names no steps, *steps* are drawn as such.
    """
    spans = list(replayed.recorded.spans)
    if not any(span.kind == "step" for span in spans):
        spans += steps
    lanes = _lanes(spans, SPAN_KINDS, scale) or _lanes(spans, OTHER_SPAN_KINDS, scale)[:1]
    for number, lane in enumerate(lanes):
        _draw_lane(ax, lane, number, scale)
    if lanes and len(lanes[-1]) <= FEW_SPANS:
        for span in lanes[-1]:
            ax.axvline(scale.event(span.start), color=style.MUTED, linewidth=0.5, alpha=0.45, zorder=3)
    return (LANE_POINTS + LANE_GAP_POINTS) * len(lanes)


def _lanes(spans: Iterable[Span], kinds: Sequence[str], scale: EventScale) -> list[list[Span]]:
    """For each of *kinds* that has some, its spans that lie in no other and are wide enough to see; of two that overlap the first."""
    narrowest = scale.width / MOST_IN_A_LANE
    in_order = sorted(spans, key=lambda span: (span.start, -span.stop))
    lanes: list[list[Span]] = []
    for kind in kinds:
        kept: list[Span] = []
        for span in in_order:
            if (
                span.kind == kind
                and (not kept or span.start >= kept[-1].stop)
                and scale.event(span.stop) - scale.event(span.start) > narrowest
            ):
                kept.append(span)
        if kept:
            lanes.append(kept)
    return lanes


def _draw_lane(ax: Axes, lane: Sequence[Span], number: int, scale: EventScale) -> None:
    top_edge = ScaledTranslation(0, 1, cast(Affine2DBase, ax.transAxes))
    points_above = Affine2D().scale(1 / 72) + ax.figure.dpi_scale_trans + top_edge
    across = blended_transform_factory(ax.transData, points_above)
    bottom = LANE_GAP_POINTS + number * (LANE_POINTS + LANE_GAP_POINTS)
    ranges = [(scale.event(span.start), scale.event(span.stop) - scale.event(span.start)) for span in lane]
    shades = [LANE_COLOURS[k % 2] for k in range(len(lane))]
    ax.broken_barh(ranges, (bottom, LANE_POINTS), facecolors=shades, transform=across, clip_on=False, linewidth=0)
    inches_a_unit = 0.8 * ax.bbox.width / ax.figure.dpi / scale.width
    for span, (left, width) in zip(lane, ranges, strict=True):
        (name,) = style.short_names([span.name], 24)
        if len(name) * CHARACTER_INCHES < width * inches_a_unit:
            middle = (left + width / 2, bottom + LANE_POINTS / 2)
            ax.text(*middle, name, transform=across, ha="center", va="center_baseline", fontsize=6.5, color=style.INK, parse_math=False)
