"""What if storages of a recording were dropped in forward and made again in backward: an approximation between two bounds.

A recording tells when storages were born and freed, and by what code, and not which operators used them. So neither the end of their use in
forward is known, nor its beginning in backward, nor what a region needs as input; what is known gives a lower and an upper bound::

    recorded     ├───────────────────── lives ──────────────────────┤
    lower        ├┤                                          ├──────┤    gone at once, back when the first of its region is freed
    upper        ├──── to the end of its region ──┤   ├─────────────┤    back when the region after it is done

Regions are told by code that repeats, as that of a list of blocks does; what does not repeat is one region in the upper bound, and each
storage one of its own in the lower. The upper bound also holds each region's largest dropped storage throughout, for the tensor that it
hands on, holds the casts of autocast to the end of forward, and adds what the region's forward pass took beside them when it runs again.
A capture of the program gives the exact answer instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Evidence, Frame
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.lifetimes import Lifetimes
from lifecycle_sim.units import format_exact

ENGINE = ("torch::autograd::Engine::", "_engine_run_backward")
"""What a stack of the backward pass holds."""
CASTS = ("at::autocast::",)
"""What a stack of a cast holds that autocast may keep until it ends."""
MOST_SHOWN = 5


@dataclass(frozen=True)
class Dropped(Shown):
    """A device's peak as recorded, and between which bounds it would be.

    Attributes:
        device: the device's name.
        basis, evidence: what the bytes count; they are simulated from a recording of that evidence.
        patterns: what chose the storages.
        storages, size: how many are dropped, and their bytes together.
        regions: how many regions they lie in: runs of code that are made again at once.
        backward: the event at which the backward pass begins.
        base: the recorded peak, of the last step where the recording tells of steps.
        lower, upper: the bounds of the peak without them.
    """

    device: str
    basis: Basis | str
    evidence: Evidence
    patterns: tuple[str, ...]
    storages: int
    size: int
    regions: int
    backward: int
    base: int
    lower: int
    upper: int

    def __repr__(self) -> str:
        return f"Dropped({self.storages:,} storages, peak {self.base:,} B → between {self.lower:,} and {self.upper:,} B {self.basis})"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        return [
            ("dropped", f"{self.storages:,} storages in {self.regions:,} regions, {format_exact(self.size)}"),
            ("peak", f"{format_exact(self.base)} → between {format_exact(self.lower)} and {format_exact(self.upper)}, {self.basis}"),
        ]


@dataclass(frozen=True)
class _Region:
    """Storages that are made again at once: their rows; the events of the first birth, after the last, and of the first and last free."""

    rows: Int64
    begin: int
    end: int
    first_free: int
    last_free: int


def what_if_dropped(replayed: DeviceReplay, patterns: str | tuple[str, ...] | list[str]) -> Dropped:
    """Return between which bounds the peak of *replayed* is if storages are dropped in forward and made again in backward.

    Args:
        replayed: a recording that holds the forward and the backward pass of a step, with stacks.
        patterns: which storages: shell patterns that a part of one of its frames, ``FILE:LINE FUNCTION``, matches.

    Raises:
        InputError: the recording tells no storages or no backward pass, or nothing chosen is born in forward and freed in backward.
    """
    chosen = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    found = replayed.identified_lifetimes()
    begins = _backward(replayed, found)
    first, last = _step_around(replayed, begins)
    matched = _matched(replayed, chosen)
    _must_be_one_step(replayed, found, matched, begins, last)
    rows = [
        row
        for row in np.flatnonzero((found.alloc >= first) & (found.alloc < begins) & (found.free >= begins) & ~found.leaked).tolist()
        if matched.get(int(found.stack[row])) is not None
    ]
    if not rows:
        some = sorted({text for text in matched.values() if text is not None})[:MOST_SHOWN]
        raise InputError(
            f"{replayed.device}: no storage of {', '.join(map(repr, chosen))} is born in forward and freed in backward: "
            + (f"what matches is {', '.join(some)}" if some else "no frame matches; peak --by owner shows the frames")
        )
    runs = _runs(found, rows, [matched[int(found.stack[row])] or "" for row in rows])
    regions = _regions(found, [part for run, size in runs for part in _parts(run, size or len(run))], begins)
    finest = _regions(found, [part for run, size in runs for part in _parts(run, size or 1)], begins)
    base = replayed.timeline.levels[1:]
    casts = _stacks_with(replayed, CASTS)
    lower, upper = (np.asarray(base, np.int64).copy() for _ in range(2))
    for region in finest:
        _lower(lower, found, region)
    for place, region in enumerate(regions):
        later = regions[place + 1].last_free if place + 1 < len(regions) else begins
        _upper(upper, found, region, max(begins, min(later, region.first_free)), casts, begins)
    return Dropped(
        replayed.device,
        replayed.timeline.basis,
        replayed.timeline.evidence,
        chosen,
        len(rows),
        int(found.size[rows].sum()),
        len(regions),
        begins,
        int(np.max(base[first:last])),
        int(lower[first:last].max()),
        int(upper[first:last].max()),
    )


def _backward(replayed: DeviceReplay, found: Lifetimes) -> int:
    """The event with which the last backward pass begins."""
    spans = [span.start for span in replayed.recorded.spans if span.kind == "phase" and span.name == "backward"]
    if spans:
        return spans[-1]
    born = found.alloc[np.isin(found.stack, list(_stacks_with(replayed, ENGINE))) & (found.alloc >= 0)]
    if not len(born):
        raise InputError(
            f"{replayed.device}: nothing tells where the backward pass begins: record stacks of all kinds (stacks='all'), "
            "or ask with a capture"
        )
    return int(born.min())


def _step_around(replayed: DeviceReplay, begins: int) -> tuple[int, int]:
    """The first event of the step in which *begins* lies, and the one after its last; of a recording without steps, all."""
    spans = [span for span in replayed.recorded.spans if span.kind == "step" and span.start <= begins < span.stop]
    return (spans[-1].start, spans[-1].stop) if spans else (0, len(replayed.recorded))


def _must_be_one_step(replayed: DeviceReplay, found: Lifetimes, matched: dict[int, str | None], begins: int, last: int) -> None:
    """Check that no forward pass follows the backward pass in what is looked at.

    Raises:
        InputError: one does.
    """
    inside = _stacks_with(replayed, ENGINE)
    forward = [stack for stack, text in matched.items() if text is not None and stack not in inside]
    again = found.alloc[np.isin(found.stack, forward) & (found.alloc > begins) & (found.alloc < last)]
    phases = [span for span in replayed.recorded.spans if span.kind == "phase"]
    if len(again) and not phases:
        raise InputError(
            f"{replayed.device}: the recording goes on with another forward pass at event {int(again.min()):,}: one without steps must "
            "hold one, from its forward to the end of its backward pass"
        )


def _stacks_with(replayed: DeviceReplay, names: tuple[str, ...]) -> frozenset[int]:
    """The stacks with a function that one of *names* is part of."""
    stacks = replayed.trace.stacks
    return frozenset(
        stack for stack in range(len(stacks)) if any(name in frame.name for frame in stacks.frames_of(stack) for name in names)
    )


def _matched(replayed: DeviceReplay, patterns: tuple[str, ...]) -> dict[int, str | None]:
    """For each stack the text of the outermost frame that a pattern matches, None if none does."""
    told: dict[Frame, str | None] = {}

    def match(frame: Frame) -> str | None:
        if frame not in told:
            text = f"{frame.filename}:{frame.line} {frame.name}"
            told[frame] = text if any(fnmatchcase(text, f"*{pattern}*") for pattern in patterns) else None
        return told[frame]

    return {
        stack: next((text for frame in reversed(replayed.trace.stacks.frames_of(stack)) if (text := match(frame)) is not None), None)
        for stack in range(len(replayed.trace.stacks))
    }


def _runs(found: Lifetimes, rows: list[int], owners: list[str]) -> list[tuple[list[int], int | None]]:
    """Runs of *rows*, in the order of their births, with the same file in the frame that matched; each with the rows of one of its regions.

    The code of a list of blocks is the same for each of them, so that the stacks of a run repeat with the rows of a region as their
    period; None where they do not repeat.
    """
    runs: list[list[int]] = []
    last = ""
    for row, owner in zip(rows, owners, strict=True):
        file = owner.split(":")[0]
        if not runs or file != last:
            runs.append([])
        last = file
        runs[-1].append(row)
    return [(run, _period([int(found.stack[row]) for row in run])) for run in runs]


def _period(stacks: list[int]) -> int | None:
    """The least number of entries with which *stacks* repeats to its end, by its longest proper border; None if it does not."""
    border = [0] * len(stacks)
    for place in range(1, len(stacks)):
        length = border[place - 1]
        while length and stacks[place] != stacks[length]:
            length = border[length - 1]
        border[place] = length + (stacks[place] == stacks[length])
    period = len(stacks) - border[-1]
    return period if period < len(stacks) and len(stacks) % period == 0 else None


def _parts(run: list[int], size: int) -> list[list[int]]:
    return [run[start : start + size] for start in range(0, len(run), size)]


def _regions(found: Lifetimes, parts: list[list[int]], begins: int) -> list[_Region]:
    starts = [int(found.alloc[part[0]]) for part in parts] + [begins]
    return [
        _Region(np.array(part), starts[place], starts[place + 1], int(found.free[part].min()), int(found.free[part].max()))
        for place, part in enumerate(parts)
    ]


def _lower(levels: Int64, found: Lifetimes, region: _Region) -> None:
    for row in region.rows.tolist():
        levels[int(found.alloc[row]) + 1 : region.first_free - 1] -= int(found.size[row])


def _upper(levels: Int64, found: Lifetimes, region: _Region, back: int, casts: frozenset[int], begins: int) -> None:
    largest = int(region.rows[int(found.size[region.rows].argmax())])
    for row in region.rows.tolist():
        if row != largest:
            end = begins if int(found.stack[row]) in casts else region.end
            levels[end:back] -= int(found.size[row])
    levels[back : region.first_free] += _beside(found, region)


def _beside(found: Lifetimes, region: _Region) -> int:
    """The most bytes at a time of what is born in the forward pass of *region* and freed in it."""
    inside = (found.alloc >= region.begin) & (found.free <= region.end) & (found.alloc < region.end)
    if not inside.any():
        return 0
    events = np.concatenate([found.alloc[inside], found.free[inside]])
    deltas = np.concatenate([found.size[inside], -found.size[inside]])
    return int(np.cumsum(deltas[np.lexsort((deltas, events))]).max(initial=0))
