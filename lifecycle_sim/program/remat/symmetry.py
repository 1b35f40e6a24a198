"""Blocks that are built alike: an order that a plan may be assumed to have, and the proof that nothing is lost by it.

Of two neighbours, the earlier is recomputed at least as much as the later. This is without loss if exchanging what is chosen in the two
never raises a peak: if every row of the exchanged plan is covered by a row of the plan before, whatever else is chosen. Where that
is shown the order is a fact; elsewhere it is a guess that makes the search fast, and nothing found by it alone is called proven.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from lifecycle_sim.program.remat.problem import Candidate, RegionProblem, When
from lifecycle_sim.program.remat.table import Ints, RowTable


@dataclass(frozen=True)
class Ordered:
    """Two neighbouring blocks: numbers of their candidates, like by like, those that save most first.

    Attributes:
        earlier: of the block that runs first; read as a binary number, what is chosen in it is at least what is chosen in the later.
        later: of the other.
        proven: the order is without loss.
    """

    earlier: tuple[int, ...]
    later: tuple[int, ...]
    proven: bool


def ordered_pairs(problem: RegionProblem, table: RowTable) -> tuple[Ordered, ...]:
    """Return the neighbouring blocks of the problem's stacks, with whether their order is without loss.

    Neighbours whose candidates differ in cost are left out.
    """
    found = []
    for stack in problem.stacks:
        if not stack or not stack[0]:
            continue
        places = sorted(range(len(stack[0])), key=lambda place: (-problem.candidates[stack[0][place]].cost, place))
        for one, other in pairwise(stack):
            earlier, later = tuple(one[place] for place in places), tuple(other[place] for place in places)
            if all(table.costs[a] == table.costs[b] for a, b in zip(earlier, later, strict=True)):
                found.append(Ordered(earlier, later, len(places) <= 4 and _without_loss(table, earlier, later)))
    return tuple(found)


def _without_loss(table: RowTable, earlier: tuple[int, ...], later: tuple[int, ...]) -> bool:
    """Whether every exchange that brings the two blocks into order is covered, row by row."""
    swap = dict(zip((*earlier, *later), (*later, *earlier), strict=True))
    if any({swap.get(number, number) for number in table.conflicts[a]} != set(table.conflicts[b]) for a, b in swap.items()):
        return False
    patterns = [frozenset(place for place, yes in enumerate(chosen) if yes) for chosen in product((True, False), repeat=len(earlier))]
    patterns = [pattern for pattern in patterns if _allowed(table, [earlier[place] for place in pattern])]  # the largest number first
    for number, more in enumerate(patterns):
        for less in patterns[number + 1 :]:
            before = frozenset(earlier[place] for place in less) | frozenset(later[place] for place in more)
            after = frozenset(earlier[place] for place in more) | frozenset(later[place] for place in less)
            if not _covered(table, frozenset((*earlier, *later)), after, before):
                return False
    return True


def _allowed(table: RowTable, chosen: Sequence[int]) -> bool:
    return not any(other in table.conflicts[index] for index in chosen for other in chosen)


def _covered(table: RowTable, decided: frozenset[int], after: frozenset[int], before: frozenset[int]) -> bool:
    """Whether every row that can happen with *after* chosen among *decided* is at most one with *before* chosen, whatever else is."""
    ours, theirs = _decide(table, decided, after), _decide(table, decided, before)
    names = sorted({*ours[2], *theirs[2]}, key=lambda when: (sorted(when.chosen), sorted(map(sorted, when.unless))))
    columns = {when: number for number, when in enumerate(names)}
    base, sizes, only = ours[0], _spread(ours, columns), _needs(table, decided, after)
    base_before, sizes_before, only_before = theirs[0], _spread(theirs, columns), _needs(table, decided, before)
    for number, needs in enumerate(only):
        if needs is None:
            continue
        lacks = np.maximum(sizes[number] - sizes_before, 0).sum(axis=1)
        covers = np.flatnonzero(base_before - base[number] >= lacks)
        if not any((other := only_before[place]) is not None and other <= needs for place in covers.tolist()):
            return False
    return True


_Decided = tuple[Ints, Ints, list[When]]


def _decide(table: RowTable, decided: frozenset[int], chosen: frozenset[int]) -> _Decided:
    """The rows with some candidates decided: bases, sizes, and the condition that is left of each column."""
    left: list[When] = []
    columns: list[int] = []
    always: list[int] = []
    for number, when in enumerate(table.conditions):
        groups = {group - decided for group in when.unless if group.isdisjoint(chosen)}
        if not when.chosen.isdisjoint(chosen) or frozenset() in groups:
            always.append(number)
            continue
        rest = When(when.chosen - decided, frozenset(groups))
        if rest.chosen or rest.unless:
            left.append(rest)
            columns.append(number)
    base: Ints = table.base + (table.sizes[:, always].sum(axis=1) if always else 0)
    return base, table.sizes[:, columns], left


def _spread(decided: _Decided, columns: dict[When, int]) -> Ints:
    """The sizes by condition, those of one condition added up."""
    sizes = np.zeros((len(decided[0]), len(columns)), np.int64)
    for place, when in enumerate(decided[2]):
        sizes[:, columns[when]] += decided[1][:, place]
    return sizes


def _needs(table: RowTable, decided: frozenset[int], chosen: frozenset[int]) -> list[frozenset[int] | None]:
    """What must be chosen besides for each row to happen, or None if it cannot."""
    return [row.only_if - chosen if row.only_if & decided <= chosen else None for row in table.rows]


def stacks_by_name(candidates: Sequence[Candidate]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return the stacks that names like ``blocks.3.attn`` show: one path with numbers in it, alike but for the first of them.

    Blocks that follow each other in number belong to a stack as long as they have candidates of the same names and costs.
    """
    blocks: dict[str, dict[int, dict[str, int]]] = {}
    for index, candidate in enumerate(candidates):
        found = re.fullmatch(r"(.*?)(?<![^.])(\d+)(?![^.])(.*)", candidate.name)
        if found:
            blocks.setdefault(found[1], {}).setdefault(int(found[2]), {})[found[3]] = index
    stacks: list[tuple[tuple[int, ...], ...]] = []
    for by_number in blocks.values():
        for run in _runs(candidates, by_number):
            if len(run) > 1:
                stacks.append(tuple(run))
    return tuple(stacks)


def _runs(candidates: Sequence[Candidate], by_number: dict[int, dict[str, int]]) -> Iterable[list[tuple[int, ...]]]:
    """Runs of neighbouring blocks whose candidates have the same names and costs."""
    run: list[tuple[int, ...]] = []
    last: tuple[int, list[tuple[str, int]]] | None = None
    for number in sorted(by_number):
        inside = sorted(by_number[number].items())
        shape = [(name, candidates[index].cost) for name, index in inside]
        if last is None or last != (number - 1, shape):
            yield run
            run = []
        run.append(tuple(index for _, index in inside))
        last = number, shape
    yield run
