"""Reads a line from a scenario. Every problem is found before anything runs, and all are told at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.events import Clock
from lifecycle_sim.program.places import Lines, Place
from lifecycle_sim.program.scenario import LOOP, line_number, parsed, read_parameters, scenario_text
from lifecycle_sim.program.schema import Key, Reader
from lifecycle_sim.study.pipeline import line_keys
from lifecycle_sim.study.pipeline.line import (
    NO_TIME,
    Arrivals,
    InputUntil,
    ItemKind,
    Line,
    LineCapacity,
    Order,
    OutputFrom,
    Per,
    SetUp,
    Stage,
    WhenFull,
)
from lifecycle_sim.study.pipeline.line_check import line_problems
from lifecycle_sim.study.pipeline.line_edits import Edit, edited, tables

MOST_ROWS = 10_000
_Row = tuple[Place, dict[str, Any]]
_TIMED = ("time", "setup", "breakdown", "transport", "every", "start", "at", "times", "warmup", "horizon")


def load_line(scenario: str | PathLike[str], parameters: Mapping[str, int] | None = None, edits: Iterable[Edit] = ()) -> Line:
    """Return the line that *scenario* describes.

    Args:
        scenario: path of a TOML file with ``[[stage]]`` tables; a text with a line break is taken as the TOML itself.
        parameters: values that replace those of the scenario's ``[parameters]``.
        edits: what to change first, see :func:`~lifecycle_sim.study.pipeline.line_edits.read_edits`.

    Raises:
        ScenarioError: the scenario cannot be read or has problems; ``problems`` lists all of them.
    """
    text, source = scenario_text(scenario)
    return line_of(text, source, parameters or {}, tuple(edits))


def line_of(text: str, source: str, parameters: Mapping[str, int], edits: tuple[Edit, ...] = ()) -> Line:
    """Return the line that the TOML *text* describes; see :func:`load_line`."""
    document, given = edited(parsed(text, source), edits, parameters)
    if "stage" not in document:
        if "operator" in document or "event" in document:
            raise ScenarioError(f"{source} has no [[stage]]: it is a scenario of operators or events, ask lifecycle-sim run about it")
        raise ScenarioError(f'{source} has no [[stage]]: write one for each stage, such as [[stage]], name = "cut", time = 3')
    reader = Reader(Lines(text, document))
    reader.unknown(document, line_keys.TOP, Place())
    names = read_parameters(reader, document.get("parameters", {}), given)
    sure = not reader.incomplete
    settings = {key: reader.value(key, document[key], spec, Place(), names) for key, spec in line_keys.SETTINGS.items() if key in document}
    unit = settings.get("unit")
    stage_rows = list(_rows(reader, document, "stage", line_keys.stage_keys(unit), names))
    item_rows = list(_rows(reader, document, "item", line_keys.item_keys(unit), names))
    clock = _clock(reader, [*stage_rows, *item_rows, (Place(), settings)])
    stages = tuple(_stage(place, row) for place, row in stage_rows if "name" in row)
    sure &= len(stages) == len(stage_rows) > 0
    size, mode = _capacity(reader, document, unit, names)
    if (
        mode is LineCapacity.BLOCK
        and size is None
        and not any("capacity" in row for row in tables(document, "stage"))
        and not reader.problems
    ):
        reader.problem(
            Place("capacity"), "mode", "blocks nothing, for neither the line nor a stage has a capacity: write size, or leave it out"
        )
    line = Line(
        stages=stages,
        kinds=tuple(_kinds(reader, item_rows, stages, document)),
        unit=_unit(unit, document, size),
        capacity=size,
        mode=mode,
        clock=clock,
        seed=settings.get("seed") or 0,
        replications=settings.get("replications") or 1,
        warmup=_time(settings, "warmup") or 0,
        horizon=_time(settings, "horizon"),
        title=settings.get("title") or "",
        parameters=names,
        source=source,
    )
    found = list(dict.fromkeys(reader.problems + (line_problems(line) if sure else [])))
    if found:
        raise ScenarioError(sorted(found, key=line_number))
    return line


def _rows(reader: Reader, document: Mapping[str, Any], table: str, keys: Mapping[str, Key], names: Mapping[str, int]) -> Iterator[_Row]:
    """Yield the rows of ``[[table]]``, those with ``repeat`` as often as they say."""
    raw = document.get(table, [])
    if not isinstance(raw, list) or not all(isinstance(row, dict) for row in raw):
        reader.problem(Place(), table, f"write each one as a table of its own, [[{table}]]")
        reader.incomplete = True
        return
    made = 0
    for number, row in enumerate(raw, start=1):
        place = Place(table, number, reader.lines.row(table, number))
        turns = reader.value("repeat", row["repeat"], keys["repeat"], place, names) if "repeat" in row else None
        made += turns or 1
        if made > MOST_ROWS:
            reader.problem(place, "repeat", f"makes {made:,} tables: at most {MOST_ROWS:,} in all")
            reader.incomplete = True
            return
        for turn in range(turns or 1):
            before = len(reader.problems)
            here = place if turns is None else place._replace(turn=turn)
            yield here, reader.table(row, keys, here, names if turns is None else {**names, LOOP: turn})
            if len(reader.problems) > before:
                break


def _time(row: Mapping[str, Any], key: str) -> Any:
    """The time at *key*, which was read together with its clock; None if there is none."""
    return row[key][0] if row.get(key) is not None else None


def _stage(place: Place, row: Mapping[str, Any]) -> Stage:
    return Stage(
        name=row["name"],
        time=_time(row, "time") or NO_TIME,
        machines=row.get("machines", 1),
        buffer=row.get("buffer"),
        batch=row.get("batch", 1),
        per=Per(row.get("per", Per.BATCH)),
        setup=_time(row, "setup") or NO_TIME,
        setup_when=SetUp(row.get("setup_when", SetUp.BATCH)),
        breakdown=_time(row, "breakdown"),
        transport=_time(row, "transport") or NO_TIME,
        order=Order(row.get("order", Order.FIFO)),
        output=row.get("output"),
        output_from=OutputFrom(row.get("output_from", OutputFrom.DONE)),
        input_until=InputUntil(row.get("input_until", InputUntil.DONE)),
        capacity=row.get("capacity"),
        place=place,
    )


def _kinds(reader: Reader, rows: Iterable[_Row], stages: tuple[Stage, ...], document: Mapping[str, Any]) -> Iterator[ItemKind]:
    own = any("size" in row for row in tables(document, "item"))
    sized = own or "unit" in document or any(stage.output is not None for stage in stages)
    for place, row in rows:
        explicit = _time(row, "at")
        arrivals = Arrivals(row.get("arrivals", Arrivals.BURST if explicit is None else Arrivals.EXPLICIT))
        needs = {Arrivals.EVEN: "every", Arrivals.POISSON: "every", Arrivals.DRAWN: "every", Arrivals.EXPLICIT: "at"}.get(arrivals)
        raw = document["item"][place.row - 1]
        if needs is not None and needs not in raw:
            reader.problem(place, "", f"{needs} is missing: arrivals = {arrivals.value!r} needs it")
        for key, of in (("every", (Arrivals.EVEN, Arrivals.POISSON, Arrivals.DRAWN)), ("at", (Arrivals.EXPLICIT,))):
            if key in row and arrivals not in of and ("arrivals" in row or "arrivals" not in raw):
                reader.problem(
                    place, key, f"is of no meaning with arrivals = {arrivals.value!r}: leave it out, or choose {' or '.join(of)}"
                )
        if explicit is not None and row.get("count", len(explicit)) != len(explicit):
            reader.problem(place, "count", f"{row['count']} items, but at lists {len(explicit)} times: leave count out")
        if sized and "size" not in row:
            reader.problem(place, "", "size is missing: what one item occupies when it enters")
        yield ItemKind(
            name=row.get("name", "item"),
            count=row.get("count", 1) if explicit is None else len(explicit),
            route=row.get("route", tuple(stage.name for stage in stages)),
            arrivals=arrivals,
            every=_time(row, "every") or NO_TIME,
            start=_time(row, "start") or 0,
            at=explicit or (),
            size=row.get("size", 0 if sized else 1),
            outputs=row.get("outputs") or {},
            times=_time(row, "times") or {},
            when_full=WhenFull(row.get("when_full", WhenFull.WAIT)),
            priority=row.get("priority", 0),
            place=place,
        )


def _clock(reader: Reader, rows: Iterable[_Row]) -> Clock:
    """Return what times count: ticks or nanoseconds, not both."""
    first: dict[Clock, tuple[Place, str]] = {}
    for place, row in rows:
        for key in _TIMED:
            if row.get(key) is not None:
                for clock in sorted(row[key][1]):
                    first.setdefault(clock, (place, key))
    if len(first) > 1:
        (place, key), (other, at) = first[Clock.TICKS], first[Clock.NANOSECONDS]
        where = ", ".join(part for part in (str(other), at) if part)
        reader.problem(place, key, f"counts ticks, but {where} counts seconds: give every time a unit such as 'ms', or none")
    return Clock.NANOSECONDS if Clock.NANOSECONDS in first else Clock.TICKS


def _capacity(reader: Reader, document: Mapping[str, Any], unit: str | None, names: Mapping[str, int]) -> tuple[int | None, LineCapacity]:
    """Read ``capacity = "16 GiB"``, a line to compare with, or ``[capacity]`` with a size and a mode."""
    raw, keys = document.get("capacity"), line_keys.capacity_keys(unit)
    if raw is None:
        return None, LineCapacity.LINE
    if not isinstance(raw, dict):
        return reader.value("capacity", raw, keys["size"], Place(), names), LineCapacity.LINE
    row = reader.table(raw, keys, Place("capacity", 0, reader.lines.row("capacity", 1)), names)
    return row.get("size"), LineCapacity(row.get("mode", LineCapacity.LINE))


def _unit(unit: str | None, document: Mapping[str, Any], capacity: int | None) -> str:
    """What sizes count: what the scenario says; bytes where anything has a size, else items."""
    rows = [row for table in ("item", "stage") for row in tables(document, table)]
    sized = capacity is not None or any(key in row for row in rows for key in ("size", "output", "outputs", "capacity"))
    return unit or ("B" if sized else "item")
