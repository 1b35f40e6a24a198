"""Named spans of events as lanes above a figure: steps and phases, or else annotations or operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import cast

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.transforms import Affine2D, Affine2DBase, ScaledTranslation, Transform, blended_transform_factory

from lifecycle_sim.events import Span
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.scale import EventScale
from lifecycle_sim.output.printable import shown
from lifecycle_sim.replay import DeviceReplay

LANE_POINTS, LANE_GAP_POINTS = 10.5, 2.5
SHADES = ("#DDE3E8", "#BFCAD3", "#A5B3C0", "#8C9DAD")
CHARACTER_INCHES = 0.062
LETTERS = 6.5
LONGEST_ENTRY = 32
FEWEST_CHARACTERS, LEAST_SHARE = 7, 0.6
"""So much of a name has to have room in its band; else a legend tells it."""
FEW_SPANS, MOST_IN_A_LANE = 40, 2000
MOST_LANES = {"step": 2, "phase": 2, "annotation": 4, "operator": 4}
"""How many lanes the spans of a kind may take where they overlap."""
SPAN_KINDS = ("step", "phase")
OTHER_SPAN_KINDS = ("annotation", "operator")


@dataclass(frozen=True)
class Lanes:
    """What the lanes above a figure take and say.

    Attributes:
        height: how many points they take above the axes.
        entries: what a legend has to show for bands that are too narrow for their names.
    """

    height: float
    entries: tuple[tuple[Artist, str], ...] = ()


@dataclass(frozen=True)
class _Kind:
    """The spans of one kind in lanes that hold spans one after another, and how many more found no room."""

    kind: str
    lanes: list[list[Span]]
    hidden: int

    def shades(self) -> dict[str, str]:
        """A shade for each name, where a few names recur."""
        given = [span.name for lane in self.lanes for span in lane]
        names = list(dict.fromkeys(given))
        return dict(zip(names, SHADES, strict=False)) if len(names) <= len(SHADES) and len(names) < len(given) else {}


def mark_spans(ax: Axes, replayed: DeviceReplay, scale: EventScale, steps: Iterable[Span] = ()) -> float:
    """Draw the spans of *replayed* as :func:`draw_spans` does; return the points of height they take."""
    return draw_spans(ax, replayed, scale, steps).height


def draw_spans(ax: Axes, replayed: DeviceReplay, scale: EventScale, steps: Iterable[Span] = ()) -> Lanes:
    """Draw the steps and phases of *replayed*, or else its other spans, as lanes above *ax*.

    Where the recording names no steps, *steps* are drawn as such. Spans of one kind that overlap take several lanes; how many find no
    room is written beside them.
    """
    spans = list(replayed.recorded.spans)
    if not any(span.kind == "step" for span in spans):
        spans += steps
    kinds = _kinds(spans, SPAN_KINDS, scale) or _kinds(spans, OTHER_SPAN_KINDS, scale)[:1]
    number = 0
    unnamed: dict[str, str] = {}
    for kind in kinds:
        for row, lane in enumerate(kind.lanes):
            bottom = LANE_GAP_POINTS + number * (LANE_POINTS + LANE_GAP_POINTS)
            for name, shade in _draw_lane(ax, lane, bottom, scale, kind.shades()).items():
                unnamed[shown(name if kind.kind == "annotation" else f"{kind.kind} {name}", LONGEST_ENTRY)] = shade
            if not row:
                _beside(ax, bottom, kind)
            number += 1
    if kinds and sum(map(len, kinds[-1].lanes)) <= FEW_SPANS:
        for span in (span for lane in kinds[-1].lanes for span in lane):
            ax.axvline(scale.event(span.start), color=style.MUTED, linewidth=0.5, alpha=0.45, zorder=3)
    entries: list[tuple[Artist, str]] = [(Patch(color=shade), name) for name, shade in unnamed.items()]
    return Lanes((LANE_POINTS + LANE_GAP_POINTS) * number, tuple(entries))


def _kinds(spans: Iterable[Span], kinds: Sequence[str], scale: EventScale) -> list[_Kind]:
    """For each of *kinds* that has some, its spans in lanes; those too narrow to see and those without a free lane are hidden."""
    narrowest = scale.width / MOST_IN_A_LANE
    in_order = sorted(spans, key=lambda span: (span.start, -span.stop))
    found: list[_Kind] = []
    for kind in kinds:
        lanes: list[list[Span]] = []
        hidden = 0
        for span in (span for span in in_order if span.kind == kind and span.stop > span.start):
            lane = next((lane for lane in lanes if lane[-1].stop <= span.start), None)
            if scale.event(span.stop) - scale.event(span.start) <= narrowest or (lane is None and len(lanes) == MOST_LANES[kind]):
                hidden += 1
            elif lane is None:
                lanes.append([span])
            else:
                lane.append(span)
        if lanes:
            found.append(_Kind(kind, lanes, hidden))
    return found


def _draw_lane(ax: Axes, lane: Sequence[Span], bottom: float, scale: EventScale, by_name: dict[str, str]) -> dict[str, str]:
    """Draw one lane, each band from its first event to its last; return the shades of the names for which a band had no room."""
    across = blended_transform_factory(ax.transData, _points_above(ax))
    ranges = [(scale.event(span.start), scale.event(span.stop - 1) - scale.event(span.start)) for span in lane]
    shades = [by_name.get(span.name, SHADES[k % 2]) for k, span in enumerate(lane)]
    ax.broken_barh(ranges, (bottom, LANE_POINTS), facecolors=shades, transform=across, clip_on=False, linewidth=0, gid="lane")
    inches_a_unit = 0.8 * ax.bbox.width / ax.figure.dpi / scale.width
    unnamed: dict[str, str] = {}
    for span, (left, width) in zip(lane, ranges, strict=True):
        room = int(width * inches_a_unit / CHARACTER_INCHES)
        name = shown(span.name)
        if room >= min(len(name), max(FEWEST_CHARACTERS, ceil(LEAST_SHARE * len(name)))):
            middle = (left + width / 2, bottom + LANE_POINTS / 2)
            ax.text(
                *middle,
                shown(name, room),
                transform=across,
                ha="center",
                va="center_baseline",
                fontsize=LETTERS,
                color=style.INK,
                parse_math=False,
            )
        elif span.name in by_name:
            unnamed[span.name] = by_name[span.name]
    return unnamed


def _beside(ax: Axes, bottom: float, kind: _Kind) -> None:
    """Write to the left of a lane what it holds, and to the right how many are not shown."""
    across = blended_transform_factory(ax.transAxes, _points_above(ax))
    several = sum(map(len, kind.lanes)) + kind.hidden > 1
    for x, side, text in (
        (-0.006, "right", f"{kind.kind}{'s' if several else ''}"),
        (1.006, "left", f"{kind.hidden:,} more not shown" if kind.hidden else ""),
    ):
        ax.text(x, bottom + LANE_POINTS / 2, text, transform=across, ha=side, va="center_baseline", fontsize=LETTERS, color=style.MUTED)


def _points_above(ax: Axes) -> Transform:
    """Coordinates that count points above the top of *ax*."""
    top_edge = ScaledTranslation(0, 1, cast(Affine2DBase, ax.transAxes))
    return Affine2D().scale(1 / 72) + ax.figure.dpi_scale_trans + top_edge
