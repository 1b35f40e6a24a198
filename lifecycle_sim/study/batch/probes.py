"""Probes: a batch, and the peak that a step with it has. What is no probe is refused, with the reason."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lifecycle_sim.errors import InputError, UnitError
from lifecycle_sim.events import Evidence
from lifecycle_sim.spelling import closest
from lifecycle_sim.units import format_bytes, parse_bytes

BASES = ("payload", "requested", "allocated", "active", "reserved")
ROUNDED = BASES[2:]
"""The bases whose bytes an allocator rounded to blocks and segments."""
COLUMNS = {
    "batch": "batch",
    "micro_batch": "batch",
    "seq": "seq",
    "sequence": "seq",
    "peak": "peak",
    "unit": "unit",
    "basis": "basis",
    "step": "step",
    "phase": "phase",
    "evidence": "evidence",
    "series": "series",
}
"""The columns of a file of probes that are read, under all their names."""
IN_PHASE = "peak in "
"""What columns begin with that hold the peak inside a phase; the name of the phase follows."""
LARGEST_COUNT = 2**63 - 1


@dataclass(frozen=True)
class Probe:
    """The peak of a step with a batch.

    Attributes:
        batch: samples (or sequences) in the micro-batch, 1 or more.
        peak: bytes.
        seq: tokens in a sequence, None where there are no sequences.
        basis: what the bytes count.
        evidence: whether the peak was measured or simulated.
        step: which step it is of, from 1; None if that is not told. A first step is no probe: optimizer state is made in it.
        phase: the phase in which the peak lies, where that is known.
        phases: the peak inside each phase, where they are known.
        held: bytes by category at the peak, where they are known.
        source: where it comes from, for messages.
    """

    batch: int
    peak: int
    seq: int | None = None
    basis: str = "requested"
    evidence: Evidence = Evidence.MEASURED
    step: int | None = None
    phase: str | None = None
    phases: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    source: str = ""

    @property
    def tokens(self) -> int | None:
        """Tokens of the micro-batch, None where there are no sequences."""
        return None if self.seq is None else self.batch * self.seq

    def __str__(self) -> str:
        length = "" if self.seq is None else f" × {self.seq:,} tokens"
        return f"batch {self.batch:,}{length} ({format_bytes(self.peak)}{f', {self.source}' if self.source else ''})"


def check_probes(probes: Iterable[Probe]) -> None:
    """Check that *probes* can be fitted together.

    Raises:
        InputError: a number is none or out of range, one is of a first step, or they count different bytes. All problems are told.
    """
    given = list(probes)
    problems = [problem for probe in given for problem in _problems(probe)]
    for what, values in (("count different bytes", [p.basis for p in given]), ("are not of one kind", [str(p.evidence) for p in given])):
        if len(set(values)) > 1:
            problems.append(f"the probes {what} ({', '.join(sorted(set(values)))}): fit those of one kind together")
    if len({probe.seq is None for probe in given}) > 1:
        problems.append("some probes tell the length of the sequences and others do not: give it for all of them or for none")
    if problems:
        raise InputError(problems)


def _problems(probe: Probe) -> Iterator[str]:
    whole = True
    for name, value, least in (("batch", probe.batch, 1), ("peak", probe.peak, 0), ("seq", probe.seq, 1), ("step", probe.step, 1)):
        if value is None and name in ("seq", "step"):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            whole = False
            yield f"a probe{f' of {probe.source}' if probe.source else ''} has {name} {value!r}: give a whole number, {least} or more"
    if whole and probe.step == 1:
        yield f"{probe}: is of the first step, before optimizer state is there: probe the second step or a later one"
    if probe.basis not in BASES:
        yield f"a probe{f' of {probe.source}' if probe.source else ''} counts {probe.basis!r} bytes: the bases are {', '.join(BASES)}"


def read_probes(text: str, name: str = "probes", series: str | None = None, basis: str | None = None) -> tuple[Probe, ...]:
    """Return the probes of a CSV file.

    Its first line names the columns: ``batch`` and ``peak``; ``basis``, unless *basis* tells it for all; ``seq``, ``step``, ``phase`` and
    ``evidence`` (by default measured) if they are known, and ``peak in NAME`` for the peak inside a phase. A peak has a unit, or the
    column ``unit`` has it. Other columns are passed over.

    Args:
        text: the content of the file.
        name: what messages call it.
        series: the value that rows have in the column ``series``, if there are several in the file.
        basis: what the bytes of rows count that do not say it; rows that say another one are passed over.

    Raises:
        InputError: a column is missing, or values are none; all problems are told, with their lines.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        header = [(column or "").strip() for column in reader.fieldnames or ()]
    except csv.Error as error:
        raise InputError(f"{name}: is no CSV: {error}") from None
    names = {column: meant for column in header if (meant := _column(column)) is not None}
    problems = [f"{name}: has no column {column!r}{_meant(column, header)}" for column in ("batch", "peak") if column not in names.values()]
    if problems:
        found = ", ".join(header[:12]) or "nothing"
        hint = ": columns are parted by commas" if len(header) == 1 and (";" in header[0] or "\t" in header[0]) else ""
        raise InputError(f"{problem}: its first line is {found}{hint}" for problem in problems)
    meant_twice = [meant for meant in dict.fromkeys(names.values()) if sum(_column(column) == meant for column in header) > 1]
    if meant_twice:
        raise InputError(f"{name}: has several columns for {meant!r}: leave one" for meant in meant_twice)
    probes: list[Probe] = []
    known: set[str] = set()
    others: set[str] = set()
    try:
        for row in reader:
            cells = {names[(key or "").strip()]: (value or "").strip() for key, value in row.items() if (key or "").strip() in names}
            known.add(cells.get("series", ""))
            if series is not None and cells.get("series") != series:
                continue
            if basis is not None and cells.get("basis") not in (None, "", basis):
                others.add(cells["basis"])
                continue
            cells["basis"] = cells.get("basis") or basis or ""
            probe = _probe(cells, f"{name} line {reader.line_num}", problems)
            if probe is not None:
                probes.append(probe)
    except csv.Error as error:
        problems.append(f"{name} line {reader.line_num}: is no CSV: {error}")
    if series is None and len(known) > 1:
        problems.insert(0, f"{name}: holds {len(known)} series: choose one of {', '.join(sorted(known)[:12])}")
    if not problems and not probes:
        problems.append(_no_probe(name, series, sorted(known - {""}), basis, sorted(others)))
    if problems:
        raise InputError(problems)
    return tuple(probes)


