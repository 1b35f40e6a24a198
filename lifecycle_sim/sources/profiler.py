"""Reads the ``[memory]`` instants of a profiler trace (Kineto, Chrome JSON) that torch.profiler writes with ``profile_memory=True``.

Each instant has a time ``ts`` in microseconds and the arguments ``Device Type`` (a ``c10::DeviceType`` code), ``Device Id``, signed
``Bytes`` and, but for old releases, ``Addr``, ``Total Allocated`` and ``Total Reserved``. The order of the file is not the order of events:
it goes thread by thread. Sorted by time, the totals of a device follow from its bytes without exception in real files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lifecycle_sim.errors import TraceFormatError
from lifecycle_sim.events import NO_STACK, Assumption, Basis, Clock, DeviceTrace, Events, Evidence, Kind, Span, StackBuilder, Trace
from lifecycle_sim.sources.problems import Problems
from lifecycle_sim.sources.python_functions import Call, stacks_at

_DEVICE_TYPES = {
    0: "cpu", 1: "cuda", 6: "hip", 7: "fpga", 8: "maia", 9: "xla", 10: "vulkan", 11: "metal", 12: "xpu", 13: "mps",
    15: "hpu", 16: "ve", 18: "ipu", 19: "mtia", 20: "privateuseone",
}  # fmt: skip
_STEP = "ProfilerStep#"
_LIMIT = 2**62


class _Instant(NamedTuple):
    """One ``[memory]`` instant; ``address`` and ``total`` are -1 where it has none. ``thread`` counts the threads of the file."""

    time: int
    change: int
    address: int
    total: int
    thread: int


class _Range(NamedTuple):
    """A named range of time, in nanoseconds."""

    start: int
    stop: int
    kind: str
    name: str


@dataclass
class _Collected:
    """What a file holds: the memory instants of each device, the named ranges by start, the Python functions of each thread."""

    instants: dict[str, list[_Instant]] = field(default_factory=dict)
    ranges: list[_Range] = field(default_factory=list)
    calls: dict[int, list[Call]] = field(default_factory=dict)
    threads: dict[tuple[str, str], int] = field(default_factory=dict)

    def thread(self, event: dict[str, Any]) -> int:
        """Return the number of the thread that *event* happened on."""
        return self.threads.setdefault((str(event.get("pid")), str(event.get("tid"))), len(self.threads))


def read_profiler(document: Mapping[str, Any] | Sequence[Any]) -> Trace:
    """Return the trace in the parsed profiler JSON *document*: an object with ``traceEvents``, or the list of events alone.

    Events are sorted by time, stably, for each device: ``"cuda:0"``, … and ``"cpu"`` last; a device type without a known name becomes
    ``"device-type-<code>:<id>"``. With addresses throughout, the identity of a storage is (device, address); else the device is not
    identified. The start level is the first total less the first bytes. Without totals it is not known: levels are then relative
    to it, and an assumption says so; another counts totals that do not follow from the bytes.

    CUDA's bytes are block sizes (all are multiples of 512 in real files): basis allocated. The CPU allocator reports what it was
    asked for: basis requested. Other devices are taken as allocated. ``Total Reserved`` is left out: it tells the level of
    reserved bytes at times, but not the segments that a trace records. Steps (``ProfilerStep#N``) and user annotations become spans
    over the events in their half-open interval of time. The capacity of a CUDA device is its ``totalGlobalMem``. Recorded
    ``with_stack=True``, an event has as its stack the Python functions that run on its thread at its time.

    Raises:
        TraceFormatError: not a profiler trace, no memory events in it, or malformed ones; each is listed.
    """
    events = document.get("traceEvents") if isinstance(document, Mapping) else document
    if not isinstance(events, list | tuple):
        raise TraceFormatError("not a profiler trace: 'traceEvents' is not a list of events")
    found = _collect(events)
    if not found.instants:
        raise TraceFormatError("the profiler trace has no [memory] events: record it with profile_memory=True")
    capacities = _capacities(document) if isinstance(document, Mapping) else {}
    devices, assumptions, stacks = [], [], StackBuilder()
    for name in sorted(found.instants, key=lambda name: (name == "cpu", name)):
        ordered = sorted(found.instants[name], key=lambda instant: instant.time)
        devices.append(_device(name, ordered, found, capacities.get(name), stacks))
        assumptions += _assumptions(name, ordered)
    assumed = tuple(assumptions)
    return Trace(tuple(devices), "profiler", Evidence.MEASURED, Clock.NANOSECONDS, stacks=stacks.table(), assumptions=assumed)


def _collect(events: Sequence[Any]) -> _Collected:
    found = _Collected()
    with Problems(TraceFormatError) as problems:
        for number, event in enumerate(events):
            if not isinstance(event, dict):
                problems.add(f"traceEvents[{number}]", f"{str(event)[:40]!r} is not an event object")
                continue
            name = event.get("name")
            try:
                if name == "[memory]":
                    device, instant = _instant(event, found.thread(event))
                    found.instants.setdefault(device, []).append(instant)
                elif event.get("ph") == "X" and isinstance(name, str):
                    if name.startswith(_STEP):
                        found.ranges.append(_range(event, "step"))
                    elif event.get("cat") == "user_annotation":
                        found.ranges.append(_range(event, "annotation"))
                    elif event.get("cat") == "python_function":
                        found.calls.setdefault(found.thread(event), []).append(Call(*_times(event), name))
            except TraceFormatError as error:
                problems.add(f"traceEvents[{number}]", str(error))
    found.ranges.sort(key=lambda span: (span.start, -span.stop))
    return found


def _instant(event: dict[str, Any], thread: int) -> tuple[str, _Instant]:
    arguments = event.get("args")
    if not isinstance(arguments, dict):
        raise TraceFormatError("a [memory] event without args: it needs Device Type, Device Id and Bytes")
    address, total = _integer(arguments, "Addr", -1), _integer(arguments, "Total Allocated", -1)
    name = _device_name(_integer(arguments, "Device Type"), _integer(arguments, "Device Id"))
    return name, _Instant(_nanoseconds(event.get("ts"), "ts"), _integer(arguments, "Bytes"), max(address, -1), max(total, -1), thread)


def _integer(arguments: dict[str, Any], key: str, default: int | None = None) -> int:
    value = arguments.get(key, default)
    if type(value) is not int:
        raise TraceFormatError(f"[memory] with {key} = {value!r}: a whole number is needed")
    if not -_LIMIT <= value <= _LIMIT:
        raise TraceFormatError(f"[memory] with {key} = {str(value)[:40]}: beyond 2^62")
    return value


def _device_name(code: int, number: int) -> str:
    kind = _DEVICE_TYPES.get(code, f"device-type-{code}")
    return kind if kind == "cpu" else f"{kind}:{max(number, 0)}"


def _nanoseconds(value: Any, key: str) -> int:
    """Return *value* in microseconds as nanoseconds, exact for integers; a float is taken as the nearest nanosecond of its exact value.

    The whole part is split off first: multiplying a float of the size of an epoch time by 1000 would round it.
    """
    if type(value) not in (int, float) or not abs(value) < _LIMIT / 1000:  # nan is not below either
        raise TraceFormatError(f"{key} = {str(value)[:40]}: a time in microseconds is needed")
    microseconds: int | float = value
    whole = math.floor(microseconds)
    return whole * 1000 + round((microseconds - whole) * 1000)


def _times(event: dict[str, Any]) -> tuple[int, int]:
    start = _nanoseconds(event.get("ts"), "ts")
    return start, start + max(_nanoseconds(event.get("dur", 0), "dur"), 0)


def _range(event: dict[str, Any], kind: str) -> _Range:
    return _Range(*_times(event), kind, event["name"])


def _capacities(document: Mapping[str, Any]) -> dict[str, int]:
    properties = document.get("deviceProperties")
    rows = [row for row in properties if isinstance(row, dict)] if isinstance(properties, list) else []
    sizes = {f"cuda:{row.get('id')}": row.get("totalGlobalMem") for row in rows}
    return {name: size for name, size in sizes.items() if type(size) is int and 0 < size <= _LIMIT}


def _device(name: str, instants: list[_Instant], found: _Collected, capacity: int | None, stacks: StackBuilder) -> DeviceTrace:
    time, change, address, total, thread = np.array(instants, np.int64).T
    stack = np.full(len(time), NO_STACK)
    for number, calls in found.calls.items():
        own = thread == number
        stack[own] = stacks_at(time[own].tolist(), calls, stacks)
    identified = bool((address >= 0).all())
    events = Events.of(
        np.where(change < 0, Kind.FREE, Kind.ALLOC),
        address if identified else np.full(len(address), -1),
        np.abs(change),
        time=time,
        stack=stack,
    )
    edges = np.searchsorted(time, np.array([(span.start, span.stop) for span in found.ranges], np.int64).reshape(-1, 2)).tolist()
    spans = tuple(Span(span.kind, span.name, start, stop) for span, (start, stop) in zip(found.ranges, edges, strict=True))
    start = int(total[0] - change[0]) if total[0] >= 0 else None
    basis = Basis.REQUESTED if name == "cpu" else Basis.ALLOCATED
    return DeviceTrace(name, events, basis, start=start, identified=identified, spans=spans, capacity=capacity)


def _assumptions(name: str, instants: list[_Instant]) -> list[Assumption]:
    found = []
    breaks = sum(a.total >= 0 and b.total >= 0 and a.total + b.change != b.total for a, b in pairwise(instants))
    if breaks:
        text = f"{name}: a recorded total is not the one before plus the bytes of its event; the bytes are followed"
        found.append(Assumption("total_mismatch", breaks, text))
    return found
