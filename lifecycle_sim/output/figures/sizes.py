"""Draws sizes against spans: which storages are temporary, which stay, and how large they are."""

from __future__ import annotations

from math import log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.ticks import log_byte_ticks
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.lifespans import Lifespans, allocation_spans, lifespans
from lifecycle_sim.units import format_bytes

NONE_AT, NONE_EDGES, ONE_EDGE = 0.4, (0.33, 0.485), 0.68
OPEN_EDGES = (1.6, 2.75)
CELLS_A_DECADE = 6
DENSITY = ("#DCE9F2", "#8FB8D6", "#4477AA", "#23406B")


def size_span(replayed: DeviceReplay, within: int | None = None, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw how many storages there are of each size and span, on logarithmic axes.

    The span of a storage is the number of allocations made while it was live. Storages that are older than the window or outlive it
    have a span that was not seen whole; they stand in a column of their own.

    Args:
        replayed: what was recorded on one device.
        within: a storage is temporary if no more than this many allocations were made while it was live,
            see :func:`~lifecycle_sim.replay.lifespans.lifespans`.
        ax: where to draw; by default on a figure of its own.
        title: what was recorded, such as the name of the file, for the line below the headline.

    Raises:
        InputError: *within* is negative, or the record's events carry no identity.
    """
    told, found, span = lifespans(replayed, within), replayed.identified_lifetimes(), allocation_spans(replayed)
    within = told.within
    ax = style.new_axes(ax, 9.0, 4.8)
    whole = ~(found.before_window | found.leaked)
    reach = 10.0 ** (1 + int(log10(max(int(span.max(initial=1)), 10 * within, 10))))
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
        ylim=(y_edges[0], y_edges[-1] * (y_edges[-1] / y_edges[0]) ** 0.1),
    )
    ax.axvline(within + 0.5, color=style.MUTED, linewidth=0.9, linestyle=(0, (4, 2)))
    for where, side, word in (
        (NONE_EDGES[0], "left", "temporary"),
        ((within + 0.5) * 1.1, "left", "passing"),
        (x_edges[-1], "right", "long-lived or older"),
    ):
        ax.text(where, 0.98, word, ha=side, va="top", fontsize=style.SMALL, color=style.MUTED, transform=ax.get_xaxis_transform())
    ticks = [NONE_AT, *(10.0**k for k in range(round(log10(reach)))), 2.1 * reach]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: "0" if value < 1 else "unknown" if value > reach else f"{value:,.0f}"))
    ax.xaxis.set_minor_locator(NullLocator())
    log_byte_ticks(ax.yaxis, 2**low, 2**high)
    ax.set_xlabel(f"span: allocations made while the storage was live\n{_totals(told)}")
    ax.set_ylabel(f"size ({style.basis(replayed)})")
    _draw_scale(ax, cells, most)
    style.dress(ax, f"Sizes and spans on {replayed.device}", replayed, title=title)
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


def _totals(told: Lifespans) -> str:
    """The four kinds of storages, with their number and bytes; those without any are left out."""
    kinds = (
        (f"temporary, within {told.within:,}", told.temporary),
        ("passing", told.passing),
        ("long-lived", told.long_lived),
        ("older", told.older_freed),
    )
    parts = [f"{name}: {style.counted(total.count, 'storage')}, {format_bytes(total.size)}" for name, total in kinds if total.count]
    return "\n".join("     ".join(parts[k : k + 2]) for k in range(0, len(parts), 2)) or "no storages"


def _draw_scale(ax: Axes, cells: PolyCollection, most: int) -> None:
    bar = ax.figure.colorbar(cells, cax=ax.inset_axes((1.015, 0.05, 0.016, 0.75)))
    decades = int(np.log10(most))
    bar.ax.yaxis.set_major_locator(FixedLocator([10.0**k for k in range(decades + 1)]))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    bar.ax.tick_params(labelsize=style.SMALL, colors=style.MUTED, labelcolor=style.INK, length=3)
    bar.outline.set_visible(False)
    bar.set_label("storages", fontsize=style.SMALL, color=style.INK)
