"""Draws the frontier of plans of recomputation: what each peak costs at least, with the choices that people know beside it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from lifecycle_sim.errors import InputError
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.marks import BEHIND_TEXT
from lifecycle_sim.output.figures.ticks import byte_ticks
from lifecycle_sim.output.printable import shown
from lifecycle_sim.program.remat.strategies import Strategy
from lifecycle_sim.study.plan import RegionFrontier
from lifecycle_sim.units import format_bytes

PLAN, BEATEN, NAMED = "#4477AA", "#B2182B", "#228833"
ROOM = 0.08
LEFTMOST, RIGHTMOST = 0.15, 0.75
"""Names stand below the line to the left of their points; at the left end, and those that are beaten, above it to the right."""
NEAR = 0.012
"""Peaks and costs that differ by less than this share of the axes are one place in the figure."""


def plan_frontier(
    found: RegionFrontier, flops: int | None = None, budget: int | None = None, ax: Axes | None = None, title: str = ""
) -> Axes:
    """Draw every plan that is cheapest at its peak as a step line, and usual choices as named points; from those that a plan beats a line
    leads to the cheapest plan of no higher peak.

    Args:
        found: the frontier.
        flops: floating-point operations of the step as captured: costs are then a share of them.
        budget: bytes to compare with, drawn as a line.
        ax: where to draw; by default on a figure of its own.
        title: what was captured, such as the name of the file, for the line below the headline.

    Raises:
        InputError: there is no plan to draw.
    """
    if not found.points:
        raise InputError("there is no plan to draw: the frontier is empty")
    ax = style.new_axes(ax, 10.0, 5.2)
    scale = 100 / flops if flops and found.unit == "FLOP" else 1.0
    costs = [plan.cost * scale for plan in found.points]
    peaks = [plan.peak for plan in found.points]
    most = max([*costs, *(each.cost * scale for each in found.strategies)]) or 1.0
    low = min(peaks)
    high = max([*peaks, *(each.peak for each in found.strategies), *([] if budget is None else [min(budget, 2 * max(peaks))])])
    height = max(high - low, 1)
    ax.set_xlim(-0.02 * most, (1 + ROOM) * most)
    ax.set_ylim(low - 0.12 * height, high + 0.1 * height)
    edge = ax.get_xlim()[1]
    ax.plot([*costs, edge], [*peaks, peaks[-1]], drawstyle="steps-post", color=PLAN, linewidth=1.4, zorder=3, gid="frontier")
    ax.fill_between([*costs, edge], [*peaks, peaks[-1]], ax.get_ylim()[0], step="post", color=PLAN, alpha=0.08, linewidth=0, zorder=1)
    for proven, face in ((True, PLAN), (False, style.PAPER)):
        chosen = [place for place, plan in enumerate(found.points) if plan.proven is proven]
        ax.plot(
            [costs[place] for place in chosen],
            [peaks[place] for place in chosen],
            "o",
            markersize=5,
            color=PLAN,
            markerfacecolor=face,
            markeredgewidth=1.2,
            linestyle="none",
            zorder=4,
            gid="plans" if proven else "plans not proven",
        )
    if found.proven:
        ax.text(0.02, 0.03, "no plan peaks so low for so little", transform=ax.transAxes, fontsize=style.SMALL, color=style.MUTED)
    _draw_strategies(ax, found, scale)
    if budget is not None:
        ax.axhline(budget, color=style.CAPACITY, linewidth=1.4, linestyle=(0, (6, 1.5, 1, 1.5)), zorder=2, gid="budget")
    style.legend(ax, _entries(found, budget))
    share = scale != 1.0
    ax.set_xlabel(
        "FLOPs run again, of those of the step"
        if share
        else f"run again, {'FLOPs' if found.unit == 'FLOP' else 'time at least'} ({found.unit})"
    )
    ax.set_ylabel(f"peak, {found.basis} bytes, simulated")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.3g} %" if share else f"{value:,.4g}"))
    byte_ticks(ax.yaxis)
    certain = "each proven the cheapest at its peak" if found.proven else "not all proven the cheapest"
    below = " · ".join([*([shown(title, style.LONGEST_TITLE)] if title else []), f"{style.counted(len(found.points), 'plan')}, {certain}"])
    style.frame(ax, f"What {format_bytes(peaks[0])} to {format_bytes(peaks[-1])} cost", below, grid="both")
    return ax


def _entries(found: RegionFrontier, budget: int | None) -> list[tuple[Line2D, str]]:
    dot = {"color": PLAN, "markersize": 5, "linewidth": 1.4}
    entries = [(Line2D([], [], marker="o", **dot), "cheapest plan at its peak")]  # type: ignore[arg-type]
    if not all(plan.proven for plan in found.points):
        hollow = Line2D([], [], marker="o", markerfacecolor=style.PAPER, **dot)  # type: ignore[arg-type]
        entries.append((hollow, "not proven the cheapest"))
    for dominated, colour, marker, name in ((False, NAMED, "D", "usual choice"), (True, BEATEN, "X", "usual choice that a plan beats")):
        if any(each.dominated is dominated for each in found.strategies):
            entries.append((Line2D([], [], marker=marker, color=colour, linestyle="none", markersize=6.5), name))
    if budget is not None:
        line = Line2D([], [], color=style.CAPACITY, linewidth=1.4, linestyle=(0, (6, 1.5, 1, 1.5)))
        entries.append((line, f"{format_bytes(budget)}  budget"))
    return entries


def _draw_strategies(ax: Axes, found: RegionFrontier, scale: float) -> None:
    """Draw the usual choices; those that are at one place share a point, with their names below each other."""
    for group in _groups(ax, found.strategies, scale):
        first = group[0]
        x, beaten = first.cost * scale, first.dominated
        colour = BEATEN if beaten else NAMED
        ax.plot(
            [x],
            [first.peak],
            "X" if beaten else "D",
            markersize=8 if beaten else 7,
            color=colour,
            markeredgecolor=style.PAPER,
            zorder=6,
            gid="beaten" if beaten else "choice",
        )
        if beaten and first.least is not None and first.cost > first.least:
            ax.plot([first.least * scale, x], [first.peak] * 2, color=BEATEN, linewidth=0.9, linestyle=(0, (2, 2)), zorder=2, gid="saved")
        left, right = ax.get_xlim()
        above = beaten or x < left + LEFTMOST * (right - left)
        on_right = above and x < left + RIGHTMOST * (right - left)
        text = "\n".join(dict.fromkeys(shown(each.name) for each in group))
        ax.annotate(
            text,
            xy=(x, first.peak),
            xytext=(7 if on_right else -7, 5 if above else -5),
            textcoords="offset points",
            ha="left" if on_right else "right",
            va="bottom" if above else "top",
            fontsize=style.SMALL,
            color=colour,
            linespacing=1.15,
            bbox=BEHIND_TEXT,
            zorder=5,
            parse_math=False,
        )


def _groups(ax: Axes, strategies: Sequence[Strategy], scale: float) -> list[list[Strategy]]:
    """The choices that are so close to each other in the figure that they are one point."""
    width, height = (abs(high - low) for low, high in (ax.get_xlim(), ax.get_ylim()))
    groups: list[list[Strategy]] = []
    for each in strategies:
        near = next(
            (
                group
                for group in groups
                if abs(group[0].cost - each.cost) * scale < NEAR * width
                and abs(group[0].peak - each.peak) < NEAR * height
                and group[0].dominated is each.dominated
            ),
            None,
        )
        if near is None:
            groups.append([each])
        else:
            near.append(each)
    return groups
