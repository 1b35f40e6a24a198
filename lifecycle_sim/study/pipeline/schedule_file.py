"""Reads what the layers of a model take from a TOML file. Every problem is found before anything runs, and all are told at once."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.events import Basis, Clock
from lifecycle_sim.program.places import Lines, Place
from lifecycle_sim.program.scenario import LOOP, line_number, parsed, read_parameters, scenario_text
from lifecycle_sim.program.schema import CAPACITY, REPEAT, ROWS, SETTINGS, SIZE, Key, Reader
from lifecycle_sim.study.pipeline.schedule_costs import BYTES, TIMES, Layer, Model

_TIME = Key(ROWS["operator"]["duration"].read, required=True)
LAYER = {
    "name": SETTINGS["title"],
    "repeat": REPEAT,
    **dict.fromkeys(TIMES, _TIME),
    **dict.fromkeys(BYTES, SIZE),
}
TOP = {"title": SETTINGS["title"], "capacity": CAPACITY["size"], "communication": Key(_TIME.read), "resident": SIZE}
MOST_LAYERS = 100_000


def load_layers(file: str | PathLike[str], parameters: Mapping[str, int] | None = None) -> Model:
    """Return the layers that *file* describes.

    Args:
        file: path of a TOML file with ``[[layer]]`` tables; a text with a line break is taken as the TOML itself.
        parameters: values that replace those of the file's ``[parameters]``.

    Raises:
        ScenarioError: the file cannot be read or has problems; ``problems`` lists all of them.
    """
    text, source = scenario_text(file)
    document = parsed(text, source)
    if "layer" not in document:
        raise ScenarioError(f"{source} has no [[layer]]: write one for each layer of the model, with its times and sizes")
    reader = Reader(Lines(text, document))
    reader.unknown(document, (*TOP, "parameters", "layer"), Place())
    names = read_parameters(reader, document.get("parameters", {}), parameters or {})
    top = {key: reader.value(key, document[key], spec, Place(), names) for key, spec in TOP.items() if key in document}
    rows = _rows(reader, document["layer"], names)
    timed = [(place, key, row[key]) for place, row in rows for key in TIMES if key in row]
    if top.get("communication") is not None:
        timed.append((Place(), "communication", top["communication"]))
    clock = _clock(reader, timed)
    if reader.problems:
        raise ScenarioError(sorted(dict.fromkeys(reader.problems), key=line_number))
    layers = tuple(_layer(row) for _, row in rows)
    sized = any(getattr(layer, key) for layer in layers for key in BYTES)
    return Model(
        layers,
        resident=top.get("resident") or 0,
        communication=top["communication"][0] if "communication" in top else 0,
        clock=clock,
        basis=Basis.PAYLOAD if sized or "resident" in top else None,
        title=top.get("title") or source,
        capacity=top.get("capacity"),
    )


def _rows(reader: Reader, raw: Any, names: Mapping[str, int]) -> list[tuple[Place, dict[str, Any]]]:
    """The values of each ``[[layer]]``, those with ``repeat`` as often as they say."""
    if not isinstance(raw, list) or not all(isinstance(row, dict) for row in raw) or not raw:
        reader.problem(Place(), "layer", "write each one as a table of its own, [[layer]]")
        return []
    made: list[tuple[Place, dict[str, Any]]] = []
    for number, row in enumerate(raw, start=1):
        place = Place("layer", number, reader.lines.row("layer", number))
        turns = reader.value("repeat", row["repeat"], REPEAT, place, names) if "repeat" in row else None
        if len(made) + (turns or 1) > MOST_LAYERS:
            reader.problem(place, "repeat", f"makes {len(made) + (turns or 1):,} layers: at most {MOST_LAYERS:,}")
            return made
        for turn in range(turns or 1):
            before = len(reader.problems)
            here = place if turns is None else place._replace(turn=turn)
            values = reader.table(row, LAYER, here, names if turns is None else {**names, LOOP: turn})
            made.append((here, {"name": f"layer {len(made)}"} | values))
            if len(reader.problems) > before:
                break
    return made


def _layer(row: Mapping[str, Any]) -> Layer:
    times = {key: row[key][0] for key in TIMES}
    return Layer(**times, **{key: row[key] for key in BYTES if key in row}, name=row["name"])


def _clock(reader: Reader, timed: list[tuple[Place, str, tuple[int, Clock]]]) -> Clock:
    """What times count: ticks or nanoseconds, not both."""
    first: dict[Clock, tuple[Place, str]] = {}
    for place, key, (_, clock) in timed:
        first.setdefault(clock, (place, key))
    if Clock.TICKS in first and Clock.NANOSECONDS in first:
        place, key = first[Clock.TICKS]
        other, at = first[Clock.NANOSECONDS]
        where = f"{other}, {at}" if str(other) else at
        reader.problem(place, key, f"counts ticks, but {where} counts seconds: give every time a unit such as 'ms', or none")
    return Clock.NANOSECONDS if Clock.NANOSECONDS in first else Clock.TICKS
