"""The frontier of batch × sequence length: the largest batch at each length, and the peaks around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.batch.curve import curve
from lifecycle_sim.study.batch.verified import Verified
from lifecycle_sim.units import format_exact

COLUMNS = 24
"""The most batches that are shown beside each other."""


@dataclass(frozen=True)
class Frontier(Shown):
    """Batches over lengths.

    Attributes:
        lengths: lengths of sequences, rising.
        batches: batches, rising.
        peaks: bytes for each length and batch: measured where there was a run, else on the line between the nearest runs.
        measured: for each of these whether there was a run.
        largest: the largest batch that fits at each length; 0 or less if none does.
        room: bytes there are, less headroom.
        basis: what the bytes count.
    """

    lengths: tuple[int, ...]
    batches: tuple[int, ...]
    peaks: tuple[tuple[int, ...], ...]
    measured: tuple[tuple[bool, ...], ...]
    largest: tuple[int, ...]
    room: int
    basis: str

    def __repr__(self) -> str:
        pairs = ", ".join(f"{seq:,}: {batch:,}" for seq, batch in zip(self.lengths, self.largest, strict=True))
        return f"Frontier({{{pairs}}}, {self.basis} bytes)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        rows = [(f"{seq:,} tokens", f"batch {batch:,}") for seq, batch in zip(self.lengths, self.largest, strict=True)]
        return [*rows, ("room", f"{format_exact(self.room)} {self.basis}")]


def frontier(found: Sequence[Verified], columns: int = COLUMNS) -> Frontier:
    """Return the frontier of largest batches that were found at several lengths.

    Args:
        found: what was found, each at a length of its own.
        columns: the most batches to show.

    Raises:
        InputError: there is nothing, or what was found are not batches at lengths.
    """
    by_length = {each.other: each for each in found if each.axis == "batch" and each.other is not None}
    if len(by_length) < 2 or len(by_length) != len(found):
        raise InputError("a frontier needs the largest batches at two lengths or more")
    lengths = sorted(seq for seq in by_length if seq is not None)
    ordered = [by_length[seq] for seq in lengths]
    largest = tuple(each.value for each in ordered)
    batches = _columns([count for each in ordered for count in (each.value, each.value + 1)], max(*largest, 0) + 1, columns)
    peaks, measured = [], []
    for each in ordered:
        known = each.sought.peaks
        line = curve(known.items(), exact=True) if len(known) > 1 else None
        peaks.append(tuple(known.get(batch) or (line.estimate(batch) if line else 0) for batch in batches))
        measured.append(tuple(batch in known for batch in batches))
    first = ordered[0]
    return Frontier(tuple(lengths), batches, tuple(peaks), tuple(measured), largest, first.budget - first.headroom, first.basis)


def _columns(wanted: Sequence[int], most: int, columns: int) -> tuple[int, ...]:
    """Batches from 1 to *most*: those wanted, and powers of two between them while there is room."""
    chosen = {count for count in wanted if 1 <= count <= most}
    power = 1
    while power < most:
        chosen.add(power)
        power *= 2
    kept = sorted(chosen)
    while len(kept) > columns:
        must = set(wanted)
        loose = [count for count in kept if count not in must] or kept[1:-1]
        kept.remove(loose[len(loose) // 2])
    return tuple(kept)
