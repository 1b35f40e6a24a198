"""Draws what the peak has on top of the steady state: the two levels side by side, in the same groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.series import Series, chosen_grouping, series
from lifecycle_sim.output.figures.ticks import byte_ticks
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.steady import SteadyState, steady_state
from lifecycle_sim.units import format_bytes

LEFT, RIGHT, WIDTH = 0.0, 1.0, 0.46
LINE_SHARE = 0.05
INSIDE_SHARE, TOP_SHARE = 0.045, 1.02


@dataclass(frozen=True)
class _Moment:
    """An event to compare, and what its column is called."""

    event: int
    name: str
    note: str = ""


def composition(
    replayed: DeviceReplay,
    at: int | None = None,
    against: SteadyState | int | None = None,
    by: str | None = "auto",
    top: int = 8,
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """Draw the level at one event beside the level at another, by default the peak beside the steady state, in groups.

    The same groups stand in the same order in both columns, joined by bands, each with its bytes at the right and by how many bytes
    it differs.

    Args:
        replayed: what was recorded on one device.
        at: the event of the right column; by default the peak.
        against: the event of the left column, or a steady state; by default the steady state is looked for, and where there is none
            the end of the window is taken and the column says so.
        by: what to group by, see :func:`~lifecycle_sim.replay.grouping.group`; ``"auto"`` as in ``timeline``.
        top: how many groups to tell apart; the others are one.
        ax: where to draw; by default on a figure of its own.
        title: what was recorded, such as the name of the file, for the line below the headline.

    Raises:
        InputError: there is no such event, *by* is not a known grouping, or *against* is no steady state after all.
    """
    right = _Moment(replayed.peak.event, "peak") if at is None else _moment(replayed, at)
    left = _left(replayed, against)
    columns = _columns(replayed, chosen_grouping(replayed, by), left.event, right.event, top)
    ax = style.new_axes(ax, 8.6, 5.4)
    totals = [int(total) for total in columns.levels.sum(axis=0)]
    tops = np.cumsum(columns.levels, axis=0).astype(float)
    highest = max(float(tops.max(initial=0)), 1.0)
    _draw_columns(ax, columns, tops, highest)
    _draw_names(ax, columns, tops, highest)
    ax.set_xlim(LEFT - 0.1, RIGHT + WIDTH + 0.1)
    ax.set_ylim(min(0.0, float(tops.min(initial=0))), 1.04 * highest)
    ax.set_xticks([LEFT + WIDTH / 2, RIGHT + WIDTH / 2])
    difference = totals[1] - totals[0]
    ax.set_xticklabels([_title(left, totals[0]), f"{_title(right, totals[1])}\n{_signed(difference)} against {left.name}"])
    ax.set_ylabel(style.level_basis(replayed))
    byte_ticks(ax.yaxis, style.is_relative(replayed))
    style.dress(ax, f"{right.name.capitalize()} against {left.name} on {replayed.device}", replayed, title=title)
    ax.tick_params(axis="x", length=0, labelsize=style.NORMAL)
    return ax


def _moment(replayed: DeviceReplay, event: int) -> _Moment:
    last = len(replayed.recorded) - 1
    if not -1 <= event <= last:
        raise InputError(f"{replayed.device} has no event {event}: it has events 0 to {last}, and -1 stands for the state before the first")
    return _Moment(event, f"event {event:,}" if event >= 0 else "start")


def _left(replayed: DeviceReplay, against: SteadyState | int | None) -> _Moment:
    if isinstance(against, int):
        return _moment(replayed, against)
    steady = steady_state(replayed) if against is None else against
    if steady.level is not None:
        return _Moment(steady.steps[-1].stop - 1, "steady state")
    if against is not None:
        raise InputError(f"{replayed.device}: there is no steady state to compare with ({steady.how}): give an event instead")
    return _Moment(len(replayed.recorded) - 1, "end of window", "\nno steady state was found")


def _columns(replayed: DeviceReplay, by: str | None, left: int, right: int, top: int) -> Series:
    positions, which = np.unique(np.array([left + 1, right + 1]), return_inverse=True)
    if by is None:
        name = (f"{replayed.timeline.basis}",)
        return Series("", name, replayed.timeline.levels[positions][which][None], name)
    found = series(replayed, by, positions, top)
    levels = found.levels[:, which]
    held = np.flatnonzero((levels != 0).any(axis=1))
    return Series(by, tuple(found.keys[k] for k in held.tolist()), levels[held], found.ranking)


def _draw_columns(ax: Axes, columns: Series, tops: NDArray[Any], highest: float) -> None:
    shades = style.colours(columns.by, columns.ranking)
    for key, levels, above in zip(columns.keys, columns.levels, tops, strict=True):
        size = levels.astype(float)
        bottom = above - size
        hatch = style.hatch(key)
        edge = style.HATCHING if hatch else style.PAPER
        ax.bar([LEFT, RIGHT], size, WIDTH, bottom, align="edge", color=shades[key], edgecolor=edge, hatch=hatch, linewidth=0.6, zorder=3)
        ax.fill_between([LEFT + WIDTH, RIGHT], bottom, above, color=shades[key], alpha=0.22, linewidth=0, zorder=2)
        if size[0] > INSIDE_SHARE * highest:
            middle = (LEFT + WIDTH / 2, bottom[0] + size[0] / 2)
            ax.text(
                *middle, format_bytes(int(levels[0])), ha="center", va="center", fontsize=style.SMALL, color=style.on(shades[key]), zorder=4
            )


def _draw_names(ax: Axes, columns: Series, tops: NDArray[Any], highest: float) -> None:
    """Write beside the right column what each group holds there and how that differs, moved apart where they would overlap."""
    middles = tops[:, 1] - columns.levels[:, 1].astype(float) / 2
    edge = RIGHT + WIDTH
    for key, levels, middle, place in zip(
        style.short_names(columns.keys), columns.levels, middles, spread(middles, LINE_SHARE * highest, TOP_SHARE * highest), strict=True
    ):
        text = f"{format_bytes(int(levels[1]))}  {key}  ({_signed(int(levels[1]) - int(levels[0]))})"
        ax.plot([edge, edge + 0.05, edge + 0.08], [middle, place, place], color=style.MUTED, linewidth=0.6, clip_on=False)
        ax.text(edge + 0.1, place, text, va="center", fontsize=style.SMALL, color=style.INK, parse_math=False)


def spread(places: NDArray[Any], apart: float, ceiling: float) -> NDArray[Any]:
    """Return the ascending *places* moved so that neighbours are at least *apart* and none is above *ceiling*.

    Those that are too close are spread about their middle, and moved down together where they would reach above the ceiling.
    """
    groups: list[tuple[float, int]] = []
    for place in places.tolist():
        middle, count = place, 1
        while groups and middle - apart * (count - 1) / 2 < groups[-1][0] + apart * (groups[-1][1] + 1) / 2:
            other, more = groups.pop()
            middle, count = (middle * count + other * more) / (count + more), count + more
        groups.append((middle, count))
    moved = [middle + apart * (k - (count - 1) / 2) for middle, count in groups for k in range(count)]
    for k in reversed(range(len(moved))):
        moved[k] = min(moved[k], ceiling)
        ceiling = moved[k] - apart
    return np.array(moved)


def _title(moment: _Moment, total: int) -> str:
    place = "before the first event" if moment.event < 0 else f"after event {moment.event:,}"
    return f"{moment.name}: {format_bytes(total)}\n{place}{moment.note}"


def _signed(difference: int) -> str:
    return "±0" if difference == 0 else f"{'+' if difference > 0 else '−'}{format_bytes(abs(difference))}"
