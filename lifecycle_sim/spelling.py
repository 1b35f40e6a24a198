"""Finds the word that a misspelt one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST_WORDS = 1000
"""With more words than these none is looked for: comparing them all takes too long."""


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word closest to *word*, first one that differs in case only; None if none is close or there are too many."""
    words = list(known)
    if len(words) > MOST_WORDS:
        return None
    same = [candidate for candidate in words if candidate.lower() == word.lower()]
    return next(iter(same or get_close_matches(word, words, n=1)), None)
