"""Which addresses the device lent when: the segments and mapped ranges over the events, walked back from the recorded end.

event          0          1          2
               alloc S    map [0,8)  unmap [4,8)      end: S, [0, 4)
regions        S [0, …)   [0, 4) from 1 on            [4, 8) from 1 to 2
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, replace

import numpy as np

from lifecycle_sim.events import NO_STACK, DeviceTrace, Kind, Segments
from lifecycle_sim.events.kinds import GIVES_BACK, TAKES
from lifecycle_sim.events.trace import Bool, Int32, Int64

SMALL_SEGMENT = 2 << 20
"""Bytes of a segment of the small pool."""


@dataclass(frozen=True, eq=False)
class Regions:
    """Ranges of addresses, each held from the device during ``[begin, end)`` in events: -1 for before the first, n for never given back."""

    address: Int64
    size: Int64
    stream: Int64
    pool: Int32
    small: Bool
    expandable: Bool
    stack: Int32
    begin: Int64
    end: Int64

    def __len__(self) -> int:
        return len(self.address)

    def at(self, event: int) -> Segments:
        """Return the segments after *event*, by address; mapped ranges that touch and belong together are one."""
        rows = np.flatnonzero((self.begin <= event) & (event < self.end))
        rows = rows[np.argsort(self.address[rows], kind="stable")]
        whose = np.stack([self.stream[rows], self.pool[rows], self.small[rows], self.expandable[rows]])
        touches = self.address[rows][1:] == (self.address + self.size)[rows][:-1]
        goes_on = touches & (whose[:, 1:] == whose[:, :-1]).all(axis=0) & self.expandable[rows][1:]
        first = np.flatnonzero(np.append(True, ~goes_on)[: len(rows)])
        unknown = np.full(len(first), -1)
        return Segments(
            address=self.address[rows][first],
            size=np.add.reduceat(self.size[rows], first) if len(first) else np.zeros(0, np.int64),
            stream=self.stream[rows][first],
            pool=self.pool[rows][first],
            small=self.small[rows][first],
            expandable=self.expandable[rows][first],
            allocated=unknown,
            active=unknown,
            requested=unknown,
            stack=self.stack[rows][first],
        )


@dataclass(frozen=True)
class _Run:
    """A range that is held, seen from its end."""

    address: int
    size: int
    stream: int
    pool: int
    small: bool
    expandable: bool
    stack: int
    end: int


def regions(trace: DeviceTrace) -> Regions:
    """Return what *trace* held from the device, and when.

    What an event obtained and nothing else tells of is taken to be held to the end.
    """
    events, n = trace.events, len(trace.events)
    rows = np.flatnonzero(np.isin(events.kind, (*TAKES, *GIVES_BACK)))
    walk = _Walk([] if trace.final is None else _runs(trace.final.segments, n))
    columns = (events.kind, events.address, events.size, events.stream, events.pool, events.stack)
    told = [column[rows].tolist() for column in columns]
    for event, kind, address, size, stream, pool, stack in reversed(list(zip(rows.tolist(), *told, strict=True))):
        expandable = kind in (Kind.SEGMENT_MAP, Kind.SEGMENT_UNMAP)
        run = _Run(address, size, stream, pool, size == SMALL_SEGMENT, expandable, stack, event)
        if kind in TAKES:
            walk.undo_growth(replace(run, end=n), event)
        else:
            walk.undo_loss(replace(run, stack=NO_STACK))
    return walk.finish()


def _runs(segments: Segments, n: int) -> list[_Run]:
    columns = (segments.address, segments.size, segments.stream, segments.pool, segments.small, segments.expandable, segments.stack)
    ends = [n] * len(segments)
    return [_Run(*row) for row in zip(*(column.tolist() for column in columns), ends, strict=True) if row[1] > 0]


class _Walk:
    """The ranges held at one event, while going back from the end."""

    def __init__(self, runs: list[_Run]) -> None:
        self.runs = {run.address: run for run in runs}
        self.starts = sorted(self.runs)
        self.found: list[tuple[_Run, int]] = []

    def undo_loss(self, run: _Run) -> None:
        """Go back over the loss of *run*."""
        if run.size > 0 and run.address not in self.runs:
            self.runs[run.address] = run
            insort(self.starts, run.address)

    def undo_growth(self, grown: _Run, event: int) -> None:
        """Go back over *event*, which obtained *grown*: those bytes, whatever became of each, were held from there on."""
        address, stop = grown.address, grown.address + grown.size
        while address < stop:
            at = bisect_right(self.starts, address) - 1
            run = self.runs[self.starts[at]] if at >= 0 else None
            if run is None or run.address + run.size <= address:
                following = self.starts[at + 1] if at + 1 < len(self.starts) else stop
                piece = replace(grown, address=address, size=min(following, stop) - address)
            else:
                piece = replace(run, address=address, size=min(run.address + run.size, stop) - address, stack=grown.stack)
                self._cut(at, run, address, address + piece.size)
            self.found.append((piece, event))
            address += piece.size

    def _cut(self, at: int, run: _Run, low: int, high: int) -> None:
        del self.starts[at], self.runs[run.address]
        for start, stop in ((run.address, low), (high, run.address + run.size)):
            if start < stop:
                self.runs[start] = replace(run, address=start, size=stop - start)
                insort(self.starts, start)

    def finish(self) -> Regions:
        """Return all ranges, by when they began and then by address."""
        self.found += [(run, -1) for run in self.runs.values()]
        self.found.sort(key=lambda found: (found[1], found[0].address))

        def column(name: str) -> list[int]:
            return [getattr(run, name) for run, _ in self.found]

        return Regions(
            address=np.array(column("address"), np.int64),
            size=np.array(column("size"), np.int64),
            stream=np.array(column("stream"), np.int64),
            pool=np.array(column("pool"), np.int32),
            small=np.array(column("small"), np.bool_),
            expandable=np.array(column("expandable"), np.bool_),
            stack=np.array(column("stack"), np.int32),
            begin=np.array([begin for _, begin in self.found], np.int64),
            end=np.array(column("end"), np.int64),
        )
