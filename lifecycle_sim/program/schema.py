"""What a scenario's tables may hold, and the reader that checks a table against it and keeps going after a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.events import Category, Clock
from lifecycle_sim.program.expressions import did_you_mean, evaluate, evaluate_size, evaluate_time, fill
from lifecycle_sim.program.graph import CapacityMode, InSteps, Lives, SameInstant
from lifecycle_sim.program.places import Lines, Place
from lifecycle_sim.spelling import closest

Names = Mapping[str, int]


@dataclass(frozen=True)
class Key:
    """One key of a table: how its value is read, whether it must be there, the words it may be, and what stands in for a bad value."""

    read: Callable[[Any, Names], Any]
    required: bool = False
    words: tuple[str, ...] = ()
    neutral: Any = None


def _expect(value: Any, types: type | tuple[type, ...], what: str) -> None:
    if not isinstance(value, types) or isinstance(value, bool):
        raise ScenarioError(f"{value!r} is not {what}")


def _text(value: Any, names: Names) -> str:
    _expect(value, str, "a text in quotes")
    filled = fill(value, names).strip()
    if not filled:
        raise ScenarioError("is empty: write a name")
    return filled


def _texts(value: Any, names: Names) -> tuple[str, ...]:
    _expect(value, list, 'a list of names, such as ["a", "b"]')
    return tuple(_text(item, names) for item in value)


def _size(value: Any, names: Names) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ScenarioError(f"{value} has no unit: write for example '{value} B' or '{value} MiB'")
    _expect(value, str, "a size in quotes, such as '4 MiB'")
    return evaluate_size(value, names)


def _sizes(value: Any, names: Names) -> tuple[int, ...]:
    _expect(value, list, 'a list of sizes, such as ["4 MiB"]')
    return tuple(_size(item, names) for item in value)


def _time(value: Any, names: Names) -> tuple[int, Clock]:
    _expect(value, (int, str), "a number of ticks or a duration in quotes, such as 3 or '1.5 ms'")
    return evaluate_time(value, names)


def _count(value: Any, names: Names) -> int:
    _expect(value, (int, str), "a whole number or an expression in quotes, such as 3 or 'layers + 1'")
    count = value if isinstance(value, int) else evaluate(value, names)
    if count < 1:
        raise ScenarioError(f"{value!r} is {count}: give 1 or more" if isinstance(value, str) else f"{value} is too few: give 1 or more")
    return count


def _words(words: type[StrEnum]) -> tuple[str, ...]:
    return tuple(word.value for word in words)


SIZE = Key(_size, neutral=0)
CATEGORY = Key(_text, words=tuple(category.word for category in Category))
REPEAT = Key(_count)
ROWS: dict[str, dict[str, Key]] = {
    "stream": {"name": Key(_text, required=True), "repeat": REPEAT},
    "storage": {
        "name": Key(_text, required=True),
        "size": SIZE,
        "category": CATEGORY,
        "owner": Key(_text),
        "lives": Key(_text, words=_words(Lives)),
        "shares": Key(_text),
        "repeat": REPEAT,
    },
    "event": {
        "at": Key(_time, required=True),
        "alloc": Key(_text),
        "free": Key(_text),
        "share": Key(_text),
        "as": Key(_text),
        "size": SIZE,
        "category": CATEGORY,
        "owner": Key(_text),
        "stream": Key(_text),
        "repeat": REPEAT,
    },
    "operator": {
        "name": Key(_text, required=True),
        "duration": Key(_time, required=True),
        "stream": Key(_text),
        "reads": Key(_texts),
        "writes": Key(_texts),
        "frees": Key(_texts),
        "temporaries": Key(_sizes),
        "phase": Key(_text, words=("forward", "backward", "optimizer")),
        "after": Key(_texts),
        "steps": Key(_text, words=_words(InSteps)),
        "repeat": REPEAT,
    },
}
"""The tables that come in any number, as ``[[table]]``."""
CAPACITY = {"size": Key(_size, required=True), "mode": Key(_text, words=_words(CapacityMode))}
STEPS = {"count": Key(_count, required=True)}
SETTINGS = {
    "title": Key(_text),
    "device": Key(_text),
    "same_instant": Key(_text, words=_words(SameInstant)),
    "horizon": Key(_time),
    "recompute": Key(_texts),
}
"""The keys above all tables, beside ``capacity``, which is a size or a table."""
HARMLESS = {
    "title",
    "device",
    "size",
    "category",
    "owner",
    "phase",
    "temporaries",
    "duration",
    "capacity",
    "mode",
    "horizon",
    "same_instant",
}
"""Keys whose value no other check rests on: with one of them amiss, what happens in the scenario can still be checked.

