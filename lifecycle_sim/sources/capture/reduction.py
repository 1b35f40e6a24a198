"""The scratch of PyTorch's generic CUDA reduction: sums, means, extrema, norms and variances that are split across thread blocks.

A reduction that one block cannot finish for an output keeps partial results of each block in global memory, and a counter for each
column of blocks. How many blocks share an output follows from shapes, strides and the card alone (ATen, ``native/cuda/Reduce.cuh``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from lifecycle_sim.sources.capture.profiles import DeviceProfile

THREADS = 512
"""Threads of a block at most."""
WARP = 32
FEWEST_VALUES, MOST_VALUES = 16, 256
"""Values a thread reduces: fewer are not worth splitting for, more are split if there is room."""
VECTOR = 4
SHORTEST_VECTORIZED = 128
COUNTER = 4


@dataclass(frozen=True)
class Scratch:
    """Bytes of the partial results and of the counters; both 0 where no output is split across blocks."""

    partials: int
    counters: int


NONE = Scratch(0, 0)


def reduction_scratch(
    shape: Sequence[int], strides: Sequence[int], dims: Sequence[int], partial: int, profile: DeviceProfile, vector: int = VECTOR
) -> Scratch:
    """Return the scratch of reducing *dims* of a tensor.

    Args:
        shape: the input's sizes.
        strides: its strides, in elements.
        dims: the dimensions reduced; none stands for all.
        partial: bytes of one partial result (4 for a float sum, 16 for a value with its index).
        profile: the card.
        vector: values that a thread loads at once along a reduced dimension.
    """
    rank = len(shape)
    reduced = {dim % rank for dim in dims} if dims else set(range(rank))
    inputs, outputs = prod(shape[i] for i in reduced), prod(shape[i] for i in range(rank) if i not in reduced)
    if inputs * outputs == 0 or inputs == 1:
        return NONE
    inner = sorted((strides[i], shape[i]) for i in reduced if shape[i] > 1)
    kept = sorted((strides[i], shape[i]) for i in range(rank) if i not in reduced and shape[i] > 1)
    on_fastest = not kept or inner[0][0] < kept[0][0]
    first, second = (inputs, outputs) if on_fastest else (outputs, inputs)
    per_thread = 1  # outputs that a thread computes side by side
    if (inner if on_fastest else kept)[0][0] == 1:
        if on_fastest:
            if first >= SHORTEST_VECTORIZED and _runs(inner) == 1:
                first //= vector
        else:
            per_thread = _side_by_side(outputs, [stride for stride, _ in (*inner, *kept)])
            first //= per_thread
    width, height = _block(first, second, THREADS // per_thread)

    across_inputs, across_outputs = (width, 1) if on_fastest else (1, width)
    rows_reduce = -(-inputs // across_inputs) >= min(height * FEWEST_VALUES, MOST_VALUES)
    if rows_reduce:
        across_inputs *= height
    else:
        across_outputs *= height
    columns = -(-(outputs // per_thread) // across_outputs)
    values = -(-inputs // across_inputs)
    room = profile.processors * (profile.threads // (width * height))
    if not rows_reduce or values < MOST_VALUES or columns > room:
        return NONE
    blocks = max(min(-(-room // columns), -(-values // FEWEST_VALUES)), -(-values // MOST_VALUES))
    if blocks <= 1:
        return NONE
    partials = partial * outputs * blocks * (1 if on_fastest else width * per_thread)
    return Scratch(partials, COUNTER * columns)


def _block(first: int, second: int, most: int) -> tuple[int, int]:
    """Width and height of a thread block for *first* × *second* values."""
    wide, high = (_power_of_two(size) if size < most else most for size in (first, second))
    width = min(wide, WARP)
    height = min(high, most // width)
    return min(wide, most // height), height


def _side_by_side(outputs: int, strides: Sequence[int]) -> int:
    vector = VECTOR
    while vector > 1 and (outputs % vector or any(stride % vector for stride in strides if stride > 1)):
        vector //= 2
    return vector


def _runs(dims: Sequence[tuple[int, int]]) -> int:
    """How many dimensions remain once neighbours that lie in one another are joined."""
    return 1 + sum(stride != inner * size for (inner, size), (stride, _) in itertools.pairwise(dims))


def _power_of_two(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)
