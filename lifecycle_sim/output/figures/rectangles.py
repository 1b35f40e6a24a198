"""Draws live storages as rectangles: addresses upwards, events to the right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba_array
from matplotlib.patches import Patch
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.marks import mark_gaps, mark_spans, peak_text
from lifecycle_sim.output.figures.scale import EventScale
from lifecycle_sim.output.figures.series import Ranked, chosen_grouping, rank
from lifecycle_sim.output.figures.ticks import count_ticks
from lifecycle_sim.replay import DeviceReplay, Lifetimes
from lifecycle_sim.replay.placement import are_addresses
from lifecycle_sim.replay.regions import Regions, regions
from lifecycle_sim.units import format_bytes

ROWS, COLUMNS = 1100, 1400
"""Pixels of the picture in which all but the largest rectangles are drawn."""
OUTLINED = 1500
RESERVED_COLOUR = "#EEF1F3"
SHADES = (1.0, 0.82, 0.91)
"""How strong the colour of one storage and the next is, so that neighbours of one group can be told apart."""
ALL_BREAKS, MOST_BREAK = 0.15, 0.012
LABELLED_SHARE, MOST_LABELS = 0.03, 24
EDGED_SHARE = 0.004


def address_time(
    replayed: DeviceReplay,
    by: str | None = "auto",
    addresses: tuple[int, int] | None = None,
    top: int = 8,
    ax: Axes | None = None,
) -> Axes:
    """Draw where every storage of one device lay, and from when to when.

    Only addresses that were ever held are drawn: ranges between which nothing was held are put together, with a break. What was held from
    the device and not live is pale; what was not held is white.

    Args:
        replayed: what was recorded on one device.
        by: what the colours stand for, see :func:`~lifecycle_sim.replay.grouping.group`; ``"auto"`` as in ``timeline``.
        addresses: draw only what lies from the first to before the second; by default all.
        top: how many groups have a colour of their own.
        ax: where to draw; by default on a figure of its own.

    Raises:
        InputError: the record has no real addresses, nothing lies between *addresses*, or *by* is not known.
    """
    found = replayed.identified_lifetimes()
    if replayed.recorded.final is None and not are_addresses(found):
        raise InputError(
            f"{replayed.device}: this {replayed.trace.format} record has no addresses, only storages: "
            "lifecycle-sim convert SOURCE -o placed.pickle places them at made-up ones"
        )
    held = regions(replayed.recorded)
    scale = EventScale.of(replayed)
    axis = _AddressAxis.of(held, found, addresses)
    by = chosen_grouping(replayed, by)
    ranked = Ranked("", ("live",), np.zeros(len(found), np.int64), 0) if by is None else rank(replayed, by, top)
    keys, number, shades = ranked.keys, ranked.of, style.colours(ranked.by, ranked.keys)
    ax = style.new_axes(ax, height=6.4)
    picture = _Picture(axis.height, scale.limits)
    regions_drawn = _rectangles(axis, scale, held.address, held.size, held.begin, held.end)
    picture.paint(regions_drawn, to_rgba_array([RESERVED_COLOUR] * len(held)))
    rectangles = _rectangles(axis, scale, found.address, found.size, found.alloc, found.free)
    strength = np.array(SHADES)[np.arange(len(found)) % len(SHADES)][:, None]
    colour = to_rgba_array([shades[key] for key in keys])[number] if len(found) else np.zeros((0, 4))
    colour = colour * strength + (1 - strength)
    picture.paint(rectangles, colour)
    picture.show(ax)
    _outline(ax, rectangles, colour, axis, scale)
    _draw_breaks(ax, axis)
    lanes = mark_spans(ax, replayed, scale)
    _mark_peak(ax, replayed, scale, axis)
    entries = _entries(replayed, found, keys, number, shades, rectangles)
    if (gaps := mark_gaps(ax, replayed, scale)) is not None:
        entries.append((gaps, "the recording lost events"))
    style.legend(ax, entries, f"at the peak, by {by}" if by else "at the peak")
    ax.set_xlim(*scale.limits)
    ax.set_ylim(0, axis.height * 1.045)
    ax.set_xlabel(scale.label)
    ranges = style.counted(len(axis.low), "range")
    ax.set_ylabel(f"{format_bytes(int((axis.high - axis.low).sum()))} of addresses in {ranges}\n{style.basis(replayed)}")
    count_ticks(ax.xaxis)
    style.dress(ax, f"Addresses of {replayed.device} over events", replayed, grid="x", above=lanes)
    ax.grid(visible=False)
    return ax


@dataclass(frozen=True, eq=False)
class _AddressAxis:
    """The ranges of addresses that were ever held, put together.

    Attributes:
        low, high: ends of each range, ascending.
        at: where each begins on the axis, in bytes.
        height: the length of the axis, above 0.
    """

    low: Int64
    high: Int64
    at: NDArray[Any]
    height: float

    @classmethod
    def of(cls, held: Regions, found: Lifetimes, addresses: tuple[int, int] | None) -> _AddressAxis:
        low = np.concatenate([held.address, found.address])
        high = np.concatenate([held.address + held.size, found.address + found.size])
        if addresses is not None:
            low, high = np.maximum(low, addresses[0]), np.minimum(high, addresses[1])
        low, high = low[high > low], high[high > low]
        if not len(low):
            where = "" if addresses is None else f" from {addresses[0]:#x} to {addresses[1]:#x}"
            raise InputError(f"nothing was held{where}, so there are no addresses to draw")
        order = np.argsort(low, kind="stable")
        low, reach = low[order], np.maximum.accumulate(high[order])
        first = np.flatnonzero(np.append(True, low[1:] > reach[:-1]))
        low, high = low[first], reach[np.append(first[1:] - 1, len(low) - 1)]
        total = float((high - low).sum())
        between = total * min(ALL_BREAKS / max(len(low) - 1, 1), MOST_BREAK)
        sizes = (high - low).astype(np.float64)
        at = np.concatenate([np.zeros(1), np.cumsum(sizes + between)[:-1]])
        return cls(low, high, at, float(at[-1] + sizes[-1]))

    def place(self, low: Int64, high: Int64) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return where the ranges [low, high) lie on the axis; one that is not on it has no height."""
        row = np.clip(np.searchsorted(self.low, low, side="right") - 1, 0, len(self.low) - 1)
        row = np.where((low >= self.high[row]) & (row + 1 < len(self.low)), row + 1, row)
        bottom = np.clip(low, self.low[row], self.high[row]) - self.low[row]
        top = np.clip(high, self.low[row], self.high[row]) - self.low[row]
        return self.at[row] + bottom, self.at[row] + top