``same_instant`` is one of them for operators; the order of events at known times rests on it.
"""
TOP = (*SETTINGS, "capacity", "parameters", "steps", *ROWS)


@dataclass
class Reader:
    """Reads tables by their keys and collects every problem with its line.

    Attributes:
        lines: finds the lines.
        problems: what was wrong so far.
        incomplete: whether something is missing on which all other checks rest, such as a parameter or a storage's name.
        doubtful: the names in rows that lack something on which the checks of these names rest: a time, or what an event does.
        broken: those rows.
    """

    lines: Lines
    problems: list[str] = field(default_factory=list)
    incomplete: bool = False
    doubtful: set[str] = field(default_factory=set)
    broken: set[Place] = field(default_factory=set)

    def problem(self, place: Place, key: str, text: str) -> None:
        """Note *text* about *key* of the row at *place*."""
        line = self.lines.key(key, place.line) if key and (place.line or not place.table) else place.line
        where = str(place._replace(line=line))
        self.problems.append(": ".join(part for part in (where, key, text) if part))

    def missing(self, place: Place, key: str) -> None:
        """Note that the row at *place* has no *key*."""
        self.problem(place, "", f"{key} is missing")
        self.incomplete |= key not in HARMLESS

    def unknown(self, raw: Mapping[str, Any], known: Mapping[str, Any] | tuple[str, ...], place: Place) -> None:
        """Note every key of *raw* that is not *known*."""
        for key in raw:
            if key not in known:
                meant = closest(key, known)
                hint = f"; did you mean {meant!r}?" if meant else f": known are {', '.join(known)}"
                self.problem(place, key, f"unknown key{hint}")
                self.incomplete |= bool(meant) and meant not in HARMLESS

    def value(self, key: str, raw: Any, spec: Key, place: Place, names: Names) -> Any:
        """Return the value of one key, or its stand-in where it cannot be read."""
        try:
            value = spec.read(raw, names)
            if spec.words and value not in spec.words:
                raise ScenarioError(f"{value!r} is not one of {', '.join(spec.words)}{did_you_mean(value, spec.words)}")
        except ScenarioError as error:
            for text in error.problems:
                self.problem(place, key, text)
            self.incomplete |= key not in HARMLESS
            return spec.neutral
        return value

    def row(self, raw: Mapping[str, Any], table: str, place: Place, names: Names) -> dict[str, Any]:
        """Return the values of a row of ``[[table]]``; one that lacks what checks rest on makes the names in it doubtful, not all."""
        before, self.incomplete = self.incomplete, False
        values = self.table(raw, ROWS[table], place, names)
        if self.incomplete and (table == "event" or "name" in values):
            self.doubt(raw, place, names)
            self.incomplete = before
        else:
            self.incomplete |= before
        return values

    def doubt(self, raw: Mapping[str, Any], place: Place, names: Names) -> None:
        """Take no name in the row at *place* for checked."""
        self.broken.add(place)
        for value in raw.values():
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str):
                    with suppress(ScenarioError):
                        self.doubtful.add(fill(text, names).strip())

    def table(self, raw: Mapping[str, Any], keys: Mapping[str, Key], place: Place, names: Names) -> dict[str, Any]:
        """Return the values of the keys of *raw* that can be read; note the ones that cannot, are missing or are unknown."""
        self.unknown(raw, keys, place)
        values = {key: self.value(key, raw[key], spec, place, names) for key, spec in keys.items() if key in raw}
        for key, spec in keys.items():
            if spec.required and key not in raw:
                self.missing(place, key)
        return {key: value for key, value in values.items() if value is not None}
