"""Measured times from a CSV: a micro-batch, the length of its sequences, and how long it takes."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from lifecycle_sim.errors import InputError, UnitError
from lifecycle_sim.study.batch.deadline import MeasuredTime
from lifecycle_sim.units import parse_duration

COLUMNS = {"batch": "batch", "micro_batch": "batch", "seq": "seq", "sequence": "seq", "time": "time"}
LARGEST_COUNT = 2**63 - 1

Times = Mapping[int | None, MeasuredTime]
"""Times by the length of sequences; by None where no length is told."""


def read_times(text: str, name: str = "times") -> Times:
    """Return the times in a CSV with the columns ``batch`` and ``time`` (with its unit), and ``seq`` if they are of several lengths.

    Other columns are passed over, so that a file of probes with a column ``time`` is one of times too. Of several times of a micro-batch
    the longest counts.

    Args:
        text: the content of the file.
        name: what messages call it.

    Raises:
        InputError: a column is missing, values are none, or a larger micro-batch takes less; all problems are told, with their lines.
    """
    try:
        header, *rows = list(csv.reader(io.StringIO(text, newline=""))) or [[]]
    except csv.Error as error:
        raise InputError(f"{name}: is no CSV: {error}") from None
    meant = [COLUMNS.get(column.strip().lower()) for column in header]
    problems = [
        f"{name}: has {'no' if column not in meant else 'several'} column{'s' if column in meant else ''} {column!r}: "
        f"its first line is {', '.join(header[:12]) or 'nothing'}"
        for column in ("batch", "time", "seq")
        if meant.count(column) > 1 or (column not in meant and column != "seq")
    ]
    if problems:
        raise InputError(problems)
    found: dict[int | None, dict[int, int]] = {}
    for line, row in enumerate(rows, 2):
        cells = {column: cell.strip() for column, cell in zip(meant, row, strict=False) if column is not None}
        if not any(cells.values()):
            continue
        before = len(problems)
        batch = _count(cells.get("batch", ""), "batch", f"{name} line {line}", problems)
        seq = _count(cells["seq"], "seq", f"{name} line {line}", problems) if cells.get("seq") else None
        try:
            time = parse_duration(cells.get("time", ""))
            if time < 0:
                problems.append(f"{name} line {line}: time {cells['time'][:40]!r} is negative")
        except UnitError as error:
            problems.append(f"{name} line {line}: {error}")
        if len(problems) == before:
            known = found.setdefault(seq, {})
            known[batch] = max(time, known.get(batch, 0))
    if not problems and not found:
        problems.append(f"{name}: holds no time")
    if None in found and len(found) > 1:
        problems.append(f"{name}: some times tell the length of the sequences and others do not: give it for all of them or for none")
    if problems:
        raise InputError(problems)
    return {seq: _times(known, name) for seq, known in found.items()}


def times_at(times: Times, seq: int | None) -> MeasuredTime:
    """Return the times that bound sequences of *seq* tokens: those of the next longer length, where lengths are told.

    Raises:
        InputError: no timed length is long enough, or the times tell lengths and *seq* is not known.
    """
    if None in times:
        return times[None]
    lengths = sorted(length for length in times if length is not None)
    if seq is None:
        if len(lengths) == 1:
            return times[lengths[0]]
        raise InputError("the times are of several sequence lengths: say which one is asked about")
    longer = next((length for length in lengths if length >= seq), None)
    if longer is None:
        raise InputError(f"sequences of {seq:,} tokens are longer than the longest that was timed, {lengths[-1]:,}: time them")
    return times[longer]


def _times(known: Mapping[int, int], name: str) -> MeasuredTime:
    try:
        return MeasuredTime(tuple(known.items()))
    except InputError as error:
        raise InputError(f"{name}: {problem}" for problem in error.problems) from None


def _count(cell: str, what: str, where: str, problems: list[str]) -> int:
    if not cell.isascii() or not cell.isdigit() or not 0 < int(cell[:40]) <= LARGEST_COUNT:
        problems.append(f"{where}: {what} {cell[:40]!r} is no whole number from 1 to 2^63 - 1")
        return 0
    return int(cell)
