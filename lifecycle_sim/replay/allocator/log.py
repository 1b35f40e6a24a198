"""The record of what the allocator did: one row of integers for each event, in the order of a snapshot's trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from lifecycle_sim.events import Events, Kind
from lifecycle_sim.events.trace import Int64

KIND, ADDRESS, SIZE, STREAM, POOL, BLOCK, SPLITS, SPLIT_BYTES = range(8)
"""The columns. ``SIZE`` is that of the trace entry; ``BLOCK`` the size of the block; ``POOL`` a pool's own number; ``SPLITS`` and
``SPLIT_BYTES`` by how much the free pieces of split segments grew."""
WIDTH = 8

ALLOC, FREE_REQUESTED, FREE_COMPLETED = int(Kind.ALLOC), int(Kind.FREE_REQUESTED), int(Kind.FREE_COMPLETED)
SEGMENT_ALLOC, SEGMENT_FREE = int(Kind.SEGMENT_ALLOC), int(Kind.SEGMENT_FREE)
SEGMENT_MAP, SEGMENT_UNMAP, OOM = int(Kind.SEGMENT_MAP), int(Kind.SEGMENT_UNMAP), int(Kind.OOM)
SPLIT_PIECE = -1
"""Not an event: a free piece of a split segment, in rows that build a state."""

_PACK_AT = WIDTH << 16


class Log:
    """Rows of events, kept flat while they are written and packed into arrays when there are many."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._packed: list[Int64] = []
        self.record: Callable[[Iterable[int]], None] = self._rows.extend
        """Appends one or more rows, given as one flat tuple."""

    def __len__(self) -> int:
        return sum(map(len, self._packed)) + len(self._rows) // WIDTH

    @property
    def recent(self) -> list[int]:
        """The rows that are not packed yet, one after the other."""
        return self._rows

    def pack(self, least: int = _PACK_AT) -> None:
        """Turn the rows into arrays once they hold *least* integers."""
        if len(self._rows) >= least:
            self._packed.append(_table(self._rows))
            self._rows.clear()

    def rows(self) -> Int64:
        """Return all rows, shape (events, ``WIDTH``)."""
        return np.concatenate([*self._packed, _table(self._rows)])

    def events(self) -> Events:
        """Return the rows as events; ``pool`` is the place in the allocator's list of pools."""
        rows = self.rows()
        return Events.of(rows[:, KIND], rows[:, ADDRESS], rows[:, SIZE], stream=rows[:, STREAM], pool=rows[:, POOL] >> 1)


def _table(rows: list[int]) -> Int64:
    return np.array(rows, np.int64).reshape(-1, WIDTH)
