"""Text from recordings made safe and short for people: one line, no control characters, paths cut to their end."""

from __future__ import annotations

import re

_WORD = re.compile(r"\S+")
_SEPARATOR = re.compile(r"[/\\]")
_CUT_FROM = 3
"""Separators from which on a path is cut."""


def one_line(text: str) -> str:
    """Return *text* on one line, with anything that a terminal might obey, or cannot show, spelled out."""
    return "".join(c if c.isprintable() else " " if c in "\n\r\t" else c.encode("unicode_escape").decode("ascii") for c in text)


def short_path(text: str) -> str:
    """Return *text* with every path in it cut to its last two parts: ``"…/nn/modules.py:12 forward"``."""
    return _WORD.sub(_cut, text)


def short_cpp(text: str) -> str:
    """Return *text* without the arguments of C++ functions and the mark of an unknown file: ``"torch::autograd::Engine::run(…)"``."""
    name = text.strip().removeprefix("?? ").replace("(anonymous namespace)::", "")
    if "::" in name and "<" in name:
        name = _without_template_arguments(name)
    head, paren, _ = name.partition("(")
    return f"{head}(…)" if paren and "::" in head else name


def _without_template_arguments(name: str) -> str:
    """``"void f<g<int>, (h)1>(x)"`` as ``"void f<…>(x)"``."""
    kept, depth = [], 0
    for character in name:
        if character == "<":
            kept += [] if depth else ["<…>"]
            depth += 1
        elif character == ">" and depth:
            depth -= 1
        elif not depth:
            kept.append(character)
    return "".join(kept)


def _cut(match: re.Match[str]) -> str:
    """Cut the path that a word is: whatever it looks like, in time linear in its length."""
    word = match.group()
    path = word.rstrip("/\\")
    if len(_SEPARATOR.findall(path)) < _CUT_FROM:
        return word
    *folders, last = _SEPARATOR.split(path)
    return f"…/{next((name for name in reversed(folders) if name), '')}/{last}{word[len(path) :]}"


def shown(text: str, width: int | None = None) -> str:
    """Return *text* as a table shows it: one line, short paths and C++ names, at most *width* characters, cut in the middle."""
    line = one_line(" ← ".join(short_cpp(short_path(part)) for part in text.split(" ← ")))
    if width is None or len(line) <= width:
        return line
    head = (width - 1) // 3
    return f"{line[:head]}…{line[len(line) - (width - 1 - head) :]}"
