"""A second, plain implementation of scenarios, written from docs/events.md alone: slow, without SimPy, without the package's ledger.

Events: sort, then recount every live byte after each event. Operators: every pair is compared to find who waits for whom, times
follow by repeated relaxation, live intervals follow from the times.
"""

from __future__ import annotations

from typing import NamedTuple

from lifecycle_sim.events import Kind
from lifecycle_sim.program import InSteps, Lives, Operator, Program, SameInstant


class Interval(NamedTuple):
    """[start, stop) of so many bytes; stop is None if nothing frees them, ``ordered`` where the free comes first by either rule."""

    start: int
    stop: int | None
    size: int
    ordered: bool = False


def levels_of_events(program: Program) -> list[tuple[int, int]]:
    """(time, level) after each planned event, recounted from the names that are live."""
    size = {storage.name: storage.size for storage in program.storages}
    frees_first = program.same_instant is SameInstant.FREES_FIRST
    order = ["free", "alloc", "share"] if frees_first else ["alloc", "share", "free"]
    rows = [(event.at, order.index(event.kind.name.lower()), number, event) for number, event in enumerate(program.events)]
    names: dict[str, tuple[str, int]] = {}
    levels = []
    for at, _, number, event in sorted(rows, key=lambda row: row[:3]):
        if event.kind is Kind.ALLOC:
            names[event.name] = (event.name, number)
        elif event.kind is Kind.SHARE:
            names[str(event.alias)] = names[event.name]
        else:
            del names[event.name]
        levels.append((at, sum(size[storage] for storage, _ in set(names.values()))))
    return levels


def waits_for(program: Program, first: Operator, second: Operator) -> bool:
    """Whether *second*, later in the file, waits for *first*: programs without further names."""
    if first.stream == second.stream or first.name in second.after:
        return True
    changed_first, changed_second = {*first.writes, *first.frees}, {*second.writes, *second.frees}
    touched_first, touched_second = changed_first | {*first.reads}, changed_second | {*second.reads}
    return bool(changed_first & touched_second or touched_first & changed_second)


def intervals(program: Program) -> list[Interval]:
    """Everything that lives while the operators run."""
    size = {storage.name: storage.size for storage in program.storages}
    lives = {storage.name: storage.lives for storage in program.storages}
    found: list[Interval] = []
    born = {name: 0 for name, how in lives.items() if how is Lives.GIVEN}
    now = 0
    for step in range(1, (program.steps or 1) + 1):
        skip = InSteps.LATER if step == 1 else InSteps.FIRST
        operators = [operator for operator in program.operators if operator.steps is not skip]
        starts = [now] * len(operators)
        for _ in operators:
            for j, second in enumerate(operators):
                for i, first in enumerate(operators[:j]):
                    if waits_for(program, first, second):
                        starts[j] = max(starts[j], starts[i] + first.duration)
        runs = [(start, start + operator.duration, operator) for start, operator in zip(starts, operators, strict=True)]
        now = max((end for _, end, _ in runs), default=now)
        for start, end, operator in runs:
            found += [Interval(start, end, temporary, ordered=end == now) for temporary in operator.temporaries]
            for name in operator.writes:
                if lives[name] is not Lives.STEP:
                    born.setdefault(name, start)
            for name in operator.frees:
                found.append(Interval(born.pop(name), end, size[name], ordered=True))
        for name, how in lives.items():
            users = [run for run in runs if name in (*run[2].reads, *run[2].writes)]
            if how is Lives.STEP and users:
                start, end = min(run[0] for run in users if name in run[2].writes), max(run[1] for run in users)
                found.append(Interval(start, end, size[name], ordered=end == now))
    return found + [Interval(start, None, size[name]) for name, start in born.items()]


def peak_of_intervals(found: list[Interval], same_instant: SameInstant) -> int:
    """The most bytes live at once: half-open intervals, or closed ones where allocations come first."""
    closed = same_instant is SameInstant.ALLOCS_FIRST
    return max((sum(i.size for i in found if _holds(i, time, closed and not i.ordered)) for time in {i.start for i in found}), default=0)


def level_at(found: list[Interval], time: int) -> int:
    """The level when all that happens at *time* has happened."""
    return sum(interval.size for interval in found if _holds(interval, time, closed=False))


def _holds(interval: Interval, time: int, closed: bool) -> bool:
    start, stop = interval.start, interval.stop
    return start <= time and (stop is None or time < stop or (closed and time == stop))
