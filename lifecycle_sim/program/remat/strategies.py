"""Usual choices of regions held against the frontier: what they cost, what peak they leave, and what that peak costs at least."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.remat.plans import Frontier
from lifecycle_sim.program.remat.problem import RegionProblem

Named = tuple[str, tuple[str, ...]]
"""A name that people know, and the names of the regions it chooses."""


@dataclass(frozen=True)
class Strategy:
    """A usual choice of regions, beside the frontier.

    Attributes:
        name: what people call it.
        chosen: names of the regions.
        cost: what recomputing them costs.
        peak: exact peak in bytes.
        least: what the cheapest plan with that peak costs, or None if the frontier does not reach down to it.
        dominated: there is a plan that costs no more and peaks no higher, and less in one of both.
    """

    name: str
    chosen: tuple[str, ...]
    cost: int
    peak: int
    least: int | None
    dominated: bool


def compare_strategies(problem: RegionProblem, frontier: Frontier, named: Iterable[Named]) -> tuple[Strategy, ...]:
    """Return *named* choices, each evaluated exactly and held against *frontier*.

    Raises:
        InputError: a name that is no candidate, or candidates in conflict.
    """
    return tuple(_strategy(problem, frontier, name, chosen) for name, chosen in named)


def _strategy(problem: RegionProblem, frontier: Frontier, name: str, chosen: tuple[str, ...]) -> Strategy:
    numbers = problem.numbers(chosen)
    if not problem.allowed(numbers):
        raise InputError(f"strategy {name!r} chooses candidates that are in conflict, such as a region and one inside it")
    cost, peak = problem.cost(numbers), problem.evaluate(problem.names(numbers))
    best = frontier.at(peak)
    dominated = best is not None and (best.cost < cost or (best.cost == cost and best.peak < peak))
    return Strategy(name, problem.names(numbers), cost, peak, None if best is None else best.cost, dominated)


def usual_strategies(problem: RegionProblem) -> tuple[Named, ...]:
    """Return what people usually choose: nothing, all blocks, every second, the first or the last half of them, one kind of part in all.

    A block's whole is the candidate whose name all others of the block begin with, or the only one. Without stacks: nothing, and all.
    """
    found: dict[str, tuple[str, ...]] = {"none": ()}
    if not problem.stacks:
        every = range(len(problem.candidates))
        if every and problem.allowed(every):
            found["all"] = problem.names(every)
        return tuple(found.items())
    for kind, column in _columns(problem):
        if kind:
            found[f"{kind} in all blocks"] = problem.names(column)
            continue
        half = len(column) // 2
        found["all blocks"] = problem.names(column)
        found["every second block"] = problem.names(column[::2])
        found["first half of the blocks"] = problem.names(column[:half])
        found["last half of the blocks"] = problem.names(column[len(column) - half :])
    return tuple(found.items())


def _columns(problem: RegionProblem) -> Iterator[tuple[str, list[int]]]:
    """The candidates that are alike, over all stacks; the name of a part is the last of its path, that of a whole block is empty."""
    columns: dict[str, list[int]] = {}
    for stack in problem.stacks:
        for block in stack:
            names = [problem.candidates[number].name for number in block]
            for number, name in zip(block, names, strict=True):
                whole = all(other == name or other.startswith(f"{name}.") for other in names)
                columns.setdefault("" if whole else name.rpartition(".")[2], []).append(number)
    yield from columns.items()