@dataclass(frozen=True, eq=False)
class _Rectangles:
    left: NDArray[Any]
    right: NDArray[Any]
    bottom: NDArray[Any]
    top: NDArray[Any]


def _rectangles(axis: _AddressAxis, scale: EventScale, address: Int64, size: Int64, begin: Int64, end: Int64) -> _Rectangles:
    bottom, top = axis.place(address, address + size)
    return _Rectangles(scale.at[begin + 1].astype(float), scale.at[end + 1].astype(float), bottom, top)


class _Picture:
    """An image in which any number of rectangles can be painted quickly, each at least a pixel."""

    def __init__(self, height: float, limits: tuple[float, float]) -> None:
        self.height, self.limits = height, limits
        self.pixels = np.full((ROWS, COLUMNS, 4), 255, np.uint8)

    def paint(self, rectangles: _Rectangles, colour: NDArray[Any]) -> None:
        """Paint *rectangles*, the smaller first, so that a large one is not hidden by what is below a pixel."""
        low, high = self.limits
        left, right = _pixels((rectangles.left - low) / (high - low), (rectangles.right - low) / (high - low), COLUMNS)
        bottom, top = _pixels(rectangles.bottom / self.height, rectangles.top / self.height, ROWS)
        seen = (rectangles.top > rectangles.bottom) & (rectangles.right > rectangles.left)
        rows = np.flatnonzero(seen)
        rgba = np.round(colour * 255).astype(np.uint8)
        area = (right - left) * (top - bottom)
        rows = rows[np.argsort(area[rows], kind="stable")]
        points = rows[area[rows] == 1]
        self.pixels[bottom[points], left[points]] = rgba[points]
        rest = rows[area[rows] > 1]
        columns = (bottom[rest].tolist(), top[rest].tolist(), left[rest].tolist(), right[rest].tolist(), rgba[rest])
        for y0, y1, x0, x1, shade in zip(*columns, strict=True):
            self.pixels[y0:y1, x0:x1] = shade

    def show(self, ax: Axes) -> None:
        """Draw the picture behind all else."""
        extent = (*self.limits, 0.0, self.height)
        ax.imshow(self.pixels, extent=extent, origin="lower", aspect="auto", interpolation="nearest", zorder=1, gid="picture")


