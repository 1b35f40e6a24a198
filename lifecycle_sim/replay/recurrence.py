"""Finds steps in a trace that names none, from the recurrence of what is allocated.

A loop of steps allocates the same sizes from the same stacks over and over, to the end of the window; only the first step does
more, because optimizer state and workspaces are made in it::

    setup  first step      second step  third step   (cut off)
    s s s  a x b y c z d   a b c d      a b c d      a b
                          └────────── periodic ────────────┘   period 4

The period is the one whose run reaches back furthest from the end of the window. It is one of steps only if

* the run holds at least two whole periods of ``MIN_ALLOCATIONS`` or more,
* it starts with the window, or what comes before it allocates once what a period does: that is the first step. What comes before a
  loop over the layers of a model, or over parameters in an optimizer, does not, nor does such a loop last to the end of the window,
* not all stacks of a period pass through one call of a module or an optimizer: such a loop lies inside a step.

Steps are then cut where, within the period, the level is lowest.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from lifecycle_sim.events import Kind, StackTable
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.device import DeviceReplay
from lifecycle_sim.replay.owners import is_python
from lifecycle_sim.replay.pairing import release_kinds

MIN_ALLOCATIONS = 8
"""The fewest allocations that a step found by recurrence has."""

FIRST_STEP_DIFFERS = 0.1
"""The part of a period's allocations that the first step may make another number of times, the least made of them."""

INSIDE_A_STEP = re.compile(r"(^|[/\\])torch[/\\](nn[/\\]modules[/\\]module|optim[/\\]optimizer|autograd[/\\]\w+|_tensor)\.py$")
"""Files of frames that are part of a step and never go round a loop of steps."""


def recurring_steps(replayed: DeviceReplay) -> tuple[int, ...]:
    """Return where steps end, as positions before events, found from recurrence; empty where no loop of steps is found."""
    events = replayed.recorded.events
    allocations = np.flatnonzero(events.kind == Kind.ALLOC)
    if len(allocations) < 2 * MIN_ALLOCATIONS:
        return ()
    # Equal tokens stand for the same size from the same stack, allocated for the same category.
    _, size = np.unique(events.size[allocations], return_inverse=True)
    stack, category = events.stack[allocations].astype(np.int64), events.category[allocations].astype(np.int64)
    _, token = np.unique((size * (int(stack.max()) + 2) + stack + 1) * 256 + category, return_inverse=True)
    period, run = fundamental_period(token)
    if period < MIN_ALLOCATIONS or run < 2 * period:
        return ()
    begin = len(token) - run
    ends, cuts = _cut(replayed, allocations, period, begin)
    before = token[: cuts[0]] if begin and cuts else token[:0]
    if not _is_first_step(before, token[-period:]) or _inside_a_step(set(stack[-period:].tolist()), replayed.trace.stacks):
        return ()
    return tuple(ends)


def fundamental_period(token: Int64) -> tuple[int, int]:
    """Return the period of the end of *token*, and the length of the run that has it.

    Of all periods it is the one whose run reaches back furthest from the end, and of those the shortest. A run of period p is a
    stretch in which each element equals the one p before it, as far as there is one in the stretch; (0, 0) if there is none with two
    whole periods. Runs of fewer than ``2 * MIN_ALLOCATIONS`` elements are not looked for. Takes O(n log n): the
    runs of all candidates are measured together by bisection on a rolling hash.
    """
    backwards = token[::-1]
    n = len(backwards)
    known = min(MIN_ALLOCATIONS, n // 2)
    periods = np.arange(1, n - known + 1)
    for offset in range(known):
        periods = periods[backwards[periods + offset] == backwards[offset]]
    if not len(periods):
        return 0, 0
    # hashes[i]: of the first i elements; two stretches are equal if their hashes, shifted to the same power, are.
    base = np.uint64(0x9E3779B97F4A7C15 | 1)
    power = np.concatenate([np.ones(1, np.uint64), np.cumprod(np.full(n, base))])
    hashes = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mix(backwards) * power[:-1])])
    low, high = np.full(len(periods), known), n - periods
    while (open_ := low < high).any():
        middle = (low + high + 1) // 2
        equal = hashes[middle] * power[periods] == hashes[middle + periods] - hashes[periods]
        low = np.where(open_ & equal, middle, low)
        high = np.where(open_ & ~equal, middle - 1, high)
    whole = low >= periods
    if not whole.any():
        return 0, 0
    runs = (periods + low)[whole]
    period = int(periods[whole][np.argmax(runs)])
    differs = np.flatnonzero(backwards[period:] != backwards[:-period])
    return period, int(differs[0]) + period if len(differs) else n


def _mix(token: Int64) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Scatter small numbers over 64 bits (the finaliser of splitmix64)."""
    mixed = token.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _is_first_step(before: Int64, period: Int64) -> bool:
    """Whether *before* allocates what *period* does, and once; so does nothing, where the window begins inside the loop.

    Without stacks weights and optimizer state look like gradients, so that some of it is allocated more often, but never all.
    """
    if not len(before):
        return True
    wanted, there = Counter(period.tolist()), Counter(before.tolist())
    times = sorted(there[token] // count for token, count in wanted.items() for _ in range(count))
    return times[int(FIRST_STEP_DIFFERS * len(times))] == 1


def _inside_a_step(stacks: set[int], table: StackTable) -> bool:
    """Whether all *stacks* that have a Python frame pass through the same call of a module, an optimizer or autograd."""
    shared: list[int] | None = None
    for stack in sorted(stacks):
        frames = [] if stack < 0 else [frame for frame in reversed(table.stacks[stack]) if is_python(table.frames[frame])]
        if not frames:
            continue
        if shared is None:
            shared = frames
        same = 0
        while same < min(len(shared), len(frames)) and shared[same] == frames[same]:
            same += 1
        shared = shared[:same]
    return any(INSIDE_A_STEP.search(table.frames[frame].filename) for frame in shared or ())


def _cut(replayed: DeviceReplay, allocations: Int64, period: int, begin: int) -> tuple[list[int], list[int]]:
    """Where steps end, as positions, and how many allocations come before each: those of one phase of the period, *begin* or more."""
    levels, m = replayed.timeline.levels, len(allocations)
    last = np.concatenate([allocations, [len(levels) - 1]])  # the last position before allocation c: from the one before, levels only fall
    whole = (m - begin) // period
    phases = levels[last[m - whole * period : m]].reshape(whole, period).sum(axis=0)
    phase = int(np.argmin(phases))
    cuts = [c for c in range(m - whole * period + phase - (period if phase else 0), m + 1, period) if c >= max(begin, 1)]
    ends = last[cuts].tolist()
    if phase == 0 and len(cuts) > 1:
        releases = np.isin(replayed.recorded.events.kind, release_kinds(replayed.recorded))
        freed = [int(releases[allocations[c - 1] : last[c]].sum()) for c in cuts[-2:]]  # after the last allocation of a step
        if freed[1] < freed[0]:  # the window ends before the last step's frees
            return ends[:-1], cuts[:-1]
    return ends, cuts
