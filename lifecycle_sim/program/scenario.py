"""Scenarios: TOML files that say what a Program is. Every problem is found before anything runs, and all are told at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

from lifecycle_sim.errors import InputError, ScenarioError
from lifecycle_sim.events import Category, Clock, Kind, Trace
from lifecycle_sim.program import schema
from lifecycle_sim.program.check import problems
from lifecycle_sim.program.engine import run
from lifecycle_sim.program.expressions import FUNCTIONS, LIMIT, TICK_UNITS, did_you_mean, evaluate
from lifecycle_sim.program.graph import (
    DEFAULT_STREAM,
    Capacity,
    CapacityMode,
    InSteps,
    Lives,
    Operator,
    PlannedEvent,
    Program,
    SameInstant,
    Storage,
)
from lifecycle_sim.program.places import Lines, Place
from lifecycle_sim.program.recompute import recomputed
from lifecycle_sim.program.schema import Reader
from lifecycle_sim.spelling import closest
from lifecycle_sim.units import BYTE_UNITS, TIME_UNITS

LOOP = "i"
"""The name that counts the turns of a repeated table, from 0."""
MOST_ROWS = 1_000_000
"""The most rows that all repeats of a scenario may make together."""
LARGEST = 64 << 20
"""The most bytes that a scenario may have; ``/dev/zero`` has more."""

_CATEGORIES = {category.word: category for category in Category}
_VERBS = {"alloc": Kind.ALLOC, "free": Kind.FREE, "share": Kind.SHARE}
_BELONGS = {"as": "share", "size": "alloc", "category": "alloc", "owner": "alloc", "stream": "alloc"}
_Row = tuple[Place, dict[str, Any]]


def run_scenario(scenario: str | PathLike[str], parameters: Mapping[str, int] | None = None) -> Trace:
    """Load *scenario* and run it: :func:`load_scenario`, then :func:`~lifecycle_sim.program.engine.run`."""
    return run(load_scenario(scenario, parameters))


NO_TEXT = "it is not UTF-8 text, so it is no scenario; a recording is read with read_trace, or with peak on the command line"


def load_scenario(scenario: str | PathLike[str], parameters: Mapping[str, int] | None = None) -> Program:
    """Return the Program that *scenario* describes.

    Args:
        scenario: path of a TOML file; a text with a line break is taken as the TOML itself.
        parameters: values that replace those of the scenario's ``[parameters]``.

    Raises:
        ScenarioError: the scenario cannot be read or has problems; ``problems`` lists all of them.
    """
    text, source = scenario_text(scenario)
    return program_of(text, source, parameters or {})


def scenario_text(scenario: str | PathLike[str]) -> tuple[str, str]:
    """Return the text of *scenario*, a path or the text itself, and what to call it.

    Raises:
        ScenarioError: the file cannot be read.
    """
    if isinstance(scenario, str) and "\n" in scenario:
        return scenario, "scenario"
    path = Path(scenario)
    try:
        with path.open("rb") as file:
            return file.read(LARGEST + 1).decode("utf-8-sig"), path.name
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else NO_TEXT
        raise ScenarioError(f"cannot read the scenario {str(path)!r}: {reason}") from None


def parsed(text: str, source: str) -> dict[str, Any]:
    """Return the tables of the scenario *text*, which is called *source*.

    Raises:
        ScenarioError: it is too large, or no TOML.
    """
    if len(text) > LARGEST:
        raise ScenarioError(f"{source} is larger than {LARGEST >> 20} MiB, which no scenario is: use repeat for what recurs")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ScenarioError(f"{source} is nested too deeply to be a scenario") from None
    except ValueError as error:
        raise ScenarioError(f"{source} is not TOML: {error}{_hint(text, str(error))}") from None


def program_of(text: str, source: str, given: Mapping[str, int]) -> Program:
    """Return the Program that the TOML *text*, which is called *source*, describes; see :func:`load_scenario`."""
    document = parsed(text, source)
    if "stage" in document:
        raise ScenarioError(f"{source} has [[stage]] tables: it is a line, ask lifecycle-sim line about it, or load_line in Python")
    reader = Reader(Lines(text, document))
    reader.unknown(document, schema.TOP, Place())
    names = read_parameters(reader, document.get("parameters", {}), given)
    settings = {key: reader.value(key, document[key], spec, Place(), names) for key, spec in schema.SETTINGS.items() if key in document}
    rows = {table: list(_rows(reader, document, table, names)) for table in schema.ROWS}
    reader.incomplete |= bool(rows["event"]) and _rule_is_amiss(document, settings)
    storages = []
    for place, row in rows["storage"]:
        if "name" in row:
            storages.append(_storage(reader, place, row))
            if not row.keys() & {"size", "shares"}:
                reader.missing(place, "size")
    events, declared = _events(reader, rows["event"])
    program = Program(
        storages=(*storages, *declared),
        events=tuple(events),
        operators=tuple(_operators(rows["operator"])),
        streams=tuple(row["name"] for _, row in rows["stream"] if "name" in row) or (DEFAULT_STREAM,),
        steps=_steps(reader, document, names),
        clock=_clock(reader, rows["event"] + rows["operator"], settings.get("horizon")),
        same_instant=SameInstant(settings.get("same_instant") or SameInstant.FREES_FIRST),
        capacity=_capacity(reader, document, names),
        device=settings.get("device") or "device",
        horizon=horizon[0] if (horizon := settings.get("horizon")) else None,
        title=settings.get("title") or "",
        parameters=names,
        source=source,
    )
    found = reader.problems + ([] if reader.incomplete else problems(program, reader.doubtful))
    if not found and settings.get("recompute"):
        try:
            return recomputed(program, settings["recompute"])
        except InputError as error:
            for problem in error.problems:
                reader.problem(Place(), "recompute", problem.removeprefix("recompute "))
            found = reader.problems
    if found:
        found = sorted(dict.fromkeys(found), key=line_number)
        raise ScenarioError([*_cause(text, source, given), *found] if len(found) > 1 else found)
    return program


def _rule_is_amiss(document: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether ``same_instant`` is there, but misspelt or with no rule that is known."""
    misspelt = any(closest(key, schema.TOP) == "same_instant" for key in document.keys() - set(schema.TOP))
    return misspelt or ("same_instant" in settings and settings["same_instant"] is None)


