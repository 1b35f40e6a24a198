"""Say in one line what is wrong with a value, however large, deep or hostile the value is."""

from __future__ import annotations

import reprlib
from typing import Any

from lifecycle_sim.errors import SnapshotError

LISTED = 20
"""How many problems are listed before the rest is only counted."""

_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxfrozenset = 3
_SHORT.maxstring = _SHORT.maxother = 60

Where = tuple[str | int, ...]
"""The way to a value in a document: keys and list indices from the top."""


def describe(value: Any) -> str:
    """Return *value* shortened to one line with its type, such as ``"'abc' (str)"``; never raises, whatever the value."""
    if value is None:
        return "None"
    kind = type(value).__name__
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length():,} bits"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value):,} bytes ({kind})"
    try:
        text = _SHORT.repr(value)
    except Exception:  # what a repr of nested hostile values raises cannot be foreseen, and the message must still be made
        return f"a value of type {kind}"
    return f"{one_line(text)} ({kind})"


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


class Problems:
    """Collects what is wrong with a document, a line for each, and raises all of it at once."""

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
