"""Where in a scenario's text a table or a key stands, so that every problem names its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_HEADER = re.compile(r"\s*\[\[?\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\]\]?\s*(?:#.*)?")
_TABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)\s*=\s*\{.*")
_INLINE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)\s*=\s*\[\s*(?:#.*)?")


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
        inline = None
        for number, line in enumerate(self._text):
            if header := _HEADER.fullmatch(line):
                self._rows.setdefault(header[1], []).append(number)
            elif table := _TABLE.fullmatch(line):
                self._rows.setdefault(table[1], []).append(number)
            elif opening := _INLINE.fullmatch(line):
                inline = opening[1]
            elif inline and line.lstrip().startswith("{"):
                self._rows.setdefault(inline, []).append(number)
            elif line.lstrip().startswith("]"):
                inline = None
        for name, rows in list(self._rows.items()):
            value = document.get(name)
            if len(rows) != (len(value) if isinstance(value, list) else 1):
                del self._rows[name]

    def row(self, table: str, row: int) -> int:
        """Return the line at which row number *row* (from 1) of *table* begins, 0 if that cannot be told."""
        rows = self._rows.get(table, ())
        return rows[row - 1] if row <= len(rows) else 0

    def key(self, key: str, after: int = 0) -> int:
        """Return the line of *key* in the table that begins at line *after* (0: above all tables); failing that, *after* itself."""
        pattern = re.compile(rf"(?:.*[{{,]\s*|\s*){re.escape(key)}\s*=(?!=).*")
        inline = after > 0 and not _HEADER.fullmatch(self._text[after])
        for number in range(after, len(self._text)):
            if number > after and (inline or _HEADER.fullmatch(self._text[number])):
                break
            if pattern.fullmatch(self._text[number]):
                return number
        return after
