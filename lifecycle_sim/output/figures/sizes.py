"""Draws sizes against spans: which storages are temporary, which stay, and how large they are."""

from __future__ import annotations

from math import log10
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import blended_transform_factory
from numpy.typing import NDArray

from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.ticks import log_byte_ticks
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.lifespans import TEMPORARY_WITHIN, Total, allocation_spans, lifespans
from lifecycle_sim.units import format_bytes

NONE_AT, NONE_EDGES, ONE_EDGE = 0.4, (0.33, 0.485), 0.68
OPEN_EDGES = (1.6, 2.75)
CELLS_A_DECADE = 6
DENSITY = ("#DCE9F2", "#8FB8D6", "#4477AA", "#23406B")


def size_span(replayed: DeviceReplay, within: int = TEMPORARY_WITHIN, ax: Axes | None = None) -> Axes:
    """Draw how many storages there are of each size and span, on logarithmic axes.

    The span of a storage is the number of allocations made while it was live. Storages that are older than the window or outlive it
    have a span that was not seen whole; they stand in a column of their own.

    Args:
        replayed: what was recorded on one device.
        within: a storage is temporary if no more than this many allocations were made while it was live,
            see :func:`~lifecycle_sim.replay.lifespans.lifespans`.
        ax: where to draw; by default on a figure of its own.

    Raises:
        InputError: *within* is negative, or the record's events carry no identity.
    """
    told, found, span = lifespans(replayed, within), replayed.identified_lifetimes(), allocation_spans(replayed)
    ax = style.new_axes(ax, 9.0, 4.8)
    whole = ~(found.before_window | found.leaked)
    reach = 10.0 ** (1 + int(log10(max(int(span.max(initial=1)), within))))
    across = np.where(whole, np.maximum(span, NONE_AT), 2.1 * reach)
    x_edges = _edges_across(reach, within)
    sizes = np.maximum(found.size, 1)
    low, high = int(np.log2(sizes.min(initial=2**62))) if len(sizes) else 0, int(np.log2(sizes.max(initial=1))) + 1
    y_edges = 2.0 ** np.arange(low, high + 1)
    count, _, _ = np.histogram2d(across, sizes, (x_edges, y_edges))
    most = max(int(count.max(initial=0)), 10)
    cells = _cells(x_edges, y_edges, count, most)
    ax.add_collection(cells, autolim=False)
    ax.set(
        xscale="log",
        yscale="log",
        xlim=(x_edges[0] / 1.15, x_edges[-1] * 1.1),
        ylim=(y_edges[0], y_edges[-1] * (y_edges[-1] / y_edges[0]) ** 0.17),
    )
    ax.axvline(within + 0.5, color=style.MUTED, linewidth=0.9, linestyle=(0, (4, 2)))
    _tell(ax, NONE_EDGES[0], "left", f"temporary, within {_counted(within, 'allocation')}", _total(told.temporary))
    _tell(ax, (within + 0.5) * 1.12, "left", "passing", _total(told.passing))
    _tell(ax, x_edges[-1], "right", f"long-lived: {_total(told.long_lived)}", f"older, freed: {_total(told.older_freed)}")
    ticks = [NONE_AT, *(10.0**k for k in range(round(log10(reach)) + 1)), 2.1 * reach]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: "0" if value < 1 else "open" if value > reach else f"{value:,.0f}"))
    ax.xaxis.set_minor_locator(NullLocator())
    log_byte_ticks(ax.yaxis, 2**low, 2**high)
    ax.set_xlabel("span: allocations made while the storage was live")
    ax.set_ylabel(f"size ({style.basis(replayed)})")
    _draw_scale(ax, cells, most)
    style.dress(ax, f"Sizes and spans on {replayed.device}", replayed)
    return ax


def _edges_across(reach: float, within: int) -> NDArray[Any]:
    """Edges between whole numbers of allocations, a few to each decade, with columns of their own for none and for open spans."""
    steps = np.floor(10 ** (np.arange(1, CELLS_A_DECADE * round(log10(reach)) + 1) / CELLS_A_DECADE)) + 0.5
    return np.concatenate([NONE_EDGES, [ONE_EDGE], np.union1d(steps, [within + 0.5] if within else []), reach * np.array(OPEN_EDGES)])


def _cells(x_edges: NDArray[Any], y_edges: NDArray[Any], count: NDArray[Any], most: int) -> PolyCollection:
    """A coloured cell wherever there is a storage."""
    column, row = np.nonzero(count)
    across = x_edges[np.stack([column, column + 1, column + 1, column], 1)]
    upright = y_edges[np.stack([row, row, row + 1, row + 1], 1)]
    colours = LinearSegmentedColormap.from_list("density", DENSITY)
    cells = PolyCollection(
        list(np.stack([across, upright], 2)), cmap=colours, norm=LogNorm(1, most), edgecolors=style.PAPER, linewidths=0.6
    )
    cells.set(array=count[column, row], gid="cells", zorder=2)
    return cells


def _tell(ax: Axes, where: float, side: Literal["left", "right"], *lines: str) -> None:
    place = blended_transform_factory(ax.transData, ax.transAxes)
    ax.text(where, 0.985, "\n".join(lines), ha=side, va="top", fontsize=style.SMALL, color=style.INK, linespacing=1.35, transform=place)


def _total(total: Total) -> str:
    return f"{_counted(total.count, 'storage')}, {format_bytes(total.size)}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _draw_scale(ax: Axes, cells: PolyCollection, most: int) -> None:
    bar = ax.figure.colorbar(cells, ax=ax, pad=0.01, aspect=28, shrink=0.8)
    decades = int(np.log10(most))
    bar.ax.yaxis.set_major_locator(FixedLocator([10.0**k for k in range(decades + 1)]))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    bar.ax.tick_params(labelsize=style.SMALL, colors=style.MUTED, labelcolor=style.INK, length=3)
    bar.outline.set_visible(False)
    bar.set_label("storages", fontsize=style.SMALL, color=style.INK)
