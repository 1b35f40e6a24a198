"""Draws schedules of pipeline-parallel training: what each rank does, what is in flight on it and what it holds; or several of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Clock
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.marks import BEHIND_TEXT
from lifecycle_sim.output.figures.picture import DOTS_AN_INCH, Picture, PictureAxes
from lifecycle_sim.output.figures.scale import time_unit
from lifecycle_sim.output.figures.ticks import byte_ticks, time_ticks
from lifecycle_sim.study.pipeline.schedule import Work
from lifecycle_sim.study.pipeline.schedule_result import Level, ScheduleRun, byte_levels, in_flight, static
from lifecycle_sim.units import format_bytes, format_duration

COLOURS = {Work.FORWARD: "#4477AA", Work.BACKWARD: "#228833", Work.INPUT_GRADIENT: "#44AA99", Work.WEIGHT_GRADIENT: "#DDB23D"}
NAMES = {
    Work.FORWARD: "forward",
    Work.BACKWARD: "backward",
    Work.INPUT_GRADIENT: "gradient of the input",
    Work.WEIGHT_GRADIENT: "gradients of the weights",
}
RAMP = LinearSegmentedColormap.from_list("ranks", ["#332288", "#4477AA", "#44AA99", "#DDB23D", "#EE6677"])
"""Ranks, from the first to the last."""
PALER = 0.55
"""How much of white the first chunk's colour has, against none of the last's."""
BAR = 0.84
LETTER_INCHES = 0.06
MOST_NUMBERED, MOST_DRAWN, MOST_NAMED = 4_000, 400_000, 8
CAPACITY_IN_VIEW = 1.6
ROOM = 1.12


def schedule_chart(run: ScheduleRun, capacity: int | None = None, title: str = "") -> Axes:
    """Draw a schedule: what each rank does and when, how many micro-batches are in flight on each, and the bytes where they are known.

    Paler bars are those of a rank's first chunk. The rank that binds is drawn strong. A number in a bar is that of the micro-batch, where
    there is room for it.

    Args:
        run: what was run.
        capacity: bytes of each rank, drawn as a line.
        title: what was run, such as the name of a file, for the line below the headline.

    Raises:
        InputError: there are too many actions to draw.
    """
    return _chart([run], capacity, title)[0]


def schedule_twins(runs: Sequence[ScheduleRun], capacity: int | None = None, title: str = "") -> Axes:
    """Draw schedules side by side, on the same axes: what each rank does, and what it holds; a headline says what they share.

    Where their numbers of chunks differ, a micro-batch in one of a rank's v chunks counts as 1/v in flight.

    Args:
        runs: what was run; at most four.
        capacity: bytes of each rank, drawn as a line.
        title: what was run, for the line below each headline.

    Raises:
        InputError: there is none or more than four, or there are too many actions to draw.
    """
    if not 1 <= len(runs) <= 4:
        raise InputError(f"{len(runs)} schedules cannot be drawn side by side: give one to four")
    axes = _chart(runs, capacity, title)
    if len(runs) > 1:
        axes[0].figure.suptitle(_shared(runs), x=0.01, ha="left", fontsize=style.LARGE + 1.5, fontweight="bold", color=style.INK)
    return axes[0]


def _shared(runs: Sequence[ScheduleRun]) -> str:
    """What the runs have in common and what not, in words."""
    facts = (
        ("makespan", {run.makespan for run in runs}),
        ("work", {run.work for run in runs}),
        ("peak", {_peak(run) for run in runs}),
    )
    same = [f"same {what}" for what, values in facts if len(values) == 1]
    other = [f"different {what}" for what, values in facts if len(values) > 1]
    told = ", ".join((*same, *other))
    return told[:1].upper() + told[1:]


def _peak(run: ScheduleRun) -> int:
    return max(rank.in_flight for rank in run.ranks) if run.peak is None else run.peak


def _chart(runs: Sequence[ScheduleRun], capacity: int | None, title: str) -> list[Axes]:
    """One column a run: a Gantt chart, what is in flight, and bytes where all runs know them."""
    count = sum(len(run.schedule) for run in runs)
    if count > MOST_DRAWN:
        raise InputError(f"{count:,} actions are too many to draw: at most {MOST_DRAWN:,}; take fewer micro-batches")
    sized = all(run.peak is not None for run in runs)
    end = max(run.makespan for run in runs)
    tall = min(max(1.2, 0.34 * max(run.schedule.ranks for run in runs)), 5.0)
    heights = [tall, 1.9, 2.1] if sized else [tall, 2.1]
    width = 10.6 if len(runs) == 1 else min(5.4 * len(runs) + 1.4, 20.0)
    figure = Picture(figsize=(width, sum(heights) + 1.5 + 0.4 * (len(runs) > 1)), dpi=DOTS_AN_INCH, layout="constrained")
    grid = figure.add_gridspec(len(heights), len(runs), height_ratios=heights)
    columns: list[list[Any]] = []
    for column, run in enumerate(runs):
        panels: list[Any] = []
        for row in range(len(heights)):
            beside, above = (columns[0][row] if columns else None), (panels[0] if panels else None)
            panels.append(figure.add_subplot(grid[row, column], axes_class=PictureAxes, sharey=beside, sharex=above))
        columns.append(panels)
        _column(panels, run, runs, end, capacity, title, width * 0.74 / len(runs))
    for row, highest in enumerate(([_in_flight(runs)] + ([_bytes(runs, capacity)] if sized else [])), start=1):
        columns[0][row].set_ylim(0, ROOM * highest)
    return [panel for panels in columns for panel in panels]


def _in_flight(runs: Sequence[ScheduleRun]) -> float:
    return max(rank.in_flight / _parts(run, runs) for run in runs for rank in run.ranks)


def _parts(run: ScheduleRun, runs: Sequence[ScheduleRun]) -> int:
    """How many in flight of *run* count as one: its chunks, where they differ from those of others."""
    return run.schedule.chunks if len({each.schedule.chunks for each in runs}) > 1 else 1


def _bytes(runs: Sequence[ScheduleRun], capacity: int | None) -> int:
    highest = max(1, *(run.peak or 0 for run in runs))
    return max(highest, capacity) if capacity is not None and capacity <= CAPACITY_IN_VIEW * highest else highest


def _column(
    panels: Sequence[Axes], run: ScheduleRun, runs: Sequence[ScheduleRun], end: int, capacity: int | None, title: str, inches: float
) -> None:
    """Draw *run*, one of *runs*, into *panels*, of which the uppermost is *inches* wide. The last has the legends of all."""
    scale, unit = time_unit(run.costs.clock, end)
    gantt, flights, *more = panels
    _gantt(gantt, run, scale, end)
    if len(run.schedule) <= MOST_NUMBERED:
        _numbers(gantt, run, scale, end, inches)
    _levels(flights, run, scale, False, _parts(run, runs))
    entries = [_kinds(runs), _ranks(run, False, len(runs) > 1)]
    for ax in more:
        _levels(ax, run, scale, True)
        entries.append([*_ranks(run, True, len(runs) > 1), *_capacity(ax, max(each.peak or 0 for each in runs), capacity)])
    style.frame(gantt, _headline(run), _below(run, title if run is runs[0] else "", len(runs) > 1), grid="x")
    for ax, shown in zip(panels, entries, strict=True):
        if ax is not gantt:
            _quiet(ax)
        if run is runs[-1]:
            style.legend(ax, shown, None if ax is gantt or len(runs) > 1 else "at the peak")
        if run is not runs[0]:
            ax.tick_params(labelleft=False)
            ax.set_ylabel("")
    for ax in panels[:-1]:
        ax.tick_params(labelbottom=False)
    panels[-1].set_xlabel(f"time ({unit})", fontsize=style.NORMAL, color=style.INK)
    time_ticks(panels[-1].xaxis)


def _headline(run: ScheduleRun) -> str:
    schedule = run.schedule
    chunks = f", {schedule.chunks} chunks a rank" if schedule.chunks > 1 else ""
    return f"{schedule.name}: {schedule.ranks} ranks, {schedule.microbatches} micro-batches{chunks}"


def _below(run: ScheduleRun, title: str, with_work: bool) -> str:
    def time(length: int) -> str:
        return format_duration(length) if run.costs.clock is Clock.NANOSECONDS else f"{length:,} ticks"

    told = [title, f"makespan {time(run.makespan)}", f"work {time(run.work)}" * with_work, f"bubble {100 * float(run.bubble):.1f} %"]
    return " · ".join(each for each in told if each)


def _quiet(ax: Axes) -> None:
    """Give a lower panel the same spines, ticks and grid as the uppermost, without a headline."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(style.MUTED)
    ax.tick_params(labelsize=style.SMALL, colors=style.MUTED, labelcolor=style.INK, length=3)
    ax.yaxis.label.set(fontsize=style.NORMAL, color=style.INK)
    ax.set_axisbelow(True)
    ax.grid(axis="both", color=style.FAINT, linewidth=0.6)


