"""Finds the word that a misspelt one was meant to be, and the paths that a pattern means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

MOST_WORDS = 1000
"""With more words than these none is looked for: comparing them all takes too long."""
_SET = re.compile(r"\[!?[\w-]+\]")


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word closest to *word*, first one that differs in case only; None if none is close or there are too many."""
    words = list(known)
    if len(words) > MOST_WORDS:
        return None
    same = [candidate for candidate in words if candidate.lower() == word.lower()]
    return next(iter(same or get_close_matches(word, words, n=1)), None)


def path_expression(pattern: str) -> str:
    """Return a pattern of module paths as a regular expression.

    It is as in a shell, but that a single star or mark stands for no dot, and ``**`` for anything.
    """
    signs = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
    parts = re.split(r"(\*\*|\*|\?|\[!?[^\]]+\])", pattern)
    made = [signs.get(part) or (re.sub(r"^\[!", "[^", part) if _SET.fullmatch(part) else re.escape(part)) for part in parts]
    return "".join(made)
