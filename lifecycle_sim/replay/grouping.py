"""Puts storages into groups: by owner, stack, stream, size class, category, annotation and so on.

Text is made once for each distinct stack, label or span, never for each storage; a storage is given its group by indexing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Category, Span, StackTable
from lifecycle_sim.events.trace import Int32, Int64
from lifecycle_sim.replay.device import DeviceReplay
from lifecycle_sim.replay.lifetimes import Lifetimes
from lifecycle_sim.replay.owners import NO_OWNER, innermost_python_frames, owner_frames
from lifecycle_sim.units import format_bytes

NO_STACK_KEY = "(no stack recorded)"
OLDER_KEY = "(older than the window)"
OLDER_NO_STACK_KEY = "(older than the window, no stack)"
LOST_KEY = "(its allocation was lost)"
NO_LABEL_KEY = "(no label)"
OUTSIDE_KEY = "(outside)"

SPAN_KINDS = {"annotation": ("annotation", "step", "phase"), "step": ("step",), "phase": ("phase",), "operator": ("operator",)}
BY_STACK = ("owner", "frame", "stack")
NOT_TOLD = (NO_STACK_KEY, OLDER_KEY, OLDER_NO_STACK_KEY, LOST_KEY, NO_LABEL_KEY, OUTSIDE_KEY, Category.UNKNOWN.word)
"""Groups of storages of which the recording does not tell what they are grouped by."""

BY = (*BY_STACK, "stream", "size", "label", "category", *SPAN_KINDS)
"""All that storages can be grouped by."""

POWERS_OF_TWO = 2 ** np.arange(63, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Grouping:
    """The storages of a device in groups, each with at least one storage.

    Attributes:
        by: what they are grouped by, one of ``BY``.
        keys: the name of each group; distinct.
        of: the group of each storage, a number in ``keys``.
    """

    by: str
    keys: tuple[str, ...]
    of: Int32

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"Grouping(by {self.by}, {len(self.of):,} storages in {len(self.keys):,} groups)"


def group(replayed: DeviceReplay, by: str = "owner") -> Grouping:
    """Group the storages of *replayed*.

    Args:
        replayed: what was recorded on one device.
        by: ``"owner"``: the user's own line (see :mod:`lifecycle_sim.replay.owners`); ``"frame"``: the innermost Python frame, torch's
            included; ``"stack"``: the whole stack; ``"stream"``; ``"size"``: size classes from a power of two up to the next,
            ``"4 MiB – 8 MiB"`` without its end; ``"label"``; ``"category"``; ``"annotation"``: the innermost annotation, step or phase
            that was open when the storage was allocated; ``"step"``, ``"phase"``, ``"operator"``: likewise among spans of that kind alone.

    Raises:
        InputError: *by* is none of these, or the record's events carry no identity.
    """
    found, trace = replayed.identified_lifetimes(), replayed.trace
    if by in BY_STACK:
        return _by_stack(by, found, trace.stacks)
    if by in SPAN_KINDS:
        chosen = [span for span in replayed.recorded.spans if span.kind in SPAN_KINDS[by]]
        return _by_span(by, found, chosen)
    if by == "label":
        return _grouping(by, [*trace.labels, NO_LABEL_KEY], np.where(found.label < 0, len(trace.labels), found.label))
    if by == "category":
        return _grouping(by, [category.word for category in Category], found.category)
    if by == "stream":
        streams, of = np.unique(found.stream, return_inverse=True)
        return _grouping(by, [f"stream {handle}" for handle in streams.tolist()], of)
    if by == "size":
        return _grouping(by, size_class_names(), size_classes(found.size))
    raise InputError(f"storages cannot be grouped by {by!r}: choose one of {', '.join(BY)}")


def size_classes(size: Int64) -> Int64:
    """Return the size class of each *size* in bytes: 0 for 0 B, else k + 1 for the class from 2^k to below 2^(k + 1) bytes."""
    return np.searchsorted(POWERS_OF_TWO, size, side="right")


def size_class_names() -> list[str]:
    """Return the names of all size classes, by number."""
    ends = [format_bytes(2**k) for k in range(64)]
    return ["0 B", *(f"{low} – {high}" for low, high in pairwise(ends))]


def _grouping(by: str, names: Sequence[str], number: NDArray[Any]) -> Grouping:
    """Group by *number* in *names*; equal names become one group, and names without a storage none."""
    present = np.bincount(number, minlength=len(names)) > 0
    keys: dict[str, int] = {}
    renumbered = np.zeros(len(names), np.int32)
    for name in np.flatnonzero(present).tolist():
        renumbered[name] = keys.setdefault(names[name], len(keys))
    return Grouping(by, tuple(keys), renumbered[number])


def _by_stack(by: str, found: Lifetimes, table: StackTable) -> Grouping:
    frames = [str(frame) for frame in table.frames]
    if by == "stack":
        names = [" ← ".join(frames[frame] for frame in stack) or NO_STACK_KEY for stack in table.stacks]
    else:
        shown = owner_frames(table) if by == "owner" else innermost_python_frames(table)
        names = [NO_STACK_KEY if frame == NO_OWNER else frames[frame] for frame in shown]
    without = len(names) + np.select([found.before_window, found.lost_alloc], [1, 2])
    return _grouping(by, [*names, NO_STACK_KEY, OLDER_NO_STACK_KEY, LOST_KEY], np.where(found.stack < 0, without, found.stack))


def _by_span(by: str, found: Lifetimes, spans: Sequence[Span]) -> Grouping:
    position, innermost = innermost_spans(spans)
    number = innermost[np.searchsorted(position, found.alloc, side="right") - 1]
    number = np.where(found.before_window, len(spans) + 1, np.where(number < 0, len(spans), number))
    return _grouping(by, [*(span.name for span in spans), OUTSIDE_KEY, OLDER_KEY], number)


def innermost_spans(spans: Iterable[Span]) -> tuple[Int64, Int64]:
    """Return which of *spans* is the innermost at every event.

    Innermost is the open span that started last; of those that started together the one that stops first, else the later in *spans*.

    Returns:
        The events from which the answer changes, beginning with -1, and from each of them on the number of the innermost span, -1 for none.
    """
    waiting = sorted((span.start, -span.stop, number) for number, span in enumerate(spans))
    positions = sorted({start for start, _, _ in waiting} | {-stop for _, stop, _ in waiting})
    open_spans: list[tuple[int, int, int]] = []
    answers, next_waiting = [-1], 0
    for position in positions:
        while next_waiting < len(waiting) and waiting[next_waiting][0] <= position:
            start, minus_stop, number = waiting[next_waiting]
            heappush(open_spans, (-start, -minus_stop, -number))
            next_waiting += 1
        while open_spans and open_spans[0][1] <= position:
            heappop(open_spans)
        answers.append(-open_spans[0][2] if open_spans else -1)
    return np.array([-1, *positions], np.int64), np.array(answers, np.int64)
