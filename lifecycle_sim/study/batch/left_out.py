"""What the model says of a probe that it was not shown."""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle_sim.study.batch.curve import Shape, curve
from lifecycle_sim.study.batch.fitted import UNNAMED, Fitted, Segment, curves_by_phase
from lifecycle_sim.study.batch.probes import Probe


@dataclass(frozen=True)
class Residual:
    """A probe, and what the model says of it.

    Attributes:
        probe: the probe.
        above: bytes that the bound of the whole model is above it, 0 or more.
        estimate: the bytes that the other probes of the segment make expect; None where fewer than two are left.
        upper: the bound by them: between probes that of the calibrated range, beyond them the one in proportion.
        between: whether there are probes on both sides of it.
    """

    probe: Probe
    above: int
    estimate: int | None
    upper: int | None
    between: bool

    @property
    def error(self) -> int | None:
        """Bytes by which the estimate is too high, negative if it is too low."""
        return None if self.estimate is None else self.estimate - self.probe.peak

    @property
    def covered(self) -> bool | None:
        """Whether the bound is not below the probe."""
        return None if self.upper is None else self.upper >= self.probe.peak


def residuals(fitted: Fitted) -> tuple[Residual, ...]:
    """Return for each probe of *fitted* what the model says of it, and what it would say without it."""
    return tuple(_residual(segment, probe) for segment in fitted.segments for probe in segment.probes)


def _residual(segment: Segment, probe: Probe) -> Residual:
    def count_of(each: Probe) -> int:
        return each.batch if segment.unit == "batch" else each.tokens or 0

    count = count_of(probe)
    above = segment.upper(count) - probe.peak
    rest = [other for other in segment.probes if count_of(other) != count]
    between = any(count_of(other) < count for other in rest) and any(count_of(other) > count for other in rest)
    if len({count_of(other) for other in rest}) < 2:
        return Residual(probe, above, None, None, between)
    whole = curve([(count_of(other), other.peak) for other in rest], True, segment.whole.jump)
    named = curves_by_phase(rest, True, count_of, segment.whole.jump) if UNNAMED not in segment.curves else {}
    curves = list(named.values()) or [whole]
    estimate = max(each.estimate(count) for each in curves)
    if whole.shape is Shape.NON_MONOTONE:
        return Residual(probe, above, estimate, None, between)
    upper = max(each.upper(count) if count <= whole.last else each.beyond(count) for each in curves)
    return Residual(probe, above, estimate, upper, between)