def _gantt(ax: Axes, run: ScheduleRun, scale: int, end: int) -> None:
    """A lane a rank, a bar an action."""
    schedule = run.schedule
    boxes: dict[tuple[Work, int], list[tuple[float, float, int]]] = {}
    for rank, actions in enumerate(schedule.lists):
        chunk_of = {stage: chunk for chunk, stage in enumerate(schedule.stages_of(rank))}
        for action, start, stop in zip(actions, run.times.starts[rank], run.times.ends[rank], strict=True):
            boxes.setdefault((action.work, chunk_of[action.stage]), []).append((start / scale, stop / scale, rank))
    edge = style.PAPER if len(schedule) <= MOST_NUMBERED else "none"
    for (work, chunk), bars in sorted(boxes.items()):
        at, half = np.array(bars), BAR / 2
        corners = np.stack([np.stack([at[:, x], at[:, 2] + y], axis=1) for x, y in ((0, -half), (0, half), (1, half), (1, -half))], axis=1)
        colour = shade(COLOURS[work], chunk, schedule.chunks)
        drawn = PolyCollection(list(corners), facecolor=colour, edgecolor=edge, linewidth=0.5, gid=f"{work} {chunk}")
        drawn.set_rasterized(len(schedule) > MOST_NUMBERED)
        ax.add_collection(drawn)
    ax.set_xlim(0, max(end, 1) / scale)
    ax.set_ylim(schedule.ranks - 0.45, -0.55)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=16, integer=True))
    ax.set_ylabel("rank")
    ax.tick_params(axis="y", length=0)


