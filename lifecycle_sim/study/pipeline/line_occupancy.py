"""What is occupied when: the pieces that a run of a line consists of, and the levels they add up to.

A *piece* is something that an item occupies from one time to another at one place: a stage, or the way between two. At one instant what
ends makes room for what begins (half-open intervals), so a piece without a duration occupies nothing and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lifecycle_sim.events.trace import Int64
from lifecycle_sim.study.pipeline.line import InputUntil, OutputFrom
from lifecycle_sim.study.pipeline.line_run import NEVER, LineRun

EXACT_IN_INT64 = 2.0**62


@dataclass(frozen=True, eq=False)
class Level:
    """A level over time: it is ``level[k]`` from ``time[k]`` on; before the first time it is 0.

    Attributes:
        time: the times at which it may change, ascending, each once.
        level: what it is from then on, Python integers where int64 would not do.
    """

    time: Int64
    level: Int64

    @property
    def peak(self) -> int:
        """The highest level, 0 where nothing is ever there."""
        return int(self.level.max()) if len(self.level) else 0

    @property
    def peak_time(self) -> int:
        """When it is first reached."""
        return int(self.time[self.level.argmax()]) if len(self.level) else 0

    def area(self, begin: int, end: int) -> int:
        """Return what is held from *begin* to *end*, level times time; exact."""
        edges = np.clip(np.append(self.time, max(end, int(self.time[-1]) if len(self.time) else 0)), begin, end)
        return _dot(self.level, np.diff(edges))

    def above(self, limit: int, begin: int, end: int) -> int:
        """Return how long it is above *limit* from *begin* to *end*."""
        edges = np.clip(np.append(self.time, max(end, int(self.time[-1]) if len(self.time) else 0)), begin, end)
        return int(np.diff(edges)[self.level > limit].sum())


def level_of(begin: Int64, end: Int64, size: Int64) -> Level:
    """Return the level that *size* from *begin* to *end* adds up to, piece by piece."""
    if not len(begin):
        return Level(np.zeros(0, np.int64), np.zeros(0, np.int64))
    exact = float(size.astype(float).sum()) < EXACT_IN_INT64
    sizes = size.astype(np.int64 if exact else object)
    time, where = np.unique(np.concatenate([begin, end]), return_inverse=True)
    change = np.zeros(len(time), sizes.dtype)
    np.add.at(change, where[: len(begin)], sizes)
    np.subtract.at(change, where[len(begin) :], sizes)
    return Level(time, np.cumsum(change))


def _dot(size: Int64, time: Int64) -> int:
    """The sum of products, exact."""
    if float(np.dot(size.astype(float), time.astype(float))) < EXACT_IN_INT64:
        return int(np.dot(size.astype(np.int64), time))
    return sum(amount * span for amount, span in zip(size.tolist(), time.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces of a run.

    Attributes:
        item: number of the item.
        visit: the visit that the piece belongs to, or that it is on the way to.
        place: number of the stage, or of the way ``len(stages) + k``, see :attr:`Occupancy.places`.
        output: whether it is the output of the visit.
        begin: from when.
        end: until when; the run's end where a deadlock holds it.
        held: whether it is still there at the end, in a deadlock.
        size: how much.
    """

    item: Int64
    visit: Int64
    place: Int64
    output: Int64
    begin: Int64
    end: Int64
    held: Int64
    size: Int64

    def __len__(self) -> int:
        return len(self.item)


@dataclass(frozen=True, eq=False)
class Occupancy:
    """What a run occupied.

    Attributes:
        run: the run.
        pieces: piece by piece, in the order of their beginnings.
        places: the names of the stages, then of the ways between two that take time, as ``"cut → paint"``.
    """

    run: LineRun
    pieces: Pieces
    places: tuple[str, ...]

    @cached_property
    def total(self) -> Level:
        """The level of the whole line."""
        return level_of(self.pieces.begin, self.pieces.end, self.pieces.size)

    @cached_property
    def items(self) -> Level:
        """How many items are in the line."""
        run = self.run
        entered = np.flatnonzero(run.entered != NEVER)
        return level_of(run.entered[entered], _until(run.left[entered], run.end), np.ones(len(entered), np.int64))

    def at(self, place: int) -> Level:
        """Return the level of one place."""
        here = self.pieces.place == place
        return level_of(self.pieces.begin[here], self.pieces.end[here], self.pieces.size[here])

    def present(self, time: int) -> Int64:
        """Return the pieces that are there at *time*: those that have begun and not ended."""
        return np.flatnonzero((self.pieces.begin <= time) & (time < self.pieces.end))


def _until(time: Int64, end: int) -> Int64:
    return np.where(time == NEVER, end, time)


def occupancy(run: LineRun) -> Occupancy:
    """Return what *run* occupied, piece by piece."""
    due, stages = run.agenda, run.line.stages
    accepted = run.enter.copy()
    follows = np.ones(len(accepted), bool)
    follows[due.first[:-1]] = False
    later = np.flatnonzero(follows)
    accepted[later] = run.leave[later - 1]
    overlap = np.array([stage.overlaps for stage in stages], bool)[due.stage]
    until_accepted = np.array([stage.input_until is InputUntil.ACCEPTED for stage in stages], bool)[due.stage]
    from_start = np.array([stage.output_from is OutputFrom.START for stage in stages], bool)[due.stage]
    whole = ~overlap & (due.size == due.output)
    gone = np.where(whole | until_accepted, run.leave, run.made)
    appears = np.where(from_start, run.start, run.made)
    ways: dict[tuple[int, int], int] = {}
    travels = np.flatnonzero(follows & (accepted != run.enter) & (accepted != NEVER))
    way = np.zeros(len(travels), np.int64)
    for number, to in enumerate(travels.tolist()):
        pair = int(due.stage[to - 1]), int(due.stage[to])
        way[number] = ways.setdefault(pair, len(stages) + len(ways))
    there = np.flatnonzero(run.enter != NEVER)
    made = np.flatnonzero(~whole & (appears != NEVER))
    parts = [
        (travels, way, np.zeros(len(travels), bool), accepted[travels], run.enter[travels], due.size[travels]),
        (there, due.stage[there], np.zeros(len(there), bool), run.enter[there], gone[there], due.size[there]),
        (made, due.stage[made], np.ones(len(made), bool), appears[made], run.leave[made], due.output[made]),
    ]
    visit, place, output, begin, stop, size = (np.concatenate([part[column] for part in parts]) for column in range(6))
    end = _until(stop, run.end)
    kept = np.flatnonzero((end > begin) | (stop == NEVER))
    order = kept[np.lexsort((output[kept], visit[kept], begin[kept]))]
    columns = (due.item[visit], visit, place, output, begin, end, stop == NEVER, size)
    names = tuple(stage.name for stage in stages)
    return Occupancy(run, Pieces(*(column[order] for column in columns)), names + tuple(f"{names[a]} → {names[b]}" for a, b in ways))
