"""One device while its JSON lines are read: its events, the storages that are live, and its state at the end."""

from __future__ import annotations

from array import array
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from lifecycle_sim.errors import InputError, TraceFormatError, TraceInvariantError
from lifecycle_sim.events import NO_LABEL, NO_STACK, Blocks, DeviceTrace, Events, Kind, MemoryState, Segments, Span
from lifecycle_sim.sources.native.grammar import CATEGORIES, STATES, BlockLine, DeviceLine, SegmentLine
from lifecycle_sim.sources.native.tables import Tables
from lifecycle_sim.sources.problems import did_you_mean
from lifecycle_sim.units import parse_bytes, parse_duration

_ENDS = (Kind.FREE, Kind.FREE_COMPLETED)
_OF_STORAGES = (Kind.ALLOC, Kind.FREE_REQUESTED, *_ENDS, Kind.ANNOTATE, Kind.SHARE, Kind.RELEASE)
_COLUMNS = {"kind": "B", "address": "q", "size": "q", "stream": "q", "time": "q", "stack": "i", "label": "i", "category": "B", "pool": "i"}
_SEGMENT_TYPES = (np.int64, np.int64, np.int64, np.int32, np.bool_, np.bool_, np.int64, np.int64, np.int64, np.int32)
_BLOCK_TYPES = (np.int32, np.int64, np.int64, np.int64, np.uint8, np.int32, np.uint8)


