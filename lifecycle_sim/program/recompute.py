"""Recomputation as an edit of an operator program: what a scenario becomes when ranges of its forward operators run again in backward.

A storage of a step lives from its first writer to its last reader. So a range is recomputed if a second run of it writes copies, and the
backward operators read those: what the range wrote then goes after its last reader in forward, and what it reads from outside stays until
the second run has read it. What other forward operators read of a range is its output, and is kept as it was. The second run stands before
the first backward operator that needs one of its copies, and ends with the last operator that writes one (it stops early).

    forward    ├ a ┤├ b ┤├ c ┤      …      ├ backward ┤      becomes    ├ a ┤├ b ┤├ c ┤      …      ├ a again ┤├ backward ┤
    y, of a    ├─── read by b and backward ───────────┤                 ├ y ─────┤                  ├─ y again ───────────┤
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.graph import Lives, Operator, Program, Storage, roots
from lifecycle_sim.spelling import closest, path_expression

AGAIN = " again"
RANGE = ".."
FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class RecomputedRange:
    """A run of forward operators, each by its place in the program.

    Attributes:
        operators: the places.
        again: those that run again: all up to the last that writes what is needed.
        before: the place of the backward operator before which they do.
        saved: storages of the range that backward operators read and no forward operator outside of it.
    """

    operators: tuple[int, ...]
    again: tuple[int, ...]
    before: int
    saved: tuple[str, ...]


def recomputed(program: Program, ranges: Iterable[str]) -> Program:
    """Return *program* with *ranges* of its forward operators recomputed.

    Args:
        program: an operator program.
        ranges: ``"first .. last"``, both names of operators; or a path or a pattern of paths, as of modules: of ``"block*"`` the operators
            ``block0.up`` and ``block0.down`` are one range, and those of ``block1`` another.

    Raises:
        InputError: a range chooses nothing, is needed by no backward operator, or cannot be computed again. Every problem has a line.
    """
    found = ranges_of(program, ranges)
    storages = {storage.name: storage for storage in program.storages}
    copies: dict[str, str] = {}
    before: dict[int, list[Operator]] = {}
    added: list[Storage] = []
    taken = {*storages, *(operator.name for operator in program.operators)}
    for chosen in found:
        own = [name for place in chosen.again for name in program.operators[place].writes]
        for name in dict.fromkeys(own):
            copies[name] = _free_name(name, taken)
            storage = storages[name]
            added.append(replace(storage, name=copies[name], shares=copies.get(storage.shares or "", storage.shares)))
        before.setdefault(chosen.before, []).extend(
            _renamed(program.operators[place], {name: copies[name] for name in own}, _free_name(program.operators[place].name, taken))
            for place in chosen.again
        )
    reads = {name: copies[name] for chosen in found for name in chosen.saved}
    operators: list[Operator] = []
    for place, operator in enumerate(program.operators):
        operators += before.get(place, ())
        of_backward = operator.phase == BACKWARD
        operators.append(replace(operator, reads=_through(operator.reads, reads)) if of_backward else operator)
    return replace(program, storages=(*program.storages, *added), operators=tuple(operators))


def ranges_of(program: Program, ranges: Iterable[str]) -> tuple[RecomputedRange, ...]:
    """Return the ranges of *program* that *ranges* choose, in the order in which they run; see :func:`recomputed`."""
    if not program.operators:
        raise InputError(f"{program.source} has no operators: what is recomputed is a range of forward operators")
    problems: list[str] = []
    found: list[RecomputedRange] = []
    taken: set[int] = set()
    for text in ranges:
        try:
            for places in _places(program, text):
                if taken & set(places):
                    raise InputError(f"recompute {text!r}: {program.operators[places[0]].name!r} is in an earlier range already")
                taken.update(places)
                found.append(_range(program, text, places))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return tuple(sorted(found, key=lambda each: each.operators))


def _places(program: Program, text: str) -> list[tuple[int, ...]]:
    names = {operator.name: place for place, operator in enumerate(program.operators)}
    first, dots, last = (part.strip() for part in text.partition(RANGE))
    if dots:
        unknown = [name for name in (first, last) if name not in names]
        if unknown:
            close = closest(unknown[0], names)
            raise InputError(f"recompute {text!r}: there is no operator {unknown[0]!r}" + (f": did you mean {close!r}?" if close else ""))
        places = [tuple(range(names[first], names[last] + 1))]
        if not places[0]:
            raise InputError(f"recompute {text!r}: {first!r} runs after {last!r}")
    else:
        matches = re.compile(f"({path_expression(text)})(?:\\..+)?").fullmatch
        by_path: dict[str, list[int]] = {}
        for name, place in names.items():
            match = matches(name)
            if match is not None and program.operators[place].phase == FORWARD:
                by_path.setdefault(match[1], []).append(place)
        places = [tuple(run) for of_path in by_path.values() for run in _runs(of_path)]
        if not places:
            close = closest(text, names)
            raise InputError(f"recompute {text!r} chooses no forward operator" + (f": did you mean {close!r}?" if close else ""))
    other = [place for run in places for place in run if program.operators[place].phase != FORWARD]
    if other:
        raise InputError(f"recompute {text!r}: {program.operators[other[0]].name!r} is in it and has not the phase forward")
    return places


def _runs(places: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _range(program: Program, text: str, places: tuple[int, ...]) -> RecomputedRange:
    operators, owner = program.operators, roots(program)
    storages = {storage.name: storage for storage in program.storages}
    written = {name: place for place in places for name in operators[place].writes}
    later = [(place, row) for place, row in enumerate(operators) if place > places[-1]]
    outputs = {name for _, row in later if row.phase == FORWARD for name in row.reads}
    own = written.keys() - outputs
    needed = [(place, name) for place, row in later if row.phase == BACKWARD for name in row.reads if name in own]
    if not needed:
        raise InputError(f"recompute {text!r}: no backward operator reads what {operators[places[0]].name!r} and those after it write")
    kept = [name for _, name in needed if storages[name].lives is not Lives.STEP]
    if kept:
        raise InputError(
            f"recompute {text!r}: it writes {kept[0]!r}, which lives {storages[kept[0]].lives.value!r} whoever reads it: write 'step'"
        )
    read = {owner.get(name, name) for place in places for name in operators[place].reads}
    inside = {owner.get(name, name) for name in written}
    for place, row in enumerate(operators):
        if place < places[0] or place >= needed[0][0]:
            continue
        changed = {owner.get(name, name) for name in (*row.writes, *row.frees)}
        spoilt = sorted(changed & (read - inside if place <= places[-1] else read | inside))
        if spoilt:
            raise InputError(
                f"recompute {text!r}: {row.name!r} changes {spoilt[0]!r}, so that the range could not be computed again from it"
            )
    stop = max(written[name] for _, name in needed)
    again = tuple(place for place in places if place <= stop)
    return RecomputedRange(places, again, needed[0][0], tuple(dict.fromkeys(name for _, name in needed)))


def _free_name(name: str, taken: set[str]) -> str:
    made = name + AGAIN
    while made in taken:
        made += AGAIN
    taken.add(made)
    return made


def _renamed(operator: Operator, names: Mapping[str, str], name: str) -> Operator:
    return replace(
        operator,
        name=name,
        phase=BACKWARD,
        after=(),
        reads=_through(operator.reads, names),
        writes=_through(operator.writes, names),
    )


def _through(names: Iterable[str], renamed: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(renamed.get(name, name) for name in names)
