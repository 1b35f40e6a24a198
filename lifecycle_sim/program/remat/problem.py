"""What a region plan chooses from: candidates with a cost, rows that tell the bytes held at every event that may bind, and the truth.

A candidate is a region of the forward pass that may be recomputed, such as one call of a module. Which bytes are held at an event
depends on the plan: what a region saves is held unless it is recomputed, its inputs and what it makes again are held if it is, and
a storage that several regions share is held once for all of them. A row says this for one event; the peak of a plan is its largest row.
Rows are what the search uses; every plan that is returned was evaluated by the simulator that the problem brings along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lifecycle_sim.errors import InputError


class When(NamedTuple):
    """A condition on a plan: any of ``chosen`` is recomputed, or of one of the groups in ``unless`` nothing is.

    An OR class: a storage that is held for several reasons is held once, if any of them holds. Numbers are those of the candidates.
    """

    chosen: frozenset[int] = frozenset()
    unless: frozenset[frozenset[int]] = frozenset()

    def holds(self, plan: Iterable[int]) -> bool:
        """Whether the condition holds under *plan*."""
        chosen = frozenset(plan)
        return not self.chosen.isdisjoint(chosen) or any(group.isdisjoint(chosen) for group in self.unless)


def if_chosen(*candidates: int) -> When:
    """Return the condition that any of *candidates* is recomputed."""
    return When(chosen=frozenset(candidates))


def unless_chosen(*candidates: int) -> When:
    """Return the condition that none of *candidates* is recomputed."""
    return When(unless=frozenset({frozenset(candidates)}))


@dataclass(frozen=True)
class Row:
    """The bytes held at one event, whatever the plan.

    Attributes:
        base: bytes held in any case.
        held: further bytes, each with the condition under which they are held; a condition occurs once.
        only_if: the event happens only if all of these candidates are recomputed; empty for an event that always happens.
        event: what happens there, for people.
    """

    base: int
    held: tuple[tuple[When, int], ...] = ()
    only_if: frozenset[int] = frozenset()
    event: str = ""

    def level(self, plan: Iterable[int]) -> int | None:
        """Return the bytes held at the event under *plan*, or None if it does not happen."""
        chosen = frozenset(plan)
        if not self.only_if <= chosen:
            return None
        return self.base + sum(size for when, size in self.held if when.holds(chosen))


@dataclass(frozen=True)
class Candidate:
    """A region that may be recomputed.

    Attributes:
        name: unique among the candidates.
        cost: what recomputing it costs, in the problem's unit; costs of several add up.
    """

    name: str
    cost: int


Evaluate = Callable[[tuple[str, ...]], int]
"""The exact peak in bytes of the plan that recomputes the candidates of these names, in the order of the candidates."""
Binding = Callable[[tuple[str, ...]], Row]
"""The row of the event that holds the peak under a plan: what the rows lacked, where they told too little of it."""


@dataclass(frozen=True)
class RegionProblem:
    """Which regions to recompute: candidates, rows and the simulator that has the last word.

    Attributes:
        candidates: what may be recomputed.
        rows: the bytes held at every event that may bind. A row must never tell more than is held; what it lacks is made up for.
        evaluate: simulates a plan exactly.
        conflicts: pairs of which at most one may be chosen, such as a region and one inside it.
        stacks: runs of blocks that are built alike, in the order in which they run forward. A block is the numbers of its candidates;
            those at one place in two blocks of a stack are alike. It speeds the search up and changes no answer that is called proven.
        binding: tells the row that a plan lacked; without it a plan whose peak the rows told too low is only excluded.
        unit: what costs count, such as ``"FLOP"`` or ``"ns"``.
        basis: what bytes count: payload, requested, allocated, active or reserved.
    """

    candidates: tuple[Candidate, ...]
    rows: tuple[Row, ...]
    evaluate: Evaluate = field(compare=False)
    conflicts: tuple[tuple[int, int], ...] = ()
    stacks: tuple[tuple[tuple[int, ...], ...], ...] = ()
    binding: Binding | None = field(default=None, compare=False)
    unit: str = "FLOP"
    basis: str = "requested"

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise InputError(problems)

    def __repr__(self) -> str:
        return f"RegionProblem({len(self.candidates):,} candidates, {len(self.rows):,} rows, cost in {self.unit}, bytes {self.basis})"

    def names(self, plan: Iterable[int]) -> tuple[str, ...]:
        """Return the names of the candidates in *plan*, in the order of the candidates."""
        return tuple(self.candidates[index].name for index in sorted(plan))

    def numbers(self, names: Iterable[str]) -> frozenset[int]:
        """Return the numbers of the candidates called *names*.

        Raises:
            InputError: there is no such candidate.
        """
        known = {candidate.name: index for index, candidate in enumerate(self.candidates)}
        wanted = list(names)
        unknown = [f"there is no candidate {name!r}: known are {_some(known)}" for name in wanted if name not in known]
        if unknown:
            raise InputError(unknown)
        return frozenset(known[name] for name in wanted)

    def cost(self, plan: Iterable[int]) -> int:
        """Return what *plan* costs."""
        return sum(self.candidates[index].cost for index in plan)

    def allowed(self, plan: Iterable[int]) -> bool:
        """Whether no two candidates in *plan* are in conflict."""
        chosen = frozenset(plan)
        return not any(one in chosen and other in chosen for one, other in self.conflicts)


def _problems(problem: RegionProblem) -> Iterable[str]:
    count = len(problem.candidates)
    names = [candidate.name for candidate in problem.candidates]
    yield from (
        f"candidate {name!r} is there twice: names are unique" for name in sorted({name for name in names if names.count(name) > 1})
    )
    yield from (f"candidate {each.name!r} costs {each.cost!r}: give 0 or more" for each in problem.candidates if each.cost < 0)
    if not any(not row.only_if for row in problem.rows):
        yield "no row is of an event that always happens: give at least one"
    numbers = {
        number for row in problem.rows for when, _ in row.held for number in (*when.chosen, *(n for group in when.unless for n in group))
    }
    numbers |= {number for row in problem.rows for number in row.only_if} | {number for pair in problem.conflicts for number in pair}
    numbers |= {number for stack in problem.stacks for block in stack for number in block}
    yield from (f"candidate number {number} is not among the {count:,} candidates" for number in sorted(numbers) if not 0 <= number < count)
    if any(row.base < 0 or any(size < 0 for _, size in row.held) for row in problem.rows):
        yield "a row holds a negative number of bytes"
    for stack in problem.stacks:
        if len({len(block) for block in stack}) > 1:
            yield "blocks of one stack have different numbers of candidates: only blocks built alike belong together"


def _some(names: Iterable[str], most: int = 8) -> str:
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most:,} more" if len(every) > most else "")
