"""A wanted global batch from micro-batches: how many of them, of what size, and how many samples of the last are padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lifecycle_sim.errors import InputError

LARGEST_GLOBAL_BATCH = 10**10
"""The largest global batch that is asked about: about 200,000 ways are enumerated for it."""


@dataclass(frozen=True)
class Accumulation:
    """A way to make a global batch.

    Attributes:
        micro_batch: samples of each micro-batch.
        steps: how many micro-batches are accumulated.
        padded: samples of the last that are padding (or of a smaller last micro-batch missing).
    """

    micro_batch: int
    steps: int
    padded: int


def accumulations(global_batch: int, largest_micro_batch: int) -> tuple[Accumulation, ...]:
    """Return the ways to make *global_batch* that no other one betters, the fewest accumulated micro-batches first.

    One betters another with as many micro-batches of fewer samples, or with fewer micro-batches of no more samples. There are about
    ``2 · sqrt(global_batch)`` of them at most.

    Args:
        global_batch: samples wanted, 1 or more.
        largest_micro_batch: samples that fit at once; with less than 1 there is no way.

    Raises:
        InputError: *global_batch* is less than 1, or more than ``LARGEST_GLOBAL_BATCH``.
    """
    check_global_batch(global_batch)
    ranges = blocks(global_batch, min(largest_micro_batch, global_batch))
    return tuple(Accumulation(first, steps, first * steps - global_batch) for first, _, steps in ranges)


def check_global_batch(global_batch: int) -> None:
    """Check that there are not too many ways to *global_batch* to enumerate them.

    Raises:
        InputError: it is out of range.
    """
    if not 1 <= global_batch <= LARGEST_GLOBAL_BATCH:
        raise InputError(f"global batch is {global_batch:,}: give 1 to {LARGEST_GLOBAL_BATCH:,}")


def blocks(global_batch: int, largest_micro_batch: int) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of micro-batches that take equally many steps: first, last and steps; the largest micro-batches first."""
    last = largest_micro_batch
    while last >= 1:
        steps = -(-global_batch // last)
        first = -(-global_batch // steps)
        yield first, last, steps
        last = first - 1
