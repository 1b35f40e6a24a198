"""Draws a lifecycle chart: the live intervals of the largest storages as bars."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba_array
from matplotlib.patches import Patch
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.events.trace import Bool, Int64
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.marks import mark_gaps, mark_spans, peak_text
from lifecycle_sim.output.figures.scale import EventScale
from lifecycle_sim.output.figures.series import Ranked, chosen_grouping, rank
from lifecycle_sim.output.figures.ticks import count_ticks
from lifecycle_sim.replay import DeviceReplay, Lifetimes
from lifecycle_sim.replay.grouping import group
from lifecycle_sim.units import format_bytes

LABELLED_ROWS = 60
BAR, UNCERTAIN = 0.68, 0.22
ELSEWHERE = 0.42
END_ROOM, TIP = 0.025, 0.8
ROW_INCHES, THIN_ROW_INCHES = 0.19, 0.06
NAME_LENGTH = 32


def lifecycle_chart(
    replayed: DeviceReplay,
    by: str | None = "auto",
    top: int = 40,
    groups: int = 8,
    order: Literal["birth", "size"] = "birth",
    x: Literal["event", "time"] = "event",
    ax: Axes | None = None,
) -> Axes:
    """Draw the live intervals of the largest storages of one device, one bar each.

    Bars of storages that are live at the peak are strong, the others pale. A storage that is never freed ends in an arrow past the
    last event; one older than the window begins with an arrow before the first. Where the recording lost the allocation or the free,
    a thin bar shows from when to when the storage may have been live. The title says how many storages and bytes are left out.

    Args:
        replayed: what was recorded on one device.
        by: what the colours stand for, see :func:`~lifecycle_sim.replay.grouping.group`; ``"auto"`` as in ``timeline``.
        top: how many storages to draw at most.
        groups: how many groups have a colour of their own; the others share one.
        order: from top to bottom by ``"birth"``, or the largest first.
        x: ``"event"``, or ``"time"`` where the trace has a clock.
        ax: where to draw; by default on a figure of its own, as high as it needs.

    Raises:
        InputError: the record's events carry no identity, *by* or *order* is not known, or there is no clock for *x*.
    """
    found, scale = replayed.identified_lifetimes(), EventScale.of(replayed, x)
    if order not in ("birth", "size"):
        raise InputError(f"live intervals cannot be sorted by {order!r}: choose birth or size")
    by = chosen_grouping(replayed, by)
    rows = np.lexsort((found.alloc, found.alloc - found.free, -found.size))[:top]
    rows = np.sort(rows) if order == "birth" else rows
    ranked = None if by is None else rank(replayed, by, groups)
    ax = style.new_axes(ax, height=1.5 + (ROW_INCHES if len(rows) <= LABELLED_ROWS else THIN_ROW_INCHES) * max(len(rows), 10))
    room = END_ROOM * scale.width
    shades = _draw_bars(ax, found, rows, scale, room, ranked, found.live_at(replayed.peak.event)[rows])
    entries: list[tuple[Artist, str]] = [(Patch(color=colour), name) for name, colour in shades.items()]
    if (gaps := mark_gaps(ax, replayed, scale)) is not None:
        entries.append((gaps, "the recording lost events"))
    lanes = mark_spans(ax, replayed, scale)
    style.legend(ax, entries, f"by {by}" if by else None)
    _mark_peak(ax, replayed, scale)
    ax.set_xlim(scale.limits[0] - room, scale.limits[1] + room)
    ax.set_ylim(len(rows) - 0.4, -1.6)
    ax.set_yticks(range(len(rows)) if len(rows) <= LABELLED_ROWS else [])
    if len(rows) <= LABELLED_ROWS:
        ax.set_yticklabels(_names(replayed, found, rows), parse_math=False)
    ax.set_xlabel(f"{scale.label}\n{_left_out(replayed, found, rows)}")
    ax.set_ylabel(style.basis(replayed))
    count_ticks(ax.xaxis)
    style.dress(ax, f"Live intervals on {replayed.device}", replayed, grid="x", above=lanes)
    ax.tick_params(axis="y", length=0)
    return ax


def _draw_bars(
    ax: Axes, found: Lifetimes, rows: Int64, scale: EventScale, room: float, ranked: Ranked | None, at_peak: Bool
) -> dict[str, str]:
    """Draw a bar for each of *rows*; return the colour of each group that was drawn, by its short name."""
    if ranked is None:
        shades, shade = {}, [style.SEQUENCE[0]] * len(rows)
    else:
        by_key = style.colours(ranked.by, ranked.keys)
        drawn = [k for k in range(len(ranked.keys)) if (ranked.of[rows] == k).any()]
        names = style.short_names([ranked.keys[k] for k in drawn])
        shades = {name: by_key[ranked.keys[k]] for name, k in zip(names, drawn, strict=True)}
        shade = [by_key[ranked.keys[k]] for k in ranked.of[rows].tolist()]
    strength = np.where(at_peak, 1.0, ELSEWHERE)[:, None]
    colour = strength * to_rgba_array(shade) + (1 - strength)
    older, leaked = found.before_window[rows], found.leaked[rows]
    number = np.arange(len(rows))
    unsure = found.lost_alloc[rows] | found.lost_free[rows] | (found.alloc_earliest != found.alloc_latest)[rows]
    if unsure.any():
        earliest, latest = scale.at[found.alloc_earliest[rows] + 1], scale.at[found.free_latest[rows] + 1]
        ax.add_collection(_bars(earliest[unsure], latest[unsure], number[unsure], UNCERTAIN, colour[unsure], 0, 0), autolim=False)
    left, right = scale.at[found.alloc[rows] + 1], scale.at[found.free[rows] + 1]
    bars = _bars(left, right, number, BAR, colour, older * room, leaked * room)
    bars.set_gid("intervals")
    ax.add_collection(bars, autolim=False)
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
    where = scale.event(replayed.peak.event)
    ax.axvline(where, color=style.PEAK, linewidth=1.2, zorder=4, gid="peak")
    side = "left" if where < sum(scale.limits) / 2 else "right"
    text = peak_text(replayed).split("\n", 1)[0]
    ax.annotate(
        text,
        xy=(where, -1.0),
        xytext=(5 if side == "left" else -5, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=style.NORMAL,
        fontweight="bold",
        color=style.PEAK,
        zorder=5,
    )


def _names(replayed: DeviceReplay, found: Lifetimes, rows: Int64) -> list[str]:
    """A name and the size of each of *rows*: its label, else its owner, else its address."""
    owners = group(replayed, "owner")
    names = []
    for row in rows.tolist():
        owner = owners.keys[owners.of[row]]
        address = f"0x{found.address[row]:x}"
        names.append(replayed.trace.label(int(found.label[row])) or (address if owner.startswith("(") else owner))
    distinct = list(dict.fromkeys(names))
    short = dict(zip(distinct, style.short_names(distinct, NAME_LENGTH), strict=True))
    return [f"{short[name]}  {format_bytes(int(found.size[row]))}" for name, row in zip(names, rows.tolist(), strict=True)]


def _left_out(replayed: DeviceReplay, found: Lifetimes, rows: Int64) -> str:
    left = np.ones(len(found), bool)
    left[rows] = False
    if not left.any():
        return f"all {len(found):,} storages"
    held = int(found.size[left & found.live_at(replayed.peak.event)].sum(dtype=object))
    largest = format_bytes(int(found.size[left].max()))
    others = f"{int(left.sum()):,} of at most {largest} each are left out and hold {format_bytes(held)} at the peak"
    return f"the {len(rows):,} largest storages; {others}"
