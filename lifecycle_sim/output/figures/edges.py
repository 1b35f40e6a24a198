"""Draws the frontier of batch × sequence length: what fits, what does not, and by how much."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from lifecycle_sim.output.figures import style
from lifecycle_sim.output.printable import shown
from lifecycle_sim.study.batch.frontier import Frontier
from lifecycle_sim.units import format_bytes

FITS, OVER = ("#F4F9F4", "#A9D3A9"), ("#F8DCD7", "#B2182B")
MOST_TEXT = 160
"""Cells that are written in; with more the colours alone tell."""


def batch_frontier(edge: Frontier, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw a cell for each length and batch, coloured by its peak against what there is, and the frontier between what fits and what not.

    Cells with a bold figure were run; the others lie on the line between the nearest runs.

    Args:
        edge: the frontier.
        ax: where to draw; by default on a figure of its own.
        title: what it is of, for the line below the headline.
    """
    rows, columns = len(edge.lengths), len(edge.batches)
    ax = style.new_axes(ax, max(6.0, 1.9 + 0.75 * columns), max(2.6, 1.6 + 0.5 * rows))
    room = max(edge.room, 1)
    share = np.array([[peak / room if peak <= room else max(peak / room, 1.001) for peak in row] for row in edge.peaks])
    colours = LinearSegmentedColormap.from_list("frontier", list(zip((0.0, 0.5, 0.5, 1.0), (*FITS, *OVER), strict=True)))
    mesh = ax.pcolormesh(share, cmap=colours, norm=TwoSlopeNorm(1.0, 0.0, 2.0), edgecolors=style.PAPER, linewidth=1.0)
    mesh.set_gid("cells")
    for row in range(rows):
        for column in range(columns):
            if rows * columns <= MOST_TEXT:
                text, run = _short(edge.peaks[row][column]), edge.measured[row][column]
                colour = style.PAPER if share[row, column] > 1.6 else style.INK
                weight = "bold" if run else "normal"
                ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6.5, color=colour, fontweight=weight)
    _draw_edge(ax, edge)
    ax.set_xticks(np.arange(columns) + 0.5, [f"{batch:,}" for batch in edge.batches])
    ax.set_yticks(np.arange(rows) + 0.5, [f"{length:,}" for length in edge.lengths])
    ax.set_xlabel(f"batch\n{edge.basis} bytes, simulated; bold: run, else on the line between the nearest runs")
    ax.set_ylabel("tokens a sequence")
    ax.set_title(
        f"What fits into {format_bytes(edge.room)}",
        loc="left",
        fontsize=style.LARGE,
        fontweight="bold",
        color=style.INK,
        pad=21,
        parse_math=False,
    )
    ax.annotate(
        shown(title, style.LONGEST_TITLE),
        xy=(0, 1),
        xycoords="axes fraction",
        xytext=(0, 7),
        textcoords="offset points",
        fontsize=style.SMALL,
        color=style.MUTED,
        annotation_clip=False,
        parse_math=False,
    )
    ax.spines[:].set_visible(False)
    ax.tick_params(labelsize=style.SMALL, colors=style.MUTED, labelcolor=style.INK, length=0)
    ax.xaxis.label.set(fontsize=style.NORMAL, color=style.INK)
    ax.yaxis.label.set(fontsize=style.NORMAL, color=style.INK)
    style.legend(
        ax,
        [
            (Rectangle((0, 0), 1, 1, facecolor=FITS[1]), "fits"),
            (Rectangle((0, 0), 1, 1, facecolor=OVER[0]), "does not fit"),
            (Line2D([], [], color=style.CAPACITY, linewidth=2), "frontier"),
        ],
    )
    return ax


def _short(size: int) -> str:
    """Bytes in four digits."""
    value, unit = format_bytes(size).split()
    return f"{float(value):.4g} {unit}"


def _draw_edge(ax: Axes, edge: Frontier) -> None:
    """The line between the largest batch that fits at each length and the next."""
    at = [sum(batch <= largest for batch in edge.batches) for largest in edge.largest]
    across = [float(place) for place in at for _ in range(2)]
    upright = [float(value) for row in range(len(at)) for value in (row, row + 1)]
    ax.plot(across, upright, color=style.CAPACITY, linewidth=2, gid="frontier", clip_on=False, solid_joinstyle="miter")
