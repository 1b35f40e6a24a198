"""How long storages live: temporary and long-lived ones, and sizes against spans of life.

A span of life is counted in the allocations that others make between a storage's own allocation and its free. That does not
depend on how many names, segments or markers the recording tells of, as a count of events would::

    event     0   1   2   3   4   5   6
              +A  +B  +C  -B  +D  -C  -A      A lives 3 allocations (B, C, D), B lives 1 (C), C lives 1 (D)

Four words tell storages apart, in every table and figure: *temporary* (freed soon), *passing* (freed later), *long-lived* (never freed in
the window) and *older* (live before the window, freed in it, so that nobody knows how long it lived).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Evidence, Kind
from lifecycle_sim.events.trace import Bool, Int64
from lifecycle_sim.replay.attribution import sums
from lifecycle_sim.replay.device import DeviceReplay
from lifecycle_sim.replay.grouping import POWERS_OF_TWO, size_class_names, size_classes
from lifecycle_sim.replay.lifetimes import Lifetimes

TEMPORARY_WITHIN = 8
"""Allocations within which a temporary storage is freed, by default. In recorded training steps of language models most storages that are
freed at all are freed within 8, and few more within 64: what remains is held for a later part of the step. What lives
through more than a quarter of all allocations is not temporary either, however few there are."""

TO_THE_END, OLDER_FREED, OLDER_TO_THE_END = "to the end", "older, freed", "older, to the end"


@dataclass(frozen=True)
class Total:
    """Some storages together.

    Attributes:
        count: how many storages.
        size: their bytes, as if all lived at once.
        at_peak: bytes of those that are live at the device's peak.
    """

    count: int
    size: int
    at_peak: int


@dataclass(frozen=True)
class Cell:
    """The storages of one size class and one class of spans.

    Attributes:
        size_class: numbers the classes of ``Lifespans.size_names``.
        span_class: numbers the classes of ``Lifespans.span_names``.
        count: how many storages.
        size: their bytes, as if all lived at once.
    """

    size_class: int
    span_class: int
    count: int
    size: int


@dataclass(frozen=True)
class Lifespans:
    """How long the storages of a device live. Every storage is in one of the four totals and in one cell.

    Attributes:
        device: the device's name.
        basis: what the bytes count.
        evidence: whether they were measured or simulated.
        within: allocations within which a temporary storage is freed.
        temporary: allocated in the window and freed within that many further allocations.
        passing: allocated in the window and freed in it, later than that.
        long_lived: never freed in the window.
        older_freed: live before the window and freed in it, so that the span is not known.
        size_names: the size classes that occur, from small to large: from a power of two up to the next.
        span_names: the classes of spans that occur, from short to long: in allocations, from a power of two up to the next, then those
            whose span has no known end or beginning.
        cells: the cells that hold a storage, by size class and then by span class.
    """

    device: str
    basis: Basis | str
    evidence: Evidence
    within: int
    temporary: Total
    passing: Total
    long_lived: Total
    older_freed: Total
    size_names: tuple[str, ...]
    span_names: tuple[str, ...]
    cells: tuple[Cell, ...]

    def __repr__(self) -> str:
        return (
            f"Lifespans({self.device!r}, {self.temporary.count:,} temporary (freed within {self.within} allocations), "
            f"{self.passing.count:,} passing, {self.long_lived.count:,} long-lived, {self.older_freed.count:,} older and freed)"
        )


def lifespans(replayed: DeviceReplay, within: int | None = None) -> Lifespans:
    """Tell temporary from long-lived storages of *replayed*, and set sizes against spans.

    Args:
        replayed: what was recorded on one device.
        within: a storage is temporary if it is freed within this many further allocations. 0 leaves only those that are freed before
            anything else is allocated. By default what :func:`temporary_within` says.

    Raises:
        InputError: *within* is negative, or the record's events carry no identity.
    """
    found, within = replayed.identified_lifetimes(), temporary_within(replayed) if within is None else within
    temporary = temporary_storages(replayed, within)
    live = found.live_at(replayed.peak.event)
    span, known = allocation_spans(replayed), ~found.before_window & ~found.leaked

    def total(chosen: Bool) -> Total:
        size = found.size[chosen]
        both = live & chosen
        return Total(
            len(size), sums(np.zeros(len(size), np.int64), size, 1)[0], sums(np.zeros(both.sum(), np.int64), found.size[both], 1)[0]
        )

    size_names, span_names, cells = _cells(found, np.where(known, span, -1))
    return Lifespans(
        replayed.device,
        replayed.timeline.basis,
        replayed.timeline.evidence,
        within,
        total(temporary),
        total(known & ~temporary),
        total(found.leaked),
        total(found.before_window & ~found.leaked),
        size_names,
        span_names,
        cells,
    )


def temporary_within(replayed: DeviceReplay) -> int:
    """Return within how many allocations a temporary storage is freed: ``TEMPORARY_WITHIN``, or a quarter of all if that is less."""
    return min(TEMPORARY_WITHIN, int((replayed.recorded.events.kind == Kind.ALLOC).sum()) // 4)


def temporary_storages(replayed: DeviceReplay, within: int) -> Bool:
    """Return which storages are temporary: allocated in the window and freed in it, within *within* further allocations.

    Raises:
        InputError: *within* is negative, or the record's events carry no identity.
    """
    if within < 0:
        raise InputError(f"temporary storages cannot be freed within {within} allocations: give 0 or more")
    found = replayed.identified_lifetimes()
    temporary: Bool = ~found.before_window & ~found.leaked & (allocation_spans(replayed) <= within)
    return temporary


def allocation_spans(replayed: DeviceReplay) -> Int64:
    """Return how many allocations each storage lives; of one that is older than the window or never freed, those that are seen.

    Raises:
        InputError: the record's events carry no identity.
    """
    found = replayed.identified_lifetimes()
    seen = np.zeros(found.events + 1, np.int64)
    np.cumsum(replayed.recorded.events.kind == Kind.ALLOC, out=seen[1:])
    spans: Int64 = seen[found.free] - seen[np.minimum(found.alloc + 1, found.free)]
    return spans


def _cells(found: Lifetimes, span: Int64) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Cell, ...]]:
    """Names of the size classes and span classes that occur, and the cells; *span* is -1 where it is not known."""
    ends = [str(2**k) for k in range(len(POWERS_OF_TWO))]
    names = [
        "0",
        *("1" if k == 0 else f"{low} – {2 ** (k + 1) - 1}" for k, low in enumerate(ends)),
        TO_THE_END,
        OLDER_FREED,
        OLDER_TO_THE_END,
    ]
    span_class = np.searchsorted(POWERS_OF_TWO, span, side="right")
    open_ended = len(ends) + 1 + np.where(found.before_window, np.where(found.leaked, 2, 1), 0)
    span_class = np.where(span < 0, open_ended, span_class)
    sizes, by_size = np.unique(size_classes(found.size), return_inverse=True)
    spans, by_span = np.unique(span_class, return_inverse=True)
    cell = by_size * max(len(spans), 1) + by_span
    count, size = np.bincount(cell, minlength=len(sizes) * len(spans)), sums(cell, found.size, len(sizes) * len(spans))
    held = [Cell(*divmod(number, len(spans)), int(count[number]), size[number]) for number in np.flatnonzero(count).tolist()]
    size_names = size_class_names()
    return tuple(size_names[number] for number in sizes.tolist()), tuple(names[number] for number in spans.tolist()), tuple(held)
