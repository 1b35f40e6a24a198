"""Times that are fixed or drawn: from named distributions, rounded to whole ticks or nanoseconds, by a seed and a place.

What is drawn depends on the seed, the replication and the name of what it is drawn for, and on nothing else: not on the order in which
things happen. So two lines that differ in one stage draw the same times for all others, and their difference is that of the stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import log
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.events.trace import Int64

LONGEST_TIME = 2.0**62
AT_ONCE = 64


class Shape(StrEnum):
    """The distributions. Each is given by times, and by what stands beside it."""

    FIXED = "fixed"
    """``value``"""
    EXPONENTIAL = "exponential"
    """``mean``"""
    UNIFORM = "uniform"
    """``low``, ``high``: both can come"""
    TRIANGULAR = "triangular"
    """``low``, ``mode``, ``high``"""
    NORMAL = "normal"
    """``mean``, ``deviation``; what comes out below 0 is 0"""
    LOGNORMAL = "lognormal"
    """``mean``, ``deviation``: those of the times themselves"""
    ERLANG = "erlang"
    """``mean``, and ``stages``: the sum of so many equal exponential times"""
    CHOICE = "choice"
    """``of``: the times, each as likely as its entry in ``weights``, or all alike"""


TIMES_OF: dict[Shape, tuple[str, ...]] = {
    Shape.EXPONENTIAL: ("mean",),
    Shape.UNIFORM: ("low", "high"),
    Shape.TRIANGULAR: ("low", "mode", "high"),
    Shape.NORMAL: ("mean", "deviation"),
    Shape.LOGNORMAL: ("mean", "deviation"),
    Shape.ERLANG: ("mean",),
    Shape.CHOICE: ("of",),
}
"""The keys that hold the times of each distribution; ``of`` holds a list."""
COUNTS_OF: dict[Shape, tuple[str, ...]] = {Shape.ERLANG: ("stages",), Shape.CHOICE: ("weights",)}
"""The keys that hold whole numbers; ``weights`` holds a list and may be left out."""


@dataclass(frozen=True)
class Draw:
    """How a time comes about.

    Attributes:
        shape: the distribution.
        times: its times, in the order of :data:`TIMES_OF`.
        counts: its whole numbers, in the order of :data:`COUNTS_OF`.
    """

    shape: Shape
    times: tuple[int, ...]
    counts: tuple[int, ...] = ()

    @classmethod
    def fixed(cls, time: int) -> Draw:
        """Return the time that is always *time*."""
        return cls(Shape.FIXED, (time,))

    @property
    def random(self) -> bool:
        """Whether two draws can differ."""
        return self.shape is not Shape.FIXED

    @property
    def mean(self) -> float:
        """The mean, before rounding (and before a normal time below 0 becomes 0)."""
        match self.shape:
            case Shape.UNIFORM | Shape.TRIANGULAR:
                return sum(self.times) / len(self.times)
            case Shape.CHOICE:
                weights = self.counts or (1,) * len(self.times)
                return sum(time * weight for time, weight in zip(self.times, weights, strict=True)) / sum(weights)
            case _:
                return float(self.times[0])

    def sample(self, source: np.random.Generator, count: int) -> Int64:
        """Return *count* times drawn from *source*, rounded to the nearest whole number."""
        times: NDArray[Any] = self.raw(source, count)
        return times if times.dtype == np.int64 else np.rint(np.clip(times, 0.0, LONGEST_TIME)).astype(np.int64)

    def raw(self, source: np.random.Generator, count: int) -> NDArray[np.float64] | Int64:
        """Return *count* times drawn from *source*, not rounded."""
        times = self.times
        match self.shape:
            case Shape.FIXED:
                return np.full(count, times[0], np.int64)
            case Shape.EXPONENTIAL:
                return source.exponential(times[0], count)
            case Shape.UNIFORM:
                return source.integers(times[0], times[1], count, endpoint=True)
            case Shape.TRIANGULAR:
                return source.triangular(times[0], times[1], times[2], count) if times[0] < times[2] else np.full(count, times[0], np.int64)
            case Shape.NORMAL:
                return source.normal(times[0], times[1], count)
            case Shape.LOGNORMAL:
                spread = log(1 + (times[1] / times[0]) ** 2)
                return source.lognormal(log(times[0]) - spread / 2, spread**0.5, count)
            case Shape.ERLANG:
                return source.gamma(self.counts[0], times[0] / self.counts[0], count)
            case Shape.CHOICE:
                weights = np.array(self.counts or (1,) * len(times), float)
                return np.array(times, np.int64)[source.choice(len(times), count, p=weights / weights.sum())]

    def one_by_one(self, seed: int, replication: int, *what: str | int) -> Iterator[int]:
        """Yield times for ever, for *what*: as many as turn out to be needed."""
        if not self.random:
            while True:
                yield self.times[0]
        source = source_for(seed, replication, *what)
        while True:
            yield from self.sample(source, AT_ONCE).tolist()


def source_for(seed: int, replication: int, *what: str | int) -> np.random.Generator:
    """Return the random numbers for *what* in a replication; the same in every process and on every machine."""
    return np.random.default_rng([seed, replication, *(part if isinstance(part, int) else crc32(part.encode()) for part in what)])
