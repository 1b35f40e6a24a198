"""Draws a lifecycle chart: the live intervals of the largest storages as bars."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba_array
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.events.trace import Bool, Int64
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.lanes import draw_spans
from lifecycle_sim.output.figures.marks import BEHIND_TEXT, dress_events, mark_gaps, peak_text
from lifecycle_sim.output.figures.scale import EventScale
from lifecycle_sim.output.figures.series import Ranked, chosen_grouping, rank
from lifecycle_sim.replay import DeviceReplay, Lifetimes
from lifecycle_sim.replay.grouping import LOST_KEY, OLDER_KEY, group
from lifecycle_sim.units import format_bytes

LABELLED_ROWS = 60
BAR, UNCERTAIN = 0.68, 0.22
ELSEWHERE = 0.48
END_ROOM, TIP = 0.025, 0.8
ROW_INCHES, THIN_ROW_INCHES = 0.19, 0.06
NAME_LENGTH = 38
NARROWEST = 0.006
"""The least width of a bar, as a share of the axis."""
WITHOUT_STACK = {OLDER_KEY[:-1]: "older", LOST_KEY: "allocation lost"}
"""What a storage without a stack is called, by how the name of its owner's group begins."""


def lifecycle_chart(
    replayed: DeviceReplay,
    by: str | None = "auto",
    top: int = 40,
    groups: int = 8,
    order: Literal["birth", "size"] = "birth",
    x: Literal["event", "time"] = "event",
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """Draw the live intervals of the largest storages of one device, one bar each.

    Storages that are alike and live equally long share a bar, which says how many they are. Bars of storages that are live at the peak
    are strong, the others pale. A storage that is never freed ends in an arrow past the last event; one older than the window begins
    with an arrow before the first. Where the recording lost the allocation or the free, a thin bar shows from when to when the storage
    may have been live. Bars too short to see are drawn a little wider than they are. Below stands how many storages and bytes are left
    out.

    Args:
        replayed: what was recorded on one device.
        by: what the colours stand for, see :func:`~lifecycle_sim.replay.grouping.group`; ``"auto"`` as in ``timeline``.
        top: how many bars to draw at most.
        groups: how many groups have a colour of their own; the others share one.
        order: from top to bottom by ``"birth"``, or the largest first.
        x: ``"event"``, or ``"time"`` where the trace has a clock.
        ax: where to draw; by default on a figure of its own, as high as it needs.
        title: what was recorded, such as the name of the file, for the line below the headline.

    Raises:
        InputError: the record's events carry no identity, *by* or *order* is not known, or there is no clock for *x*.
    """
    found, scale = replayed.identified_lifetimes(), EventScale.of(replayed, x)
    if order not in ("birth", "size"):
        raise InputError(f"live intervals cannot be sorted by {order!r}: choose birth or size")
    by = chosen_grouping(replayed, by)
    rows, alike, total = _alike(replayed, found, top)
    if order == "birth":
        by_birth = np.lexsort((rows, -found.size[rows], found.alloc[rows]))
        rows, alike = rows[by_birth], alike[by_birth]
    ranked = None if by is None else rank(replayed, by, groups)
    ax = style.new_axes(ax, 11.0, 1.5 + (ROW_INCHES if len(rows) <= LABELLED_ROWS else THIN_ROW_INCHES) * max(len(rows), 10))
    room = END_ROOM * scale.width
    shades = _draw_bars(ax, found, rows, scale, room, ranked, found.live_at(replayed.peak.event)[rows])
    entries: list[tuple[Artist, str]] = [(style.swatch(key, colour), name) for key, name, colour in shades]
    entries += _signs(replayed, found, rows)
    if (gaps := mark_gaps(ax, replayed, scale)) is not None:
        entries.append((gaps, "the recording lost events"))
    lanes = draw_spans(ax, replayed, scale)
    style.legend(ax, [*entries, *lanes.entries], f"by {by}" if by else None)
    _mark_peak(ax, replayed, scale)
    ax.set_xlim(scale.limits[0] - room, scale.limits[1] + room)
    ax.set_ylim(len(rows) - 0.4, -1.6)
    ax.set_yticks(range(len(rows)) if len(rows) <= LABELLED_ROWS else [])
    if len(rows) <= LABELLED_ROWS:
        ax.set_yticklabels(_names(replayed, found, rows, alike), parse_math=False)
    dress_events(ax, replayed, scale)
    ax.set_xlabel(f"{ax.get_xlabel()}\n{_left_out(replayed, found, rows, alike, total)}")
    ax.set_ylabel(f"storages\n({style.basis(replayed)})")
    style.dress(ax, f"Live intervals on {replayed.device}", replayed, grid="x", above=lanes.height, title=title)
    ax.tick_params(axis="y", length=0)
    return ax


def _alike(replayed: DeviceReplay, found: Lifetimes, top: int) -> tuple[Int64, Int64, int]:
    """Return one storage for each of the first *top* kinds of storages, largest first, how many there are of each kind, and all kinds.

    Of one kind are storages of the same size, interval, owner, label and category.
    """
    columns = (
        *(found.category, found.label, group(replayed, "owner").of, found.free, found.alloc, found.alloc_earliest, found.alloc_latest),
        *(found.free_earliest, found.free_latest),
    )
    order = np.lexsort((np.arange(len(found)), *columns, found.alloc, found.alloc - found.free, -found.size))
    differs = np.ones(len(found), bool)
    differs[1:] = np.any([column[order[1:]] != column[order[:-1]] for column in (*columns, found.size)], axis=0)
    first = np.flatnonzero(differs)
    return order[first[:top]], np.diff(np.append(first, len(found)))[:top], len(first)


def _signs(replayed: DeviceReplay, found: Lifetimes, rows: Int64) -> list[tuple[Artist, str]]:
    """What the legend shows for strong and pale bars, arrowheads and thin bars, as far as there are some among *rows*."""
    at_peak, unsure = found.live_at(replayed.peak.event)[rows], _unsure(found)[rows]
    ends: dict[str, Any] = {"color": style.MUTED, "linestyle": "none", "markersize": 5}
    signs: list[tuple[bool, Artist, str]] = [
        (bool(at_peak.any() and not at_peak.all()), Patch(color=style.MUTED), "strong: live at the peak"),
        (bool(not at_peak.all()), Patch(color=style.MUTED, alpha=ELSEWHERE, linewidth=0), "pale: not live at the peak"),
        (bool(found.before_window[rows].any()), Line2D([], [], marker="<", **ends), "older than the window"),
        (bool(found.leaked[rows].any()), Line2D([], [], marker=">", **ends), "never freed"),
        (bool(unsure.any()), Line2D([], [], color=style.MUTED, linewidth=1.5), "may have been live"),
    ]
    return [(artist, text) for there, artist, text in signs if there]


def _unsure(found: Lifetimes) -> Bool:
    unsure: Bool = found.lost_alloc | found.lost_free | (found.alloc_earliest != found.alloc_latest)
    return unsure


def _draw_bars(
    ax: Axes, found: Lifetimes, rows: Int64, scale: EventScale, room: float, ranked: Ranked | None, at_peak: Bool
) -> list[tuple[str, str, str]]:
    """Draw a bar for each of *rows*; return the key, the short name and the colour of each group that was drawn."""
    hatches = [""] * len(rows)
    if ranked is None:
        shades, shade = [], [style.SEQUENCE[0]] * len(rows)
    else:
        by_key = style.colours(ranked.by, ranked.keys)
        drawn = [k for k in range(len(ranked.keys)) if (ranked.of[rows] == k).any()]
        names = style.short_names([ranked.keys[k] for k in drawn])
        shades = [(ranked.keys[k], name, by_key[ranked.keys[k]]) for name, k in zip(names, drawn, strict=True)]
        hatches = [style.hatch(ranked.keys[k]) for k in ranked.of[rows].tolist()]
        shade = [by_key[ranked.keys[k]] for k in ranked.of[rows].tolist()]
    strength = np.where(at_peak, 1.0, ELSEWHERE)[:, None]
    colour = strength * to_rgba_array(shade) + (1 - strength)
    older, leaked = found.before_window[rows], found.leaked[rows]
    number = np.arange(len(rows))
    unsure = _unsure(found)[rows]
    if unsure.any():
        earliest, latest = scale.at[found.alloc_earliest[rows] + 1], scale.at[found.free_latest[rows] + 1]
        ax.add_collection(_bars(earliest[unsure], latest[unsure], number[unsure], UNCERTAIN, colour[unsure], 0, 0), autolim=False)
    left, right = scale.at[found.alloc[rows] + 1], scale.at[found.free[rows] + 1]
    right = np.maximum(right, left + np.where(found.free[rows] > found.alloc[rows], NARROWEST * scale.width, 0))
    bars = _bars(left, right, number, BAR, colour, older * room, leaked * room)
    bars.set_gid("intervals")
    ax.add_collection(bars, autolim=False)
    for hatch in sorted({hatch for hatch in hatches if hatch}):
        chosen = np.array([each == hatch for each in hatches])
        over = _bars(left[chosen], right[chosen], number[chosen], BAR, colour[chosen], (older * room)[chosen], (leaked * room)[chosen])
        over.set(hatch=hatch, facecolor="none", edgecolor=style.HATCHING, linewidth=0, gid=f"hatching {hatch}")
        ax.add_collection(over, autolim=False)
    return shades


def _bars(
    left: NDArray[Any],
    right: NDArray[Any],
    row: Int64,
    height: float,
    colour: NDArray[Any],
    before: NDArray[Any] | float,
    after: NDArray[Any] | float,
) -> PolyCollection:
    """Bars from *left* to *right*, with points that reach out *before* the one and *after* the other."""
    low, high = row - height / 2, row + height / 2
    across = np.stack([left, left - before * TIP, left, right, right + after * TIP, right], 1)
    upright = np.stack([high, row, low, low, row, high], 1)
    return PolyCollection(list(np.stack([across, upright], 2)), facecolors=colour, edgecolors=colour, linewidths=0.8, zorder=2)


def _mark_peak(ax: Axes, replayed: DeviceReplay, scale: EventScale) -> None:
    """A line behind the bars at the peak, or where only a state was recorded, that it is one."""
    where, middle = scale.event(replayed.peak.event), sum(scale.limits) / 2
    text, side = peak_text(replayed).split("\n", 1)[0], "left" if where < middle else "right"
    if style.state_only(replayed):
        where, side = middle, "center"
    else:
        ax.axvline(where, color=style.PEAK, linewidth=1.2, zorder=1.8, gid="peak")
    ax.annotate(
        text,
        xy=(where, -1.0),
        xytext=({"left": 5, "center": 0, "right": -5}[side], 0),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=style.NORMAL,
        fontweight="bold",
        color=style.PEAK,
        bbox=BEHIND_TEXT,
        zorder=5,
    )


def _names(replayed: DeviceReplay, found: Lifetimes, rows: Int64, alike: Int64) -> list[str]:
    """A name and the size of each of *rows*, and of how many alike: its label, else its owner, else why it has none and its address."""
    owners = group(replayed, "owner")
    names = []
    for row, count in zip(rows.tolist(), alike.tolist(), strict=True):
        owner, label = owners.keys[owners.of[row]], replayed.trace.label(int(found.label[row]))
        if not label and owner.startswith("("):
            what = next((word for begin, word in WITHOUT_STACK.items() if owner.startswith(begin)), "no stack")
            owner = what + (f", 0x{found.address[row]:x}" if count == 1 else "")
        names.append(label or owner)
    distinct = list(dict.fromkeys(names))
    short = dict(zip(distinct, style.short_names(distinct, NAME_LENGTH), strict=True))
    return [
        f"{f'{count:,} × ' if count > 1 else ''}{short[name]}  {format_bytes(int(found.size[row]))}"
        for name, row, count in zip(names, rows.tolist(), alike.tolist(), strict=True)
    ]


def _left_out(replayed: DeviceReplay, found: Lifetimes, rows: Int64, alike: Int64, kinds: int) -> str:
    """How many storages the bars do not show, and what those hold at the peak."""
    shown = int(alike.sum())
    if kinds == len(rows):
        return f"all {len(found):,} storages"
    at_peak = found.live_at(replayed.peak.event)
    held = int(found.size[at_peak].sum(dtype=object)) - int((found.size[rows].astype(object) * alike)[at_peak[rows]].sum())
    largest = format_bytes(int(np.partition(found.size, len(found) - shown - 1)[len(found) - shown - 1]))
    moment = "at the snapshot" if style.state_only(replayed) else "at the peak"
    others = f"{len(found) - shown:,} of at most {largest} each are left out and hold {format_bytes(held)} {moment}"
    return f"the {shown:,} largest storages; {others}"
