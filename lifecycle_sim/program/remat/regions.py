"""Calls of modules that can be recomputed, and which of them a pattern chooses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.step_graph import NO_CALL, NO_STORAGE, Mark, StepGraph
from lifecycle_sim.spelling import closest, path_expression


@dataclass(frozen=True)
class Region:
    """A call of a module in the forward pass of a step.

    Attributes:
        call: its number in the graph.
        module: the module's path.
        start: the mark at which it begins.
        stop: the mark at which it returns.
        early: the mark of the last tensor that it saves: where its recomputation stops early.
        operators: numbers of its operators, in order.
        again: numbers of those that a recomputation that stops early runs again.
        saved: storages that autograd saves in it, each once.
        inputs: storages that checkpointing it would hold, each once.
        flops: of the operators run again.
        moved: bytes that they read and write.
    """

    call: int
    module: str
    start: int
    stop: int
    early: int
    operators: range
    again: range
    saved: tuple[int, ...]
    inputs: tuple[int, ...]
    flops: int
    moved: int


def candidates(graph: StepGraph) -> tuple[Region, ...]:
    """Return every call that autograd recorded and in which it saved something, in the order in which they begin."""
    found = []
    before: list[int] = [0]
    for kind in graph.kinds:
        before.append(before[-1] + (kind == Mark.OPERATOR))
    for number, (call, (start, stop)) in enumerate(zip(graph.calls, graph.bounds, strict=True)):
        if not call.grad:
            continue
        packs = [place for place in range(start, stop) if graph.kinds[place] == Mark.SAVE]
        if not packs:
            continue
        again = range(before[start], before[packs[-1]])
        saved = dict.fromkeys(graph.holds[graph.values[place]].storage for place in packs)
        saved.pop(NO_STORAGE, None)
        found.append(
            Region(
                number,
                call.module,
                start,
                stop,
                packs[-1],
                range(before[start], before[stop]),
                again,
                tuple(saved),
                tuple(dict.fromkeys(storage for storage in (*call.inputs, *call.others) if storage != NO_STORAGE)),
                sum(graph.operators[place].flops for place in again),
                sum(graph.operators[place].moved for place in again),
            )
        )
    return tuple(found)


def chosen_regions(graph: StepGraph, patterns: Iterable[str], asked: str = "checkpoint") -> frozenset[int]:
    """Return the numbers of the calls of the modules that *patterns* choose.

    A pattern is a path, or one with ``*``, ``?`` and ``[0-5]`` as in a shell, where a star or mark stands for no dot and ``**`` for
    anything. It may end in ``@2``: that call of the module alone, counted from 0. *asked* is what a message calls the patterns.

    Raises:
        InputError: a pattern chooses no call, or calls that cannot be recomputed. Every problem has a line.
    """
    paths: dict[str, list[int]] = {}
    for number, call in enumerate(graph.calls):
        paths.setdefault(call.module, []).append(number)
    chosen: set[int] = set()
    problems = []
    recomputed = _recomputed(graph)
    for pattern in patterns:
        name, at, nth = pattern.partition("@")
        if at and not nth.isdigit():
            problems.append(f"{asked} {pattern!r}: after @ comes the number of a call, counted from 0, such as cell@2")
            continue
        modules = paths_of(name, paths)
        calls = [number for path in modules for number in paths[path] if not nth or paths[path].index(number) == int(nth)]
        if not calls:
            problems.append(f"{asked} {pattern!r} {_nothing(name, nth, modules, paths)}")
            continue
        again = next((number for number in calls if number in recomputed), None)
        if again is not None:
            path = graph.calls[again].module
            problems.append(
                f"{asked} {pattern!r}: {path}, or a module in it, is recomputed in the capture already: capture the step without "
                "checkpointing"
            )
        recorded = [number for number in calls if graph.calls[number].grad]
        if not recorded:
            problems.append(f"{asked} {pattern!r}: {modules[0]} runs without gradients, so that nothing of it is saved or recomputed")
        chosen.update(recorded)
    if problems:
        raise InputError(problems)
    return frozenset(chosen)


def _recomputed(graph: StepGraph) -> set[int]:
    """The calls of modules that the step recomputes as it is, and those around them."""
    found: set[int] = set()
    for number, call in enumerate(graph.calls):
        around = number if call.module in graph.recomputed else NO_CALL
        while around != NO_CALL and around not in found:
            found.add(around)
            around = graph.calls[around].parent
    return found


def paths_of(pattern: str, paths: Iterable[str]) -> list[str]:
    """Return those of *paths* that *pattern* chooses, as in :func:`chosen_regions` but without ``@``."""
    matches = re.compile(path_expression(pattern)).fullmatch
    return [path for path in paths if matches(path)]


def _nothing(name: str, nth: str, modules: list[str], paths: dict[str, list[int]]) -> str:
    if modules and nth:
        return f"chooses no call: {modules[0]} is called {len(paths[modules[0]])} times, counted from 0"
    known = [path for path in paths if path]
    close = closest(name, known)
    hint = f"did you mean {close!r}? " if close else ""
    shown = ", ".join(known[:8]) + (" …" if len(known) > 8 else "")
    return f"chooses no module that was called: {hint}the modules are {shown or 'none'}"


def outermost(graph: StepGraph, chosen: Iterable[int]) -> tuple[int, ...]:
    """Return those of the *chosen* calls that are in no other of them."""
    wanted = set(chosen)
    found = []
    for number in sorted(wanted):
        parent = graph.calls[number].parent
        while parent != NO_CALL and parent not in wanted:
            parent = graph.calls[parent].parent
        if parent == NO_CALL:
            found.append(number)
    return tuple(found)
