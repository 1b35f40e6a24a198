"""Where in a scenario's text a table or a key stands, so that every problem names its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_HEADER = re.compile(r"\s*\[\[?\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"[ \t]*([A-Za-z_][A-Za-z0-9_-]*)[ \t]*=")
_TOKEN = re.compile(r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"' r"|'''.*?'''|'[^'\n]*'|#[^\n]*|[\[\]{}\n]|[^\"'#\[\]{}\n]+", re.DOTALL)
"""Strings, comments, brackets, line ends, and what stands between them: what it takes to follow an array through a text."""


class Place(NamedTuple):
    """A row of a scenario: the table's name, which one of its rows (from 1), its line (0 if it cannot be told) and turn of a repeat."""

    table: str = ""
    row: int = 0
    line: int = 0
    turn: int | None = None

    def __str__(self) -> str:
        what = f"[[{self.table}]] {self.row}" if self.row else f"[{self.table}]" if self.table else ""
        parts = [f"line {self.line}" if self.line else "", what, "" if self.turn is None else f"i = {self.turn}"]
        return ", ".join(part for part in parts if part)


class Lines:
    """Finds the lines of tables and keys by their headers.

    TOML parsers do not tell lines. Headers are counted in the text; where the count differs from the number of rows that were parsed,
    no line is given rather than a wrong one.
    """

    def __init__(self, text: str, document: Mapping[str, Any]) -> None:
        self._text = ["", *text.splitlines()]
        self._rows: dict[str, list[int]] = {}
        self._first: dict[str, int] = {}
        self._scan(text)
        for name, rows in list(self._rows.items()):
            value = document.get(name)
            if len(rows) != (len(value) if isinstance(value, list) else 1):
                del self._rows[name]

    def _scan(self, text: str) -> None:
        """Note the line of each header, and of each table that is assigned to a key above all headers, by itself or in an array."""
        number, position, above = 1, 0, True
        while position < len(text):
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            header, key = _HEADER.fullmatch(text, position, end), _KEY.match(text, position, end)
            if header:
                above = False
                self._first.setdefault(header[1], number)
                self._rows.setdefault(header[1], []).append(number)
            elif key:
                tables, end = _tables_in(text, key.end())
                if above:
                    self._first.setdefault(key[1], number)
                    self._rows.setdefault(key[1], []).extend(number + below for below in tables)
            number += text.count("\n", position, end + 1)
            position = end + 1

    def row(self, table: str, row: int) -> int:
        """Return the line at which row number *row* (from 1) of *table* begins, 0 if that cannot be told."""
        rows = self._rows.get(table, ())
        return rows[row - 1] if row <= len(rows) else 0

    def key(self, key: str, after: int = 0) -> int:
        """Return the line of *key* in the table that begins at line *after* (0: above all tables); failing that, *after* itself."""
        if not after:
            return self._first.get(key, 0)
        pattern = re.compile(rf"(?:.*[{{,]\s*|\s*){re.escape(key)}\s*=(?!=).*")
        inline = not _HEADER.fullmatch(self._text[after])
        for number in range(after, len(self._text)):
            if number > after and (inline or _HEADER.fullmatch(self._text[number])):
                break
            if pattern.fullmatch(self._text[number]):
                return number
        return after


def _tables_in(text: str, position: int) -> tuple[list[int], int]:
    """Return how many lines below *position* each table begins in the value that stands there, and where the line of its end ends."""
    depth, below, outermost = 0, 0, ""
    tables: list[int] = []
    while (token := _TOKEN.match(text, position)) and (token[0] != "\n" or depth):
        outermost = outermost or token[0].strip()
        if token[0] == "{" and depth == (outermost == "["):
            tables.append(below)
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        below += token[0].count("\n")
        position = token.end()
    return tables, position
