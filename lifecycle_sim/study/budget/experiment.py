"""Repeated data at several rates and one budget of operations: the work is equal, what is learned is not.

A small network learns from samples that a hidden one made, with noise. Each rate trains on fewer distinct samples and meets each of them
more often, so that accesses and operations are the same. Accesses are counted by the data itself as samples are taken, operations by each
product as it is made; what was learned is the fall of the loss on held-out samples, and nothing else: no number of bits is claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.widths import count

Floats = NDArray[np.float64]

MOST_SAMPLES = 1_000
MOST_SEEDS = 100
INPUTS, HIDDEN, BATCH = 16, 32, 10
RATE, NOISE = 0.05, 0.1


@dataclass
class _Samples:
    """Samples that count how often each was taken."""

    inputs: Floats
    targets: Floats
    taken: NDArray[np.int64]

    def take(self, chosen: NDArray[np.int64]) -> tuple[Floats, Floats]:
        np.add.at(self.taken, chosen, 1)
        return self.inputs[chosen], self.targets[chosen]


@dataclass
class _Work:
    """Products that count their operations."""

    flops: int = 0

    def product(self, left: Floats, right: Floats) -> Floats:
        self.flops += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return left @ right


@dataclass(frozen=True)
class Repetition(Shown):
    """What one rate came to, over all seeds.

    Attributes:
        rate: how often each distinct sample is met.
        distinct: distinct samples that were really taken.
        accesses: samples taken, repeated ones included.
        fewest, most: times that a sample was taken.
        flops: operations of all products in training.
        before, after: the held-out loss (mean squared error) before and after training, averaged over the seeds.
        gains: the fall of the held-out loss, for each seed.
        seen: the loss on the samples trained on after training, averaged over the seeds.
    """

    rate: int
    distinct: int
    accesses: int
    fewest: int
    most: int
    flops: int
    before: float
    after: float
    gains: tuple[float, ...]
    seen: float

    @property
    def gain(self) -> float:
        """The fall of the held-out loss, averaged over the seeds."""
        return fmean(self.gains)

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        return [
            ("distinct samples", f"{self.distinct:,}, each {self.fewest:,} to {self.most:,} times"),
            ("operations", f"{self.flops:,}"),
            ("held-out loss", f"{self.before:.3f} → {self.after:.3f}"),
        ]


@dataclass
class _Network:
    """Two layers; the product of each step is counted."""

    first: Floats
    second: Floats
    work: _Work = field(default_factory=_Work)

    def loss(self, inputs: Floats, targets: Floats) -> float:
        return float(np.mean((np.tanh(inputs @ self.first) @ self.second - targets) ** 2))

    def learn(self, inputs: Floats, targets: Floats) -> None:
        hidden = np.tanh(self.work.product(inputs, self.first))
        error = self.work.product(hidden, self.second) - targets
        back = self.work.product(error, self.second.T) * (1 - hidden**2)
        self.second -= RATE / len(inputs) * self.work.product(hidden.T, error)
        self.first -= RATE / len(inputs) * self.work.product(inputs.T, back)


def repetition_experiment(
    rates: Sequence[int] = (1, 2, 4, 8, 16, 32),
    *,
    samples: int = 640,
    held_out: int = 320,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
) -> tuple[Repetition, ...]:
    """Train at each of *rates* with as many accesses as there are *samples*, and return what came of it.

    Args:
        rates: how often a distinct sample is met; each must divide *samples*.
        samples: accesses of a training, and distinct samples at rate 1.
        held_out: samples that are never trained on.
        seeds: of data, first weights and order; the same for every rate.

    Raises:
        InputError: more than 1,000 samples, a rate that does not divide them, or no seed.
    """
    count("samples", samples, BATCH)
    count("held-out samples", held_out, 1)
    if samples + held_out > MOST_SAMPLES:
        raise InputError(f"{samples:,} samples and {held_out:,} held out: this experiment is one of {MOST_SAMPLES:,} at most")
    if samples % BATCH:
        raise InputError(f"{samples:,} samples are not whole batches of {BATCH}")
    for rate in rates:
        if samples % count("rate", rate, 1) or rate > samples:
            raise InputError(f"rate {rate:,} does not divide {samples:,} samples evenly")
    if not 0 < len(seeds) <= MOST_SEEDS or not 0 < len(rates) <= MOST_SEEDS:
        raise InputError(f"{len(rates):,} rates and {len(seeds):,} seeds: give from one to {MOST_SEEDS} of each")
    return tuple(_at(rate, samples, held_out, seeds) for rate in rates)


def _at(rate: int, samples: int, held_out: int, seeds: Sequence[int]) -> Repetition:
    made = [_train(rate, samples, held_out, seed) for seed in seeds]
    taken = np.concatenate([each.taken for each in made])
    return Repetition(
        rate,
        int((taken > 0).sum()) // len(made),
        int(taken.sum()) // len(made),
        int(taken.min()),
        int(taken.max()),
        max(each.flops for each in made),
        fmean(each.before for each in made),
        fmean(each.after for each in made),
        tuple(each.before - each.after for each in made),
        fmean(each.seen for each in made),
    )


@dataclass(frozen=True)
class _Trained:
    taken: NDArray[np.int64]
    flops: int
    before: float
    after: float
    seen: float


def _train(rate: int, samples: int, held_out: int, seed: int) -> _Trained:
    generator = np.random.default_rng(count("seed", seed))
    inputs = generator.standard_normal((samples + held_out, INPUTS))
    hidden, out = generator.standard_normal((INPUTS, HIDDEN)) / INPUTS**0.5, generator.standard_normal((HIDDEN, 1)) / HIDDEN**0.5
    targets = 2 * np.tanh(inputs @ hidden) @ out + NOISE * generator.standard_normal((samples + held_out, 1))
    network = _Network(generator.standard_normal((INPUTS, HIDDEN)) / INPUTS**0.5, generator.standard_normal((HIDDEN, 1)) / HIDDEN**0.5)
    distinct = samples // rate
    data = _Samples(inputs[:distinct], targets[:distinct], np.zeros(distinct, dtype=np.int64))
    unseen = inputs[samples:], targets[samples:]
    before = network.loss(*unseen)
    order = np.concatenate([generator.permutation(distinct) for _ in range(rate)])
    for start in range(0, samples, BATCH):
        network.learn(*data.take(order[start : start + BATCH]))
    return _Trained(data.taken, network.work.flops, before, network.loss(*unseen), network.loss(data.inputs, data.targets))
