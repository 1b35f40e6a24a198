"""Draws the occupancy of lines over time: stacked by stage, with peak, average and capacity; one line, or several above each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Clock
from lifecycle_sim.output.downsample import choose_positions
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.marks import BEHIND_TEXT
from lifecycle_sim.output.figures.picture import DOTS_AN_INCH, Picture, PictureAxes
from lifecycle_sim.output.figures.scale import time_unit
from lifecycle_sim.output.figures.ticks import byte_ticks, count_ticks, time_ticks
from lifecycle_sim.output.line_words import LONG, Words
from lifecycle_sim.output.printable import shown
from lifecycle_sim.study.pipeline.line_figures import LineFigures
from lifecycle_sim.study.pipeline.line_occupancy import Occupancy, occupancy

ROOM_ABOVE = 1.16
CAPACITY_IN_VIEW = 1.6
WAY_COLOURS = ("#B9C2CA", "#D5DADE", "#A3AFB9")
MOST_LINES, MOST_PLACES = 8, 12
LEGEND_COLUMNS, LEGEND_ROW_POINTS, SHORT_NAME = 7, 14.0, 20
PANEL_INCHES = 1.75
NAME = 50
AVERAGE_LOOK: dict[str, Any] = {"color": style.INK, "linewidth": 1.3, "linestyle": (0, (4, 2)), "zorder": 6}
CAPACITY_LOOK: dict[str, Any] = {"color": style.CAPACITY, "linewidth": 1.4, "linestyle": (0, (6, 1.5, 1, 1.5)), "zorder": 6}


def words_of(figures: LineFigures) -> Words:
    """Return how amounts and times of a run are said."""
    return Words(figures.run.line.unit, figures.run.line.clock)


def axis_unit(clock: Clock, longest: int) -> tuple[int, str]:
    """Return the unit of a time axis that goes up to *longest*, in the clock's own and by name: hours and minutes too."""
    for unit, scale in LONG:
        if clock is Clock.NANOSECONDS and longest >= 3 * scale:
            return scale, unit
    return time_unit(clock, longest)


def place_colours(held: Occupancy, apart: frozenset[str]) -> dict[str, str]:
    """Return a colour for each stage that is told *apart*, greys for the ways between them, and one grey for all others."""
    stages = held.places[: len(held.run.line.stages)]
    named = [name for name in stages if name in apart]
    found = {name: style.SEQUENCE[at % len(style.SEQUENCE)] for at, name in enumerate(named)}
    ways = {name: WAY_COLOURS[at % len(WAY_COLOURS)] for at, name in enumerate(held.places[len(stages) :])}
    return dict.fromkeys(held.places, style.OTHERS) | ways | found


def told_apart(held: Occupancy) -> frozenset[str]:
    """Return the places that have a colour of their own: all, or the ones with the most work if they are many."""
    places = held.places
    if len(places) <= MOST_PLACES:
        return frozenset(places)
    works = [held.at(place).area(0, held.run.end) for place in range(len(places))]
    ranked = sorted(range(len(places)), key=lambda place: -works[place])
    return frozenset(places[place] for place in ranked[: MOST_PLACES - 1])


