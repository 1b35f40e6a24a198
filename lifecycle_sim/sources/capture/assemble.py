"""Makes a Trace of what tracking recorded. It needs no torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lifecycle_sim.events import NO_LABEL, Assumption, Basis, Clock, DeviceTrace, Events, Evidence, Frame, Kind, Span, StackBuilder, Trace
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.sources.capture.ledger import Ledger, Phase, StorageRecord

FORMAT = "capture"
SETUP = "setup"
DURING_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE)


def assemble(
    ledger: Ledger,
    device: str = "cuda:0",
    capacity: int | None = None,
    release: str | None = None,
    settings: dict[str, Any] | None = None,
    assumptions: Iterable[Assumption] = (),
    evidence: Evidence = Evidence.SIMULATED,
) -> Trace:
    """Return the trace of *ledger*: requested bytes of one device, from nothing on.

    The address of an event is its storage's number; its stack holds the module that allocated and the modules around it, each a frame
    ``<path>`` with the phase as its name; its label is the name of a parameter or state, else the operator or term.
    """
    events = np.array(ledger.events, np.int64).reshape(-1)
    freed = events < 0
    number = np.where(freed, ~events, events)
    stacks, labels = StackBuilder(), dict[str, int]()
    stack_of, label_of = _columns(ledger.storages, stacks, labels)
    category_of = np.array([int(category) for category in ledger.categories()], np.uint8)
    size_of = np.array([storage.size for storage in ledger.storages], np.int64)
    columns = Events.of(
        np.where(freed, Kind.FREE, Kind.ALLOC),
        number,
        size_of[number] if len(number) else number,
        stack=stack_of[number] if len(number) else number,
        label=label_of[number] if len(number) else number,
        category=category_of[number] if len(number) else number,
    )
    recorded = DeviceTrace(device, columns, Basis.REQUESTED, start=0, spans=spans_of(ledger), capacity=capacity)
    return Trace(
        (recorded,),
        FORMAT,
        evidence,
        Clock.NONE,
        stacks.table(),
        tuple(labels),
        release=release,
        settings=settings or {},
        assumptions=tuple(assumptions),
    )


def _columns(storages: Sequence[StorageRecord], stacks: StackBuilder, labels: dict[str, int]) -> tuple[Int64, Int64]:
    """The stack and the label of each storage."""
    made: dict[tuple[Phase, tuple[str, ...]], int] = {}
    stack_of, label_of = np.empty(len(storages), np.int64), np.full(len(storages), NO_LABEL, np.int64)
    for number, storage in enumerate(storages):
        where = storage.where
        key = (where.phase, where.modules)
        if key not in made:
            phase = where.phase.value or SETUP
            made[key] = stacks.add([Frame(phase, f"<{path}>", 0) for path in where.modules])
        stack_of[number] = made[key]
        label_of[number] = labels.setdefault(storage.name or storage.operator, len(labels))
    return stack_of, label_of


def spans_of(ledger: Ledger) -> tuple[Span, ...]:
    """Return the steps, and in them the phases: recomputation lies inside of its backward pass."""
    spans = [Span("step", f"step {number}", start, stop) for number, (start, stop) in enumerate(ledger.steps, start=1)]
    ends = sorted({bound for step in ledger.steps for bound in step} | {0, len(ledger.phases)})
    for first, last in itertools.pairwise(ends):
        within = ledger.phases[first:last]
        joined = [Phase.BACKWARD if phase is Phase.RECOMPUTE else phase for phase in within]
        spans += [
            Span("phase", str(phase.value), first + start, first + stop) for phase, start, stop in _runs(joined) if phase is not Phase.NONE
        ]
        spans += [
            Span("phase", "recompute", first + start, first + stop) for phase, start, stop in _runs(within) if phase is Phase.RECOMPUTE
        ]
    return tuple(sorted(spans, key=lambda span: (span.start, -span.stop)))


def _runs(phases: Sequence[Phase]) -> Iterable[tuple[Phase, int, int]]:
    start = 0
    for position in range(1, len(phases) + 1):
        if position == len(phases) or phases[position] is not phases[start]:
            yield phases[start], start, position
            start = position


def upper_peaks(ledger: Ledger, steps: Iterable[tuple[int, int]], intervals: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Return for each of *steps* the peak if every term without a value took its most: (event, bytes) pairs of *intervals*."""
    sizes = [ledger.storages[event].size if event >= 0 else -ledger.storages[~event].size for event in ledger.events]
    levels = np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))])
    raised = levels.copy()
    for event, most in intervals:
        raised[event + 1] = max(raised[event + 1], levels[event + 1] + most)
    return tuple(int(raised[start : stop + 1].max(initial=0)) for start, stop in steps)
