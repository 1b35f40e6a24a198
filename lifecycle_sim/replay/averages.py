"""The average of a level over time, beside which a peak stands.

Bytes held for a time add up to an area under the level, in bytes times nanoseconds (or ticks)::

    4 |      +-----+                    area = 4 × 2 + 1 × 3 = 11
    1 |      |     +--------+           average over the window of 10: 1.1
    0 +------+              +---------
      0      2     4        7        10

The area does not depend on the order of the work, and so neither does the average; the peak does.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Clock
from lifecycle_sim.replay.device import DeviceReplay


@dataclass(frozen=True)
class Average:
    """A level over a window of time.

    Attributes:
        begin: where the window begins, in the trace's clock.
        end: where it ends.
        area: what is held in it, in bytes times the clock's unit; exact.
    """

    begin: int
    end: int
    area: int

    @property
    def mean(self) -> Fraction:
        """The average level in bytes, exact; 0 for a window in which no time passes."""
        return Fraction(self.area, self.end - self.begin) if self.end > self.begin else Fraction(0)


def average(replayed: DeviceReplay, begin: int | None = None, end: int | None = None) -> Average:
    """Return the average level of *replayed* over the time from *begin* to *end*.

    Before the first event the level is the start, after the last one it stays as it is. Times that go back are held at the latest time
    before them, because the order of events is what counts.

    Args:
        replayed: what was recorded on one device.
        begin: a time in the trace's clock; by default that of the first event.
        end: likewise; by default that of the last event.

    Raises:
        InputError: there is no clock, no event to take a time from, or *end* is before *begin*.
    """
    times = replayed.recorded.events.time.tolist()
    if replayed.trace.clock is Clock.NONE or (not times and None in (begin, end)):
        raise InputError(f"{replayed.device}: this {replayed.trace.format} trace has no times to average over")
    first, last = times[0] if begin is None else begin, max(times) if end is None else end
    if last < first:
        raise InputError(f"{replayed.device}: a window from {first} to {last} ends before it begins")
    area, since = 0, first
    for time, level in zip(times, replayed.timeline.levels.tolist(), strict=False):
        until = min(max(time, since), last)
        area += level * (until - since)
        since = until
    return Average(first, last, area + replayed.timeline.end * (last - since))