class Section:
    """Events are kept as one array a column. A storage that has a name gets the next free number as its address."""

    def __init__(self, line: DeviceLine, tables: Tables, nanoseconds: bool) -> None:
        self.line, self.declared = line, False
        self._tables, self._nanoseconds = tables, nanoseconds
        self._columns: dict[str, array[int]] = {name: array(code) for name, code in _COLUMNS.items()}
        self._last_time = 0
        self._named: bool | None = None
        self._numbers: dict[str, int] = {}
        self._live: dict[str | int, int] = {}  # name or number of each live storage → row of its alloc
        self._doubtful: set[str | int] = set()  # storages whose alloc was refused: no further complaint about them
        self._spans: list[Span] = []
        self._open_spans: dict[str, list[int]] = {}
        self._segments: list[tuple[Any, ...]] = []
        self._blocks: list[tuple[Any, ...]] = []

    def event(self, kind: Kind, who: Any, record: dict[str, Any]) -> None:
        """Append an event of *kind* about *who*, a name, a number or None; nothing is appended unless every value is good."""
        try:
            if not self._doubtful or not isinstance(who, str | int) or who not in self._doubtful:
                self._append(kind, who, record)
        except InputError:
            if kind is Kind.ALLOC and isinstance(who, str | int):
                self._doubtful.add(who)
            raise

    def _append(self, kind: Kind, who: Any, record: dict[str, Any]) -> None:
        address, of = self._storage(kind, who)
        values, tables, columns = record.get, self._tables, self._columns
        label = stream = category = pool = 0
        if not isinstance(who, str):
            label = NO_LABEL
        else:  # an event of a storage with a name takes what it does not say from the storage's alloc
            label = tables.label(who)
            if of is not None:
                stream, category, pool = columns["stream"][of], columns["category"][of], columns["pool"][of]

        if (size := values("size")) is None:
            if of is None and kind is not Kind.SNAPSHOT:
                raise TraceFormatError(f"{kind.name.lower()} of {who!r} has no size: write bytes as an integer, or text with a unit")
            size = 0 if of is None else columns["size"][of]
        elif type(size) is not int or not 0 <= size < 2**63:
            size = read_size(size)
        if (time := values("time")) is None:
            time = self._last_time
        elif type(time) is not int or not -(2**63) <= time < 2**63:
            time = self._time(time)
        if (value := values("stream")) is not None:
            stream = _int64("stream", value)
        stack = NO_STACK if (value := values("stack")) is None else tables.stack(value)
        if (value := values("label")) is not None:
            label = tables.label(value)
        if (value := values("category")) is not None:
            category = _word("category", value, CATEGORIES)
        if (value := values("pool")) is not None:
            pool = tables.pool(value)

        if who is not None:
            if kind is Kind.ALLOC:
                self._live[who] = len(columns["kind"])
            elif kind in _ENDS:
                self._live.pop(who, None)
        self._last_time = time
        columns["kind"].append(kind)
        columns["address"].append(address)
        columns["size"].append(size)
        columns["stream"].append(stream)
        columns["time"].append(time)
        columns["stack"].append(stack)
        columns["label"].append(label)
        columns["category"].append(category)
        columns["pool"].append(pool)

    def _storage(self, kind: Kind, who: Any) -> tuple[int, int | None]:
        """Return the address that *who* stands for, and the row of the alloc of that storage where it is live."""
        if who is None:
            return -1, None
        named = isinstance(who, str)
        if not named:
            _int64(kind.name.lower(), who)
        if kind not in _OF_STORAGES:
            if named:
                raise TraceFormatError(f"{kind.name.lower()} of {who!r}: give its address as a number")
            return who, None
        if self._named is not named:
            if self._named is not None:
                raise TraceFormatError(f"{kind.name.lower()} of {who!r}: storages of one device have names or numbers, not both")
            self._named = named
        of = self._live.get(who)
        if not named:
            return who, of
        if kind is Kind.ALLOC:
            if of is not None:
                raise TraceInvariantError(f"alloc of {who!r}, which is live: free it first, or choose another name")
            return self._numbers.setdefault(who, len(self._numbers)), None
        if of is None:
            hint = did_you_mean(who, (name for name in self._live if isinstance(name, str)), otherwise="")
            never = "was freed before" if who in self._numbers else f"was never allocated{hint}"
            raise TraceInvariantError(f"{kind.name.lower()} of {who!r}, which {never}")
        return self._numbers[who], of

    def _time(self, value: Any) -> int:
        if isinstance(value, str) and not self._nanoseconds:
            raise TraceFormatError(f'time {value!r} has a unit: that needs "clock": "ns" in the header')
        return _int64("time", parse_duration(value) if isinstance(value, str) else value)

    def add_span(self, span: Span) -> None:
        """Add a whole span."""
        self._spans.append(span)

    def begin(self, kind: str, name: str) -> None:
        """Open a span at the next event."""
        self._open_spans.setdefault(name, []).append(len(self._spans))
        self._spans.append(Span(kind, name, len(self), -1, False))

    def end(self, name: str) -> None:
        """Close the innermost open span called *name* after the last event."""
        if not self._open_spans.get(name):
            raise TraceInvariantError(f"end of {name!r}, which no line above begins")
        number = self._open_spans[name].pop()
        self._spans[number] = replace(self._spans[number], stop=len(self), closed=True)

    def add_segment(self, line: SegmentLine) -> None:
        """Add a segment of the state at the end."""
        pool, stack = self._tables.pool(line.pool), self._tables.stack(line.stack)
        totals = (line.allocated, line.active, line.requested)
        self._segments.append((line.segment, read_size(line.size), line.stream, pool, line.small, line.expandable, *totals, stack))

    def add_block(self, line: BlockLine) -> None:
        """Add a block of the state at the end."""
        within = len(self._segments) - 1 if line.within is None else line.within
        if not 0 <= within < len(self._segments):
            raise TraceFormatError(f"the block is in no segment above it: the device has {len(self._segments)}")
        state, category = _word("state", line.state, STATES), _word("category", line.category, CATEGORIES)
        requested = line.requested if isinstance(line.requested, int) else read_size(line.requested, "requested")
        self._blocks.append((within, line.block, read_size(line.size), requested, state, self._tables.stack(line.stack), category))

    def __len__(self) -> int:
        return len(self._columns["kind"])

    def trace(self) -> DeviceTrace:
        """Return what was read."""
        line, spans = self.line, list(self._spans)
        for number in (number for numbers in self._open_spans.values() for number in numbers):
            spans[number] = replace(spans[number], stop=len(self))
        events = Events.of(**{name: np.array(column) for name, column in self._columns.items()})
        identified = line.identified
        if identified is None:
            identified = not (events.address[np.isin(events.kind, _OF_STORAGES)] == -1).any()
        final = None
        if line.final or self._segments:
            final = MemoryState(Segments(*_columns(self._segments, _SEGMENT_TYPES)), Blocks(*_columns(self._blocks, _BLOCK_TYPES)))
        capacity = None if line.capacity is None else read_size(line.capacity, "capacity")
        return DeviceTrace(line.device, events, line.basis, final, line.start, identified, tuple(spans), capacity)


def _columns(rows: list[tuple[Any, ...]], types: tuple[Any, ...]) -> list[Any]:
    return [np.array([row[number] for row in rows], kind) for number, kind in enumerate(types)]


def _int64(what: str, value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise TraceFormatError(f"{what} {value!r} is not a 64-bit integer")
    return value


def _word(what: str, value: Any, known: dict[str, Any]) -> int:
    if not isinstance(value, str) or value not in known:
        raise TraceFormatError(f"{what} {value!r} is not known{did_you_mean(str(value), known)}")
    return int(known[value])


def read_size(value: Any, what: str = "size") -> int:
    """Return the bytes that *value*, an integer or text with a unit, stands for."""
    size = _parse_bytes(value) if isinstance(value, str) else value
    if type(size) is not int:
        raise TraceFormatError(f'{what} {value!r} is not a size: write bytes as an integer, or text with a unit such as "4 MiB"')
    if not 0 <= size < 2**63:
        raise TraceFormatError(f"{what} {value!r} is {'negative' if size < 0 else 'beyond 2^63 bytes'}")
    return size


_parse_bytes = lru_cache(maxsize=1024)(parse_bytes)