def _cause(text: str, source: str, given: Mapping[str, int]) -> Iterator[str]:
    """Say so if it is the parameters *given* that make the problems: the scenario has none with its own."""
    own = tomllib.loads(text).get("parameters", {})
    if not given or not isinstance(own, dict) or not given.keys() <= own.keys():
        return
    with suppress(ScenarioError):
        program_of(text, source, {})
        values = ", ".join(f"{name} = {value}" for name, value in given.items())
        yield f"the problems below come with {values}: with its own {', '.join(given)} the scenario has none"


def _hint(text: str, error: str) -> str:
    """Say what to do if *text* is no scenario at all, or *error* is met in a table in braces that goes on in the next line."""
    if text.lstrip().startswith(("{", "[{", "<", "id,")):
        return "; it looks like a recording, which is read with read_trace, or with peak on the command line"
    found = re.search(r"line (\d+), column (\d+)", error)
    if found is None:
        return ""
    lines = text.splitlines(keepends=True)[: int(found[1])]
    read = "".join(lines[:-1]) + lines[-1][: int(found[2])] if lines else ""
    inside = read[read.rfind("{") :] if "{" in read else ""
    goes_on = "\n" in inside and "}" not in inside
    return "; a table in braces stands on one line: write [[event]] and a line for each key to have more room" if goes_on else ""


def line_number(problem: str) -> int:
    """Return the line that *problem* names, 0 if none: what problems are sorted by."""
    match = re.match(r"line (\d+)", problem)
    return int(match[1]) if match else 0