def _pixels(low: NDArray[Any], high: NDArray[Any], count: int) -> tuple[Int64, Int64]:
    """Return the first pixel and the one to stop before of each range of shares, at least one."""
    first = np.clip(np.round(low * count).astype(np.int64), 0, count - 1)
    return first, np.clip(np.round(high * count).astype(np.int64), first + 1, count)


def _outline(ax: Axes, rectangles: _Rectangles, colour: NDArray[Any], axis: _AddressAxis, scale: EventScale) -> None:
    """Draw the largest rectangles again, sharp and with a thin edge."""
    wide = np.maximum(rectangles.right - rectangles.left, 0) / scale.width
    tall = (rectangles.top - rectangles.bottom) / axis.height
    rows = np.flatnonzero((wide > EDGED_SHARE) & (tall > EDGED_SHARE))
    rows = rows[np.argsort(-(wide * tall)[rows], kind="stable")][:OUTLINED]
    across = np.stack([getattr(rectangles, side)[rows] for side in ("left", "right", "right", "left")], 1)
    upright = np.stack([getattr(rectangles, side)[rows] for side in ("bottom", "bottom", "top", "top")], 1)
    drawn = PolyCollection(list(np.stack([across, upright], 2)), facecolors=colour[rows], edgecolors=style.PAPER, linewidths=0.3, zorder=2)
    drawn.set_gid("storages")
    ax.add_collection(drawn, autolim=False)


def _draw_breaks(ax: Axes, axis: _AddressAxis) -> None:
    """Name the beginning of the ranges that have the room, and draw a line in every break."""
    sizes = (axis.high - axis.low).tolist()
    chosen: list[int] = []
    for row in sorted(range(len(sizes)), key=lambda row: -sizes[row])[:MOST_LABELS]:
        if all(abs(axis.at[row] - axis.at[other]) > LABELLED_SHARE * axis.height for other in chosen):
            chosen.append(row)
    chosen.sort()
    ax.set_yticks([float(axis.at[row]) for row in chosen], [f"{int(axis.low[row]):#x}" for row in chosen])
    if len(sizes) <= ROWS // 10:
        for row in range(1, len(sizes)):
            middle = (axis.at[row] + axis.at[row - 1] + sizes[row - 1]) / 2
            ax.axhline(middle, color=style.MUTED, linewidth=0.35, linestyle=(0, (1, 2)), zorder=3, gid="break")


def _mark_peak(ax: Axes, replayed: DeviceReplay, scale: EventScale, axis: _AddressAxis) -> None:
    where = scale.event(replayed.peak.event)
    ax.axvline(where, color=style.PEAK, linewidth=1.0, zorder=4, gid="peak")
    side = "left" if where < sum(scale.limits) / 2 else "right"
    ax.annotate(
        peak_text(replayed).split("\n", 1)[0],
        xy=(where, axis.height * 1.022),
        xytext=(5 if side == "left" else -5, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=style.NORMAL,
        fontweight="bold",
        color=style.PEAK,
        zorder=5,
    )


def _entries(
    replayed: DeviceReplay, found: Lifetimes, keys: tuple[str, ...], number: Int64, shades: dict[str, str], rectangles: _Rectangles
) -> list[tuple[Artist, str]]:
    """What each group that is drawn holds at the peak."""
    live, drawn = found.live_at(replayed.peak.event), rectangles.top > rectangles.bottom
    entries: list[tuple[Artist, str]] = []
    for k, name in enumerate(style.short_names(list(keys))):
        if (drawn & (number == k)).any():
            held = int(found.size[live & drawn & (number == k)].sum(dtype=object))
            entries.append((Patch(color=shades[keys[k]]), f"{format_bytes(held)}  {name}"))
    return [*entries, (Patch(color=RESERVED_COLOUR), "held and not live")]
