"""Reads minimalloc CSV: static allocation instances, one buffer a row with its half-open live interval.

Columns, in any order (github.com/google/minimalloc): ``id`` (or ``buffer``, ``buffer_id``), ``lower`` (or ``begin``, ``start``),
``upper``, ``size``; a column ``end`` holds the last tick of the interval, that is ``upper - 1``. ``alignment`` and ``offset`` concern
where a buffer is placed, not when it lives, and are passed over.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

import numpy as np

from lifecycle_sim.errors import InputError, TraceFormatError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Kind, Trace
from lifecycle_sim.sources.problems import Problems, did_you_mean

_COLUMNS = {
    "id": "id",
    "buffer": "id",
    "buffer_id": "id",
    "lower": "lower",
    "begin": "lower",
    "start": "lower",
    "upper": "upper",
    "end": "end",
    "size": "size",
    "alignment": "alignment",
    "offset": "offset",
    "gaps": "gaps",
}


def read_minimalloc(text: str, capacity: int | None = None) -> Trace:
    """Return the trace of the minimalloc instance *text*.

    Times are ticks; frees at a tick come before the allocs of that tick (intervals are half-open), each in the order of the rows. The
    address of a buffer is the number of its row, counted from 0, and its label is its id.

    Args:
        text: the CSV, with its header line.
        capacity: bytes to compare with; benchmark instances name it in their file name.

    Raises:
        TraceFormatError: listing every bad row, with its line number.
    """
    buffers: dict[str, tuple[int, int, int]] = {}
    with Problems(TraceFormatError) as problems:
        for line, name, lower, upper, size in _rows(text, problems):
            if name in buffers:
                problems.add(f"line {line}", f"the id {name!r} occurs a second time: ids are unique")
            elif lower >= upper:
                problems.add(f"line {line}", f"the interval [{lower}, {upper}) of {name!r} is empty: upper must be above lower")
            elif size < 0:
                problems.add(f"line {line}", f"the size {size} of {name!r} is negative: give bytes, 0 or more")
            else:
                buffers[name] = (lower, upper, size)
    return Trace((_device(buffers, capacity),), "minimalloc", Evidence.SIMULATED, Clock.TICKS, labels=tuple(buffers))


def _rows(text: str, problems: Problems) -> Iterator[tuple[int, str, int, int, int]]:
    """Yield line number, id, lower, upper and size of each row that has them."""
    lines = csv.reader(text.removeprefix("\ufeff").splitlines())
    columns: list[str] = []
    try:
        for row in lines:
            fields = [field.strip() for field in row]
            if not any(fields):
                continue
            if not columns:
                columns = _header(fields)
                continue
            if len(fields) != len(columns):
                problems.add(f"line {lines.line_num}", f"{len(fields)} fields where the header has {len(columns)}")
                continue
            values = dict(zip(columns, fields, strict=True))
            if values.get("gaps"):
                problems.add(f"line {lines.line_num}", "gaps in an interval are not supported: split the buffer into one row a piece")
                continue
            try:
                upper = _integer(values["upper"]) if "upper" in values else _integer(values["end"]) + 1
                yield lines.line_num, values["id"], _integer(values["lower"]), upper, _integer(values["size"])
            except InputError as error:
                problems.add(f"line {lines.line_num}", str(error))
    except csv.Error as error:
        problems.add(f"line {lines.line_num}", f"not CSV ({error})")
    if not columns:
        raise TraceFormatError("line 1: no header: a minimalloc CSV begins with id,lower,upper,size")


def _header(fields: list[str]) -> list[str]:
    unknown = [f"line 1: column {name[:40]!r} is not known{did_you_mean(name, _COLUMNS)}" for name in fields if name not in _COLUMNS]
    columns = [_COLUMNS.get(name, name) for name in fields]
    wanted = {"id": "id", "lower": "lower", "size": "size", "upper": "upper" if "end" not in columns else "end"}
    missing = [f"line 1: no column {name!r}: the header is id,lower,upper,size" for name in wanted.values() if name not in columns]
    if len(set(columns)) < len(columns) or {"upper", "end"} <= set(columns):
        missing.append("line 1: two columns mean the same: keep one of them")
    if unknown or missing:
        raise TraceFormatError(unknown + missing)
    return columns


def _integer(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise TraceFormatError(f"{text[:40]!r} is not a whole number: bytes and ticks are written without a unit") from None
    if not -(2**62) <= value <= 2**62:
        raise TraceFormatError(f"{text[:40]} is beyond 2^62")
    return value


def _device(buffers: dict[str, tuple[int, int, int]], capacity: int | None) -> DeviceTrace:
    lower, upper, size = np.array(list(buffers.values()), np.int64).reshape(-1, 3).T
    row = np.tile(np.arange(len(size)), 2)
    kind = np.repeat(np.array([Kind.ALLOC, Kind.FREE]), len(size))
    time = np.concatenate((lower, upper))
    order = np.lexsort((row, kind == Kind.ALLOC, time))
    row = row[order]
    events = Events.of(kind[order], row, size[row], time=time[order], label=row)
    return DeviceTrace("device", events, Basis.PAYLOAD, start=0, capacity=capacity)