def read_parameters(reader: Reader, raw: Any, given: Mapping[str, int]) -> dict[str, int]:
    """Read ``[parameters]``: integers, or expressions over the parameters above them; *given* replaces some."""
    names: dict[str, int] = {}
    place = Place("parameters", 0, reader.lines.row("parameters", 1))
    if not isinstance(raw, dict):
        reader.problem(Place(), "parameters", "is not a table: write [parameters] with lines such as batch = 4")
        raw = {}
    for name, value in raw.items():
        if not name.isidentifier() or not name.isascii():
            reader.problem(place, name, f"{name!r} cannot stand in an expression: use letters, digits and _")
        elif name in (LOOP, *FUNCTIONS, *TICK_UNITS, *BYTE_UNITS, *TIME_UNITS):
            meaning = "counts repeats" if name == LOOP else "is a function" if name in FUNCTIONS else "is a unit"
            reader.problem(place, name, f"{name!r} {meaning}: use a longer name")
        value = given.get(name, value)
        try:
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise ScenarioError(f"{value!r} is not a whole number")
            names[name] = evaluate(value, names) if isinstance(value, str) else value
            if abs(names[name]) >= LIMIT:
                raise ScenarioError(f"{name!r} is 2**63 or more: too large")
        except ScenarioError as error:
            names[name] = 1
            reader.incomplete = True
            for text in error.problems:
                reader.problem(place, name, text)
    for name in given:
        if name not in raw:
            known = f": the scenario has {', '.join(raw)}" if raw else ": the scenario has none"
            reader.problems.append(f"unknown parameter {name!r}{did_you_mean(name, raw) or known}")
    return names


def _rows(reader: Reader, document: Mapping[str, Any], table: str, names: Mapping[str, int]) -> Iterator[_Row]:
    """Yield the rows of ``[[table]]`` in order, repeats unrolled: neighbours with the same ``repeat`` are one loop's body."""
    raw = document.get(table, [])
    if not isinstance(raw, list) or not all(isinstance(row, dict) for row in raw):
        reader.problem(Place(), table, f"write each one as a table of its own, [[{table}]]")
        reader.incomplete = True
        return
    numbered = [(Place(table, number, reader.lines.row(table, number)), row) for number, row in enumerate(raw, start=1)]
    made = 0
    for repeat, group in groupby(numbered, key=lambda item: item[1].get("repeat")):
        body = list(group)
        turns = 1 if repeat is None else reader.value("repeat", repeat, schema.REPEAT, body[0][0], names)
        made += (turns or 0) * len(body)
        if turns is None or made > MOST_ROWS:
            if turns is not None:
                reader.problem(body[0][0], "repeat", f"makes {made:,} rows: at most {MOST_ROWS:,} in all")
            reader.incomplete = True
            return
        told: set[int] = set()
        for turn in range(turns):
            scope = names if repeat is None else {**names, LOOP: turn}
            for place, row in body:
                here = place if repeat is None else place._replace(turn=turn)
                before = len(reader.problems)
                values = reader.row(row, table, here, scope)
                if len(reader.problems) > before and place.row in told:
                    del reader.problems[before:]
                elif len(reader.problems) > before:
                    told.add(place.row)
                yield here, values


def _storage(reader: Reader, place: Place, row: Mapping[str, Any]) -> Storage:
    if "size" in row and "shares" in row:
        reader.problem(place, "shares", f"{row['name']!r} has a size of its own too: a further name adds no bytes, leave one of them out")
    return Storage(
        name=row["name"],
        size=row.get("size", 0),
        category=_CATEGORIES[row.get("category", "unknown")],
        owner=row.get("owner"),
        lives=Lives(row.get("lives", Lives.STEP)),
        shares=row.get("shares"),
        place=place,
    )