def _kinds(runs: Sequence[ScheduleRun]) -> list[tuple[Artist, str]]:
    """What a legend says of the bars."""
    there = {action.work for run in runs for actions in run.schedule.lists for action in actions}
    entries: list[tuple[Artist, str]] = [(Patch(color=COLOURS[work]), NAMES[work]) for work in Work if work in there]
    if any(run.schedule.chunks > 1 for run in runs):
        entries.append((Patch(color=shade(COLOURS[Work.FORWARD], 0, 2)), "paler: of its first chunk"))
    return entries


def shade(colour: str, chunk: int, chunks: int) -> str:
    """Return *colour* for a chunk: paler the earlier it is."""
    pale = PALER * (1 - chunk / (chunks - 1)) if chunks > 1 else 0.0
    red, green, blue = (part + (1 - part) * pale for part in to_rgb(colour))
    return to_hex((red, green, blue))


def _numbers(ax: Axes, run: ScheduleRun, scale: int, end: int, inches: float) -> None:
    """The micro-batch in each bar that has room for any."""
    chunks, widest = run.schedule.chunks, LETTER_INCHES * len(str(run.schedule.microbatches - 1)) + 0.01
    for rank, actions in enumerate(run.schedule.lists):
        chunk_of = {stage: chunk for chunk, stage in enumerate(run.schedule.stages_of(rank))}
        for action, start, stop in zip(actions, run.times.starts[rank], run.times.ends[rank], strict=True):
            text = str(action.microbatch)
            if (stop - start) / max(end, 1) * inches < widest:
                continue
            colour = style.on(shade(COLOURS[action.work], chunk_of[action.stage], chunks))
            ax.text((start + stop) / 2 / scale, rank, text, fontsize=5.8, ha="center", va="center_baseline", color=colour)


def _binding(run: ScheduleRun, sized: bool) -> int:
    """The first rank with the most bytes, or with the most in flight."""
    return run.binding.rank if sized else max(run.ranks, key=lambda rank: (rank.in_flight, -rank.rank)).rank


