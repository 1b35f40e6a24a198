"""The trace of edited steps: what a capture of the same program with its calls checkpointed would hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np

from lifecycle_sim.events import NO_LABEL, NO_STACK, Category, Events, Frame, Kind, Span, StackBuilder, Trace
from lifecycle_sim.program.remat.editing import Edit
from lifecycle_sim.program.remat.holds import Happens
from lifecycle_sim.program.step_graph import NO_STORAGE, Mark, StepGraph

FORMAT = "what-if"
RECOMPUTE, BACKWARD = "recompute", "backward"
STATE = "rng_state"


class _Row(NamedTuple):
    """An event of the new trace: the storage, the event of the old trace that tells its attributes, its phase, and what it says itself."""

    kind: int
    address: int
    source: int
    size: int
    phase: str
    own: tuple[str, Category] | None = None


def edited_trace(trace: Trace, edits: Sequence[Edit], gone: Collection[int] = ()) -> Trace:
    """Return *trace*, a capture, with the steps of *edits* as they are edited, and without the storages *gone*.

    Storages that are allocated again have the phase ``recompute`` in their stacks. What was an activation and now goes before the backward
    pass begins is temporary, as it would be in a capture. Its evidence is simulated; its format is ``what-if``.
    """
    recorded = trace.devices[0]
    events = recorded.events
    kinds, addresses = events.kind.tolist(), events.address.tolist()
    known = edits[0].graph.sizes
    sizes = [known[address] for address in addresses]
    born = {address: place for place, (kind, address) in enumerate(zip(kinds, addresses, strict=True)) if kind == Kind.ALLOC}
    phases = _phases(recorded.spans, len(events))
    rows: list[_Row] = []
    steps: list[tuple[int, int]] = []
    at = 0

    def copy(stop: int) -> None:
        rows.extend(
            _Row(kinds[i], addresses[i], born[addresses[i]], sizes[i], phases[i]) for i in range(at, stop) if addresses[i] not in gone
        )

    for edit in edits:
        copy(edit.graph.start)
        first = len(rows)
        rows.extend(_edited(edit, born, phases))
        steps.append((first, len(rows)))
        at = edit.graph.stop
    copy(len(events))
    spans = _spans([span.name for span in recorded.spans if span.kind == "step"], steps, [row.phase for row in rows])
    stacks, labels = StackBuilder(), list(trace.labels)
    columns = _columns(trace, rows, stacks, labels)
    settings: dict[str, Any] = {name: value for name, value in trace.settings.items() if name != "capture"}
    header = trace.settings.get("capture")
    if isinstance(header, dict):
        settings["capture"] = {name: value for name, value in header.items() if name not in ("graph", "upper_peaks")}
    changed = replace(recorded, events=columns, spans=spans)
    return replace(trace, devices=(changed,), format=FORMAT, stacks=stacks.table(), labels=tuple(labels), settings=settings)


def _phases(spans: Iterable[Span], count: int) -> list[str]:
    """The phase of each event."""
    found = [""] * count
    for span in sorted((span for span in spans if span.kind == "phase"), key=lambda span: (span.start, -span.stop)):
        found[span.start : span.stop] = [span.name] * (span.stop - span.start)
    return found


def _edited(edit: Edit, born: dict[int, int], phases: Sequence[str]) -> Iterable[_Row]:
    graph = edit.graph
    own = {(event, mark): phases[graph.start + place] for place, (event, mark) in enumerate(graph.union())}
    told = _phase_of_marks(graph)
    for happens, value, mark, again in edit.events:
        if happens not in (Happens.ALLOC, Happens.FREE):
            continue
        alloc = happens is Happens.ALLOC
        copied = value >= edit.first_new
        storage = edit.copies[value - edit.first_new] if copied else value
        phase = RECOMPUTE if again else own.get((value if alloc else ~value, mark), told[mark])
        yield _Row(
            Kind.ALLOC if alloc else Kind.FREE,
            value,
            NO_STORAGE if storage == NO_STORAGE else born[storage],
            edit.size(value),
            phase,
            edit.own.get(value),
        )


def _phase_of_marks(graph: StepGraph) -> list[str]:
    phase, found = "", []
    for kind, value in graph.marks():
        if kind == Mark.OPERATOR:
            phase = graph.operators[value].phase
        elif kind == Mark.UNPACK:
            phase = BACKWARD
        found.append(phase)
    return found


def _spans(names: Sequence[str], steps: Sequence[tuple[int, int]], phases: Sequence[str]) -> tuple[Span, ...]:
    spans = [Span("step", name, *bounds) for name, bounds in zip(names, steps, strict=True)]
    bounds = sorted({0, len(phases), *(bound for step in steps for bound in step)})
    for first, last in pairwise(bounds):
        spans += _runs([BACKWARD if phase == RECOMPUTE else phase for phase in phases[first:last]], first)
        spans += (span for span in _runs(phases[first:last], first) if span.name == RECOMPUTE)
    return tuple(sorted(spans, key=lambda span: (span.start, -span.stop)))


def _runs(phases: Sequence[str], at: int) -> Iterable[Span]:
    for phase, run in groupby(phases):
        length = len(list(run))
        if phase:
            yield Span("phase", phase, at, at + length)
        at += length


def _columns(trace: Trace, rows: Sequence[_Row], stacks: StackBuilder, labels: list[str]) -> Events:
    """The columns of *rows*; attributes are those of the old trace's events, but for what was computed again."""
    events = trace.devices[0].events
    for stack in range(len(trace.stacks)):
        stacks.add(trace.stacks.frames_of(stack))
    again: dict[int, int] = {}

    def stack_again(stack: int) -> int:
        if stack not in again:
            again[stack] = stacks.add([Frame(RECOMPUTE, frame.filename, frame.line) for frame in trace.stacks.frames_of(stack)])
        return again[stack]

    old_stack, old_label, old_category = events.stack.tolist(), events.label.tolist(), events.category.tolist()
    made: dict[int, tuple[int, int, int]] = {}
    numbers: dict[str, int] = {}

    def number(label: str) -> int:
        if label not in numbers:
            numbers[label] = len(labels)
            labels.append(label)
        return numbers[label]

    lives = _lives(rows)
    stack_column, label_column, category_column = [], [], []
    for row in rows:
        if row.kind == Kind.ALLOC:
            if row.source == NO_STORAGE:
                told = (NO_STACK, number(STATE), int(Category.WORKSPACE))
            else:
                stack, category = old_stack[row.source], old_category[row.source]
                copied = row.phase == RECOMPUTE and row.address != int(events.address[row.source])
                if copied:
                    stack = stack_again(stack) if stack != NO_STACK else stack
                    category = category if category == Category.WORKSPACE else int(Category.ACTIVATION)
                elif category == Category.ACTIVATION and row.address not in lives:
                    category = int(Category.TEMPORARY)
                told = (stack, old_label[row.source], category)
            if row.own is not None:
                told = (told[0], number(row.own[0]), int(row.own[1]))
            made[row.address] = told
        stack, label, category = made.get(row.address, (NO_STACK, NO_LABEL, 0))
        stack_column.append(stack)
        label_column.append(label)
        category_column.append(category)
    return Events.of(
        np.array([row.kind for row in rows], np.uint8),
        np.array([row.address for row in rows], np.int64),
        np.array([row.size for row in rows], np.int64),
        stack=np.array(stack_column, np.int64),
        label=np.array(label_column, np.int64),
        category=np.array(category_column, np.int64),
    )


def _lives(rows: Sequence[_Row]) -> set[int]:
    """The storages that are live when a backward pass begins, or begin in one."""
    live: set[int] = set()
    found: set[int] = set()
    before = ""
    for row in rows:
        begins = row.phase in (BACKWARD, RECOMPUTE) and before not in (BACKWARD, RECOMPUTE)
        if begins:
            found |= live
        if row.kind == Kind.ALLOC:
            live.add(row.address)
            if row.phase in (BACKWARD, RECOMPUTE):
                found.add(row.address)
        else:
            live.discard(row.address)
        before = row.phase
    return found
