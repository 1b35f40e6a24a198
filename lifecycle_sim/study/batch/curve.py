"""Peaks over a count, such as the batch: their shape, lines through them, and a bound above them.

A step goes through phases, each of which needs something fixed and something for every sample, and the peak is that of the highest. So
peaks over the batch are a maximum of lines: convex, and between two probes never above the chord. Where the probes say otherwise
(kernels that change, blocks that are rounded) the bound falls back on what they still support::

    shape            between two probes a bound is
    affine, convex   the chord, raised until no probe is above it
    concave          the lower of the neighbouring chords, drawn out, and the next probe
    mixed            the next probe: a larger batch does not need less

Bytes that an allocator rounded to blocks and segments jump between two probes, by up to what a further sample needs and a bit more: there
the bound is that of the next sample, and 2 MiB.

All of it is exact arithmetic; what is given away as integers is rounded up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor

Point = tuple[int, int]

STRAIGHT = Fraction(1, 100)
"""Probes that are off a line, or below a hull, by less than this share of their whole growth count as on it."""
LEVEL = Fraction(1, 1000)
"""Measured peaks whose whole growth is not above this share of the peak are flat."""
ROUNDING = 2 << 20
"""Bytes to which PyTorch rounds segments of large blocks."""


class Shape(StrEnum):
    """How peaks go over the batch."""

    AFFINE = "affine"
    CONVEX = "convex"
    CONCAVE = "concave"
    MIXED = "mixed"
    NON_MONOTONE = "non-monotone"
    FLAT = "flat"
    UNVERIFIED = "unverified"
    """Two probes: a line, and nothing that could contradict it."""


@dataclass(frozen=True)
class Line:
    """A phase: ``fixed + per_unit · count`` bytes, both rounded up; ``fixed`` may be negative."""

    fixed: int
    per_unit: int

    def at(self, count: int) -> int:
        """Return the bytes at *count*."""
        return self.fixed + self.per_unit * count


@dataclass(frozen=True)
class Curve:
    """Peaks over a count.

    Attributes:
        points: counts, rising, with the highest peak that was seen for each.
        shape: how they go.
        lines: the lines whose maximum is nowhere below a probe.
        raised: bytes by which the lines were raised for that, rounded up.
        jump: for bytes that an allocator rounded, how many counts on the bound lies; 0 for bytes that were not.
    """

    points: tuple[Point, ...]
    shape: Shape
    lines: tuple[Line, ...]
    raised: int
    jump: int = 0

    @property
    def first(self) -> int:
        """The smallest count that was probed."""
        return self.points[0][0]

    @property
    def last(self) -> int:
        """The largest count that was probed."""
        return self.points[-1][0]

    def estimate(self, count: int) -> int:
        """Return the bytes at *count*: on the chord between two probes, or on the last one drawn out. Rounded up."""
        return max(0, ceil(_on_chord(self.points, count)))

    def upper(self, count: int) -> int:
        """Return a bound for *count*, which is not above the largest count probed. Below the smallest it is that of the smallest."""
        count = max(count, self.first)
        if self.shape in (Shape.AFFINE, Shape.CONVEX, Shape.FLAT, Shape.UNVERIFIED):
            return max(line.at(count) for line in self.lines)
        place = max(bisect_left(self.points, (count, 0)), 1)
        jump = _jump(_slope_and_level(self.points[place - 1], self.points[place])[0], self.jump)
        return jump + (self.points[0][1] if count == self.first else self._between(place, count))

    def _between(self, place: int, count: int) -> int:
        """Return the bound at *count*, above point number *place* - 1 and not above the next, before any jump."""
        (low, below), (high, above) = self.points[place - 1], self.points[place]
        if count == high or self.shape is not Shape.CONCAVE:
            return above
        bounds = [Fraction(above)]
        if place >= 2:
            bounds.append(_through(self.points[place - 2], (low, below), count))
        if place + 1 < len(self.points):
            bounds.append(_through((high, above), self.points[place + 1], count))
        return ceil(min(bounds))

    def beyond(self, count: int) -> int:
        """Return a bound for *count* above the largest count probed: the bound there, times as much as the count is larger.

        It holds as long as every phase needs a fixed amount that is not negative: then no phase grows faster than in proportion.
        """
        return ceil(Fraction(self.upper(self.last) * count, self.last))

    @property
    def margin(self) -> int:
        """The most bytes that the bound is above the estimate, over all counts from the smallest to the largest probed."""
        counts = {count for count, _ in self.points} | {count + 1 for count, _ in self.points[:-1]}
        if self.shape is Shape.CONCAVE:
            counts |= set(self._crossings())
        return max(self.upper(count) - self.estimate(count) for count in counts if count <= self.last)

    def _crossings(self) -> Iterable[int]:
        """Counts next to which neighbouring chords, drawn out, cross, or reach the next probe."""
        for place in range(1, len(self.points)):
            (low, below), (high, above) = self.points[place - 1], self.points[place]
            lines = []
            if place >= 2:
                lines.append((self.points[place - 2], (low, below)))
            if place + 1 < len(self.points):
                lines.append(((high, above), self.points[place + 1]))
            levels = [_slope_and_level(*line) for line in lines] + [(Fraction(0), Fraction(above))]
            for one, (slope, level) in enumerate(levels):
                for other_slope, other_level in levels[one + 1 :]:
                    if slope != other_slope:
                        crossing = (other_level - level) / (slope - other_slope)
                        yield from (count for count in (floor(crossing), ceil(crossing)) if low < count <= high)


def curve(points: Iterable[Point], exact: bool = False, jump: int = 0) -> Curve:
    """Return the curve of *points*, two or more with different counts.

    Args:
        points: counts and peaks; of several peaks of one count the highest matters, and none is dropped.
        exact: whether peaks are exact, as simulated ones are: then every byte of growth is growth.
        jump: for bytes that an allocator rounded, how many counts a sample is; else 0.
    """
    highest: dict[int, int] = {}
    for count, peak in points:
        highest[count] = max(peak, highest.get(count, peak))
    known = tuple(sorted(highest.items()))
    shape = _shape(known, exact)
    lines, raised = _lines(known, shape, jump)
    return Curve(known, shape, lines, raised, jump)


def falls(points: Sequence[Point]) -> list[tuple[Point, Point]]:
    """Return the neighbours of which the one with the larger count has the lower peak."""
    return [(one, other) for one, other in pairwise(points) if other[1] < one[1]]


def _shape(points: Sequence[Point], exact: bool) -> Shape:
    if falls(points):
        return Shape.NON_MONOTONE
    growth = points[-1][1] - points[0][1]
    if growth == 0 or (not exact and growth <= LEVEL * points[-1][1]):
        return Shape.FLAT
    if len(points) == 2:
        return Shape.UNVERIFIED
    below, above = _hull(points, 1), _hull(points, -1)
    dent = max(peak - _on_chord(below, count) for count, peak in points)
    bump = max(_on_chord(above, count) - peak for count, peak in points)
    allowed = STRAIGHT * growth
    if dent <= allowed:
        return Shape.AFFINE if bump <= allowed else Shape.CONVEX
    return Shape.CONCAVE if bump <= allowed else Shape.MIXED


def _jump(slope: Fraction, counts: int) -> int:
    return ceil(slope) * counts + ROUNDING if counts else 0


def _lines(points: Sequence[Point], shape: Shape, jump: int) -> tuple[tuple[Line, ...], int]:
    """Lines through the lower hull, or for what is straight through its ends, raised until no probe is above their maximum."""
    hull = [points[0], points[-1]] if shape in (Shape.AFFINE, Shape.FLAT, Shape.UNVERIFIED) else _hull(points, 1)
    off = [peak - _on_chord(hull, count) for count, peak in points]
    raised = max(off) - (min(off) if jump else 0)  # of rounded bytes, what is below a line is as much noise as what is above
    lines = []
    for one, other in pairwise(hull):
        slope, level = _slope_and_level(one, other)
        lines.append(Line(ceil(level + raised) + _jump(slope, jump), ceil(slope)))
    return tuple(lines), ceil(raised)


def _hull(points: Sequence[Point], side: int) -> list[Point]:
    """Return the lower hull of *points* (side 1) or the upper one (side -1)."""
    kept: list[Point] = []
    for point in points:
        while len(kept) >= 2 and side * (_slope_and_level(kept[-2], kept[-1])[0] - _slope_and_level(kept[-1], point)[0]) >= 0:
            kept.pop()
        kept.append(point)
    return kept


def _slope_and_level(one: Point, other: Point) -> tuple[Fraction, Fraction]:
    slope = Fraction(other[1] - one[1], other[0] - one[0])
    return slope, one[1] - slope * one[0]


def _through(one: Point, other: Point, count: int) -> Fraction:
    slope, level = _slope_and_level(one, other)
    return level + slope * count


def _on_chord(points: Sequence[Point], count: int) -> Fraction:
    place = min(max(bisect_left(points, (count, 0)), 1), len(points) - 1)
    return _through(points[place - 1], points[place], count)