def _levels(ax: Axes, run: ScheduleRun, scale: int, sized: bool, parts: int = 1) -> None:
    """Micro-batches in flight over time, *parts* of them as one, or bytes: a line a rank, strong for the one that binds."""
    count, binding = len(run.ranks), _binding(run, sized)
    for rank in chain((rank for rank in range(count) if rank != binding), (binding,)):
        before = static(run.schedule, run.costs, rank) if sized else 0
        levels = list(byte_levels(run.schedule, run.costs, rank) if sized else in_flight(run.schedule, rank))
        at, values = _steps(levels, run.times.starts[rank], run.times.ends[rank], before, run.makespan)
        strong = rank == binding
        look: dict[str, Any] = {"linewidth": 1.7 if strong else 1.0, "alpha": 1.0 if strong else 0.85, "zorder": 4 if strong else 3}
        gid = f"{'bytes' if sized else 'in flight'} {rank}"
        ax.plot(
            np.array(at, float) / scale,
            np.array(values, float) / parts,
            drawstyle="steps-post",
            color=rank_colour(rank, count),
            gid=gid,
            **look,
        )
    if sized:
        ax.set_ylabel(f"{run.costs.basis} bytes, simulated")
        byte_ticks(ax.yaxis)
    else:
        ax.set_ylabel("in flight" if run.schedule.chunks == parts else "in flight, by chunk")
        ax.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 4, 5, 8, 10]))
    _mark(ax, run, sized, binding, scale, parts)


def _ranks(run: ScheduleRun, sized: bool, several: bool) -> list[tuple[Artist, str]]:
    """For the legend the ranks, with what each has at its peak unless there are *several* runs; of many ranks a few."""
    count, binding = len(run.ranks), _binding(run, sized)
    named = range(count) if count <= MOST_NAMED else sorted({0, 1, binding, count - 2, count - 1})
    entries: list[tuple[Artist, str]] = []
    for rank in named:
        each = run.ranks[rank]
        level = format_bytes(each.peak or 0) if sized else f"{each.in_flight:,}"
        look = Line2D([], [], color=rank_colour(rank, count), linewidth=1.8 if rank == binding and not several else 1.0)
        binds = ", which binds" if rank == binding and sized else ""
        entries.append((look, f"rank {rank}" if several else f"{level}  rank {rank}{binds}"))
    return entries


def _capacity(ax: Axes, highest: int, capacity: int | None) -> list[tuple[Artist, str]]:
    """Draw the capacity as a line if it is near, and return what a legend says of it."""
    if capacity is None:
        return []
    if capacity > CAPACITY_IN_VIEW * max(1, highest):
        return [(Line2D([], [], linestyle="none"), f"capacity {format_bytes(capacity)}, above the figure")]
    line = ax.axhline(capacity, color=style.CAPACITY, linewidth=1.4, linestyle=(0, (6, 1.5, 1, 1.5)), zorder=5, gid="capacity")
    return [(line, f"capacity {format_bytes(capacity)}")]


def rank_colour(rank: int, ranks: int) -> str:
    """Return the colour of *rank* out of *ranks*."""
    return to_hex(RAMP(rank / max(1, ranks - 1)))


def _mark(ax: Axes, run: ScheduleRun, sized: bool, binding: int, scale: int, parts: int) -> None:
    """A point and its level at the peak of the rank that binds."""
    if sized:
        each = run.ranks[binding]
        time, level, text = each.peak_time, float(each.peak or 0), format_bytes(each.peak or 0)
    else:
        flights = [level.during for level in in_flight(run.schedule, binding)]
        time, level = run.times.starts[binding][flights.index(max(flights))], max(flights) / parts
        text = f"{level:,.4g}"
    ax.plot([time / scale], [level], "o", color=style.PEAK, markersize=5, markeredgecolor=style.PAPER, zorder=6, gid="peak")
    right = time < 0.7 * ax.get_xlim()[1] * scale
    ax.annotate(
        text,
        (time / scale, level),
        xytext=(7 if right else -7, 3),
        textcoords="offset points",
        fontsize=style.SMALL,
        fontweight="bold",
        color=style.PEAK,
        ha="left" if right else "right",
        va="bottom",
        bbox=BEHIND_TEXT,
        zorder=7,
    )


def _steps(levels: Sequence[Level], starts: Sequence[int], ends: Sequence[int], before: int, end: int) -> tuple[list[int], list[int]]:
    """Where a level changes, and what it is from then on: at one instant, what is left when all of it is over."""
    found = {0: before}
    for level, start, stop in zip(levels, starts, ends, strict=True):
        found[start] = level.during
        found[stop] = level.after
    return [*found, end], [*found.values(), list(found.values())[-1]]
