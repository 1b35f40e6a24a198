"""How amounts, times and rates of a line are said, in its unit and clock."""

from __future__ import annotations

from lifecycle_sim.output.summary import Record
from lifecycle_sim.units import format_bytes, format_duration, format_exact

LONG = (("h", 3600 * 10**9), ("min", 60 * 10**9))
"""Units of time beyond seconds, used from twice their length on."""


class Words:
    """The words for a line whose sizes count *unit* and whose times count *clock*."""

    def __init__(self, unit: str, clock: str) -> None:
        self.unit, self.clock, self.bytes = unit, clock, unit == "B"
        self.second, self.scale = ("s", 10**9) if clock == "ns" else ("ticks", 1)
        self.basis = "payload, simulated" if self.bytes else "simulated"

    def exact(self, amount: int) -> str:
        """An amount in full."""
        return format_exact(amount) if self.bytes else self._counted(amount)

    def _counted(self, amount: float) -> str:
        plural = "s" if self.unit == "item" and amount != 1 else ""
        return f"{rounded(amount)} {self.unit}{plural}"

    def short(self, amount: float) -> str:
        """An amount, rounded."""
        return format_bytes(int(amount)) if self.bytes else self._counted(amount)

    def mean(self, average: Record) -> str:
        """An average; whole bytes, else to six digits."""
        if self.bytes:
            return format_exact(average["area"] // average["span"] if average["span"] else 0)
        return self._counted(average["mean"])

    def time(self, ticks: float) -> str:
        """A span of time."""
        if self.clock == "ns":
            unit, scale = next(((name, size) for name, size in LONG if ticks >= 2 * size), ("", 1))
            return f"{rounded(ticks / scale)} {unit}" if unit else format_duration(round(ticks))
        return f"{rounded(ticks)} tick{'' if ticks == 1 else 's'}"

    def work(self, area: int) -> str:
        """Amount times time, with all its decimals."""
        whole, rest = divmod(area, self.scale)
        digits = f"{whole:,}" + (f".{rest:09d}".rstrip("0") if rest else "")
        rounded = f" ({format_bytes(whole)}·{self.second})" if self.bytes and whole >= 1024 else ""
        return f"{digits} {self.unit}·{self.second}{rounded}"

    def short_work(self, area: float) -> str:
        """Amount times time, rounded."""
        per = area / self.scale
        return f"{format_bytes(int(per))}·{self.second}" if self.bytes else f"{rounded(per)} {self.unit}·{self.second}"

    def rate(self, rate: float) -> str:
        """Items per second, per hour where they are few, or per tick."""
        if self.clock == "ns" and 0 < rate * 10**9 < 0.1:
            return f"{rounded(rate * 10**9 * 3600)}/h"
        return f"{rounded(rate * self.scale)}/{'s' if self.clock == 'ns' else 'tick'}"


def rounded(value: float) -> str:
    """*value* to four digits; a whole number, or one beyond a thousand, in full."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"
