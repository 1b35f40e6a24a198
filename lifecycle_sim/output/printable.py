"""Text from recordings made safe and short for people: one line, no control characters, paths cut to their end."""

from __future__ import annotations

import re

_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[^\s/\\]*[/\\]){3,}(?=[^\s/\\])")


def one_line(text: str) -> str:
    """Return *text* on one line, with anything that a terminal might obey, or cannot show, spelled out."""
    return "".join(c if c.isprintable() else " " if c in "\n\r\t" else c.encode("unicode_escape").decode("ascii") for c in text)


def short_path(text: str) -> str:
    """Return *text* with every path in it cut to its last two parts: ``"…/nn/modules.py:12 forward"``."""
    return _PATH.sub(_cut, text)


def short_cpp(text: str) -> str:
    """Return *text* without the arguments of C++ functions and the mark of an unknown file: ``"torch::autograd::Engine::run(…)"``."""
    name = text.removeprefix("?? ").replace("(anonymous namespace)::", "")
    head, paren, _ = name.partition("(")
    return f"{head}(…)" if paren and "::" in head else name


def _cut(match: re.Match[str]) -> str:
    last = re.split(r"[/\\]", match.group().rstrip("/\\"))[-1]
    return f"…/{last}/"


def shown(text: str, width: int | None = None) -> str:
    """Return *text* as a table shows it: one line, short paths and C++ names, at most *width* characters, cut in the middle."""
    line = " ← ".join(short_cpp(short_path(part)) for part in one_line(text).split(" ← "))
    if width is None or len(line) <= width:
        return line
    head = (width - 1) // 3
    return f"{line[:head]}…{line[len(line) - (width - 1 - head) :]}"
