"""Where the steps of a trace are: given, recorded as spans, told by annotations, or found from recurrence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Kind, Span
from lifecycle_sim.replay.device import DeviceReplay
from lifecycle_sim.replay.recurrence import recurring_steps

STEP_NAME = re.compile(r"^\W*((profiler|train(ing)?|global)[\W_]*)?(step|iter(ation)?)[\W_]*\d*\W*$", re.IGNORECASE)
"""Annotations that are a step: ``ProfilerStep#3``, ``## step ##``, ``train_step 12``, ``iteration 7``."""

OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")
"""Annotations of torch whose end is the end of a step."""

ZERO_GRAD = re.compile(r"^Optimizer\.zero_grad#")


@dataclass(frozen=True)
class FoundSteps:
    """Where steps are.

    Attributes:
        how: how they were found, for people.
        ranges: the events ``[start, stop)`` of each step, in order, disjoint.
    """

    how: str
    ranges: tuple[tuple[int, int], ...]


NO_STEPS = FoundSteps("no steps found: no annotation names them, and no sequence of allocations recurs to the end of the window", ())


def find_steps(replayed: DeviceReplay, steps: Sequence[int] | str | None = None) -> FoundSteps:
    """Find the steps of *replayed*.

    Args:
        replayed: what was recorded on one device.
        steps: the positions at which steps end (a step that ends at ``p`` has ``p - 1`` as its last event; the first begins with the
            window), or the name of an annotation each of which is a step. By default the first of these that tells of two steps or
            more: spans of kind step, annotations named like a step, the ends of ``Optimizer.step`` (moved to the end of the
            ``zero_grad`` that follows at once if one follows each of them, so that all leave gradients or none does), recurrence;
            else one step that is recorded; else none.

    Raises:
        InputError: a position lies outside the window or is not above the one before it, or no annotation has the name.
    """
    spans = replayed.recorded.spans
    if isinstance(steps, str):
        return _named(replayed, steps)
    if steps is not None:
        return _given(replayed, steps)
    recorded = FoundSteps("spans of kind step", _disjoint(span for span in spans if span.kind == "step"))
    named = [span for span in spans if span.kind == "annotation" and STEP_NAME.match(span.name)]
    annotated = FoundSteps(f"annotations like {named[0].name!r}" if named else "", _disjoint(named))
    optimizer = _optimizer_steps(replayed)
    for found in (recorded, annotated, optimizer):
        if len(found.ranges) > 1:
            return found
    if len(ends := recurring_steps(replayed)) > 1:
        return FoundSteps("recurrence: the same allocations in the same order, up to the end of the window", _between(ends))
    return next((found for found in (recorded, annotated, optimizer) if found.ranges), NO_STEPS)


def _given(replayed: DeviceReplay, steps: Sequence[int]) -> FoundSteps:
    n = len(replayed.timeline)
    problems = [f"step boundary {end} is outside the window: choose 0 to {n}" for end in steps if not 0 <= end <= n]
    problems += [f"step boundary {later} is not above the one before it, {end}" for end, later in pairwise(steps) if later <= end]
    if problems:
        raise InputError(problems)
    return FoundSteps("boundaries as given", _between(end for end in steps if end > 0))


def _named(replayed: DeviceReplay, name: str) -> FoundSteps:
    chosen = [span for span in replayed.recorded.spans if span.name == name]
    if not chosen:
        known = list(dict.fromkeys(span.name for span in replayed.recorded.spans))
        listed = ", ".join(repr(other) for other in known[:5]) + (f" and {len(known) - 5} more" if len(known) > 5 else "")
        raise InputError(f"{replayed.device}: no annotation is named {name!r}: the recording has {listed or 'none'}")
    return FoundSteps(f"annotations {name!r}, as given", _disjoint(chosen))


def _between(ends: Iterable[int]) -> tuple[tuple[int, int], ...]:
    return tuple(pairwise((0, *ends)))


def _disjoint(spans: Iterable[Span]) -> tuple[tuple[int, int], ...]:
    """The ranges of *spans* without those that begin before the one before them ends, and without those that are cut off."""
    ranges: list[tuple[int, int]] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.stop)):
        if span.closed and (not ranges or span.start >= ranges[-1][1]):
            ranges.append((span.start, span.stop))
    return tuple(ranges)


def _optimizer_steps(replayed: DeviceReplay) -> FoundSteps:
    """Steps that end where the optimizer's step does; of several optimizers the one that is stepped last counts."""
    n, spans = len(replayed.timeline), replayed.recorded.spans
    steps = [span for span in spans if OPTIMIZER_STEP.match(span.name) and (span.closed or span.stop < n)]
    if not steps:
        return FoundSteps("", ())
    name = max(steps, key=lambda span: (span.stop, span.start)).name
    allocations = np.flatnonzero(replayed.recorded.events.kind == Kind.ALLOC)
    clears = sorted((span.start, span.stop) for span in spans if ZERO_GRAD.match(span.name) and span.closed)
    starts = [start for start, _ in clears]
    ends = sorted({span.stop for span in steps if span.name == name})
    cleared = []
    for end in ends:
        following = int(np.searchsorted(starts, end))
        if following < len(clears) and np.searchsorted(allocations, clears[following][0]) == np.searchsorted(allocations, end):
            cleared.append(clears[following][1])
    after_zero_grad = len(cleared) == len(ends)
    if after_zero_grad:
        ends = cleared
    how = f"ends of the annotation {name!r}" + (" and of the zero_grad that follows it" if after_zero_grad else "")
    return FoundSteps(how, _between(dict.fromkeys(end for end in ends if end > 0)))
