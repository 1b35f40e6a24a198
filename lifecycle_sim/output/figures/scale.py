"""Horizontal axes: where an event is drawn, by its number or by its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Clock
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay import DeviceReplay

UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))


def time_unit(clock: Clock, longest: int) -> tuple[int, str]:
    """Return the unit in which times up to *longest* are drawn: how much of *clock* it is, and its name."""
    return (1, "ticks") if clock is Clock.TICKS else next((scale, unit) for scale, unit in UNITS if longest >= scale or scale == 1)


@dataclass(frozen=True, eq=False)
class EventScale:
    """Where the levels and events of one device lie on a horizontal axis.

    Attributes:
        at: n + 2 coordinates: the level at position p holds from ``at[p]`` to ``at[p + 1]``, and event i lies at ``at[i + 1]``.
        label: what the axis shows.
        counts_events: whether coordinates are the numbers of events.
    """

    at: NDArray[Any]
    label: str
    counts_events: bool

    @classmethod
    def of(cls, replayed: DeviceReplay, x: str = "event") -> EventScale:
        """Return the scale of *replayed* by ``"event"`` or by ``"time"``.

        Times count from the first event; simulated ones and ticks have a zero of their own, and the axis of a scenario goes on to its end.
        Times that go back are held at the latest time before them, because the order of events is what counts.

        Raises:
            InputError: *x* is neither, or there is no clock.
        """
        events = len(replayed.recorded)
        if x == "event":
            return cls(np.arange(-1, events + 1), "event", True)
        if x != "time":
            raise InputError(f"a horizontal axis cannot show {x!r}: choose event or time")
        if replayed.trace.clock is Clock.NONE:
            raise InputError(f"this {replayed.trace.format} trace has no clock, so nothing can be drawn over time: draw it over events")
        time, own_zero, settings = replayed.recorded.events.time, replayed.trace.times_from_zero, replayed.trace.settings
        zero = 0 if own_zero or not events else int(time[0])
        since = np.maximum.accumulate(time - zero) if events else np.zeros(1, np.int64)
        begin, end = min(0, int(since[0])), max(int(since[-1]), int(settings.get("makespan") or 0))
        at = np.concatenate([[begin], since, [end]])[-events - 2 :]
        what = "time" if own_zero else "time since the first event"
        scale, unit = time_unit(replayed.trace.clock, int(at[-1]))
        return cls(at if scale == 1 else at / scale, f"{what} ({unit})", False)

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the axis; never equal, even where no time passes."""
        first, last = float(self.at[0]), float(self.at[-1])
        return first, last if last > first else first + 1.0

    @property
    def width(self) -> float:
        """The length of the axis, above 0."""
        return self.limits[1] - self.limits[0]

    def event(self, event: int) -> float:
        """Return where *event* lies; -1 asks for the state before the first event, n for the end."""
        return float(self.at[event + 1])

    def edges(self, positions: Int64) -> NDArray[Any]:
        """Return where the levels at *positions* begin, and the end of the axis as a last edge."""
        return np.append(self.at[positions], self.at[-1])