def line_occupancy(figures: LineFigures, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw what is occupied in a line over time, stacked by stage, with its peak, its average and its capacity.

    Long runs are drawn at about 2000 times, among them the peak. The legend tells what is at each stage at the peak; of more than twelve
    places those with the least work are one.

    Args:
        figures: a run, measured.
        ax: where to draw; by default on a figure of its own.
        title: what was run, such as the name of the file, for the line below the headline.
    """
    held, run = occupancy(figures.run), figures.run
    ax = style.new_axes(ax)
    panel = _Panel.of(figures, held, run.end, told_apart(held))
    panel.draw(ax)
    highest = panel.highest(figures)
    ax.set_ylim(0, ROOM_ABOVE * highest)
    _mark_peak(ax, figures, panel)
    style.legend(
        ax,
        [*panel.entries(figures, held), *panel.limits(figures, highest)],
        f"at the peak ({words_of(figures).time(figures.total.peak_time)})",
    )
    _axes(ax, figures, panel)
    below = " · ".join(shown(text, style.LONGEST_TITLE) for text in dict.fromkeys((title, run.line.title)) if text)
    says = f"{words_of(figures).short_work(figures.total.area)} in all, {figures.finished:,} items through"
    style.frame(ax, "Occupancy of the line", f"{below} · {says}" if below else says)
    return ax


def line_variants(lines: Sequence[tuple[str, LineFigures]], title: str = "", headline: str = "Lines side by side") -> Axes:
    """Draw the occupancy of several lines above each other, on the same axes, with total work, average and peak beside each.

    Args:
        lines: name and figures of each; at most eight are drawn.
        title: what was run, for the line below the headline.
        headline: what they show.

    Raises:
        InputError: no line is given.
    """
    if not lines:
        raise InputError("there is no line to draw: give one at least")
    drawn = lines[:MOST_LINES]
    figure = Picture(figsize=(10.4, 1.3 + PANEL_INCHES * len(drawn)), dpi=DOTS_AN_INCH, layout="constrained")
    end = max(figures.run.end for _, figures in drawn)
    apart = told_apart(occupancy(drawn[0][1].run))
    parts = [(figures, _Panel.of(figures, occupancy(figures.run), end, apart)) for _, figures in drawn]
    highest = max(panel.highest(figures) for figures, panel in parts)
    first: Axes | None = None
    for row, ((name, _), (figures, panel)) in enumerate(zip(drawn, parts, strict=True)):
        ax = figure.add_subplot(len(drawn), 1, row + 1, sharex=first, sharey=first, axes_class=PictureAxes)
        first = first or ax
        panel.draw(ax)
        ax.set_ylim(0, 1.08 * highest)
        limits = panel.limits(figures, highest)
        _axes(ax, figures, panel)
        if row + 1 < len(drawn):
            ax.tick_params(labelbottom=False)
            ax.set_xlabel("")
        ax.set_ylabel("")
        if row:
            style.frame(ax, "", "")
        _beside(ax, name, figures, panel)
        if row == 0:
            entries = [(Patch(facecolor=colour), shown(name, SHORT_NAME)) for name, colour, _, _ in panel.areas]
            rows = _legend_above(ax, [*entries, *((artist, text.split(" ")[0]) for artist, text in limits)])
            below = " · ".join(shown(text, style.LONGEST_TITLE) for text in dict.fromkeys((title, figures.run.line.title)) if text)
            more = f"; {len(lines) - len(drawn):,} more are not drawn" if len(lines) > len(drawn) else ""
            style.frame(ax, f"{headline}{more}", below, above=3 + LEGEND_ROW_POINTS * rows)
    figure.supylabel(_label(drawn[0][1]), fontsize=style.NORMAL, color=style.INK)
    return figure.axes[0]


@dataclass(frozen=True, eq=False)
class _Panel:
    """One line, ready to draw: where its levels change, and what each place holds from then on."""

    edges: NDArray[Any]
    areas: list[tuple[str, str, tuple[int, ...], NDArray[Any]]]
    """Name, colour, numbers of the places that it stands for, and levels."""
    scale: int
    unit: str
    end: float

    @classmethod
    def of(cls, figures: LineFigures, held: Occupancy, end: int, apart: frozenset[str]) -> _Panel:
        """Return the panel of a line on an axis that ends at *end*; places that are not to be told *apart* are one."""
        total = held.total
        scale, unit = axis_unit(figures.run.line.clock, end)
        if not len(total.time):
            return cls(np.zeros(2), [], scale, unit, max(end, 1) / scale)
        peak = int(np.searchsorted(total.time, figures.total.peak_time))
        positions = choose_positions(total.level, keep=[peak])
        times = total.time[positions]
        colours, others = place_colours(held, apart), np.zeros(len(times))
        areas: list[tuple[str, str, tuple[int, ...], NDArray[Any]]] = []
        left = []
        for place, name in enumerate(held.places):
            level = held.at(place)
            found = np.searchsorted(level.time, times, side="right") - 1
            levels = np.where(found < 0, 0, level.level[found] if len(level.level) else 0).astype(float)
            if name in apart:
                areas.append((name, colours[name], (place,), levels))
            else:
                left.append(place)
                others += levels
        if left:
            areas.append((f"{len(left):,} other places", style.OTHERS, tuple(left), others))
        return cls(np.append(times, max(end, int(times[-1]))) / scale, areas, scale, unit, max(end, 1) / scale)

    def draw(self, ax: Axes) -> None:
        """Stack the places on *ax*, the first stage lowest."""
        floor = np.zeros(len(self.edges))
        for name, colour, _, levels in self.areas:
            ceiling = floor + np.append(levels, levels[-1])
            ax.fill_between(self.edges, floor, ceiling, step="post", facecolor=colour, linewidth=0, zorder=2, gid=f"area {name}")
            floor = ceiling
        ax.plot(
            self.edges,
            floor,
            drawstyle="steps-post",
            color=style.INK,
            linewidth=0.9 if len(self.edges) < 500 else 0.4,
            zorder=5,
            gid="total",
        )
        ax.set_xlim(0, self.end)

    def highest(self, figures: LineFigures) -> float:
        """The highest thing that is drawn: the peak, or the capacity where that is in view."""
        capacity = figures.total.capacity or 0
        peak = max(figures.total.peak, 1)
        return float(capacity if peak < capacity <= CAPACITY_IN_VIEW * peak else peak)

    def entries(self, figures: LineFigures, held: Occupancy) -> list[tuple[Artist, str]]:
        """What the legend shows for each place, the highest of the stack first."""
        present = held.present(figures.total.peak_time)
        places, sizes = held.pieces.place[present], held.pieces.size[present]
        told = words_of(figures)
        rows: list[tuple[Artist, str]] = [
            (Patch(facecolor=colour), f"{told.short(sum(sizes[np.isin(places, numbers)].tolist()))}  {shown(name, NAME)}")
            for name, colour, numbers, _ in self.areas
        ]
        return rows[::-1]

    def limits(self, figures: LineFigures, highest: float) -> list[tuple[Artist, str]]:
        """What the legend shows for average and capacity."""
        told, average = words_of(figures), float(figures.total.average)
        found: list[tuple[Artist, str]] = [(Line2D([], [], **AVERAGE_LOOK), f"average {told.short(average)}{_window(figures)}")]
        if (capacity := figures.total.capacity) is not None:
            seen = capacity <= highest
            line = Line2D([], [], **CAPACITY_LOOK) if seen else Line2D([], [], linestyle="none")
            found.append((line, f"capacity {told.short(capacity)}{'' if seen else ', above the figure'}"))
        return found


def _window(figures: LineFigures) -> str:
    """Over how long the average is, where that is not the whole run."""
    whole = (figures.begin, figures.end) == (0, figures.run.end)
    return "" if whole else f" over {words_of(figures).time(figures.end - figures.begin)}"


def _axes(ax: Axes, figures: LineFigures, panel: _Panel) -> None:
    """Draw average and capacity, and label the axes."""
    ax.axhline(float(figures.total.average), gid="average", **AVERAGE_LOOK)
    if figures.total.capacity is not None and figures.total.capacity <= ax.get_ylim()[1]:
        ax.axhline(figures.total.capacity, gid="capacity", **CAPACITY_LOOK)
    ax.set_xlabel(f"time ({panel.unit})")
    ax.set_ylabel(_label(figures))
    amount_ticks(ax.yaxis, figures.run.line.unit)
    time_ticks(ax.xaxis)


def amount_ticks(axis: Axis, unit: str) -> None:
    """Give *axis* the ticks of a line's unit."""
    if unit == "B":
        byte_ticks(axis)
    else:
        count_ticks(axis)


def _label(figures: LineFigures) -> str:
    unit = figures.run.line.unit
    return "payload bytes, simulated" if unit == "B" else f"{'items' if unit == 'item' else unit}, simulated"


def _mark_peak(ax: Axes, figures: LineFigures, panel: _Panel) -> None:
    where, peak = figures.total.peak_time / panel.scale, figures.total.peak
    share = where / panel.end
    side = "left" if share < 0.2 else "right" if share > 0.8 else "center"
    ax.plot([where], [peak], "o", markersize=5.5, color=style.PEAK, markeredgecolor=style.PAPER, zorder=8, clip_on=False, gid="peak")
    ax.annotate(
        f"peak {words_of(figures).short(peak)}",
        xy=(where, peak),
        xytext=({"left": 7, "center": 0, "right": -7}[side], 8),
        textcoords="offset points",
        ha=side,
        va="bottom",
        fontsize=style.NORMAL,
        fontweight="bold",
        color=style.PEAK,
        bbox=BEHIND_TEXT,
        zorder=9,
    )


def _beside(ax: Axes, name: str, figures: LineFigures, panel: _Panel) -> None:
    """Write beside a panel what its line is called and what it comes to; what does not fit stands out."""
    told = words_of(figures)
    where, peak = figures.total.peak_time / panel.scale, figures.total.peak
    ax.plot([where], [peak], "o", markersize=5, color=style.PEAK, markeredgecolor=style.PAPER, zorder=8, clip_on=False, gid="peak")
    verdict = {True: "fits", False: "deadlock" if figures.deadlock else "does not fit", None: ""}[figures.fits]
    verdict += " in this run" if verdict and figures.run.line.replications > 1 else ""
    rows = [
        (shown(name, 30), style.INK, "bold"),
        (f"total work  {told.short_work(figures.total.area)}", style.INK, "normal"),
        (f"average  {told.short(float(figures.total.average))}{_window(figures)}", style.INK, "normal"),
        (f"peak  {told.short(peak)}{f', {verdict}' if verdict else ''}", style.PEAK if figures.fits is False else style.INK, "bold"),
    ]
    for row, (text, colour, weight) in enumerate(rows):
        ax.annotate(
            text,
            xy=(1.015, 1),
            xycoords="axes fraction",
            xytext=(0, -14 * row - 3),
            textcoords="offset points",
            va="top",
            fontsize=style.NORMAL if row == 0 else style.SMALL,
            fontweight=weight,
            color=colour,
            annotation_clip=False,
            parse_math=False,
        )


def _legend_above(ax: Axes, entries: Sequence[tuple[Artist, str]]) -> int:
    """Put a legend between *ax* and its headline; return how many rows it takes."""
    drawn = ax.legend(
        [artist for artist, _ in entries],
        [text for _, text in entries],
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=min(len(entries), LEGEND_COLUMNS),
        frameon=False,
        fontsize=style.SMALL,
        handlelength=1.4,
        columnspacing=1.4,
        borderaxespad=0.3,
        labelcolor=style.INK,
    )
    for text in drawn.get_texts():
        text.set_parse_math(False)
    return -(-len(entries) // LEGEND_COLUMNS)
