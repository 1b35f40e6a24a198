"""Edits of a line's scenario: what a what-if changes before the line runs again."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from lifecycle_sim.errors import InputError, ScenarioError
from lifecycle_sim.program.expressions import did_you_mean
from lifecycle_sim.study.pipeline import line_keys

_EDIT = re.compile(r"\s*(?:(?P<owner>[^=.]+)\.)?(?P<key>[A-Za-z_][A-Za-z0-9_-]*)\s*=\s*(?P<value>.+?)\s*", re.DOTALL)
_NEXT = re.compile(r",(?=\s*(?:[^=.,]+\.)?[A-Za-z_][A-Za-z0-9_-]*\s*=)")
_CLOSED = re.compile(r"\"[^\"]*\"|'[^']*'|\[[^\[\]]*\]|\{[^{}]*\}")
"""What has its commas for itself: texts, lists and tables."""
_RANGE = re.compile(r"\s*(-?[0-9]+)\s*\.\.\s*(-?[0-9]+)\s*")
EXAMPLE = "write NAME.KEY=VALUE with the name of a stage or kind of item, such as press.machines=2, or PARAMETER=VALUE"
MOST_VALUES = 10_000


@dataclass(frozen=True)
class Edit:
    """One value that is set.

    Attributes:
        owner: a stage's or kind of item's name, ``"stage"`` or ``"item"`` for all of them; None for a parameter or a key at the top.
        key: what is set.
        value: to what, as in TOML.
    """

    owner: str | None
    key: str
    value: Any

    def __str__(self) -> str:
        value = str(self.value) if not isinstance(self.value, bool) else str(self.value).lower()
        return f"{'' if self.owner is None else f'{self.owner}.'}{self.key}={value}"


def read_edits(text: str) -> tuple[Edit, ...]:
    """Return the edits in *text*, such as ``"press.machines=2,press.order=lifo"``: they are one what-if together.

    A value is written as in TOML; quotes around a text may be left out.

    Raises:
        InputError: it is not of that form.
    """
    hidden = text
    while (closed := _CLOSED.sub(lambda found: "_" * len(found[0]), hidden)) != hidden:
        hidden = closed
    cuts = [-1, *(comma.start() for comma in _NEXT.finditer(hidden)), len(text)]
    return tuple(_edit(text[begin + 1 : end]) for begin, end in pairwise(cuts))


def read_sweep(texts: Iterable[str]) -> list[tuple[Edit, ...]]:
    """Return every combination of the values in *texts*, each such as ``"press.machines=1..4"`` or ``"gap=0,500,1000"``.

    Raises:
        InputError: one is not of that form, or there are more than 10,000 combinations.
    """
    axes = []
    for text in texts:
        first = _edit(text)
        values = text.partition("=")[2]
        if (span := _RANGE.fullmatch(values)) is not None:
            low, high = int(span[1]), int(span[2])
            if not 0 <= high - low < MOST_VALUES:
                raise InputError(f"{text!r}: a range goes from the smaller to the larger number, at most {MOST_VALUES:,} of them")
            axes.append([Edit(first.owner, first.key, value) for value in range(low, high + 1)])
        else:
            axes.append([Edit(first.owner, first.key, _value(value)) for value in values.split(",")])
    total = 1
    for axis in axes:
        total *= len(axis)
    if total > MOST_VALUES:
        raise InputError(f"the sweep has {total:,} combinations: at most {MOST_VALUES:,}")
    return list(product(*axes))


def _edit(text: str) -> Edit:
    found = _EDIT.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r} changes nothing: {EXAMPLE}")
    owner = found["owner"]
    return Edit(None if owner is None else owner.strip(), found["key"], _value(found["value"]))


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"]
    except ValueError:
        return text.strip()


def edited(document: Mapping[str, Any], edits: Iterable[Edit], parameters: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the tables of a scenario with *edits* made, and *parameters* with those that an edit sets.

    Raises:
        ScenarioError: an edit names what is not there; all such are listed.
    """
    changed, given, problems = copy.deepcopy(dict(document)), dict(parameters), []
    for edit in edits:
        own = changed.get("parameters", {})
        if edit.owner is not None:
            rows = _rows_called(changed, edit.owner)
            if not rows:
                problems.append(f"{edit}: {_unknown(changed, edit.owner)}")
            for row in rows:
                row[edit.key] = edit.value
        elif isinstance(own, dict) and edit.key in own:
            if isinstance(edit.value, int) and not isinstance(edit.value, bool):
                given[edit.key] = edit.value
            else:
                problems.append(f"{edit}: the parameter {edit.key!r} is a whole number")
        elif edit.key in ("capacity", *line_keys.SETTINGS):
            before = changed.get(edit.key)
            changed[edit.key] = {**before, "size": edit.value} if isinstance(before, dict) else edit.value
        else:
            known = (*(own if isinstance(own, dict) else ()), "capacity", *line_keys.SETTINGS)
            problems.append(f"{edit}: there is no parameter or setting {edit.key!r}{did_you_mean(edit.key, known) or f': {EXAMPLE}'}")
    if problems:
        raise ScenarioError(problems)
    return changed, given


def tables(document: Mapping[str, Any], table: str) -> list[dict[str, Any]]:
    """Return the rows of ``[[table]]`` that are tables."""
    rows = document.get(table, [])
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _rows_called(document: dict[str, Any], owner: str) -> list[dict[str, Any]]:
    """The tables that *owner* names: by their own names, or all stages or all items; ``capacity`` is one too."""
    if owner == "capacity" and "capacity" in document:
        if not isinstance(document["capacity"], dict):
            document["capacity"] = {"size": document["capacity"]}
        return [document["capacity"]]
    named = [row for table in ("stage", "item") for row in tables(document, table) if row.get("name", "item") == owner]
    return named or (tables(document, owner) if owner in ("stage", "item") else [])


def _unknown(document: Mapping[str, Any], owner: str) -> str:
    names = [str(row.get("name", "item")) for table in ("stage", "item") for row in tables(document, table)]
    there = f": there are {', '.join(names)}"
    return f"there is no stage or kind of item {owner!r}{did_you_mean(owner, names) or there}"
