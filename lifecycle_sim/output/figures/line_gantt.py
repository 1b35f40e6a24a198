"""Draws what the machines of a line do: a lane each, a bar for each batch."""

from __future__ import annotations

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from lifecycle_sim.events.trace import Int64
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.line_levels import axis_unit, place_colours, told_apart
from lifecycle_sim.output.figures.ticks import time_ticks
from lifecycle_sim.output.printable import shown
from lifecycle_sim.study.pipeline.line_figures import LineFigures
from lifecycle_sim.study.pipeline.line_occupancy import occupancy
from lifecycle_sim.study.pipeline.line_run import NEVER

MOST_LANES, MOST_BARS, MOST_ENTRIES = 48, 2000, 24
LANE_INCHES, BAR, LETTER_INCHES, WIDTH_INCHES = 0.25, 0.74, 0.06, 7.2
SETUP, REPAIR, BLOCKED = "#F2F2EE", "#1F2328", "#F4C7C3"


def line_visits(figures: LineFigures, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw the visits of a run: a lane for each machine that works, and in it set-up, work, repair, and what is done and cannot move on.

    A number in a bar is that of its item among those of its kind, ×6 is a batch of six, where there is room. At most 48 machines and 2000
    batches are drawn, the first ones; what is left out is told.

    Args:
        figures: a run, measured.
        ax: where to draw; by default on a figure of its own, as high as it needs.
        title: what was run, such as the name of the file, for the line below the headline.
    """
    run, line = figures.run, figures.run.line
    lanes = sorted(set(zip(run.jobs.stage.tolist(), run.jobs.machine.tolist(), strict=True)))
    drawn = {lane: row for row, lane in enumerate(lanes[:MOST_LANES])}
    jobs = [number for number in range(len(run.jobs.stage)) if (int(run.jobs.stage[number]), int(run.jobs.machine[number])) in drawn]
    left_out = len(run.jobs.stage) - len(jobs[:MOST_BARS])
    jobs = jobs[:MOST_BARS]
    until = run.end if len(jobs) < MOST_BARS else int(run.jobs.done[jobs].max())
    scale, unit = axis_unit(line.clock, until)
    ax = style.new_axes(ax, 10.0, 1.5 + LANE_INCHES * max(len(drawn), 4))
    held = occupancy(run)
    colours = place_colours(held, told_apart(held))
    labels = _labels(figures)
    _bars(ax, figures, jobs, drawn, colours, scale)
    for number in jobs:
        _number(ax, figures, number, drawn, colours, labels[number], scale, until)
    for row, (lane, before) in enumerate(zip(lanes[1:MOST_LANES], lanes, strict=False), start=1):
        if lane[0] != before[0]:
            ax.axhline(row - 0.5, color=style.FAINT, linewidth=0.8, zorder=1)
    ax.set_ylim(max(len(drawn), 1) - 0.4, -0.6)
    ax.set_xlim(0, max(until, 1) / scale)
    names = [shown(line.stages[at].name, 24) + (f" #{machine + 1}" if line.stages[at].machines > 1 else "") for at, machine in drawn]
    ax.set_yticks(range(len(drawn)), names)
    ax.set_xlabel(f"time ({unit})")
    time_ticks(ax.xaxis)
    style.legend(ax, _entries(figures, colours))
    below = " · ".join(shown(text, style.LONGEST_TITLE) for text in dict.fromkeys((title, line.title)) if text)
    told = f"{len(jobs):,} batches, {100 * float(figures.bubble):.1f} % of the machines' time is no work"
    told += f"; {left_out:,} batches are not drawn" if left_out else ""
    idle = sum(stage.machines for stage in line.stages) - len(lanes)
    told += f"; {idle:,} machines never work" if idle else ""
    style.frame(ax, "Visits of the line", f"{below} · {told}" if below else told, grid="x")
    ax.tick_params(axis="y", length=0)
    return ax


def _labels(figures: LineFigures) -> list[str]:
    """For each batch the number of its item among those of its kind, or how many it has."""
    run = figures.run
    visits = np.flatnonzero(run.job != NEVER)
    order = visits[np.argsort(run.job[visits], kind="stable")]
    bounds = np.searchsorted(run.job[order], np.arange(len(run.jobs.stage) + 1))
    numbers: Int64 = run.agenda.number[run.agenda.item[order]]
    labels = []
    for begin, end in zip(bounds.tolist(), bounds[1:].tolist(), strict=False):
        labels.append(str(numbers[begin]) if end - begin == 1 else f"×{end - begin}")
    return labels


def _bars(ax: Axes, figures: LineFigures, jobs: list[int], drawn: dict[tuple[int, int], int], colours: dict[str, str], scale: int) -> None:
    """Draw what the batches *jobs* did, all bars of one look at a time."""
    done_jobs, stages = figures.run.jobs, figures.run.line.stages
    looks: dict[tuple[str, str, str], list[tuple[int, int, int]]] = {}
    for number in jobs:
        stage, row = int(done_jobs.stage[number]), drawn[int(done_jobs.stage[number]), int(done_jobs.machine[number])]
        columns = (done_jobs.begin, done_jobs.setup, done_jobs.repair, done_jobs.done, done_jobs.release)
        begin, setup, repair, done, release = (int(column[number]) for column in columns)
        release = figures.run.end if release == NEVER else release
        parts = [
            (begin, begin + setup, (SETUP, style.MUTED, "////")),
            (begin + setup, done - repair, (colours[stages[stage].name], style.PAPER, "")),
            (done - repair, done, (REPAIR, style.PAPER, "")),
            (done, release, (BLOCKED, style.PAPER, "")),
        ]
        for start, stop, look in parts:
            if stop > start:
                looks.setdefault(look, []).append((row, start, stop))
    for (face, edge, hatch), bars in looks.items():
        lefts, widths = [start / scale for _, start, _ in bars], [(stop - start) / scale for _, start, stop in bars]
        rows = [row for row, _, _ in bars]
        ax.barh(rows, widths, BAR, left=lefts, color=face, edgecolor=edge, linewidth=0.5, hatch=hatch, zorder=3)


def _number(
    ax: Axes,
    figures: LineFigures,
    number: int,
    drawn: dict[tuple[int, int], int],
    colours: dict[str, str],
    label: str,
    scale: int,
    until: int,
) -> None:
    """Write which items a bar stands for, if there is room."""
    jobs = figures.run.jobs
    stage, row = int(jobs.stage[number]), drawn[int(jobs.stage[number]), int(jobs.machine[number])]
    begin, end = int(jobs.begin[number] + jobs.setup[number]), int(jobs.done[number] - jobs.repair[number])
    if (end - begin) / max(until, 1) * WIDTH_INCHES > LETTER_INCHES * (len(label) + 0.6):
        colour = style.on(colours[figures.run.line.stages[stage].name])
        ax.text((begin + end) / 2 / scale, row, label, ha="center", va="center", fontsize=style.SMALL - 0.5, color=colour, zorder=4)


def _entries(figures: LineFigures, colours: dict[str, str]) -> list[tuple[Artist, str]]:
    entries: list[tuple[Artist, str]] = [
        (Patch(facecolor=colours[stage.name]), f"{shown(stage.name, 30)}, {100 * float(stage.utilisation):.1f} % at work")
        for stage in figures.stages[:MOST_ENTRIES]
    ]
    looks = (
        ("setup", SETUP, "////", "set-up"),
        ("repair", REPAIR, "", "repair, drawn at the end"),
        ("blocked", BLOCKED, "", "done, cannot move on"),
    )
    for key, face, hatch, text in looks:
        if any(getattr(stage, key) for stage in figures.stages):
            entries.append((Patch(facecolor=face, hatch=hatch, edgecolor=style.MUTED, linewidth=0), text))
    return entries
