"""Draws the levels of one device over events: requested, allocated, active and reserved, with their peaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.output.downsample import choose_positions
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.marks import mark_gaps, mark_spans
from lifecycle_sim.output.figures.scale import EventScale
from lifecycle_sim.output.figures.ticks import byte_ticks, count_ticks
from lifecycle_sim.replay import DeviceReplay, Timeline
from lifecycle_sim.units import format_bytes

NAMES = ("requested", "allocated", "active", "reserved")
COLOURS = {"requested": "#228833", "allocated": "#4477AA", "active": "#AA4499", "reserved": "#1F2328"}
WIDTHS = {"requested": 0.7, "allocated": 1.4, "active": 2.2, "reserved": 1.1}
"""The lower a level, the thinner and the further in front: where levels are equal, all of them are seen."""
INTERNAL_COLOUR, EXTERNAL_COLOUR = "#F3D9EC", "#E9ECEF"
ROOM = 0.06


def levels(
    replayed: DeviceReplay,
    timelines: Mapping[str, Timeline | NDArray[Any]] | Any,
    capacity: int | None = None,
    x: Literal["event", "time"] = "event",
    ax: Axes | None = None,
) -> Axes:
    """Draw up to four levels of one device as lines, each with a point at its peak; what lies between them is waste.

    Between active and requested is internal waste (rounding and tails that were not split off), between reserved and active external waste
    (free pieces).

    Args:
        replayed: what was recorded on one device.
        timelines: a mapping from ``"requested"``, ``"allocated"``, ``"active"`` and ``"reserved"``, or some of them, to a timeline or its
            n + 1 levels in bytes; or an object with attributes of these names.
        capacity: bytes to compare with, drawn as a line.
        x: ``"event"``, or ``"time"`` where the trace has a clock.
        ax: where to draw; by default on a figure of its own.

    Raises:
        InputError: there is none of the levels, one is not of the length of the record, or there is no clock for *x*.
    """
    scale = EventScale.of(replayed, x)
    known = _known(timelines, len(replayed.recorded))
    ax = style.new_axes(ax)
    peaks = [int(np.argmax(line)) for line in known.values()]
    positions = np.unique(np.concatenate([choose_positions(line, keep=peaks) for line in known.values()]))
    edges = scale.edges(positions)
    drawn = {name: np.append(line[positions], line[positions][-1]).astype(float) for name, line in known.items()}
    entries: list[tuple[Artist, str]] = []
    highest = max(int(line.max()) for line in known.values())
    for name in reversed(known):
        (line,) = ax.plot(edges, drawn[name], drawstyle="steps-post", color=COLOURS[name], linewidth=WIDTHS[name], gid=name)
        line.set_zorder(5.5 if name == "reserved" else 5 - NAMES.index(name) / 10)
        at = int(np.argmax(known[name]))
        size = int(known[name][at])
        where = f"event {at - 1:,}" if at else "the start"
        ax.plot([scale.event(at - 1)], [size], "o", markersize=4.5, color=COLOURS[name], markeredgecolor=style.PAPER, zorder=6, gid="peak")
        entries.append((line, f"{format_bytes(size)}  {name}, at {where}"))
    for low, high, colour, name in (
        ("active", "reserved", EXTERNAL_COLOUR, "external waste"),
        ("requested", "active", INTERNAL_COLOUR, "internal waste"),
    ):
        if low in known and high in known:
            ax.fill_between(edges, drawn[low], drawn[high], step="post", color=colour, linewidth=0, zorder=2, gid=name)
            most = int((known[high] - known[low]).max())
            entries.append((Patch(color=colour), f"{format_bytes(most)}  {name} at most"))
    if capacity is not None:
        line = ax.axhline(capacity, color=style.CAPACITY, linewidth=1.4, linestyle=(0, (6, 1.5, 1, 1.5)), zorder=5, gid="capacity")
        entries.append((line, f"{format_bytes(capacity)}  capacity"))
        highest = max(highest, capacity)
    if (gaps := mark_gaps(ax, replayed, scale)) is not None:
        entries.append((gaps, "the recording lost events"))
    lanes = mark_spans(ax, replayed, scale)
    style.legend(ax, entries, "peaks")
    ax.set_xlim(*scale.limits)
    ax.set_ylim(0, max(highest, 1) * (1 + ROOM))
    ax.set_xlabel(scale.label)
    ax.set_ylabel(f"bytes, {_evidence(timelines, replayed)}")
    byte_ticks(ax.yaxis)
    count_ticks(ax.xaxis)
    style.dress(ax, f"Levels of {replayed.device}", replayed, above=lanes)
    return ax


def _known(timelines: Any, events: int) -> dict[str, NDArray[Any]]:
    """The levels that *timelines* has, from the lowest to the highest."""
    given = timelines if isinstance(timelines, Mapping) else {name: getattr(timelines, name, None) for name in NAMES}
    unknown = [name for name in given if name not in NAMES]
    if unknown:
        raise InputError(f"there is no level {unknown[0]!r}: choose from {', '.join(NAMES)}")
    known = {}
    for name in NAMES:
        line = given.get(name)
        if line is None:
            continue
        known[name] = line.levels if isinstance(line, Timeline) else np.asarray(line)
        if len(known[name]) != events + 1:
            raise InputError(f"the {name} level has {len(known[name]):,} values and needs {events + 1:,}: one more than there are events")
    if not known:
        raise InputError(f"there is no level to draw: give some of {', '.join(NAMES)}")
    return known


def _evidence(timelines: Any, replayed: DeviceReplay) -> str:
    """Whether the bytes are measured or simulated, as the timelines say, else as the record does."""
    given = timelines.values() if isinstance(timelines, Mapping) else [getattr(timelines, name, None) for name in NAMES]
    said = list(dict.fromkeys(str(line.evidence) for line in given if isinstance(line, Timeline)))
    return " and ".join(said) if said else str(replayed.timeline.evidence)
