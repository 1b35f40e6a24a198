"""Say in one line what is wrong with a value, however large, deep or hostile the value is."""

from __future__ import annotations

from collections.abc import Sized
from itertools import islice
from typing import Any

from lifecycle_sim.errors import SnapshotError

LISTED = 20
"""How many problems are listed before the rest is only counted."""
SHOWN_LETTERS, SHOWN_ITEMS, SHOWN_LEVELS, SHOWN_BITS = 60, 3, 2, 128

Where = tuple[str | int, ...]
"""The way to a value in a document: keys and list indices from the top."""


def describe(value: Any) -> str:
    """Return *value* shortened to one line with its type, such as ``"'abc' (str)"``, whatever the value.

    The value is never hashed, compared or turned into text as a whole: of a value made to do harm, each of these can take for ever.
    """
    return "None" if value is None else f"{_short(value, SHOWN_LEVELS)} ({type(value).__name__})"


def _short(value: Any, levels: int) -> str:
    if isinstance(value, str):
        return one_line(repr(value[:SHOWN_LETTERS])) + ("…" if len(value) > SHOWN_LETTERS else "")
    if isinstance(value, int) and value.bit_length() > SHOWN_BITS:
        return f"a number of {value.bit_length():,} bits"
    if value is None or isinstance(value, (int, float)):
        return repr(value)
    if not isinstance(value, (dict, list, tuple)):
        return f"{len(value):,} items" if isinstance(value, Sized) else "something"
    if not levels and value:
        return "…"
    if isinstance(value, dict):
        items = [f"{_short(k, levels - 1)}: {_short(v, levels - 1)}" for k, v in islice(value.items(), SHOWN_ITEMS)]
    else:
        items = [_short(item, levels - 1) for item in value[:SHOWN_ITEMS]]
    if len(value) > SHOWN_ITEMS:
        items.append("…")
    first, last = "{}" if isinstance(value, dict) else "[]" if isinstance(value, list) else "()"
    return first + ", ".join(items) + last


def one_line(text: str) -> str:
    """Return *text* with whatever is not printable escaped, so that it stays on one line of any terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain(text: str) -> str:
    r"""Return *text* so that it can be written as UTF-8: lone surrogates, which a pickle may hold, become ``\udcxx`` in letters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def path_of(where: Where) -> str:
    """Return *where* as Python would write it: ``device_traces[0][17].size``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in where]
    return "".join(parts).removeprefix(".") or "document"


class DocumentProblems:
    """Collects what is wrong with a document, a line for each, and raises all of it at once.

    A document is read to its end, so what is not listed is counted; :class:`~lifecycle_sim.sources.problems.Problems` stops reading.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def add(self, where: Where, text: str) -> None:
        """Note a problem at *where*; *text* goes on from the path, so it starts with a verb."""
        self.count += 1
        if len(self.lines) < LISTED:
            self.lines.append(f"{path_of(where)}: {text}")

    def wrong(self, where: Where, value: Any, should: str) -> None:
        """Note that *value* at *where* is not what it *should* be."""
        self.add(where, f"is {describe(value)}, should be {should}" if len(self.lines) < LISTED else "")

    def missing(self, where: Where, should: str) -> None:
        """Note that the value at *where* is absent."""
        self.add(where, f"is missing, should be {should}")

    def check(self) -> None:
        """Raise what was collected.

        Raises:
            SnapshotError: there is at least one problem.
        """
        if self.count:
            more = self.count - len(self.lines)
            raise SnapshotError([*self.lines, f"… and {more:,} more"] if more else self.lines)
