"""What is wrong with a Program: every problem at once, one line each. A program without problems runs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from lifecycle_sim.events import Kind
from lifecycle_sim.program.expressions import LIMIT, did_you_mean
from lifecycle_sim.program.graph import (
    CapacityMode,
    Lives,
    Operator,
    PlannedEvent,
    Program,
    SameInstant,
    Storage,
    edges,
    find_cycle,
    operators_of,
    ordered_events,
    roots,
)
from lifecycle_sim.program.places import Place

MOST_RUNS = 1_000_000
"""The most operators that one run may start, all steps together."""


def problems(program: Program, doubtful: Collection[str] = ()) -> list[str]:
    """Return one line for each problem of *program*: what, where, why, and how to mend it. An empty list means that it runs.

    Args:
        program: the program.
        doubtful: names of storages and operators about which the program may lack something; nothing is said about them.
    """
    found = [*_storages(program), *_streams(program)]
    if program.events and program.operators:
        found.append("a scenario has events at known times or operators with durations, not both: leave one of them out")
    if not program.events and not program.operators and not doubtful:
        found.append("nothing happens: give [[event]] tables or [[operator]] tables")
    if program.horizon is not None and not 0 < program.horizon < LIMIT:
        found.append(f"horizon: {program.horizon} is no time to average over: give more than 0, and less than 2**63")
    if program.events:
        found += _events(program, doubtful)
    if program.operators:
        found += _operators(program, doubtful)
    return found


def _line(place: Place, text: str) -> str:
    return f"{place}: {text}" if str(place) else text


def _twice(rows: Iterable[Storage] | Iterable[Operator], what: str) -> Iterator[str]:
    first: dict[str, Place] = {}
    for row in rows:
        if row.name in first:
            where = f" (first at {first[row.name]})" if str(first[row.name]) else ""
            mend = "leave the size out to allocate it again" if row.place.table == "event" else "give it another name"
            yield _line(row.place, f"{what} {row.name!r} is declared twice{where}: {mend}")
        first.setdefault(row.name, row.place)


def _storages(program: Program) -> Iterator[str]:
    yield from _twice(program.storages, "storage")
    by_name = {storage.name: storage for storage in program.storages}
    owner = roots(program)
    for storage in program.storages:
        if not 0 <= storage.size < LIMIT:
            yield _line(storage.place, f"storage {storage.name!r} has the size {storage.size}: give 0 to 2**63 - 1 bytes")
        if storage.shares is None:
            continue
        if storage.shares not in by_name:
            yield _line(
                storage.place, f"{storage.name!r} shares {storage.shares!r}, which is no storage{did_you_mean(storage.shares, by_name)}"
            )
        elif storage.name not in owner:
            yield _line(
                storage.place, f"{storage.name!r} shares {storage.shares!r}, which shares it in turn: one of them must own the bytes"
            )
        elif storage.lives is Lives.GIVEN and by_name[storage.shares].lives is not Lives.GIVEN:
            yield _line(storage.place, f"{storage.name!r} is given but shares {storage.shares!r}, which is not: make both given")
    capacity = program.capacity
    if capacity and capacity.mode is CapacityMode.WAIT:
        written = {name for operator in program.operators for name in operator.writes}
        for storage in program.storages:
            if storage.size > capacity.size and (storage.lives is Lives.GIVEN or storage.name in written):
                need = f"storage {storage.name!r} has {storage.size:,} B, more than the capacity of {capacity.size:,} B"
                yield _line(storage.place, f"{need}: there never is room")


def _streams(program: Program) -> Iterator[str]:
    for stream, count in Counter(program.streams).items():
        if count > 1:
            yield f"stream {stream!r} is declared {count} times: give each its own name"
    known = dict.fromkeys(program.streams)
    rows: list[Operator | PlannedEvent] = [*program.operators, *program.events]
    for row in rows:
        if row.stream not in known:
            hint = did_you_mean(row.stream, known) or f": known are {', '.join(known)}"
            yield _line(row.place, f"unknown stream {row.stream!r}{hint}")


def _events(program: Program, doubtful: Collection[str]) -> Iterator[str]:
    """Sweep the events in their order with the names that are live, those apart that are *doubtful*."""
    if program.capacity and program.capacity.mode is CapacityMode.WAIT:
        yield "[capacity]: events at known times cannot wait for room: use mode = 'line', or write operators with durations"
    if program.steps is not None:
        yield "[steps]: events happen once, at their times: write operators with durations to repeat them"
    for storage in program.storages:
        if storage.shares is not None:
            yield _line(storage.place, "'shares' is for operators: give the further name by an event with share = and as =")
        if storage.lives is not Lives.STEP:
            yield _line(storage.place, "'lives' is for operators: here the events say when a storage lives")
    sizes = {storage.name for storage in program.storages}
    live: dict[str, PlannedEvent] = {}
    gone: dict[str, PlannedEvent] = {}
    holds: dict[str, int] = {}
    generations = itertools.count()
    events = [event for event in ordered_events(program) if event.name not in doubtful and event.alias not in doubtful]
    begins = {event.alias or event.name: event for event in reversed(events) if event.kind is not Kind.FREE}
    for event in events:
        new = event.alias if event.kind is Kind.SHARE else event.name if event.kind is Kind.ALLOC else None
        if event.kind is Kind.ALLOC and event.name not in sizes:
            yield _line(
                event.place, f"{event.name!r} has no size: give size = here or in a [[storage]] table{did_you_mean(event.name, sizes)}"
            )
        if event.kind is not Kind.ALLOC and event.name not in live:
            went = gone.get(event.name)
            others = [] if went is None else [name for name in live if holds[name] == holds[event.name]]
            yield _line(event.place, _not_live(event, went, begins, program.same_instant, others))
        elif new is not None and new in live:
            since = f"at {live[new].at}" + (f" ({live[new].place})" if str(live[new].place) else "")
            yield _line(event.place, f"at {event.at} {new!r} begins while it is live since {since}: free it first or use another name")
        elif event.kind is Kind.FREE:
            gone[event.name] = event
            del live[event.name]
        elif new is not None:
            live[new] = event
            holds[new] = holds[event.name] if event.kind is Kind.SHARE else next(generations)


def _not_live(event: PlannedEvent, gone: PlannedEvent | None, begins: dict[str, PlannedEvent], rule: SameInstant, others: list[str]) -> str:
    verb = "frees" if event.kind is Kind.FREE else "shares"
    begin = begins.get(event.name)
    if gone is not None:
        where = f" ({gone.place})" if str(gone.place) else ""
        if gone.at == event.at and event.kind is Kind.SHARE:
            hint = "share it earlier, or set same_instant = 'allocs-first'"
        elif others:
            hint = f"a name goes once; the storage is freed when {', '.join(map(repr, others[:3]))} goes too"
        else:
            hint = "the storage is freed already, leave one of the two out"
        return f"at {event.at} {verb} {event.name!r}, which went at {gone.at} already{where}: {hint}"
    if begin is None:
        return f"at {event.at} {verb} {event.name!r}, which nothing allocates{did_you_mean(event.name, begins)}"
    if begin.at == event.at:
        return (
            f"at {event.at} {verb} {event.name!r} at the very instant at which it begins, and {rule} puts this before: "
            "a live interval is half-open, move one of the two"
            + (" or set same_instant = 'allocs-first'" if rule is SameInstant.FREES_FIRST else "")
        )
    return f"at {event.at} {verb} {event.name!r} before it begins at {begin.at}: swap the times"


def _operators(program: Program, doubtful: Collection[str]) -> Iterator[str]:
    yield from _twice(program.operators, "operator")
    names = {storage.name: storage for storage in program.storages}
    known = {operator.name for operator in program.operators}
    for operator in program.operators:
        for verb, used in (("reads", operator.reads), ("writes", operator.writes), ("frees", operator.frees)):
            for name, count in Counter(used).items():
                if name not in names and name not in doubtful:
                    yield _line(operator.place, f"{operator.name!r} {verb} {name!r}, which is no storage{did_you_mean(name, names)}")
                if count > 1:
                    yield _line(operator.place, f"{operator.name!r} {verb} {name!r} {count} times: name it once")
        for name in operator.after:
            if name not in known and name not in doubtful:
                yield _line(operator.place, f"{operator.name!r} is after {name!r}, which is no operator{did_you_mean(name, known)}")
        if not 0 <= operator.duration < LIMIT:
            yield _line(operator.place, f"{operator.name!r} has the duration {operator.duration}: give 0 to 2**63 - 1")
        for size in operator.temporaries:
            if not 0 <= size < LIMIT:
                yield _line(operator.place, f"{operator.name!r} has a temporary of {size} bytes: give 0 to 2**63 - 1")
    steps = 1 if program.steps is None else program.steps
    if steps < 1:
        yield f"[steps]: count is {steps}: give 1 or more"
    if steps * len(program.operators) > MOST_RUNS:
        yield f"[steps]: {steps:,} steps of {len(program.operators):,} operators: at most {MOST_RUNS:,} runs of operators in all"
        return
    if len(known) == len(program.operators):
        yield from _cycles(program, steps)
    yield from _liveness(program, steps, doubtful)


def _cycles(program: Program, steps: int) -> Iterator[str]:
    """Name a cycle in the first step; in the later ones too when it is another."""
    told = set()
    for step in range(1, min(steps, 2) + 1):
        operators = operators_of(program, step)
        cycle = find_cycle(len(operators), edges(program, operators))
        if cycle:
            waits = [f"{operators[e.after].name!r} waits for {operators[e.before].name!r} ({e.why})" for e in cycle]
            told.add(_line(operators[cycle[0].after].place, f"operators wait for each other in a cycle: {', '.join(waits)}"))
    yield from sorted(told)


def _liveness(program: Program, steps: int, doubtful: Collection[str]) -> Iterator[str]:
    """Follow the live names through the operators in program order; from the third step on nothing changes any more."""
    storages = {storage.name: storage for storage in program.storages}
    live = {storage.name for storage in program.storages if storage.lives is Lives.GIVEN}
    told: dict[str, None] = {}
    for step in range(1, min(steps, 3) + 1):
        operators = operators_of(program, step)
        later_writer = {name: operator.name for operator in reversed(operators) for name in operator.writes}
        for operator in operators:
            for name in operator.reads:
                if name in storages and name not in live and name not in doubtful:
                    below = f"; {later_writer[name]!r}, which writes it, stands further down" if name in later_writer else ""
                    told[_line(operator.place, f"{operator.name!r} reads {name!r} before it is written{below}")] = None
            for name in operator.writes:
                target = storages[name].shares if name in storages else None
                if target is not None and name not in live and target in storages and target not in live and target not in doubtful:
                    told[_line(operator.place, f"{operator.name!r} makes {name!r} of {target!r}, which is not live")] = None
                live.add(name)
            for name in operator.frees:
                if name in storages and storages[name].lives is Lives.STEP:
                    text = f"{operator.name!r} frees {name!r}, which goes after its last reader anyway: leave that out"
                    told[_line(operator.place, text)] = None
                elif name in storages and name not in live and name not in doubtful:
                    told[_line(operator.place, f"{operator.name!r} frees {name!r}, which is not live (double free, or never written)")] = (
                        None
                    )
                live.discard(name)
        live = {name for name in live if name in storages and storages[name].lives is not Lives.STEP}
    yield from told
