"""Collects everything that is wrong with an input, so that one error can list it all."""

from __future__ import annotations

from collections.abc import Iterable

from lifecycle_sim.errors import InputError
from lifecycle_sim.spelling import closest

LIMIT = 20
_LENGTH = 300


class TooManyProblems(Exception):  # noqa: N818 - a signal to stop reading, never seen by users
    """Raised inside a reader once ``LIMIT`` problems are known; the reader stops and reports them."""


class Problems:
    """The problems of one input, at most ``LIMIT`` of them.

    Used as a context manager around reading: on leaving, the problems found become one exception.
    """

    def __init__(self, error: type[InputError]) -> None:
        self.lines: list[str] = []
        self._error = error

    def add(self, where: str, what: str, error: type[InputError] | None = None) -> None:
        """Note that *what* is wrong at *where*; an *error* other than the usual kind decides the kind if it comes first."""
        if not self.lines and error is not None:
            self._error = error
        self.lines.append(f"{where}: {what if len(what) <= _LENGTH else what[:_LENGTH] + '…'}")
        if len(self.lines) == LIMIT:
            self.lines.append(f"further problems are not listed: mend these {LIMIT} first")
            raise TooManyProblems

    def __enter__(self) -> Problems:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if self.lines and (kind is None or issubclass(kind, TooManyProblems)):
            raise self._error(self.lines) from None


def did_you_mean(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return ``": did you mean 'size'?"`` for a misspelt *word*.

    If nothing is close, or the words are very many, return *otherwise*, or the list of *known* words.
    """
    known = sorted(known)
    close = closest(word, known)
    if close is not None:
        return f": did you mean {close!r}?"
    return f": known are {', '.join(known)}" if otherwise is None else otherwise
