"""Ticks of byte axes: at powers of two, so that every label is short and exact."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log2

from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, MaxNLocator, NullLocator

from lifecycle_sim.units import format_bytes

MOST_TICKS = 8


class ByteLocator(Locator):
    """Ticks at multiples of the least power of two that needs no more than :data:`MOST_TICKS` of them."""

    def __call__(self) -> Sequence[float]:
        """Return the ticks of the axis as it stands."""
        return self.tick_values(*self.axis.get_view_interval())  # type: ignore[union-attr]

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Return the ticks between *vmin* and *vmax* bytes."""
        low, high = sorted((vmin, vmax))
        step = 2 ** max(0, ceil(log2((high - low) / MOST_TICKS))) if high > low else 1
        return [float(k * step) for k in range(ceil(low / step), floor(high / step) + 1)]


def _label(value: float, _position: int | None = None) -> str:
    return format_bytes(round(value))


def _signed_label(value: float, _position: int | None = None) -> str:
    return f"+{_label(value)}" if value > 0 else _label(value)


def byte_ticks(axis: Axis, relative: bool = False) -> None:
    """Give *axis* ticks in bytes, with a plus sign if they are *relative* to something that is not known."""
    axis.set_major_locator(ByteLocator())
    axis.set_major_formatter(FuncFormatter(_signed_label if relative else _label))


def log_byte_ticks(axis: Axis, least: int, greatest: int) -> None:
    """Give the logarithmic *axis* ticks from *least* to *greatest* bytes, at powers of two."""
    low, high = floor(log2(max(least, 1))), ceil(log2(max(greatest, 1)))
    step = next(step for step in (1, 2, 5, 10, 20, 40) if (high - low) / step <= MOST_TICKS)
    axis.set_major_locator(FixedLocator([2.0**k for k in range(-(-low // step) * step, high + 1, step)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_label))


def count_ticks(axis: Axis) -> None:
    """Give *axis* whole-number ticks with thousands separated, and none below 0, where no event is."""
    axis.set_major_locator(MaxNLocator(nbins=9, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 0 else ""))


def time_ticks(axis: Axis) -> None:
    """Give *axis* a few round ticks."""
    axis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
