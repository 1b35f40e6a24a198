"""Draws an edited step: its level beside that of the step as it was, and the storages that die early and are made again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Kind, Trace
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.lanes import SHADES
from lifecycle_sim.output.figures.marks import BEHIND_TEXT
from lifecycle_sim.output.figures.ticks import byte_ticks, count_ticks
from lifecycle_sim.output.printable import shown
from lifecycle_sim.program.edits.offload import RETURNED
from lifecycle_sim.program.remat import Edit, Happens, edit
from lifecycle_sim.program.step_graph import NO_STORAGE, StepGraph
from lifecycle_sim.program.stored_steps import graphs_of
from lifecycle_sim.study.recompute import Recompute
from lifecycle_sim.units import format_bytes

BASE, EDITED, AGAIN = "#9AA4AD", "#4477AA", "#DDB23D"
HELD, MADE_AGAIN, DROPPED = "#4477AA", "#D9730D", "#C4CBD0"
ROOM = 0.2
BAR, NARROWEST = 0.66, 0.004
ROW_INCHES = 0.19
LANE, LANE_ROWS = 0.035, 0.9
"""The height of the row of phases: a share of the axes, or rows."""
NAME_LENGTH = 40


@dataclass(frozen=True)
class _Axis:
    """Both steps over the operators of the edited one, those that run again among them.

    As long as both run the same operators, those stand above each other; from where they differ on, such as in another optimizer, each
    step goes on by itself.

    Attributes:
        again: whether each operator of the edited step runs again.
        phases: the phase of each.
        of_base: for each operator of the step as it was its place.
        length: how many places there are.
    """

    again: NDArray[np.bool_]
    phases: tuple[str, ...]
    of_base: NDArray[np.int64]
    length: int

    @classmethod
    def of(cls, edited: Edit, base: StepGraph) -> _Axis:
        """Return the axis of *edited* and *base*."""
        ran = [event for event in edited.events if event.happens in (Happens.OPERATOR, Happens.AGAIN)]
        again = np.array([event.happens is Happens.AGAIN for event in ran], bool)
        rows = edited.graph.operators
        phases = tuple("backward" if event.happens is Happens.AGAIN else rows[event.value].phase for event in ran)
        first = np.flatnonzero(~again)
        names = [rows[ran[place].value].name for place in first.tolist()]
        pairs = zip(names, (row.name for row in base.operators), strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        beyond = int(first[alike - 1]) + 1 if alike else 0
        of_base = np.concatenate([first[:alike], beyond + np.arange(len(base.operators) - alike)])
        return cls(again, phases, of_base, max(len(again), int(of_base.max(initial=-1)) + 1))

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield where calls run again: from the first operator to behind the last."""
        yield from _runs([bool(each) for each in self.again], True)


def _runs(values: Sequence[Any], wanted: Any) -> Iterator[tuple[int, int]]:
    at = 0
    for value, run in groupby(values):
        length = len(list(run))
        if value == wanted:
            yield at, at + length
        at += length


