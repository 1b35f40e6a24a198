"""The entries of a device's trace as columns.

A million entries are read in a second by taking a chunk of them at a time, small enough for the processor's cache, and a column of the
chunk at a time with functions written in C. Whatever is not as it should be in a column of a chunk is then looked at value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

import numpy as np

from lifecycle_sim.events import NO_LABEL, Events, Kind
from lifecycle_sim.sources.document_problems import LISTED, Where, describe, one_line
from lifecycle_sim.sources.snapshot.context import INT64_MAX, MOST_BYTES, Context

ACTIONS = {
    "alloc": Kind.ALLOC,
    "free_requested": Kind.FREE_REQUESTED,
    "free_completed": Kind.FREE_COMPLETED,
    "segment_alloc": Kind.SEGMENT_ALLOC,
    "segment_free": Kind.SEGMENT_FREE,
    "segment_map": Kind.SEGMENT_MAP,
    "segment_unmap": Kind.SEGMENT_UNMAP,
    "oom": Kind.OOM,
    "snapshot": Kind.SNAPSHOT,
    "annotate": Kind.ANNOTATE,
}
CHUNK = 2048
NO_TIME = -INT64_MAX - 1
"""Stands in the time column, while reading, for an entry without time_us."""
LATEST = INT64_MAX // 1000
NO_CONTEXT = ("", "N/A")
"""What compile_context holds outside a compilation."""

_ABSENT: Any = object()
DEFAULTS: dict[str, Any] = {
    "action": _ABSENT,
    "addr": _ABSENT,
    "size": _ABSENT,
    "stream": 0,
    "time_us": NO_TIME,
    "user_metadata": "",
    "compile_context": "",
    "pool_id": (0, 0),
    "frames": (),
}
"""The keys of a trace entry that are read, with what stands for one that is missing."""

_Values = Sequence[Any]


@dataclass(frozen=True)
class DeviceEvents:
    """The events of one device, with which of them had a time."""

    events: Events
    timed: int

    def __len__(self) -> int:
        return len(self.events)


def read_events(entries: list[Any], where: Where, context: Context) -> DeviceEvents:
    """Return the trace entries *entries*, which stand at *where*, as events; the index of an event is that of its entry.

    The label of an event is its user_metadata, or, where that is empty, the compile_context it was made in.
    """
    reader = _Reader(entries, where, context)
    for low in range(0, len(entries), CHUNK):
        reader.read(low, entries[low : low + CHUNK])
    return reader.finish()


class _Reader:
    def __init__(self, entries: list[Any], where: Where, context: Context) -> None:
        count = len(entries)
        self.entries, self.where, self.context = entries, where, context
        self.kind = np.empty(count, np.uint8)
        self.address, self.size, self.stream, self.time = (np.empty(count, np.int64) for _ in range(4))
        self.stack, self.label, self.pool = (np.empty(count, np.int32) for _ in range(3))
        self.unknown: dict[str, int] = {}

    def read(self, low: int, chunk: _Values) -> None:
        """Read the entries *chunk*, the first of which is entry *low*."""
        columns = _columns(chunk)
        if columns is None:
            columns = _uneven_columns([self._entry(low + i, entry) for i, entry in enumerate(chunk)])
        rows = slice(low, low + len(chunk))
        self.kind[rows] = self._kinds(low, columns["action"])
        self.address[rows] = self._integers(low, columns["addr"], "addr", self._address_or_free)
        self.size[rows] = self._integers(low, columns["size"], "size", self._size_or_nothing)
        self.stream[rows] = self._integers(low, columns["stream"], "stream")
        self.time[rows] = self._integers(low, columns["time_us"], "time_us")
        self.label[rows] = self._labels(low, columns["user_metadata"], columns["compile_context"])
        self.pool[rows] = self._pools(low, columns["pool_id"])
        self.stack[rows] = self._stacks(low, columns["frames"])

    def _entry(self, row: int, entry: Any) -> dict[str, Any]:
        """Return *entry*, or, if it is no dict, a harmless one in its place."""
        if type(entry) is dict:
            return entry
        self.context.problems.wrong((*self.where, row), entry, "a trace entry: a dict with action, addr, size and more")
        return {"action": "snapshot", "addr": 0, "size": 0, "frames": ()}

    def _kinds(self, low: int, actions: _Values) -> Any:
        try:
            "".join(actions)  # fails unless all are strings, which is quicker than to look at their types
            return np.frombuffer(bytes(map(ACTIONS.__getitem__, actions)), np.uint8)
        except (TypeError, KeyError):
            return [self._kind(low + i, action) for i, action in enumerate(actions)]

    def _kind(self, row: int, action: Any) -> int:
        if type(action) is not str:
            if action is _ABSENT:
                self.context.problems.missing((*self.where, row, "action"), "the name of an action")
            else:
                self.context.problems.wrong((*self.where, row, "action"), action, "the name of an action")
            return Kind.OTHER
        kind = ACTIONS.get(action)
        if kind is None:
            kind = Kind.OTHER
            name = one_line(action[:40])
            if name in self.unknown or len(self.unknown) < LISTED:
                self.unknown[name] = self.unknown.get(name, 0) + 1
            self.context.assume(
                "unknown_action",
                1,
                f"the actions {', '.join(self.unknown)} are not known: these events are taken to change no level",
            )
        return kind

    def _integers(self, low: int, values: _Values, key: str, absent: Callable[[int], Any] | None = None) -> Any:
        """Return a column of 64-bit integers; *absent* gives the value of a row that lacks it."""
        if set(map(type, values)) == {int}:
            try:
                return np.fromiter(values, np.int64, len(values))
            except OverflowError:
                pass
        return [self._integer(low + i, value, key, absent) for i, value in enumerate(values)]

    def _integer(self, row: int, value: Any, key: str, absent: Callable[[int], Any] | None) -> int:
        if value is _ABSENT and absent is not None:
            value = absent(row)
        if type(value) is int and -INT64_MAX - 1 <= value <= INT64_MAX:
            return value
        if value is _ABSENT:
            self.context.problems.missing((*self.where, row, key), "an integer that fits 64 bits")
        else:
            self.context.problems.wrong((*self.where, row, self._key(row, key)), value, "an integer that fits 64 bits")
        return 0

    def _key(self, row: int, key: str) -> str:
        """Return under which key the entry *row* has what others have under *key*."""
        return "device_free" if key == "addr" and self.kind[row] == Kind.OOM and key not in self.entries[row] else key

    def _address_or_free(self, row: int) -> Any:
        """An oom entry has device_free, the device's free bytes, in place of an address."""
        if self.kind[row] == Kind.OOM:
            return self.entries[row].get("device_free", 0)
        return 0 if self.kind[row] in (Kind.OTHER, Kind.SNAPSHOT) else _ABSENT

    def _size_or_nothing(self, row: int) -> Any:
        return 0 if self.kind[row] in (Kind.OTHER, Kind.SNAPSHOT) else _ABSENT

    def _labels(self, low: int, metadata: _Values, contexts: _Values) -> Any:
        if _all_equal(metadata, "") and (_all_equal(contexts, "N/A") or _all_equal(contexts, "")):
            return NO_LABEL
        numbers = []
        for i, (text, compiled) in enumerate(zip(metadata, contexts, strict=True)):
            if type(text) is not str:
                self.context.problems.wrong((*self.where, low + i, "user_metadata"), text, "a string")
            elif type(compiled) is not str:
                self.context.problems.wrong((*self.where, low + i, "compile_context"), compiled, "a string")
            elif text or compiled not in NO_CONTEXT:
                numbers.append(self.context.label(text or compiled))
                continue
            numbers.append(NO_LABEL)
        return numbers

    def _pools(self, low: int, values: _Values) -> Any:
        # Types come before comparing and hashing, which of a value that is no flat pair could take for ever.
        if _is_pair(values[0]) and _all_equal(values, values[0]):
            return self.context.pool(values[0], (*self.where, low, "pool_id"))
        if (
            set(map(type, values)) <= {tuple, list}
            and set(map(len, values)) == {2}
            and set(map(type, chain.from_iterable(values))) == {int}
        ):
            numbers = list(map(self.context.pools.get, map(tuple, values)))
            if None not in numbers:
                return numbers
        return [self.context.pool(value, (*self.where, low + i, "pool_id")) for i, value in enumerate(values)]

    def _stacks(self, low: int, values: _Values) -> Any:
        known = self.context.stack_of_list
        try:
            return np.fromiter(map(known.__getitem__, map(id, values)), np.int32, len(values))
        except KeyError:
            return [self.context.stack(frames, (*self.where, low + i, "frames")) for i, frames in enumerate(values)]

    def finish(self) -> DeviceEvents:
        """Check the columns as wholes and return them."""
        self._check_ranges()
        timed = self._clock()
        count = len(self.entries)
        events = Events(
            kind=self.kind,
            address=self.address,
            size=self.size,
            stream=self.stream,
            time=self.time,
            stack=self.stack,
            label=self.label,
            category=np.zeros(count, np.uint8),
            pool=self.pool,
        )
        return DeviceEvents(events, timed)

    def _check_ranges(self) -> None:
        self._refuse(self.address < 0, "addr", self.address, "an address, 0 or more")
        self._refuse(self.size < 0, "size", self.size, "a number of bytes, 0 or more")
        inert = np.isin(self.kind, (Kind.OOM, Kind.SNAPSHOT, Kind.OTHER))
        beyond = (self.address > INT64_MAX - np.maximum(self.size, 0)) & ~inert
        self._refuse(beyond, "size", self.size, "small enough for its end to fit 64 bits")
        late = (self.time > LATEST) | ((self.time < -LATEST) & (self.time != NO_TIME))
        self._refuse(late, "time_us", self.time, "a time in microseconds of which the nanoseconds fit 64 bits")
        total = float(self.size[~inert].sum(dtype=np.float64))
        if total > MOST_BYTES:
            self.context.problems.add(self.where, f"holds sizes that add up to about {total:.3g} bytes, should stay below 2^62")

    def _refuse(self, wrong: Any, key: str, values: Any, should: str) -> None:
        rows = np.flatnonzero(wrong)
        for row in rows[:LISTED]:
            self.context.problems.add(
                (*self.where, int(row), self._key(int(row), key)), f"is {describe(int(values[row]))}, should be {should}"
            )
        self.context.problems.count += max(len(rows) - LISTED, 0)

    def _clock(self) -> int:
        """Turn the time column into nanoseconds, filling gaps from the entry before; return how many entries had a time."""
        lacking = self.time == NO_TIME
        timed = len(lacking) - int(lacking.sum())
        if timed == 0:
            self.time[:] = 0
            return 0
        if timed < len(lacking):
            self.context.assume(
                "time_filled", len(lacking) - timed, "events without a time are taken to happen at the time of the one before"
            )
            last = np.maximum.accumulate(np.where(lacking, -1, np.arange(len(lacking))))
            first = int(np.flatnonzero(~lacking)[0])
            self.time = self.time[np.where(last < 0, first, last)]
        self.time *= 1000
        backwards = int((np.diff(self.time) < 0).sum())
        self.context.assume("time_goes_back", backwards, "the time goes back from one event to the next: the order of the file is kept")
        return timed


def _columns(chunk: _Values) -> dict[str, _Values] | None:
    """Return the columns of *chunk* if all its entries are dicts with the same of the known keys, else None."""
    first = chunk[0]
    keys = [key for key in DEFAULTS if key in first] if type(first) is dict else []
    if len(keys) < 2:
        return None
    try:
        found: dict[str, _Values] = dict(zip(keys, zip(*map(itemgetter(*keys), chunk), strict=True), strict=True))
    except (KeyError, TypeError):  # a key is missing, or an entry is no dict
        return None
    for key in DEFAULTS.keys() - keys:
        if any(map(dict.__contains__, chunk, repeat(key))):
            return None
        found[key] = (DEFAULTS[key],) * len(chunk)
    return found


def _uneven_columns(chunk: list[dict[str, Any]]) -> dict[str, _Values]:
    """Return the columns of *chunk*, whose entries may lack keys."""
    return {key: tuple([entry.get(key, default) for entry in chunk]) for key, default in DEFAULTS.items()}


def _all_equal(values: _Values, value: Any) -> bool:
    return values == (value,) * len(values)


def _is_pair(value: Any) -> bool:
    return type(value) in (tuple, list) and len(value) == 2 and type(value[0]) is type(value[1]) is int
