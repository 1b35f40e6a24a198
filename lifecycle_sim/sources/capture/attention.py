"""Which attention CUDA runs: flash, memory-efficient, or plain mathematics; and that attention on fake tensors.

The rules are those of ATen's ``native/transformers/cuda/sdp_utils.cpp`` as far as shapes, types and switches decide.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)
FLASH, EFFICIENT, MATH = "flash", "efficient", "math"
FLASH_FROM, FLASH_WIDTH, FLASH_ALIGNMENT = 80, 256, 8
EFFICIENT_FROM_HALF_BFLOAT = 80
MASK_ALIGNMENT = 8
GROUPS_SINCE = (2, 14)
"""The release since which memory-efficient attention takes grouped heads, and all kinds take inputs of three dimensions."""
WIDE_BACKWARD = (86, 89, 120)
"""Architectures with less shared memory, which flash refuses for wide heads in training with dropout."""


def choose_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    causal: bool,
    grouped: bool,
    dropout: float,
    architecture: int,
    release: tuple[int, ...] = GROUPS_SINCE,
) -> str:
    """Return which attention runs for these shapes and types on a card of *architecture*, in *release* of PyTorch."""
    if query.dim() != 4 or query.dtype != key.dtype or query.dtype != value.dtype or 0 in (query.numel(), key.numel()):
        return MATH
    if any(tensor.stride(-1) != 1 and tensor.shape[-1] > 1 for tensor in (query, key, value)) or (
        mask is not None and mask.stride(-1) != 1
    ):
        return MATH
    switches = torch.backends.cuda
    widths = query.shape[-1], key.shape[-1], value.shape[-1]
    trains = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
    same_heads = query.shape[1] == key.shape[1] == value.shape[1]
    wide = architecture in WIDE_BACKWARD and trains and widths[0] > 192 and (widths[0] <= 224 or dropout > 0)
    if (
        switches.flash_sdp_enabled()
        and query.dtype in HALVES
        and architecture >= FLASH_FROM
        and mask is None
        and len(set(widths)) == 1
        and widths[0] <= FLASH_WIDTH
        and not (causal and query.shape[-2] != key.shape[-2])
        and (same_heads or grouped)
        and not wide
    ):
        return FLASH
    aligned = 4 if query.dtype == torch.float32 and architecture >= 80 else 1 if query.dtype == torch.float32 else 8
    if (
        switches.mem_efficient_sdp_enabled()
        and (query.dtype != torch.bfloat16 or architecture >= EFFICIENT_FROM_HALF_BFLOAT)
        and query.dtype in (*HALVES, torch.float32)
        and (same_heads or (grouped and release >= GROUPS_SINCE))
        and widths[0] == widths[1]
        and not any(width % aligned for width in widths)
        and not (mask is not None and mask.requires_grad and query.dtype not in (*HALVES, torch.float32))
    ):
        return EFFICIENT
    return MATH


def attention(
    architecture: int,
    release: tuple[int, ...],
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    dropout: float,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Any:
    """Run the attention that CUDA would choose, operator by operator."""
    if query.dim() == key.dim() == value.dim() == 3 and release >= GROUPS_SINCE:
        query, key, value = (tensor.unsqueeze(0) for tensor in (query, key, value))
        return attention(architecture, release, query, key, value, mask, dropout, causal, scale, grouped).squeeze(0)
    chosen = choose_attention(query, key, value, mask, causal, grouped, dropout, architecture, release)
    if mask is not None and mask.dtype == torch.bool:
        mask = _as_numbers(mask, query)
    if chosen == FLASH:
        width = query.shape[-1]
        scale = width**-0.5 if scale is None else scale
        short = -width % FLASH_ALIGNMENT
        if short:
            query, key, value = (pad(tensor, (0, short)) for tensor in (query, key, value))
        out = _first(aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, False, scale=scale))
        return out[..., :width] if short else out
    if chosen == EFFICIENT:
        if mask is not None:
            columns = mask.shape[-1]
            if mask.stride(-1) != 1 or any(stride % MASK_ALIGNMENT for stride in mask.stride()[:-1]):
                mask = pad(mask, (0, -columns % MASK_ALIGNMENT))[..., :columns]
            mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        trains = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
        return _first(aten._scaled_dot_product_efficient_attention(query, key, value, mask, trains, dropout, causal, scale=scale))
    return _mathematics(query, key, value, mask, dropout, causal, scale, grouped)


def _as_numbers(mask: Any, query: Any) -> Any:
    allowed, forbidden = (torch.full((), value, dtype=query.dtype, device=query.device) for value in (0.0, float("-inf")))
    return torch.where(mask, allowed, forbidden)


def _first(found: Any) -> Any:
    """Return the first of the results, and let the others go in order, as compiled code does."""
    results = list(found)
    while len(results) > 1:
        del results[1]
    return results[0]


def _mathematics(query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, scale: float | None, grouped: bool) -> Any:
    """Attention as products and a softmax, all in float32 at least; the mask is added in place (``transformers/attention.cpp``)."""
    kind = query.dtype
    low = kind in HALVES
    wide = [tensor.float() if low else tensor for tensor in (query, key, value)]  # all three stay to the end
    factor = (query.shape[-1] ** -0.5 if scale is None else abs(scale)) ** 0.5
    scaled_query = wide[0] * (-factor if scale is not None and scale < 0 else factor)
    if causal:
        ones = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        lower = ones.tril()
        del ones
        mask = _as_numbers(lower, scaled_query)
        del lower
    keys, values = wide[1:]
    if grouped:
        keys, values = (tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3) for tensor in (keys, values))
    scaled_keys = keys.transpose(-2, -1) * factor
    scores = torch.matmul(scaled_query, scaled_keys)
    del scaled_keys
    if mask is not None:
        scores.add_(mask)
    weights = aten._safe_softmax(scores, -1)
    del scores
    if dropout > 0:
        weights = torch.dropout(weights, dropout, True)
    told = weights.to(kind)  # the weights are a result too, though nobody asks for them
    found = torch.matmul(weights, values).to(kind)
    del told, mask
    return found
