"""Timelines: a level in bytes over events, a step function, and its exact peak."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.display import Shown
from lifecycle_sim.events import Basis, Evidence
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.units import format_exact

EXACT_IN_INT64 = 2**62


@dataclass(frozen=True)
class Peak:
    """The maximum of a timeline.

    Attributes:
        size: the level, in bytes: above the start, where that is not known.
        event: the first event after which the level is attained; -1 if it is the level before the first event.
        time: the time of that event in the trace's clock, None if there is no clock or no event.
        lower: the least the true peak can be, given what the recording lost.
        upper: the most it can be; None if nothing bounds it, as where no history was recorded or the start is not known. Equal to
            ``lower`` and ``size`` when nothing was lost.
    """

    size: int
    event: int
    time: int | None
    lower: int
    upper: int | None

    @property
    def exact(self) -> bool:
        """Whether the recording leaves no doubt about the peak."""
        return self.lower == self.size == self.upper


@dataclass(frozen=True, eq=False)
class Timeline(Shown):
    """A level over the events of one device.

    Attributes:
        levels: n + 1 levels in bytes: ``levels[0]`` before the first event, ``levels[i + 1]`` after event ``i``. int64, or Python
            integers (dtype object) when a total may pass 2^63.
        basis: what the bytes count: a :class:`~lifecycle_sim.events.kinds.Basis` or ``"reserved"``.
        evidence: whether they were measured or simulated.
    """

    levels: NDArray[Any]
    basis: Basis | str
    evidence: Evidence

    def __len__(self) -> int:
        return len(self.levels) - 1

    def __repr__(self) -> str:
        return f"Timeline({len(self):,} events, {self.start:,} B → {self.end:,} B, peak {self.peak_size:,} B {self.basis}, {self.evidence})"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        where = "before the first event" if self.peak_event < 0 else f"after event {self.peak_event:,}"
        return [
            ("peak", f"{format_exact(self.peak_size)} {where}"),
            ("start", format_exact(self.start)),
            ("end", format_exact(self.end)),
            ("bytes", f"{self.basis}, {self.evidence}"),
            ("events", f"{len(self):,}"),
        ]

    @property
    def start(self) -> int:
        """The level before the first event."""
        return int(self.levels[0])

    @property
    def end(self) -> int:
        """The level after the last event."""
        return int(self.levels[-1])

    @property
    def peak_event(self) -> int:
        """The first event after which the level is highest, -1 for the state before the first event."""
        return int(np.argmax(self.levels)) - 1

    @property
    def peak_size(self) -> int:
        """The highest level."""
        return int(self.levels[self.peak_event + 1])

    def at(self, event: int) -> int:
        """Return the level after *event*; -1 asks for the level before the first event.

        Raises:
            IndexError: there is no such event.
        """
        if not -1 <= event < len(self):
            raise IndexError(f"event {event} is not in the timeline: it has events 0 to {len(self) - 1}, and -1 for the start")
        return int(self.levels[event + 1])


def accumulate_levels(start: int, change: Int64) -> NDArray[Any]:
    """Return the n + 1 levels that begin at *start* bytes and take the n signed steps *change*; exact, whatever the totals."""
    if abs(start) + float(np.abs(change.astype(np.float64)).sum()) < EXACT_IN_INT64:
        levels = np.empty(len(change) + 1, np.int64)
        levels[0] = start
        np.cumsum(change, out=levels[1:])
        levels[1:] += start
        return levels
    return np.array(list(accumulate(change.tolist(), initial=start)), dtype=object)


def levels_of_intervals(alloc: Int64, free: Int64, size: Int64, events: int) -> NDArray[Any]:
    """Return the n + 1 levels of storages live in ``[alloc, free)``.

    Args:
        alloc: event from which each storage is live, -1 if before the first.
        free: event from which it is not, ``events`` if never.
        size: bytes of each storage.
        events: number n of events.
    """
    change = np.zeros(events + 2, np.int64 if float(size.sum(dtype=np.float64)) < EXACT_IN_INT64 else object)
    sizes = size.astype(change.dtype)
    np.add.at(change, alloc + 1, sizes)
    np.subtract.at(change, free + 1, sizes)
    return np.cumsum(change[:-1])
