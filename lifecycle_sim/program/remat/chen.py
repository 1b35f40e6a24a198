"""One level of checkpoints: a chain cut into segments, each recomputed once. Sublinear memory for one extra forward pass.

Source: T. Chen, B. Xu, C. Zhang, C. Guestrin, "Training deep nets with sublinear memory cost", arXiv 1604.06174, 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.remat.moves import at_least


@dataclass(frozen=True)
class Segments:
    """A chain cut into segments.

    Attributes:
        starts: the first step of each segment, ascending from 0; the inputs of these steps are kept.
        peak: the inputs kept and the largest segment's own data, in the unit of the sizes.
        extra_forwards: steps that are run a second time.
    """

    starts: tuple[int, ...]
    peak: int
    extra_forwards: int


def square_root_segments(steps: int) -> Segments:
    """Return the even cut of *steps* equal steps with the least peak, in units of one step: segments + ⌈steps / segments⌉, near 2·√steps.

    Of equal cuts the one with the fewest segments.

    Raises:
        InputError: less than one step.
    """
    at_least(steps, 1, "steps")
    count = min(range(1, steps + 1), key=lambda segments: (segments + -(-steps // segments), segments))
    length = -(-steps // count)
    starts = tuple(range(0, steps, length))
    return Segments(starts, len(starts) + length, steps)


def least_peak_segments(data: Sequence[int], inputs: Sequence[int]) -> Segments:
    """Return the cut with the least peak for steps that differ: the inputs of all segments, and the data of the largest segment.

    Exact, where the paper's own cut is greedy: for every size that the largest segment may have, the smallest inputs by dynamic
    programming. O(n⁴) at worst for n steps; meant for the layers of a model.

    Args:
        data: bytes that each step keeps for its backward step.
        inputs: bytes of the input of each step.

    Raises:
        InputError: no step, lists of different lengths, or a negative size.
    """
    steps = len(data)
    if not steps or len(inputs) != steps:
        raise InputError(f"{steps:,} sizes of data and {len(inputs):,} of inputs: give one of each for each step")
    if min(min(data), min(inputs)) < 0:
        raise InputError("a size is negative: give bytes of 0 or more")
    total = [0]
    for size in data:
        total.append(total[-1] + size)
    best: tuple[int, int, tuple[int, ...]] | None = None
    for largest in sorted({total[b] - total[a] for a in range(steps) for b in range(a + 1, steps + 1)}):
        if best is not None and largest + inputs[0] >= best[0]:
            break
        starts = _cheapest_inputs(total, inputs, largest)
        if starts is not None:
            widest = max(total[stop] - total[start] for start, stop in zip(starts, (*starts[1:], steps), strict=True))
            peak = widest + sum(inputs[start] for start in starts)
            best = min(best, (peak, len(starts), starts)) if best else (peak, len(starts), starts)
    if best is None:
        raise InputError("no cut was found")
    return Segments(best[2], best[0], steps)


def _cheapest_inputs(total: Sequence[int], inputs: Sequence[int], largest: int) -> tuple[int, ...] | None:
    """The starts with the least sum of inputs if no segment's data exceed *largest*, or None if a single step does."""
    steps = len(inputs)
    kept: list[tuple[int, int, int] | None] = [(0, 0, 0), *[None] * steps]  # inputs, segments and the last start, up to each step
    for stop in range(1, steps + 1):
        for start in range(stop - 1, -1, -1):
            if total[stop] - total[start] > largest:
                break
            before = kept[start]
            if before is not None:
                found = (before[0] + inputs[start], before[1] + 1, start)
                held = kept[stop]
                kept[stop] = found if held is None else min(held, found)
    starts: list[int] = []
    stop = steps
    while stop:
        last = kept[stop]
        if last is None:
            return None
        stop = last[2]
        starts.append(stop)
    return tuple(reversed(starts))