def recomputed_timeline(found: Recompute, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw the requested bytes of the last step as it was and edited, over the operators of the latter.

    Where calls run again, which is shaded, the step as it was stands still. Each operator is as high as its high-water. From the first
    operator on that differs, such as the first of another optimizer, each step goes on by itself.

    Args:
        found: what ``ls.what_if`` returned.
        ax: where to draw; by default on a figure of its own.
        title: what was captured, such as the name of the file, for the line below the headline.
    """
    edited, graph = found.edits[-1], graphs_of(found.base_trace)[-1]
    axis = _Axis.of(edited, graph)
    ax = style.new_axes(ax)
    count = axis.length
    after = np.array([high for _, high, _ in edited.rows()], np.int64) + _before(found.trace, found.step)
    base = np.array([(high, left) for _, high, left in edit(graph).rows()], np.int64) + _before(found.base_trace, graph.name)
    stands = np.empty(int(axis.of_base.max(initial=-1)) + 2, np.int64)
    place = 0
    stands[0], level = base[0]
    for at in range(1, len(stands)):
        if place < len(axis.of_base) and axis.of_base[place] == at - 1:
            place += 1
            stands[at], level = base[place]
        else:
            stands[at] = level
    for start, stop in axis.runs():
        ax.axvspan(start, stop, color=AGAIN, alpha=0.22, linewidth=0, zorder=0.5, gid="runs again")
    ax.fill_between(_edges(stands), _held(stands), step="post", color=BASE, alpha=0.28, linewidth=0, zorder=1, gid="as captured")
    ax.plot(_edges(stands), _held(stands), drawstyle="steps-post", color=BASE, linewidth=1.0, zorder=3)
    ax.fill_between(_edges(after), _held(after), step="post", color=EDITED, alpha=0.22, linewidth=0, zorder=2, gid="edited")
    ax.plot(_edges(after), _held(after), drawstyle="steps-post", color=EDITED, linewidth=1.3, zorder=4)
    highest = int(max(stands.max(), after.max()))
    ax.set_xlim(-1, count)
    ax.set_ylim(0, max(highest, 1) * (1 + ROOM))
    for levels, colour in ((stands, "#5F6A73"), (after, EDITED)):
        _mark_peak(ax, levels, colour, count)
    _draw_phases(ax, axis)
    entries: list[tuple[Artist, str]] = [
        (Patch(facecolor=BASE, alpha=0.6), f"{format_bytes(found.base.requested)}  as captured"),
        (Patch(facecolor=EDITED, alpha=0.6), f"{format_bytes(found.edited.requested)}  {'edited' if found.edited_by else 'recomputed'}"),
    ]
    if found.extra.operators:
        entries.append((Patch(facecolor=AGAIN, alpha=0.4), f"{style.counted(found.extra.operators, 'operator')} run again"))
    if found.extra.operators and found.cost.flops:
        entries.append((Line2D([], [], linestyle="none"), f"+{100 * found.extra.flops / found.cost.flops:.1f} % FLOPs"))
    style.legend(ax, entries, f"peaks of {found.step}")
    ax.set_xlabel("operator")
    ax.set_ylabel("requested bytes, simulated")
    byte_ticks(ax.yaxis)
    count_ticks(ax.xaxis)
    style.frame(ax, _headline(found), _below(found, title), above=4)
    return ax


def recomputed_lifecycles(found: Recompute, top: int = 40, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw the largest storages that die early and come back: when each lives, when it would have been held, and when it lives again.

    They are made again, or fetched from the host; what ranks gather of a divided parameter is not among them.

    Those that are alike and live alike share a row.

    Args:
        found: what ``ls.what_if`` returned.
        top: how many rows to draw at most.
        ax: where to draw; by default on a figure of its own, as high as it needs.
        title: what was captured, such as the name of the file, for the line below the headline.

    Raises:
        InputError: nothing is made again.
    """
    edited = found.edits[-1]
    axis = _Axis.of(edited, edited.graph)
    count = axis.length
    lives = _lives(edited, count)
    copies: dict[int, list[tuple[int, int]]] = {}
    for copy, original in enumerate(edited.copies, start=edited.first_new):
        label, _ = edited.own.get(copy, (RETURNED, None))  # else it is gathered, or a rank's part of a gradient
        if original != NO_STORAGE and copy in lives and label == RETURNED:
            copies.setdefault(original, []).append(lives[copy])
    was = {storage: tuple(_at(axis, place, count) for place in bounds) for storage, bounds in _lives(edit(edited.graph), -1).items()}
    lasting = [storage for storage in copies if storage in was and was[storage][1] > lives[storage][1]]
    if not lasting:
        raise InputError("nothing that was held is made again or fetched from the host: there is no interval to draw")
    largest = sorted(lasting, key=lambda storage: (-edited.size(storage) * (was[storage][1] - lives[storage][1]), lives[storage]))
    kinds: dict[Any, list[int]] = {}
    for storage in largest:
        kinds.setdefault((edited.size(storage), lives[storage], was[storage], tuple(copies[storage])), []).append(storage)
    rows = sorted(list(kinds.values())[:top], key=lambda alike: (lives[alike[0]], alike))
    ax = style.new_axes(ax, 11.0, 1.5 + ROW_INCHES * max(len(rows), 10))
    least = NARROWEST * count
    for start, stop in axis.runs():
        ax.axvspan(start, stop, color=AGAIN, alpha=0.16, linewidth=0, zorder=0.5, gid="runs again")
    for row, alike in enumerate(rows):
        storage = alike[0]
        born, died = lives[storage]
        ax.barh(row, was[storage][1] - born, BAR, born, color=DROPPED, alpha=0.4, linewidth=0, zorder=1, gid="held before")
        ax.barh(row, max(died - born, least), BAR, born, color=HELD, linewidth=0, zorder=3, gid="lives")
        for returned, gone in copies[storage]:
            ax.barh(row, max(gone - returned, least), BAR, returned, color=MADE_AGAIN, linewidth=0, zorder=3, gid="made again")
    ax.set_xlim(-1, count)
    ax.set_ylim(len(rows) - 0.4, -0.7 - 1 - LANE_ROWS)
    ax.set_yticks(range(len(rows)))
    ax.set_yticklabels(_names(found, edited, rows), parse_math=False)
    _draw_phases(ax, axis, LANE_ROWS / (len(rows) + 1.3 + LANE_ROWS))
    shown_ones = [storage for alike in rows for storage in alike]
    back = "back from the host"
    again = "made again" if found.transfers is None else f"made again, or {back}" if found.calls else back
    entries: list[tuple[Artist, str]] = [
        (Patch(color=HELD), "lives"),
        (Patch(color=DROPPED, alpha=0.4), "was held as captured"),
        (Patch(color=MADE_AGAIN), again),
    ]
    style.legend(ax, [*entries, (Patch(color=AGAIN, alpha=0.3), "calls run again")] if found.calls else entries)
    left = len(lasting) - len(shown_ones)
    less = f"; {left:,} smaller or shorter ones are left out" if left else ""
    ax.set_xlabel(f"operator\n{style.counted(len(shown_ones), 'storage')} of those {again}{less}")
    ax.set_ylabel("storages\n(requested bytes, simulated)")
    count_ticks(ax.xaxis)
    style.frame(
        ax,
        "What is let go, and made again" if found.transfers is None else "What is let go, and comes back",
        _below(found, title),
        grid="x",
        above=4,
    )
    ax.tick_params(axis="y", length=0)
    return ax


def _lives(edited: Edit, end: int) -> dict[int, tuple[int, int]]:
    """For each storage the operator that allocates it and the one that frees it; *end* if none does."""
    born: dict[int, int] = {}
    found: dict[int, tuple[int, int]] = {}
    operator = -1
    for event in edited.events:
        if event.happens is Happens.ALLOC:
            born[event.value] = operator
            found[event.value] = operator, end
        elif event.happens is Happens.FREE:
            if event.value in born:
                found[event.value] = born[event.value], operator
        else:
            operator += 1
    return found


def _at(axis: _Axis, operator: int, end: int) -> int:
    """Where the operator *operator* of the step as it was lies; -1 is before the first or, for an end, the end of the axis."""
    return end if operator < 0 else int(axis.of_base[operator])


def _before(trace: Trace, step: str) -> int:
    """Bytes held before the step."""
    recorded = trace.devices[0]
    start = next(span.start for span in recorded.spans if span.kind == "step" and span.name == step)
    events = recorded.events
    return int(np.where(events.kind == Kind.ALLOC, events.size, -events.size)[:start].sum())


def _edges(levels: NDArray[Any]) -> NDArray[Any]:
    return np.arange(-1, len(levels)).astype(float)


def _held(levels: NDArray[Any]) -> NDArray[Any]:
    return np.append(levels, levels[-1]).astype(float)


def _mark_peak(ax: Axes, levels: NDArray[Any], colour: str, count: int) -> None:
    at = int(np.argmax(levels))
    size, middle = int(levels[at]), at - 0.5
    side = "left" if at < 0.15 * count else "right" if at > 0.85 * count else "center"
    ax.plot([middle], [size], "o", markersize=5.5, color=colour, markeredgecolor=style.PAPER, zorder=6, gid="peak")
    ax.annotate(
        format_bytes(size),
        xy=(middle, size),
        xytext=(0, 7),
        textcoords="offset points",
        ha=side,
        va="bottom",
        fontsize=style.NORMAL,
        fontweight="bold",
        color=colour,
        bbox=BEHIND_TEXT,
        zorder=7,
    )


def _draw_phases(ax: Axes, axis: _Axis, height: float = LANE) -> None:
    """Write the phases of the step along the top."""
    shade = 0
    for phase in dict.fromkeys(axis.phases):
        for start, stop in _runs(axis.phases, phase):
            if not phase or stop - start < 0.02 * len(axis.phases):
                continue
            ax.axvspan(start, stop, 1 - height, 1, color=SHADES[shade % 2], linewidth=0, zorder=7, gid="phase")
            if stop - start > 0.07 * len(axis.phases):
                ax.text(
                    (start + stop) / 2,
                    1 - height / 2,
                    shown(phase),
                    transform=ax.get_xaxis_transform(),
                    ha="center",
                    va="center_baseline",
                    fontsize=style.SMALL - 1,
                    color=style.INK,
                    zorder=8,
                )
            shade += 1


def _names(found: Recompute, edited: Edit, rows: Sequence[Sequence[int]]) -> list[str]:
    """The module and operator that make the first storage of each row, with its bytes."""
    makers: dict[int, str] = {}
    last = ""
    for event in edited.events:
        if event.happens is Happens.OPERATOR:
            row = edited.graph.operators[event.value]
            last = f"{row.module} {row.name.split('.')[1]}" if row.name.count(".") else row.name
        elif event.happens is Happens.ALLOC:
            makers.setdefault(event.value, last)
    names = [makers.get(alike[0], "") for alike in rows]
    distinct = list(dict.fromkeys(names))
    short = dict(zip(distinct, style.short_names(distinct, NAME_LENGTH), strict=True))
    return [
        f"{f'{len(alike):,} × ' if len(alike) > 1 else ''}{short[name]}  {format_bytes(edited.size(alike[0]))}"
        for name, alike in zip(names, rows, strict=True)
    ]


def _headline(found: Recompute) -> str:
    base, edited = found.base.requested, found.edited.requested
    return f"Peak {format_bytes(base)} → {format_bytes(edited)}" if edited != base else f"Peak {format_bytes(base)}, which does not go down"


def _below(found: Recompute, title: str) -> str:
    parts = [shown(title, style.LONGEST_TITLE)] if title else []
    if found.calls:
        parts.append(f"{style.counted(found.calls, 'call')} of {style.counted(len(found.modules), 'module')} recomputed")
    return " · ".join([*parts, *(shown(each) for each in found.edited_by)])
