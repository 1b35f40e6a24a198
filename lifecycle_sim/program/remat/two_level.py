"""A uniform chain reversed with slots in memory and slots on disk, where disk costs time to write and to read.

Source of the problem: J. Herrmann, G. Pallez, "H-Revolve: a framework for adjoint computation on synchronous hierarchical platforms",
ACM TOMS 46(2), 2020. Cost is counted in forward steps: advances + write · writes + read · reads. Memory is free of cost; every
return to a checkpoint on disk is a read. The input of the chain takes a slot like every other checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.program.remat.moves import Act, Move, Store, at_least


@dataclass(frozen=True)
class TwoLevelPlan:
    """The cheapest schedules of a chain on two levels.

    Attributes:
        steps: of the chain.
        cost: advances + write · writes + read · reads, the least possible.
        forwards: how many forward steps in all schedules of that cost run: every count for which there is one, ascending.
        schedule: the moves of one with the fewest forward steps.
    """

    steps: int
    cost: int
    forwards: tuple[int, ...]
    schedule: tuple[Move, ...]


class _Part(NamedTuple):
    """Steps to reverse: how many, with how many free slots, the input being kept in ``store`` and the run standing at it."""

    steps: int
    ram: int
    disk: int
    store: Store


class _Option(NamedTuple):
    """A way to go on: how far to advance, the part behind the next checkpoint (None if the last step needs none) and the part before it."""

    gone: int
    right: _Part | None
    left: _Part


def two_level_plan(steps: int, ram: int, disk: int, *, write: int, read: int) -> TwoLevelPlan:
    """Return the cheapest schedules for *steps* steps with *ram* slots in memory and *disk* slots on disk.

    By dynamic programming over parts of the chain, O(steps² · ram · disk²): the structure in which a checkpoint splits a part into
    two is optimal. Meant for chains of up to some hundred steps.

    Args:
        steps: of the chain.
        ram: slots in memory.
        disk: slots on disk.
        write: what a write to disk costs, in forward steps.
        read: what a read from disk costs, in forward steps.

    Raises:
        InputError: no step, no slot at all, or a negative number.
    """
    for value, what in (
        (ram, "slots in memory"),
        (disk, "slots on disk"),
        (write, "forward steps a write"),
        (read, "forward steps a read"),
    ):
        at_least(value, 0, what)
    at_least(steps, 1, "steps")
    at_least(ram + disk, 1, "slots")
    level = _Levels(steps, ram, disk, write, read)
    starts = level.starts()
    cost = min(each for each, _ in starts)
    advances = 0
    for each, part in starts:
        advances |= level.advances(part) if each == cost else 0
    first = min((each, level.fewest(part), part) for each, part in starts)[2]
    schedule = (Move(Act.SAVE, 0, store=first.store), *level.moves(first))
    return TwoLevelPlan(steps, cost, tuple(steps + count for count in _bits(advances)), schedule)


_Slots = tuple[int, int, Store]
"""Free slots in memory and on disk, and where the input of a part is kept."""


class _Levels:
    """The least cost of every part, from short to long, and which ways to go on attain it."""

    def __init__(self, steps: int, ram: int, disk: int, write: int, read: int) -> None:
        self.steps, self.ram, self.disk, self.write, self.read = steps, ram, disk, write, read
        self.cost: dict[_Slots, NDArray[np.int64]] = {
            (free, spare, store): np.zeros(steps + 1, np.int64)
            for free in range(ram + 1)
            for spare in range(disk + 1)
            for store in Store
            if free + spare + 1 <= ram + disk and (store is Store.DISK or free < ram) and (store is Store.RAM or spare < disk)
        }
        self.best: dict[_Part, tuple[_Option, ...]] = {}
        self.counts: dict[_Part, int] = {}
        for length in range(2, steps + 1):
            for slots, costs in self.cost.items():
                costs[length] = self._least(_Part(length, *slots))

    def starts(self) -> list[tuple[int, _Part]]:
        """The whole chain with its input kept in memory or on disk, and what that costs."""
        parts = [_Part(self.steps, self.ram - 1, self.disk, Store.RAM)] if self.ram else []
        parts += [_Part(self.steps, self.ram, self.disk - 1, Store.DISK)] if self.disk else []
        return [(int(self.cost[part[1:]][part.steps]) + (self.write if part.store is Store.DISK else 0), part) for part in parts]

    def _least(self, part: _Part) -> int:
        """The least cost of *part*; the ways to go on that attain it are kept."""
        length = part.steps
        gone = np.arange(1, length)
        least = -1
        found: list[_Option] = []
        for extra, right in self._behind(part):
            for left in self._before(part):
                costs = gone + (extra + (self.read if part.store is Store.DISK else 0)) + self.cost[left][1:length]
                if right is None:
                    costs = costs[-1:]
                else:
                    costs = costs + self.cost[right][length - 1 : 0 : -1]
                cheapest = int(costs.min())
                if least < 0 or cheapest <= least:
                    found = found if cheapest == least else []
                    least = cheapest
                    for index in np.flatnonzero(costs == cheapest).tolist():
                        far = length - 1 if right is None else index + 1
                        found.append(_Option(far, _Part(length - far, *right) if right else None, _Part(far, *left)))
        self.best[part] = tuple(found)
        return least

    def _behind(self, part: _Part) -> list[tuple[int, _Slots | None]]:
        """Where the next checkpoint may be kept, with what that costs, or that there is none before the last step."""
        found: list[tuple[int, _Slots | None]] = [(0, None)]
        if part.ram:
            found.append((0, (part.ram - 1, part.disk, Store.RAM)))
        if part.disk:
            found.append((self.write, (part.ram, part.disk - 1, Store.DISK)))
        return found

    def _before(self, part: _Part) -> list[_Slots]:
        """Where the input may be kept once it was returned to: what was read from disk may stay in memory from then on."""
        moved = part.store is Store.DISK and part.ram
        return [part[1:], *([(part.ram - 1, part.disk + 1, Store.RAM)] if moved else [])]

    def advances(self, part: _Part) -> int:
        """The advances of all schedules of *part* at least cost: bit k is set if there is one with k advances."""
        needed, todo = {part}, [part]
        while todo:
            for option in self.best.get(todo.pop(), ()):
                for other in (option.left, option.right):
                    if other is not None and other not in needed:
                        needed.add(other)
                        todo.append(other)
        for each in sorted(needed - self.counts.keys()):  # the shorter parts first
            self.counts[each] = 1 if each.steps == 1 else 0
            for option in self.best.get(each, ()):
                behind = 1 if option.right is None else self.counts[option.right]
                self.counts[each] |= _sums(behind, self.counts[option.left]) << option.gone
        return self.counts[part]

    def fewest(self, part: _Part) -> int:
        """The fewest advances of a schedule of *part* at least cost."""
        return _lowest(self.advances(part))

    def moves(self, start: _Part) -> Iterator[Move]:
        """The moves of the cheapest schedule of *start* with the fewest advances; the run stands at its first step."""
        todo: list[tuple[_Part, int] | Move] = [(start, 0)]
        while todo:
            item = todo.pop()
            if isinstance(item, Move):
                yield item
                continue
            part, first = item
            if part.steps == 1:
                yield Move(Act.DROP, first, store=part.store)
                yield Move(Act.REVERSE, first)
                continue
            option = min(
                self.best[part],
                key=lambda way: way.gone + (_lowest(self.counts[way.right]) if way.right else 0) + _lowest(self.counts[way.left]),
            )
            yield Move(Act.ADVANCE, first, first + option.gone)
            todo.append((option.left, first))
            if option.left.store is not part.store:
                todo += [Move(Act.SAVE, first, store=option.left.store), Move(Act.DROP, first, store=part.store)]
            todo.append(Move(Act.RESTORE, first, store=part.store))
            if option.right is None:
                yield Move(Act.REVERSE, first + option.gone)
            else:
                yield Move(Act.SAVE, first + option.gone, store=option.right.store)
                todo.append((option.right, first + option.gone))


def _sums(one: int, other: int) -> int:
    """Every sum of a count in *one* and a count in *other*, as bits."""
    few, many = sorted((one, other), key=int.bit_count)
    found = 0
    while few:
        lowest = few & -few
        found |= many * lowest
        few ^= lowest
    return found


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _bits(bits: int) -> Iterator[int]:
    while bits:
        yield _lowest(bits)
        bits &= bits - 1
