"""Utilisation from measured throughput, and time from measured throughput: never from a device's peak.

MFU is the work that the model needs over what the devices could do at their peak in that time; HFU counts what recomputation does again
    too. Neither is
an input of a finish date: a date follows from tokens a second that were measured on the run's own settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.widths import ceil_div, count, positive
from lifecycle_sim.units import format_duration

NANO = 10**9

PEAKS = {
    "v100": 125_000_000_000_000,
    "a100": 312_000_000_000_000,
    "h100": 989_500_000_000_000,
    "tpu-v4": 275_000_000_000_000,
}
"""Dense 16-bit operations a second by the makers' data sheets. Figures twice as high for h100 (1,979) are those of sparse products."""


def mfu(flops_per_token: float | Fraction, tokens_per_second: float | Fraction, devices: int, peak: int) -> Fraction:
    """Return model FLOPs utilisation: the work a token needs, times measured tokens a second, over the devices' peak.

    Args:
        flops_per_token: 6N, with ``attention_flops`` if it is to be counted: say which.
        tokens_per_second: measured, of all devices together.
        devices: how many.
        peak: operations a second of one device in the type that is used, dense.

    Raises:
        InputError: a figure is not positive, or utilisation comes out above 1, which a wrong N, unit or peak explains.
    """
    positive("operations a token", flops_per_token)
    positive("tokens a second", tokens_per_second)
    count("devices", devices, 1)
    positive("peak", peak)
    share = Fraction(flops_per_token) * Fraction(tokens_per_second) / (devices * Fraction(peak))
    if share > 1:
        raise InputError(
            f"utilisation comes out as {100 * float(share):.1f} %: no device does more than its peak, so look at N, the peak, "
            "the number of devices, or whether samples were counted as tokens"
        )
    return share


def hfu(utilisation: Fraction, factor: Fraction) -> Fraction:
    """Return hardware FLOPs utilisation: *utilisation* times ``recompute_factor``."""
    return utilisation * factor


def theoretical_time(flops: int, peak: int, devices: int = 1) -> int:
    """Return the nanoseconds that *flops* take at full peak: a bound from below that no run reaches, and no date."""
    count("work", flops)
    return ceil_div(flops * NANO, count("peak", peak, 1) * count("devices", devices, 1))


@dataclass(frozen=True)
class StepTime(Shown):
    """What a step takes, from steps measured after warm-up, in nanoseconds.

    Attributes:
        step: the median.
        fastest, slowest: of the steps measured.
        measured: how many steps.
        warmup: steps before them, left out.
        parts: medians of ``compute``, ``data`` (waiting for it), ``communication`` and ``saving``, as far as they were given.
    """

    step: int
    fastest: int
    slowest: int
    measured: int
    warmup: int
    parts: dict[str, int]

    @property
    def rest(self) -> int | None:
        """What the parts do not explain; negative if they overlap; None if none were given."""
        return self.step - sum(self.parts.values()) if self.parts else None

    def throughput(self, a_step: int) -> Fraction:
        """Return tokens or samples a second, with *a_step* of them in a step."""
        return Fraction(a_step * NANO, self.step)

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        parts = [(name, format_duration(size)) for name, size in self.parts.items()]
        return [("step", f"{format_duration(self.step)}, {self.measured:,} after {self.warmup:,} of warm-up"), *parts]


PARTS = ("compute", "data", "communication", "saving")


def step_time(steps: Sequence[int], warmup: int, **parts: Sequence[int] | None) -> StepTime:
    """Summarise measured *steps*.

    Args:
        steps: nanoseconds of each step from the first one on.
        warmup: how many of them to leave out: the first ones build caches, choose kernels, and have no optimizer state yet.
        **parts: ``compute``, ``data``, ``communication``, ``saving``: nanoseconds of that part in each of the same steps.

    Raises:
        InputError: there is no warm-up, no step after it, or a part of another length.
    """
    if count("warm-up", warmup) < 1:
        raise InputError("warm-up is 0: the first step builds caches and has no optimizer state yet, so leave 1 step out at least")
    for number, step in enumerate(steps):
        count(f"step {number + 1}", step, 1)
    kept = list(steps[warmup:])
    if not kept:
        raise InputError(f"{len(steps):,} steps and {warmup:,} of warm-up: none is left to measure")
    given: dict[str, int] = {}
    for name in PARTS:
        series = parts.pop(name, None)
        if series is None:
            continue
        if len(series) != len(steps):
            raise InputError(f"{name}: {len(series):,} times for {len(steps):,} steps")
        given[name] = int(median(count(name, each) for each in series[warmup:]))
    if parts:
        raise InputError(f"unknown part of a step: {', '.join(parts)}: known are {', '.join(PARTS)}")
    return StepTime(int(median(kept)), min(kept), max(kept), len(kept), warmup, given)


def training_time(tokens: int, tokens_per_second: float | Fraction, *, saving: int = 0, saves: int = 0) -> int:
    """Return the nanoseconds that *tokens* take at a measured throughput, and what saving adds.

    Args:
        tokens: tokens to be processed.
        tokens_per_second: measured on the settings of the run, of all devices together.
        saving: nanoseconds that saving once takes, if the throughput does not hold it already.
        saves: how often.

    Raises:
        InputError: a figure is negative, or the throughput not positive.
    """
    positive("tokens a second", tokens_per_second)
    exact = Fraction(count("tokens", tokens)) * NANO / Fraction(tokens_per_second)
    return ceil_div(exact.numerator, exact.denominator) + count("saving", saving) * count("saves", saves)