def _column(name: str) -> str | None:
    """What a column is about: a key of ``COLUMNS``, or the peak inside a phase."""
    lower = name.lower()
    if lower.startswith(IN_PHASE) and lower[len(IN_PHASE) :].strip():
        return IN_PHASE + name[len(IN_PHASE) :].strip()
    return COLUMNS.get(lower)


def _no_probe(name: str, series: str | None, known: list[str], basis: str | None, others: list[str]) -> str:
    if others:
        return f"{name}: holds no probe in {basis} bytes: its rows count {', '.join(others)} ones"
    if series is None:
        return f"{name}: holds no probe"
    return f"{name}: holds no probe of the series {series!r}: " + (f"its series are {', '.join(known[:12])}" if known else "it has none")


def _meant(column: str, header: list[str]) -> str:
    close = closest(column, header)
    return f", did you mean it by {close!r}?" if close else ""


def _probe(cells: Mapping[str, str], where: str, problems: list[str]) -> Probe | None:
    before = len(problems)
    batch, seq, step = (_count(cells.get(name, ""), name, where, problems) for name in ("batch", "seq", "step"))
    if not cells.get("batch"):
        problems.append(f"{where}: has no batch")
    peak = 0
    try:
        peak = parse_bytes(f"{cells['peak']} {cells.get('unit', '')}".strip())
    except UnitError as error:
        problems.append(f"{where}: {error}; a probe is a peak that was reached: leave out rows that ran out of memory")
    phases = _phases(cells, peak, where, problems) if len(problems) == before else {}
    if not cells["basis"] and not any("what its bytes count" in problem for problem in problems):
        problems.append(f"{where}: does not say what its bytes count: add the column basis ({', '.join(BASES)}), or give the basis for all")
    evidence = cells.get("evidence") or str(Evidence.MEASURED)
    if evidence not in {str(each) for each in Evidence}:
        problems.append(f"{where}: evidence {evidence!r} is neither measured nor simulated")
    if len(problems) > before or batch is None:
        return None
    return Probe(batch, peak, seq, cells["basis"], Evidence(evidence), step, cells.get("phase") or None, phases, source=where)


def _phases(cells: Mapping[str, str], peak: int, where: str, problems: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for column, cell in cells.items():
        if not column.startswith(IN_PHASE) or not cell:
            continue
        try:
            found[column[len(IN_PHASE) :]] = parse_bytes(f"{cell} {cells.get('unit', '')}".strip())
        except UnitError as error:
            problems.append(f"{where}: {column}: {error}")
    if found and max(found.values()) > peak:
        problems.append(
            f"{where}: a phase has a higher peak than the step ({max(found.values()):,} B and {peak:,} B): one of them is wrong"
        )
    return found


def _count(cell: str, name: str, where: str, problems: list[str]) -> int | None:
    if not cell:
        return None
    if not cell.isascii() or not cell.isdigit() or not 0 < int(cell[:40]) <= LARGEST_COUNT:
        problems.append(f"{where}: {name} {cell[:40]!r} is no whole number from 1 to 2^63 - 1")
        return None
    return int(cell)
