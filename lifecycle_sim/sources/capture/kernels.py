"""Bytes that CUDA kernels take beside their outputs: functions of shapes and of the card, each with its source."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

ALIGNMENT = 256
RADIX_BITS, RADIX = 8, 256
SORT_THREADS, SORT_SLACK = 384, 255
SMALL_KEY_TILE = 5632
"""Keys of two bytes that a block takes, with values of eight."""
LONE_THREADS, LONE_ITEMS = 256, 19
"""A block of so many threads sorts so many four-byte items each alone, and takes one byte."""
SORTS_KNOWN_FOR = (90, 100)
SELECT_BYTES = 1279
FLASH_ROWS, FLASH_COLUMNS, FLASH_SPLIT_ROWS = 128, 32, 64
EFFICIENT_BLOCK, EFFICIENT_LOCK = 64, 16
FULL, GOOD, MOST_SPLITS = 0.8, 0.85, 128
MATRIX, VOLUME = 2, 3


def round_up(size: int, to: int) -> int:
    """Return *size* rounded up to a multiple of *to*."""
    return -(-size // to) * to


def sort_bytes(count: int, bits: int, key: int = 8, value: int = 8) -> int:
    """Return what cub's radix sort takes (``DeviceRadixSort`` in one sweep, as tuned for architecture 9.0).

    A histogram for each pass of 8 bits, a look-back entry for each tile and digit, both arrays a second time if there are several
    passes, and a counter for each pass.

    Args:
        count: keys.
        bits: bits of a key that are sorted by.
        key: bytes of a key.
        value: bytes of the value that goes with it, 0 for none.
    """
    widest = max(key, value)
    if count <= LONE_THREADS * (LONE_ITEMS * 4 // widest):
        return 1
    nominal = (20 if not value else 17 if value < 8 else 29) if key == 4 else 30 if value < 8 else 24
    tile = SORT_THREADS * (nominal * 4 // max(widest, 4)) if key >= 4 else SMALL_KEY_TILE
    passes = -(-bits // RADIX_BITS)
    again = 1 if passes > 1 else 0
    parts = (passes * RADIX * 8, -(-count // tile) * RADIX * 4, again * key * count, again * value * count, 4 * passes)
    return sum(round_up(part, ALIGNMENT) for part in parts) + SORT_SLACK


def takes_layout(operand: Any) -> bool:
    """Whether cuBLAS takes *operand*, a vector, a matrix or a batch of matrices, as it lies (``ATen/native/cuda/Blas.cpp``)."""
    if operand.dim() < MATRIX:
        return operand.numel() <= 1 or operand.stride(0) != 0
    rows, columns = operand.shape[-2:]
    down, across = operand.stride()[-2:]
    return (across == 1 and down >= max(1, columns)) or (down == 1 and across >= max(1, rows)) or operand.is_contiguous()


def flash_forward(query: Sequence[int], key: Sequence[int], processors: int) -> tuple[int, ...]:
    """Return the bytes of partial row sums and results where flash attention splits the keys, nothing where it does not.

    Source: ``set_params_splitkv`` and ``num_splits_heuristic`` of ``flash_api.cpp``.
    """
    batch, heads, rows, width = query
    columns = 256 if width <= 64 else 128 if width <= 128 else 64
    splits = _splits(batch * heads * -(-rows // FLASH_SPLIT_ROWS), 2 * processors, -(-key[2] // columns))
    if splits <= 1:
        return ()
    rounded = round_up(width, FLASH_COLUMNS) if width <= 192 else 256
    return 4 * splits * batch * heads * rows, 4 * splits * batch * heads * rows * rounded


def _splits(blocks: int, room: int, columns: int) -> int:
    if blocks >= FULL * room:
        return 1
    efficiency: dict[int, float] = {}
    for splits in range(1, min(MOST_SPLITS, room, columns) + 1):
        if splits == 1 or -(-columns // splits) != -(-columns // (splits - 1)):
            waves = blocks * splits / room
            efficiency[splits] = waves / -(-blocks * splits // room)
    best = max(efficiency.values(), default=0.0)
    return next((splits for splits, found in efficiency.items() if found >= GOOD * best), 1)


def flash_backward(query: Sequence[int]) -> tuple[int, int]:
    """Return the bytes of float32 row sums and query gradients that flash attention's backward accumulates (``mha_bwd``)."""
    batch, heads, rows, width = query
    rows = round_up(rows, FLASH_ROWS)
    rounded = round_up(width, FLASH_COLUMNS) if width <= 192 else 256
    return 4 * batch * heads * rows, 4 * batch * rows * heads * rounded


def efficient_backward(query: Sequence[int], width_out: int, wide: bool) -> tuple[int, int, int]:
    """Return the bytes of the product of result and gradient (if *wide*: float32), of the row sums, and of the gradient blocks.

    Args:
        query: the query's sizes.
        width_out: the width of the values, and so of the result.
        wide: whether all is in float32.

    Source: ``attention_backward.cu`` and ``kernel_backward.h`` of memory-efficient attention.
    """
    batch, heads, rows, width = query
    product = 4 * batch * heads * rows * width_out if wide else 0
    tiles = -(-rows // EFFICIENT_BLOCK) * -(-width // EFFICIENT_BLOCK)
    return product, 4 * batch * heads * rows, batch * heads * tiles * (4 * EFFICIENT_BLOCK**2 + EFFICIENT_LOCK)


def columns(
    image: Any,
    weight: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    *,
    forward: bool,
) -> int:
    """Return the bytes of one unfolded image where a convolution runs without cuDNN, 0 where none is unfolded.

    Args:
        image: the input.
        weight: the kernels.
        stride: of the kernels, like all that follow.
        padding: see there.
        dilation: see there.
        transposed: whether the convolution is transposed.
        groups: how many groups of channels; each by itself (depthwise) needs no columns.
        forward: a forward with 1 × 1 kernels, unit strides and no padding needs none, but in three dimensions.

    Source: ``ConvolutionMM2d.cu``, ``NaiveConvolutionTranspose2d.cu``, ``vol2col``.
    """
    kernel = tuple(weight.shape[2:])
    if groups > 1 and groups == image.shape[1]:
        return 0
    if transposed:
        return int(image.element_size() * weight.shape[1] * prod(kernel) * prod(image.shape[2:]))
    if forward and len(kernel) < VOLUME and all(k == 1 and s == 1 and not p for k, s, p in zip(kernel, stride, padding, strict=False)):
        return 0
    sizes = zip(image.shape[2:], kernel, stride, padding, dilation, strict=False)
    out = [(size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, p, d in sizes]
    return int(image.element_size() * weight.shape[1] * prod(kernel) * prod(out))


def output_bytes(
    image: Any, weight: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool, extra: Sequence[int]
) -> int:
    """Return the bytes of one channel of one result of a convolution."""
    kernel = tuple(weight.shape[2:])
    sizes = zip(image.shape[2:], kernel, stride, padding, dilation, extra, strict=False)
    if transposed:
        return int(image.element_size() * prod((size - 1) * s - 2 * p + d * (k - 1) + e + 1 for size, k, s, p, d, e in sizes))
    return int(image.element_size() * prod((size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, p, d, _ in sizes))
