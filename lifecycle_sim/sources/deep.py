"""Run a function on a stack deep enough for whatever a small hostile file can nest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

LEVEL = 128
"""Bytes of stack for one level of nesting; hashing a tuple takes between 64 and 96."""
LEAST, MOST = 1 << 24, 1 << 32
"""Bounds of the stack; the upper one is address space, not memory, and is enough for files of 32 MiB made of nesting alone."""


def with_deep_stack(function: Callable[[], _T], levels: int) -> _T:
    """Return ``function()``, run in a thread whose stack bears *levels* levels of nesting in C code.

    Nearly all of CPython counts its recursion and raises RecursionError in time; the hash of a tuple does not, and a dict in a pickle whose
    key is a tuple in a tuple in a tuple … overruns the ordinary stack of 8 MiB with a file of 100 kB. One byte of a file can add one
    level at most. A stack takes memory only as it is touched. Where no thread with such a stack can be started, the function runs as it is.
    """
    wanted = min(max(LEVEL * levels, LEAST), MOST)
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # handed to the caller's thread, whatever it is
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    try:
        before = threading.stack_size(wanted)
    except (RuntimeError, ValueError):
        return function()
    try:
        thread.start()
    except RuntimeError:
        return function()
    finally:
        threading.stack_size(before)
    thread.join()
    if errors:
        raise errors.pop()
    return results.pop()
