"""Reads the raw memory timeline of torch's profiler, ``profile.export_memory_timeline("….raw.json.gz", device)``.

A file is one list of rows ``[time in ns, action, signed bytes, category]`` about one device. Actions (``torch.profiler._memory_profiler``):
1 preexisting (time -1), 2 create, 3 increment version, 4 destroy. A row of action 3 takes bytes from the old category and a second one
gives them to the new. Rows carry no identity, so levels can be told, by category too, but lifetimes cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lifecycle_sim.errors import TraceFormatError
from lifecycle_sim.events import NO_LABEL, Assumption, Basis, Category, Clock, DeviceTrace, Events, Evidence, Kind, Trace
from lifecycle_sim.sources.problems import Problems

_PREEXISTING = 1
_ACTIONS = {_PREEXISTING: "preexisting", 2: "create", 3: "increment version", 4: "destroy"}
_CATEGORIES = (
    Category.PARAMETER,
    Category.OPTIMIZER_STATE,
    Category.INPUT,
    Category.TEMPORARY,
    Category.ACTIVATION,
    Category.GRADIENT,
    Category.UNKNOWN,
    Category.UNKNOWN,
)
_AUTOGRAD_DETAIL = 6
_BLOCK = 512


def holds_totals(document: Any) -> bool:
    """Whether *document* is torch's other export, ``[times, sizes by category]``, which holds levels for a plot in place of events."""
    if not isinstance(document, list) or len(document) != 2 or not all(isinstance(part, list) for part in document):
        return False
    times, sizes = document
    return len(times) == len(sizes) and all(isinstance(levels, list) for levels in sizes[:1])


def read_memory_timeline(rows: Sequence[Any]) -> Trace:
    """Return the trace of the parsed memory timeline *rows*.

    Every row becomes one event: bytes above 0 an ``ALLOC``, others a ``FREE``, in the order of the file, so that a category's level is the
    running sum of its events. What existed before is allocated first, at the time of the first change (the file has -1), and the record
    starts at level 0. A version that moves bytes between categories is a free and then an alloc: it never raises the level above what
    was there. The category ``AUTOGRAD_DETAIL`` has no counterpart; it is read as unknown with the label ``autograd_detail``.

    The device is not in the file and is called ``"device"``. Nor is the basis: torch gives block sizes on CUDA and requested bytes on the
    CPU. Sizes are taken for blocks if every one is a multiple of 512, and the trace says so as an assumption.

    Raises:
        TraceFormatError: the rows are not such a list; every bad row is listed.
    """
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        raise TraceFormatError(f"a raw memory timeline is a list of [time, action, bytes, category], not {type(rows).__name__}")
    if holds_totals(rows):
        raise TraceFormatError("this memory timeline holds totals for a plot: export it with a name that ends in .raw.json.gz")
    with Problems(TraceFormatError) as problems:
        for number, row in enumerate(rows):
            if problem := _problem(row):
                problems.add(f"row {number}", problem)
    time, action, change, category = np.array(rows, np.int64).reshape(-1, 4).T
    size = np.abs(change)
    changes = time[action != _PREEXISTING]
    events = Events.of(
        np.where((change > 0) | (change == 0) & (action <= 2), Kind.ALLOC, Kind.FREE),
        np.full(len(size), -1),
        size,
        time=np.where(action == _PREEXISTING, changes.min() if len(changes) else 0, time),
        category=np.array(_CATEGORIES)[category],
        label=np.where(category == _AUTOGRAD_DETAIL, 0, NO_LABEL),
    )
    basis, assumption = _basis(size)
    device = DeviceTrace("device", events, basis, start=0, identified=False)
    labels = ("autograd_detail",) if _AUTOGRAD_DETAIL in category else ()
    return Trace((device,), "memory-timeline", Evidence.MEASURED, Clock.NANOSECONDS, labels=labels, assumptions=(assumption,))


def _problem(row: Any) -> str | None:
    if not isinstance(row, list | tuple) or len(row) != 4 or not all(type(value) is int for value in row):
        return f"{str(row)[:60]} is not [time, action, bytes, category] in whole numbers"
    time, action, change, category = row
    if action not in _ACTIONS:
        return f"action {action} is not known: 1 preexisting, 2 create, 3 increment version, 4 destroy"
    if not 0 <= category < len(_CATEGORIES):
        return f"category {category} is not known: 0 to {len(_CATEGORIES) - 1}"
    if max(abs(time), abs(change)) > 2**62:
        return "a number beyond 2^62"
    if (action in (1, 2) and change < 0) or (action == 4 and change > 0):
        return f"action {action} ({_ACTIONS[action]}) with {change} bytes: the sign is wrong"
    return None


def _basis(size: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[Basis, Assumption]:
    blocks = len(size) > 0 and not (size % _BLOCK).any()
    basis = Basis.ALLOCATED if blocks else Basis.REQUESTED
    why = f"every size is a multiple of {_BLOCK}" if blocks else f"not every size is a multiple of {_BLOCK}"
    return basis, Assumption("basis_from_sizes", len(size), f"sizes are read as {basis} bytes: {why}; the file does not say")
