"""Times of events in microseconds, the only unit a snapshot has."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lifecycle_sim.events import Clock, Events, Trace
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.sources.snapshot.events import LATEST

NANOSECONDS = 1000


@dataclass(frozen=True)
class Microseconds:
    """How the times of a trace become microseconds.

    A clock of ticks has no length: a tick becomes as many microseconds as need be for the events within one to follow each other by 1 µs.
    Without a clock all events are within one tick.

    Attributes:
        per_tick: microseconds that stand for a tick; 0 where the clock counts nanoseconds.
        note: what people should know of it, if anything.
        apart: whether an event is at least 1 µs after the one before it, late if need be.
    """

    per_tick: int
    note: str | None
    apart: bool = False

    def with_events_apart(self) -> Microseconds:
        """Return the same with every event at least 1 µs after the one before it."""
        return replace(self, apart=True, note="events of one time are 1 µs apart in time_us, so that spans begin and end where they did")

    @classmethod
    def of(cls, trace: Trace) -> Microseconds:
        """Return how the times of *trace* become microseconds."""
        if trace.clock is Clock.NANOSECONDS:
            return cls(0, None)
        most = max((int(_place_in_tick(device.events).max(initial=0)) + 1 for device in trace), default=1)
        per_tick = 10 ** len(str(most - 1)) if most > 1 else 1
        latest = max((int(np.abs(device.events.time).max(initial=0)) for device in trace), default=0)
        if trace.clock is Clock.NONE or (latest + 1) * per_tick > LATEST:
            return cls(per_tick, None if not len(trace) else "the trace has no clock that microseconds can hold: time_us counts events")
        return cls(per_tick, f"a tick is {per_tick:,} µs of time_us" + (", and the events in one are 1 µs apart" if per_tick > 1 else ""))

    def of_events(self, events: Events) -> Int64:
        """Return the time of each of *events* in microseconds."""
        if not self.per_tick:
            time = events.time // NANOSECONDS
            rows = np.arange(len(events), dtype=np.int64)
            return rows + np.maximum.accumulate(time - rows) if self.apart else time
        if int(np.abs(events.time).max(initial=0)) > LATEST // self.per_tick - 1:
            return np.arange(len(events), dtype=np.int64)
        return events.time * self.per_tick + _place_in_tick(events)


def _place_in_tick(events: Events) -> Int64:
    """For each event, how many before it in a row have the same time."""
    rows = np.arange(len(events), dtype=np.int64)
    first = np.append(True, events.time[1:] != events.time[:-1])[: len(events)]
    return rows - np.maximum.accumulate(np.where(first, rows, 0)) if len(events) else rows
