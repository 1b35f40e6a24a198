"""What is wrong with a line: every problem at once, one line each. A line without problems runs (and may still deadlock)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lifecycle_sim.program.expressions import LIMIT, did_you_mean
from lifecycle_sim.program.places import Place
from lifecycle_sim.study.pipeline.line import ItemKind, Line, LineCapacity, Stage, sizes_along

MOST_VISITS = 20_000_000
"""The most visits of one run: some 100 bytes of memory each."""


MOST_MACHINES = 1_000_000
MOST_RUNS = 100_000


def line_problems(line: Line) -> list[str]:
    """Return one line for each problem of *line*: what, where, why, and how to mend it."""
    found = [*_twice(line.stages, "stage"), *_twice(line.kinds, "kind of item")]
    if not line.kinds:
        found.append('no items come: write [[item]], such as count = 8 and every = 2 with arrivals = "even"')
    known = {stage.name: stage for stage in line.stages}
    for kind in line.kinds:
        found += _kind(line, kind, known)
    if line.kinds:
        found += _unreachable(line)
    for stage in line.stages:
        found += _stage(line, stage)
    if line.visits > MOST_VISITS:
        found.append(f"the line has {line.visits:,} visits of stages: at most {MOST_VISITS:,}, take fewer items")
    if line.replications > MOST_RUNS:
        found.append(f"replications: {line.replications:,} runs: at most {MOST_RUNS:,}")
    if line.horizon is not None and line.horizon <= line.warmup:
        found.append(f"horizon: averages would end at {line.horizon} and begin at {line.warmup}: give a horizon after the warmup")
    if line.replications > 1 and not line.random:
        found.append(f"replications: nothing is drawn, so all {line.replications:,} runs would be the same: leave it out")
    if all(name in known for kind in line.kinds for name in kind.route):
        found += [f'{problem}, or mode = "line" to compare only' for problem in too_small(line)] if line.mode is LineCapacity.BLOCK else []
    return found


def _line(place: Place, text: str) -> str:
    return f"{place}: {text}" if str(place) else text


def _twice(rows: Iterable[Stage] | Iterable[ItemKind], what: str) -> Iterator[str]:
    first: dict[str, Place] = {}
    for row in rows:
        if row.name in first:
            where = f" (first at {first[row.name]})" if str(first[row.name]) else ""
            yield _line(row.place, f"a {what} {row.name!r} is there already{where}: give each its own name")
        first.setdefault(row.name, row.place)


def _kind(line: Line, kind: ItemKind, known: dict[str, Stage]) -> Iterator[str]:
    if kind.count < 1:
        yield _line(kind.place, f"count: {kind.name!r} has no items: give 1 or more")
    if not kind.route:
        yield _line(kind.place, f"route: {kind.name!r} visits no stage: name one at least, or leave route out to visit all")
    for name in dict.fromkeys(kind.route):
        if name not in known:
            hint = did_you_mean(name, known) or f": there are {', '.join(known)}"
            yield _line(kind.place, f"route: there is no stage {name!r}{hint}")
    for key, names in (("outputs", kind.outputs), ("times", kind.times)):
        for name in names:
            if name not in kind.route:
                yield _line(kind.place, f"{key}: {kind.name!r} never visits {name!r}{did_you_mean(name, kind.route) or ': leave it out'}")
    if list(kind.at) != sorted(kind.at):
        yield _line(kind.place, "at: the times go back: put them in order")
    last = max(kind.at, default=0) + kind.start + kind.every.mean * kind.count
    longest = max((draw.mean for stage in line.stages for draw in (stage.time, stage.setup, stage.transport)), default=0)
    if last + longest * line.visits >= LIMIT / 4:
        yield _line(kind.place, "the run may last 2**61 or more: use a coarser unit of time")


def _unreachable(line: Line) -> Iterator[str]:
    visited = {name for kind in line.kinds for name in kind.route}
    for stage in line.stages:
        if stage.name not in visited:
            kinds = ", ".join(kind.name for kind in line.kinds)
            yield _line(
                stage.place, f"nothing ever comes to {stage.name!r}: no route of {kinds} names it, put it into one or take the stage out"
            )


def _stage(line: Line, stage: Stage) -> Iterator[str]:
    if stage.machines < 1:
        yield _line(stage.place, f"machines: {stage.name!r} has none and never lets anything through: give 1 or more")
    if stage.machines > MOST_MACHINES:
        yield _line(
            stage.place,
            f"machines: {stage.machines:,} at {stage.name!r}: at most {MOST_MACHINES:,}, and no more than items are ever of use",
        )
    if stage.buffer is not None and stage.batch > 1 and stage.buffer < stage.batch:
        yield _line(
            stage.place,
            f"buffer: a batch of {stage.batch} never comes together in {stage.buffer} places before {stage.name!r}: "
            f"give {stage.batch} or more",
        )


def too_small(line: Line) -> list[str]:
    """Say where a capacity has no room for a single item.

    If it blocks, the item waits for ever; if it is compared with, no order of work fits.
    """
    rooms = [("the line", line.capacity, None)] + [(repr(stage.name), stage.capacity, stage) for stage in line.stages]
    found: dict[str, None] = {}
    for kind in line.kinds:
        sizes = sizes_along(line, kind)
        for what, room, at in rooms:
            if room is None:
                continue
            for name, size, output in zip(kind.route, sizes, sizes[1:], strict=False):
                stage = line.stage(name)
                if at is not None and stage is not at:
                    continue
                needed = stage.batch * (size + output if stage.overlaps else max(size, output))
                if needed > room:
                    how = f"a batch of {stage.batch} of " if stage.batch > 1 else ""
                    both = " with its output" if stage.overlaps else ""
                    key = "capacity"
                    text = (
                        f"{key}: {how}{kind.name!r}{both} at {name!r} takes {needed:,} {line.unit}, and {what} has {room:,}: "
                        f"give {needed:,} or more"
                    )
                    found[_line(at.place if at is not None else Place("capacity"), text)] = None
    return list(found)
