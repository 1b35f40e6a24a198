"""What kernels take for themselves while they run, as far as shapes, types and the card tell it: one rule for each operator.

A rule gives sizes in bytes, taken in order and given back in reverse; a list inside is taken and given back by itself, in its place.
The rules were read from ATen's CUDA kernels and held against them under a stub driver, allocation by allocation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, log, log2, prod
from typing import Any, TypeAlias

import torch

from lifecycle_sim.sources.capture import kernels
from lifecycle_sim.sources.capture.profiles import DeviceProfile
from lifecycle_sim.sources.capture.reduction import reduction_scratch

aten = torch.ops.aten
Nested: TypeAlias = Sequence["int | Nested"]
Course: TypeAlias = Iterator[int]
"""What a kernel takes, in order: it goes on once as many outputs as it yields are there."""
Rule: TypeAlias = Callable[[tuple[Any, ...], DeviceProfile], Nested]

FIRST, LAST = 0, 1 << 30
"""From before the first output to the end, and after all outputs."""
HALVES = (torch.float16, torch.bfloat16)
NONE: Nested = ()
MEAN = 1
BLOCK_SORTS = 4096
"""Up to so many values in a row are sorted within a block."""
FULL_SORTS_BELOW, LONG_SORT = 128, 1_000_000
BLOCK, BLOCKS_AT_ONCE, FEWEST_ITEMS, MOST_ITEMS = 256, 6, 4, 64
SEVERAL_BLOCKS = ((20, 20_000), (40, 10_000), (80, 8_000), (199, 5_000), (799, 3_000), (4_000, 800), (2**32, 400))
"""For so many rows at most, topk shares a row among blocks if it is at least so long; the first that applies."""
COLLISIONS = 12 * log(0.9)


def bound(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return all arguments of *func* by place, those that were not given by their defaults."""
    wanted = func._schema.arguments
    if len(args) == len(wanted):
        return args
    return (*args, *(kwargs.get(argument.name, argument.default_value) for argument in wanted[len(args) :]))


def most(sizes: Nested) -> int:
    """Return the most bytes of *sizes* at one time."""
    now = peak = 0
    for size in sizes:
        if isinstance(size, int):
            now += size
            peak = max(peak, now)
        else:
            peak = max(peak, now + most(size))
    return peak


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _copy(tensor: Any) -> int:
    return 0 if tensor.is_contiguous() else _bytes(tensor)


def _mean(shape: Sequence[int], dtype: Any, profile: DeviceProfile) -> Nested:
    """What a mean or sum over all of a fresh tensor takes."""
    strides = [prod(shape[place + 1 :]) for place in range(len(shape))]
    scratch = reduction_scratch(tuple(shape), strides, [], 8 if dtype == torch.float64 else 4, profile)
    return scratch.partials, scratch.counters


# ── softmax ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _softmax_backward(args: tuple[Any, ...], _profile: DeviceProfile) -> Nested:
    gradient, output = args[:2]
    return (gradient.numel() * max(gradient.element_size(), output.element_size()),)


def _safe_softmax(args: tuple[Any, ...], _profile: DeviceProfile) -> Nested:
    tensor, dim = args[:2]
    return tensor.numel(), tensor.numel() // max(tensor.shape[dim], 1), tensor.element_size()


def _logsumexp(args: tuple[Any, ...], _profile: DeviceProfile) -> Nested:
    tensor, dims = args[:2]
    rows = tensor.numel() // max(prod(tensor.shape[dim] for dim in dims), 1)
    return (rows * tensor.element_size(), rows), (_bytes(tensor), rows * tensor.element_size())


# ── losses ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _reduced(args: tuple[Any, ...], place: int, kept: bool, profile: DeviceProfile) -> Nested:
    if not args[place]:
        return NONE
    shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
    size = args[0].element_size()
    return size if kept else size * prod(shape), _mean(shape, args[0].dtype, profile)


def _logits_loss(args: tuple[Any, ...], profile: DeviceProfile) -> Nested:
    tensor, target, _weight, positive, reduction = args[:5]
    size = tensor.element_size() * prod(torch.broadcast_shapes(tensor.shape, target.shape))
    weighted: Nested = NONE if positive is None else (_bytes(positive), size)
    if not reduction:
        return _bytes(tensor), weighted
    return _bytes(tensor), weighted, size, _mean(torch.broadcast_shapes(tensor.shape, target.shape), tensor.dtype, profile)


# ── norms ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _group_norm(args: tuple[Any, ...], _profile: DeviceProfile) -> Nested:
    tensor, weight, bias, batch, channels, inner, groups = args[:7]
    if inner == 1:
        return NONE
    size = 8 if tensor.dtype == torch.float64 else 4
    low = (weight is None or weight.dtype in HALVES) and tensor.dtype in HALVES
    statistics = [size * batch * groups] * (2 if low else 0)
    factors = [size * batch * channels] * (0 if weight is None and bias is None else 2)
    return *statistics, *factors


def _group_norm_backward(args: tuple[Any, ...], _profile: DeviceProfile) -> Nested:
    _, tensor, _, _, _, batch, channels, inner, groups, _ = args[:10]
    size = 8 if tensor.dtype == torch.float64 else 4
    if inner == 1:
        return NONE
    wide, narrow = size * batch * channels, size * batch * groups
    return wide, wide, (narrow, narrow, wide)


# ── sorts and scans ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _radix(count: int, bits: int, key: int, value: int, profile: DeviceProfile) -> int:
    return kernels.sort_bytes(count, bits, key, value) if profile.architecture in kernels.SORTS_KNOWN_FOR else 1


