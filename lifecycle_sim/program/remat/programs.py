"""A captured step, as it was or edited, as a Program: what the engine runs, and what streams, links and stages can be added to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lifecycle_sim.events import Category, Clock
from lifecycle_sim.program.graph import Lives, Operator, Program, Storage
from lifecycle_sim.program.remat.editing import Edit
from lifecycle_sim.program.remat.holds import Happens
from lifecycle_sim.program.step_graph import NO_STORAGE, StepOperator

START = "start"


@dataclass
class _Window:
    """What happens from one operator to the next."""

    name: str
    row: StepOperator | None
    allocated: dict[int, int] = field(default_factory=dict)
    freed: list[int] = field(default_factory=list)
    level: int = 0
    high: int = 0


def program_of(
    edited: Edit,
    nanoseconds: Callable[[StepOperator], int] | None = None,
    categories: Mapping[int, Category] | None = None,
) -> Program:
    """Return the step of *edited* as a program of its operators on one stream, each once and in order.

    What an operator allocates and what outlives it is written by it; what goes before the next operator is freed by it; what it takes
    and gives back are its temporaries, as much as is live at a time. It reads what it read in the capture, as far as that is still there:
    one that runs again reads copies, which are not named. So the level after every operator is that of the step, and so is
    the highest level while it runs, unless the step frees something between two allocations of one operator: it is then higher by that.

    Args:
        edited: the step; ``edit(graph)`` for the step as it was.
        nanoseconds: the duration of an operator; by default each takes a tick.
        categories: what storages are for, by the numbers of the capture.
    """
    windows, given = _windows(edited)
    known = dict(categories or {})
    storages = [Storage(_name(number), edited.size(number), known.get(number, Category.UNKNOWN), None, Lives.GIVEN) for number in given]
    operators = []
    live = {*given}
    for window in windows:
        kept = [number for number in window.allocated if number not in window.freed]
        for number in kept:
            copied = number >= edited.first_new
            kind = Category.ACTIVATION if copied else known.get(number, Category.UNKNOWN)
            storages.append(Storage(_name(number), edited.size(number), kind, window.row.module if window.row else None, Lives.KEPT))
        scratch = window.high - window.level - sum(map(edited.size, kept))
        row = window.row
        reads = tuple(_name(number) for number in (row.reads if row else ()) if number in live)
        live.update(kept)
        frees = tuple(_name(number) for number in window.freed if number not in window.allocated)
        live.difference_update(window.freed)
        operators.append(
            Operator(
                window.name,
                1 if nanoseconds is None else 0 if row is None else nanoseconds(row),
                reads=reads,
                writes=tuple(map(_name, kept)),
                frees=frees,
                temporaries=(scratch,) if scratch > 0 else (),
                phase=(row.phase or None) if row else None,
            )
        )
    clock = Clock.TICKS if nanoseconds is None else Clock.NANOSECONDS
    return Program(tuple(storages), (), tuple(operators), clock=clock, title=edited.graph.name, source="capture")


def _name(number: int) -> str:
    return f"storage {number}"


def _windows(edited: Edit) -> tuple[list[_Window], list[int]]:
    """The step cut at its operators, and the storages that are freed or read in it and were there before."""
    operators = edited.graph.operators
    windows = [_Window(START, None)]
    made: set[int] = set()
    given: dict[int, None] = {}
    level = 0
    for happens, value, _, again in edited.events:
        now = windows[-1]
        if happens is Happens.ALLOC:
            made.add(value)
            now.allocated[value] = edited.size(value)
            level += edited.size(value)
            now.high = max(now.high, level)
        elif happens is Happens.FREE:
            now.freed.append(value)
            level -= edited.size(value)
            if value not in made:
                given[value] = None
        else:
            row = operators[value]
            windows.append(_Window(f"{len(windows)}: {row.name}{' again' if again else ''}", row, level=level, high=level))
            given.update(
                (number, None) for number in row.reads if number != NO_STORAGE and number not in made and number < edited.first_new
            )
    first = edited.graph.made
    return windows, [number for number in given if number not in first]
