"""Guards round the making of large or hostile documents: the garbage collector, and the memory they may take."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import resource
except ImportError:  # not a POSIX system: memory is not bounded there
    resource = None  # type: ignore[assignment]

ROOM = 1 << 30
"""Bytes that any document may take, however small its file."""
GROWTH = 32
"""Bytes that a document may take for each byte of its file. Real snapshots take 4 to 8."""

_COLLECTOR, _MEMORY = threading.RLock(), threading.RLock()
"""Held while a guard is up: what it changes belongs to the whole process, and two that overlap would restore each other's change."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the cyclic garbage collector off inside the block, and leave it as it was found.

    Making a million objects, none of which is garbage, lets the collector walk them over and over: two thirds of the time.
    """
    with _COLLECTOR:
        was_on = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_on:
                gc.enable()


@contextmanager
def memory_bounded(size: int) -> Iterator[None]:
    """Let the process grow inside the block by no more than a document of *size* bytes can need; past that comes MemoryError.

    A few bytes of pickle can ask for gigabytes (a giant memo index or length prefix). The soft limit of the address space is lowered
    to what the process has now plus ``GROWTH * size + ROOM`` (never above the machine's memory) and restored after. The limit holds
    for the whole process: another thread that asks for much memory meanwhile gets MemoryError as well. Where the system has no
    such limit or does not tell the process's size (not Linux), nothing is bounded.
    """
    held = _address_space() if resource is not None else None
    if held is None:
        yield
        return
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = held + min(GROWTH * size + ROOM, machine)
    with _MEMORY:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if any(bound not in (resource.RLIM_INFINITY, -1) and bound <= limit for bound in (soft, hard)):
            yield
            return
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int | None:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