def _sort(args: tuple[Any, ...], profile: DeviceProfile, dim: int) -> Nested:
    tensor = args[0]
    if not tensor.dim() or tensor.numel() < 2:
        return NONE
    length, count, size = tensor.shape[dim], tensor.numel(), tensor.element_size()
    if length <= BLOCK_SORTS:
        return (8 * length,)
    rows = count // length
    moved = () if tensor.is_contiguous() and dim % tensor.dim() == tensor.dim() - 1 else (_bytes(tensor), _bytes(tensor), 8 * count)
    bits = 8 * size
    if rows == 1 or length >= LONG_SORT:
        return *moved, 8 * length, _radix(length, bits, size, 8, profile)
    if rows >= FULL_SORTS_BELOW:
        again = sum(kernels.round_up(part, kernels.ALIGNMENT) for part in (size * count, 8 * count))
        return *moved, 8 * count, again + kernels.SORT_SLACK
    segments = max(1, ceil(log2(rows)))
    pairs = (size * count, _radix(count, bits, size, 8, profile))
    return *moved, 8 * count, 8 * count, pairs, (_radix(count, segments, 8, 0, profile),)


def _topk(args: tuple[Any, ...], profile: DeviceProfile) -> Nested:
    tensor, _, dim = args[:3]
    if not tensor.dim() or not tensor.numel():
        return NONE
    length = tensor.shape[dim]
    rows = tensor.numel() // length
    if length < next((long for many, long in SEVERAL_BLOCKS if rows <= many), length + 1):
        return (_copy(tensor),)
    items = ceil(tensor.numel() / (profile.processors * BLOCKS_AT_ONCE * BLOCK))
    blocks = rows * -(-length // (BLOCK * min(max(items, FEWEST_ITEMS), MOST_ITEMS)))
    each = (tensor.element_size() * rows, 8 * rows, 8 * rows, 2 * BLOCK * blocks, 4 * BLOCK * rows, 4 * blocks, 4 * blocks)
    return _copy(tensor), *each, (kernels.SELECT_BYTES,), (kernels.SELECT_BYTES,)


def _cumulated(args: tuple[Any, ...], _profile: DeviceProfile) -> Nested:
    tensor, dtype = args[0], args[2]
    if dtype is not None and dtype != tensor.dtype:
        return (tensor.numel() * dtype.itemsize,)
    if not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.int64 and dtype is None:
        return (8 * tensor.numel(),)
    return (_copy(tensor),)


def _permutation(args: tuple[Any, ...], profile: DeviceProfile) -> Nested:
    count = args[0]
    if count < 2:
        return NONE
    bits = min(64, ceil(log2(count - (6 * count * count + 1) / COLLISIONS)))
    key = 4 if bits <= 32 else 8
    return (8,), 8 * count, key * count, key * count, _radix(count, bits, key, 8, profile)


def _multinomial(args: tuple[Any, ...], _profile: DeviceProfile) -> Nested:
    tensor, samples, replaced = args[:3]
    if replaced and samples > 1:
        return NONE
    size, rows = tensor.element_size(), tensor.numel() // tensor.shape[-1]
    chosen = size * rows * samples if samples > 1 else 0
    return size, size, (1, 1), 1, (size * rows, rows), 1, (1,), (_bytes(tensor), chosen)


# ── the rest ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _unfolded(args: tuple[Any, ...], _profile: DeviceProfile) -> Nested:
    return (_bytes(args[0]),)


SCRATCH: dict[Any, tuple[str, int, Rule]] = {
    aten._softmax_backward_data.default: ("softmax_scratch", LAST, _softmax_backward),
    aten._safe_softmax.default: ("softmax_scratch", LAST, _safe_softmax),
    aten.logsumexp.default: ("softmax_scratch", LAST, _logsumexp),
    aten.mse_loss.default: ("loss_scratch", LAST, lambda args, profile: _reduced(args, 2, False, profile)),
    aten.smooth_l1_loss.default: ("loss_scratch", LAST, lambda args, profile: _reduced(args, 2, False, profile)),
    aten.huber_loss.default: ("loss_scratch", LAST, lambda args, profile: _reduced(args, 2, False, profile)),
    aten.binary_cross_entropy.default: ("loss_scratch", LAST, lambda args, profile: _reduced(args, 3, True, profile)),
    aten.binary_cross_entropy_with_logits.default: ("loss_scratch", LAST, _logits_loss),
    aten.native_group_norm.default: ("norm_scratch", LAST, _group_norm),
    aten.native_group_norm_backward.default: ("norm_scratch", LAST, _group_norm_backward),
    aten.sort.default: ("sort_scratch", LAST, lambda args, profile: _sort(args, profile, args[1])),
    aten.sort.stable: ("sort_scratch", LAST, lambda args, profile: _sort(args, profile, args[2])),
    aten.topk.default: ("sort_scratch", LAST, _topk),
    aten.randperm.default: ("sort_scratch", LAST, _permutation),
    aten.multinomial.default: ("sort_scratch", LAST, _multinomial),
    aten.cumsum.default: ("scan_scratch", LAST, _cumulated),
    aten.cumprod.default: ("scan_scratch", LAST, _cumulated),
    aten.pow.Scalar: ("scan_scratch", LAST, lambda _args, _profile: (8,)),
    aten.im2col.default: ("unfold_scratch", FIRST, _unfolded),
}
