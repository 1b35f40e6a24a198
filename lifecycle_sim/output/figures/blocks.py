"""Draws an address map: what lies where in the segments of a device at one event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba_array
from matplotlib.patches import Patch
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import BlockState, Category, MemoryState
from lifecycle_sim.events.trace import Bool, Int64
from lifecycle_sim.output.figures import style
from lifecycle_sim.output.figures.ticks import byte_ticks
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.grouping import NO_STACK_KEY
from lifecycle_sim.replay.owners import NO_OWNER, owner_frames
from lifecycle_sim.units import format_bytes

BY_OF_BLOCKS = ("state", "owner", "category")
PENDING_COLOUR, FREE_COLOUR, FREE_EDGE = "#DDB23D", "#EEF1F3", "#C4CBD1"
STATE_NAMES = {BlockState.ALLOCATED: "allocated", BlockState.PENDING_FREE: "pending free"}
OTHERS_KEY = "(all others)"

SHORTEST_LINE, MOST_SEGMENTS = 2 << 20, 2000
BETWEEN_LINES, BETWEEN_SEGMENTS, GAP = 0.1, 0.32, 0.004
LINE_INCHES = 0.17
WIDTH_INCHES = 6.2
LABELLED_INCHES, MOST_LABELS = 0.5, 160
EDGED_INCHES = 0.03
WASTE_STRENGTH = 0.45


def address_map(
    replayed: DeviceReplay,
    state: MemoryState | None = None,
    at: int | None = None,
    by: str = "state",
    lines: int = 42,
    top: int = 8,
    ax: Axes | None = None,
) -> Axes:
    """Draw the segments of one device as rows, the largest first, and in them the blocks where they lie.

    A segment longer than a line goes on in the line below; smaller ones share a line, with gaps between them. Free pieces are pale, the
    part of a block that nobody asked for is the lighter tail of its colour. What is beyond the largest 2,000 segments is one bar at
    the bottom, with its shares and not its places.

    Args:
        replayed: what was recorded on one device.
        state: what to draw; by default the recorded final state.
        at: the event after which *state* held; by default the last one.
        by: what the colours stand for: ``"state"``, ``"owner"`` (the user's own line that allocated), or ``"category"``.
        lines: how many lines to draw at most.
        top: how many owners have a colour of their own.
        ax: where to draw; by default on a figure of its own, as high as it needs.

    Raises:
        InputError: there is no state, or *by* is not known.
    """
    last = len(replayed.recorded) - 1
    if state is None:
        state = replayed.recorded.final
        if state is None:
            raise InputError(
                f"{replayed.device}: this {replayed.trace.format} record has no segments, so there is no address map: "
                "lifecycle-sim convert SOURCE -o placed.pickle places its storages at made-up addresses"
            )
        if at is not None and at != last:
            raise InputError(f"{replayed.device}: the recorded state is that after event {last:,}: give the state after event {at:,}")
    if by not in BY_OF_BLOCKS:
        raise InputError(f"blocks cannot be coloured by {by!r}: choose one of {', '.join(BY_OF_BLOCKS)}")
    layout = _Layout.of(state, lines)
    ax = style.new_axes(ax, height=1.4 + LINE_INCHES * max(layout.height, 10))
    groups = _groups(replayed, state, by, top)
    shades = groups.colours()
    _draw_segments(ax, layout, state)
    _draw_blocks(ax, layout, state, groups, shades)
    if len(layout.rest):
        _draw_rest(ax, layout, state, groups, shades)
    _label_segments(ax, layout, state, replayed)
    style.legend(ax, _entries(state, groups, shades), None if by == "state" else f"by {by}")
    ax.set_xlim(0, layout.line)
    ax.set_ylim(layout.height + 0.2, -0.4)
    ax.set_xlabel(f"bytes along a line of {format_bytes(layout.line)}")
    ax.set_ylabel(f"segments, {replayed.timeline.evidence}")
    byte_ticks(ax.xaxis)
    when = "at the end" if at is None or at == last else "before the first event" if at < 0 else f"after event {at:,}"
    style.dress(ax, f"Address map of {replayed.device} {when}", replayed, grid="x")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    return ax


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where each segment is drawn: one that is longer than a line takes several, smaller ones share a line.

    Attributes:
        line: bytes of a line, a power of two.
        shown: rows of the segments drawn, the largest first.
        rest: rows of the others.
        left, top: where each shown segment begins, in bytes and in lines.
        heads: for each line on which a segment begins, where it is and the first and the last of the segments that begin there.
        height: lines and gaps in all.
    """

    line: int
    shown: Int64
    rest: Int64
    left: NDArray[Any]
    top: NDArray[Any]
    heads: tuple[tuple[float, int, int], ...]
    height: float

    @classmethod
    def of(cls, state: MemoryState, lines: int) -> _Layout:
        """Return the layout of *state* with the shortest line that needs no more than *lines* of them."""
        size = state.segments.size
        order = np.lexsort((state.segments.address, -size))
        shown, rest = order[:MOST_SEGMENTS], order[MOST_SEGMENTS:]
        sizes = size[shown].tolist()
        line = min(SHORTEST_LINE, 1 << (max(sizes, default=1) - 1).bit_length())
        while cls._count(sizes, line) > lines:
            line *= 2
        left, top, heads = [0.0] * len(sizes), [0.0] * len(sizes), []
        x, y, gap = 0.0, -(1 + BETWEEN_SEGMENTS), GAP * line
        for number, length in enumerate(sizes):
            if number == 0 or x + length > line:
                x, y = 0.0, y + 1 + BETWEEN_SEGMENTS
                heads.append((y, number, number))
            left[number], top[number] = x, y
            heads[-1] = (*heads[-1][:2], number)
            y += (-(-length // line) - 1) * (1 + BETWEEN_LINES) if length > line else 0
            x += length + gap
        height = y + 1 + BETWEEN_SEGMENTS + (1 + BETWEEN_SEGMENTS if len(rest) else 0)
        return cls(line, shown, rest, np.array(left), np.array(top), tuple(heads), height)

    @staticmethod
    def _count(sizes: list[int], line: int) -> int:
        count, x = 0, float(line + 1)
        for length in sizes:
            if x + length > line:
                count, x = count + max(-(-length // line), 1), 0.0
            x += length + GAP * line
        return count

    def pieces(self, segment: Int64, low: Int64, high: Int64) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], Int64]:
        """Cut ranges [low, high) of offsets in shown segments at line ends: left, right and top of each piece, and its range.

        ``segment`` is a position in ``shown``.
        """
        first, last = low // self.line, (high - 1) // self.line
        count = np.where(high > low, last - first + 1, 0)
        of = np.repeat(np.arange(len(low)), count)
        number = first[of] + np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
        at = self.left[segment[of]] - number * self.line
        left = np.maximum(low[of], number * self.line) + at
        right = np.minimum(high[of], (number + 1) * self.line) + at
        return left, right, self.top[segment[of]] + number * (1 + BETWEEN_LINES), of


@dataclass(frozen=True, eq=False)
class _Groups:
    """The blocks in groups, the largest first; -1 for free ones."""

    by: str
    keys: tuple[str, ...]
    of: Int64

    def colours(self) -> list[str]:
        if self.by == "state":
            return [style.SEQUENCE[0], PENDING_COLOUR]
        chosen = style.colours(self.by, self.keys)
        return [style.OTHERS if key == OTHERS_KEY else chosen[key] for key in self.keys]


def _groups(replayed: DeviceReplay, state: MemoryState, by: str, top: int) -> _Groups:
    blocks = state.blocks
    active = blocks.state != BlockState.INACTIVE
    if by == "state":
        of = np.where(active, (blocks.state == BlockState.PENDING_FREE).astype(np.int64), -1)
        return _Groups(by, tuple(STATE_NAMES.values()), of)
    if by == "category":
        names, number = [category.word for category in Category], blocks.category.astype(np.int64)
    else:
        table = replayed.trace.stacks
        owners = [NO_STACK_KEY if frame == NO_OWNER else str(table.frames[frame]) for frame in owner_frames(table)]
        names = sorted({*owners, NO_STACK_KEY})
        place = {name: number for number, name in enumerate(names)}
        number = np.array([*(place[owner] for owner in owners), place[NO_STACK_KEY]], np.int64)[blocks.stack]
    held = np.bincount(number[active], blocks.size[active].astype(np.float64), len(names))
    order = np.lexsort((np.arange(len(names)), -held))
    order = order[held[order] > 0]
    kept = order if len(order) <= top + 1 else order[:top]
    rank = np.full(len(names), len(kept), np.int64)
    rank[kept] = np.arange(len(kept))
    keys = [names[k] for k in kept.tolist()] + ([OTHERS_KEY] if len(kept) < len(order) else [])
    return _Groups(by, tuple(keys), np.where(active, rank[number], -1))


def _draw_segments(ax: Axes, layout: _Layout, state: MemoryState) -> None:
    """Draw each shown segment as free throughout; its blocks go on top."""
    size = state.segments.size[layout.shown]
    left, right, top, _ = layout.pieces(np.arange(len(size)), np.zeros(len(size), np.int64), size)
    bars = _bars(left, right, top, to_rgba_array(FREE_COLOUR), FREE_EDGE, 0.6)
    bars.set_gid("segments")
    ax.add_collection(bars, autolim=False)


def _draw_blocks(ax: Axes, layout: _Layout, state: MemoryState, groups: _Groups, shades: list[str]) -> None:
    blocks, segments = state.blocks, state.segments
    position = np.full(len(segments), -1, np.int64)
    position[layout.shown] = np.arange(len(layout.shown))
    seen = position[blocks.segment] >= 0
    low = blocks.address - segments.address[blocks.segment]
    rows = np.flatnonzero(seen & (groups.of >= 0))
    asked = np.minimum(blocks.requested, blocks.size)[rows]
    strong = to_rgba_array(shades)[groups.of[rows]]
    pale = WASTE_STRENGTH * strong + (1 - WASTE_STRENGTH)
    begin, end, inch = low[rows], (low + blocks.size)[rows], layout.line / WIDTH_INCHES
    for name, start, stop, colour in (("waste", begin + asked, end, pale), ("blocks", begin, begin + asked, strong)):
        left, right, top, of = layout.pieces(position[blocks.segment[rows]], start, stop)
        wide = (right - left) > EDGED_INCHES * inch
        for chosen, edge in ((~wide, 0.0), (wide, 0.35)):
            bars = _bars(left[chosen], right[chosen], top[chosen], colour[of[chosen]], style.PAPER, edge)
            bars.set_gid(name)
            ax.add_collection(bars, autolim=False)
    _label_blocks(ax, layout, position, low, seen, state, groups, shades)


def _label_blocks(
    ax: Axes, layout: _Layout, position: Int64, low: Int64, seen: Bool, state: MemoryState, groups: _Groups, shades: list[str]
) -> None:
    """Write the size of the largest blocks and free pieces that have the room."""
    blocks = state.blocks
    rows = np.flatnonzero(seen & (blocks.size > LABELLED_INCHES * layout.line / WIDTH_INCHES))
    rows = rows[np.argsort(-blocks.size[rows], kind="stable")][:MOST_LABELS]
    left, right, top, of = layout.pieces(position[blocks.segment[rows]], low[rows], (low + blocks.size)[rows])
    for row in range(len(rows)):
        pieces = np.flatnonzero(of == row)
        widest = pieces[np.argmax((right - left)[pieces])]
        if right[widest] - left[widest] > LABELLED_INCHES * layout.line / WIDTH_INCHES:
            group = groups.of[rows[row]]
            colour = style.MUTED if group < 0 else style.on(shades[group])
            text = format_bytes(int(blocks.size[rows[row]]))
            middle = ((left[widest] + right[widest]) / 2, top[widest] + 0.52)
            ax.text(*middle, text, ha="center", va="center", fontsize=5.8, color=colour, zorder=4, clip_on=True)


def _draw_rest(ax: Axes, layout: _Layout, state: MemoryState, groups: _Groups, shades: list[str]) -> None:
    """One bar for the segments that are not shown: the share of each group, and what is free."""
    within = np.isin(state.blocks.segment, layout.rest)
    chosen = within & (groups.of >= 0)
    held = np.bincount(groups.of[chosen], state.blocks.size[chosen].astype(np.float64), len(shades))
    total = float(state.segments.size[layout.rest].sum())
    edges = np.concatenate([np.zeros(1), np.cumsum(held)]) / max(total, 1.0) * layout.line
    top = np.full(len(shades), layout.height - BETWEEN_SEGMENTS - 1.0)
    whole = _bars(np.zeros(1), np.array([layout.line]), top[:1], to_rgba_array(FREE_COLOUR), FREE_EDGE, 0.6)
    bars = _bars(edges[:-1], edges[1:], top, to_rgba_array(shades), style.PAPER, 0.35)
    for each in (whole, bars):
        each.set_gid("rest")
        ax.add_collection(each, autolim=False)


def _label_segments(ax: Axes, layout: _Layout, state: MemoryState, replayed: DeviceReplay) -> None:
    """Name each line: the one segment that begins on it, or how many do and of what sizes."""
    segments = state.segments
    names, ticks = [], []
    for top, first, last in layout.heads:
        row = int(layout.shown[first])
        largest, smallest = (format_bytes(int(segments.size[layout.shown[number]])) for number in (first, last))
        if first < last:
            each = largest if largest == smallest else f"{smallest} – {largest}"
            names.append(f"{last - first + 1} × {each}")
        else:
            names.append(f"{largest} at {int(segments.address[row]):#x}{_whose(state, row, replayed)}")
        ticks.append(top + 0.5)
    if len(layout.rest):
        size = int(segments.size[layout.rest].sum())
        names.append(f"{style.counted(len(layout.rest), 'smaller segment')}, {format_bytes(size)},\nnot to scale")
        ticks.append(layout.height - BETWEEN_SEGMENTS - 0.5)
    ax.set_yticks(ticks, names, parse_math=False)
    for label in ax.get_yticklabels():
        label.set_fontsize(6.5)


def _whose(state: MemoryState, row: int, replayed: DeviceReplay) -> str:
    segments = state.segments
    pool, stream = replayed.trace.pools[int(segments.pool[row])], int(segments.stream[row])
    parts = [f"pool {pool[0]}.{pool[1]}"] * (pool != (0, 0)) + [f"stream {stream:#x}"] * bool(stream)
    parts += ["expandable"] * bool(segments.expandable[row])
    return "".join(f", {part}" for part in parts)


def _entries(state: MemoryState, groups: _Groups, shades: list[str]) -> list[tuple[Artist, str]]:
    blocks = state.blocks
    names = list(groups.keys) if groups.by == "state" else style.short_names(list(groups.keys))
    entries: list[tuple[Artist, str]] = []
    for number, (name, shade) in enumerate(zip(names, shades, strict=True)):
        held = int(blocks.size[groups.of == number].sum())
        if held:
            entries.append((Patch(color=shade), f"{format_bytes(held)}  {name}"))
    waste = state.active - state.requested
    if waste > 0:
        shade = to_rgba_array(shades[0])[0] * WASTE_STRENGTH + (1 - WASTE_STRENGTH)
        patch = Patch(color=tuple(shade)) if groups.by == "state" else Patch(visible=False)
        entries.append((patch, f"{format_bytes(waste)}  of these not asked for, paler"))
    free = blocks.size[blocks.state == BlockState.INACTIVE]
    if len(free):
        text = f"{format_bytes(int(free.sum()))}  free in {style.counted(len(free), 'piece')},\nthe largest {format_bytes(int(free.max()))}"
        entries.append((Patch(facecolor=FREE_COLOUR, edgecolor=FREE_EDGE), text))
    return [
        *entries,
        (Patch(visible=False), f"{format_bytes(state.reserved)}  reserved in {style.counted(len(state.segments), 'segment')}"),
    ]


def _bars(left: NDArray[Any], right: NDArray[Any], top: NDArray[Any], colour: NDArray[Any], edge: str, width: float) -> PolyCollection:
    across = np.stack([left, right, right, left], 1)
    upright = np.stack([top, top, top + 1, top + 1], 1)
    edges = edge if width else "none"
    return PolyCollection(list(np.stack([across, upright], 2)), facecolors=colour, edgecolors=edges, linewidths=width, zorder=2)