def _events(reader: Reader, rows: Iterable[_Row]) -> tuple[list[PlannedEvent], list[Storage]]:
    """Return the planned events, and the storages that allocations with a size declare."""
    events: list[PlannedEvent] = []
    storages: list[Storage] = []
    for place, row in rows:
        verbs = [verb for verb in _VERBS if verb in row]
        if len(verbs) != 1:
            if place not in reader.broken:
                reader.problem(place, "", f"{' and '.join(verbs) or 'no verb'} in one event: give exactly one of {', '.join(_VERBS)}")
            reader.doubt(row, place, {})
            continue
        verb = verbs[0]
        for key, belongs in _BELONGS.items():
            if key in row and verb != belongs:
                reader.problem(place, key, f"belongs to {belongs}, not to {verb}: leave it out")
        if verb == "share" and "as" not in row:
            reader.problem(place, "", "as is missing: the further name that share gives")
            reader.doubt(row, place, {})
        if verb == "alloc" and "size" in row:
            storages.append(_storage(reader, place, {**row, "name": row["alloc"]}))
        elif verb == "alloc" and ("category" in row or "owner" in row):
            reader.problem(place, "", "category and owner stand where the size stands: move them there")
        if "at" in row:
            stream = row.get("stream", DEFAULT_STREAM)
            events.append(PlannedEvent(row["at"][0], _VERBS[verb], row[verb], row.get("as"), stream, place))
    return events, storages


def _operators(rows: Iterable[_Row]) -> list[Operator]:
    lists = ("reads", "writes", "frees", "temporaries", "after")
    return [
        Operator(
            name=row["name"],
            duration=row.get("duration", (0,))[0],
            stream=row.get("stream", DEFAULT_STREAM),
            phase=row.get("phase"),
            steps=InSteps(row.get("steps", InSteps.ALL)),
            place=place,
            **{key: row.get(key, ()) for key in lists},
        )
        for place, row in rows
        if "name" in row
    ]


def _clock(reader: Reader, rows: Iterable[_Row], horizon: tuple[int, Clock] | None) -> Clock:
    """Return what times count; a scenario counts either ticks or nanoseconds. Events on both clocks have no order to check."""
    first: dict[Clock, Place] = {}
    for place, row in rows:
        _, clock = row.get("at") or row.get("duration") or (0, Clock.NONE)
        first.setdefault(clock, place)
    mend = "give every time a unit such as 'ms', or none"
    if Clock.TICKS in first and Clock.NANOSECONDS in first:
        reader.problem(first[Clock.TICKS], "", f"counts ticks, but {first[Clock.NANOSECONDS]} counts seconds: {mend}")
        reader.incomplete |= any("at" in row for _, row in rows)
    elif horizon is not None and (other := {Clock.TICKS: Clock.NANOSECONDS, Clock.NANOSECONDS: Clock.TICKS}.get(horizon[1])) in first:
        counts = {Clock.TICKS: "ticks", Clock.NANOSECONDS: "seconds"}
        reader.problem(Place(), "horizon", f"counts {counts[horizon[1]]}, but {first[other]} counts {counts[other]}: {mend}")
    return Clock.NANOSECONDS if Clock.NANOSECONDS in first else Clock.TICKS


def _capacity(reader: Reader, document: Mapping[str, Any], names: Mapping[str, int]) -> Capacity | None:
    """Read ``capacity = "16 GiB"``, a line, or ``[capacity]`` with a size and a mode."""
    raw = document.get("capacity")
    if raw is None:
        return None
    if not isinstance(raw, dict):
        size = reader.value("capacity", raw, schema.CAPACITY["size"], Place(), names)
        return None if size is None else Capacity(size)
    row = reader.table(raw, schema.CAPACITY, Place("capacity", 0, reader.lines.row("capacity", 1)), names)
    return Capacity(row["size"], CapacityMode(row.get("mode", CapacityMode.LINE))) if "size" in row else None


def _steps(reader: Reader, document: Mapping[str, Any], names: Mapping[str, int]) -> int | None:
    raw = document.get("steps")
    if raw is None:
        return None
    if not isinstance(raw, dict):
        reader.problem(Place(), "steps", "is not a table: write [steps] with a line such as count = 3")
        return None
    row = reader.table(raw, schema.STEPS, Place("steps", 0, reader.lines.row("steps", 1)), names)
    count: int | None = row.get("count")
    return count
