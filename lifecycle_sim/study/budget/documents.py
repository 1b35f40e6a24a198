"""Reads TOML files of numbers: every problem is found, and each is told in a line of its own."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lifecycle_sim.errors import InputError, ScenarioError
from lifecycle_sim.program.places import Lines, Place
from lifecycle_sim.program.schema import Key, Reader
from lifecycle_sim.units import MOST_COUNTED, parse_bytes, parse_count, parse_duration

LARGEST = 1 << 20
"""The most bytes that such a file may have."""
LEAST_NUMBER, MOST_NUMBER = 1e-9, 1e30
LONGEST = 60
"""Characters of a size or a duration."""
EXACT = 2**53
"""Below this a whole number written as a float, such as 5e7, is exact."""

Tables = Mapping[str, Mapping[str, Key]]


def read_document(path: str, tables: Tables, rows: Tables) -> dict[str, Any]:
    """Return what the TOML file *path* holds: of each of *tables* a dict, of each of *rows* (``[[row]]``) a list of dicts.

    A table that the file does not have is left out. Beside them stands ``title``.

    Raises:
        ScenarioError: it cannot be read, or has problems; all of them are told.
    """
    text = _text(path)
    name = Path(path).name
    try:
        raw = tomllib.loads(text)
    except RecursionError:
        raise ScenarioError(f"{name} is nested too deeply") from None
    except ValueError as error:
        raise ScenarioError(f"{name} is not TOML: {error}") from None
    reader = Reader(Lines(text, raw))
    reader.unknown(raw, ("title", *tables, *rows), Place())
    found: dict[str, Any] = {"title": reader.value("title", raw.get("title", name), TEXT, Place(), {}) or name}
    for table, keys in tables.items():
        if table in raw:
            place = Place(table, line=reader.lines.key(table))
            if isinstance(raw[table], dict):
                found[table] = reader.table(raw[table], keys, place, {})
            else:
                reader.problem(place, "", f"is no table: write [{table}] above its keys")
    for table, keys in rows.items():
        given = raw.get(table, [])
        if not isinstance(given, list) or not all(isinstance(row, dict) for row in given):
            reader.problem(Place(table, line=reader.lines.key(table)), "", f"is no list of tables: write [[{table}]] above each")
            continue
        if given:
            found[table] = [
                reader.table(row, keys, Place(table, number, reader.lines.row(table, number)), {})
                for number, row in enumerate(given, start=1)
            ]
    if reader.problems:
        raise ScenarioError([f"{name}: {problem}" for problem in reader.problems])
    return found


def _text(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise ScenarioError(f"cannot read {path!r}: {error.strerror or error}") from None
    if len(data) > LARGEST:
        raise ScenarioError(f"{path!r} is larger than {LARGEST >> 20} MiB, which no file of numbers is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ScenarioError(f"{path!r} is not UTF-8 text, so it is no TOML file") from None


def _told(read: Callable[[Any], Any]) -> Callable[[Any, Mapping[str, int]], Any]:
    """A reader of one value, whose problems are those of a scenario."""

    def reading(value: Any, _names: Mapping[str, int]) -> Any:
        try:
            return read(value)
        except ScenarioError:
            raise
        except InputError as error:
            raise ScenarioError(error.problems) from None

    return reading


def _expect(value: Any, types: type | tuple[type, ...], what: str) -> None:
    if not isinstance(value, types) or isinstance(value, bool):
        raise ScenarioError(f"{value!r} is not {what}")


def _not_long(value: str) -> None:
    if len(value) > LONGEST:
        raise ScenarioError(f"has {len(value):,} characters: write a number and its unit")


def _text_of(value: Any) -> str:
    _expect(value, str, "a text in quotes")
    if not value.strip():
        raise ScenarioError("is empty: write something")
    return str(value.strip())


def _count_of(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        _expect(value, (int, float, str), "a whole number, such as 1000, 5e7 or '1.5e20'")
        if isinstance(value, float) and not (value.is_integer() and abs(value) < EXACT):
            raise ScenarioError(f"{value!r} is not exact as a number: write it in quotes, such as '1.5e20', or in full")
        found = parse_count(value) if isinstance(value, str) else int(value)
        if not least <= found <= MOST_COUNTED:
            raise ScenarioError(f"{found:,} is too few: give {least:,} or more" if found < least else "is beyond 10^36, which no count is")
        return found

    return read


def _number_of(value: Any) -> float:
    _expect(value, (int, float), "a number")
    if not value > 0:
        raise ScenarioError(f"{value!r}: give a number above 0")
    if not LEAST_NUMBER <= value <= MOST_NUMBER:
        raise ScenarioError(f"{value!r}: give a number from {LEAST_NUMBER:g} to {MOST_NUMBER:g}")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ScenarioError(f"{value!r} is not true or false")
    return value


def _type_of(value: Any) -> str | int:
    _expect(value, (str, int), "a type such as 'bf16', or a width in bytes")
    from lifecycle_sim.study.budget.widths import type_name

    return type_name(value)


def _size_of(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ScenarioError(f"{value} has no unit: write for example '{value} B' or '{value} MiB'")
    _expect(value, str, "a size in quotes, such as '4 MiB'")
    _not_long(value)
    found = parse_bytes(value, round_down=True)
    if found < 0:
        raise ScenarioError(f"{value!r} is negative")
    return found


def _duration_of(value: Any) -> int:
    _expect(value, str, "a duration in quotes, such as '1.5 ms'")
    _not_long(value)
    found = parse_duration(value)
    if found < 0:
        raise ScenarioError(f"{value!r} is negative")
    return found


def _list_of(read: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def reading(value: Any) -> list[Any]:
        _expect(value, list, "a list in brackets")
        return [read(each) for each in value]

    return reading


TEXT = Key(_told(_text_of))
COUNT = Key(_told(_count_of(0)))
POSITIVE = Key(_told(_count_of(1)))
NUMBER = Key(_told(_number_of))
FLAG = Key(_told(_flag))
TYPE = Key(_told(_type_of))
SIZE = Key(_told(_size_of))
DURATION = Key(_told(_duration_of))
COUNTS = Key(_told(_list_of(_count_of(0))))
POSITIVES = Key(_told(_list_of(_count_of(1))))
DURATIONS = Key(_told(_list_of(_duration_of)))


def required(key: Key) -> Key:
    """Return *key* as one that must be there."""
    return Key(key.read, True, key.words, key.neutral)


def words(*known: str) -> Key:
    """Return the key whose value is one of *known*."""
    return Key(TEXT.read, words=known)
