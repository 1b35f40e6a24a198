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
MASK_ALIGNMENT = 16
WIDE_BACKWARD = (86, 89, 120)
"""Architectures with less shared memory, which flash refuses for wide heads in training with dropout."""


def choose_attention(query: Any, key: Any, value: Any, mask: Any, causal: bool, grouped: bool, dropout: float, architecture: int) -> str:
    """Return which attention runs for these shapes and types on a card of *architecture*."""
    if query.dim() != 4 or query.dtype != key.dtype or query.dtype != value.dtype or 0 in (query.numel(), key.numel()):
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
        and same_heads
        and widths[0] == widths[1]
        and not any(width % aligned for width in widths)
        and not (mask is not None and mask.requires_grad and query.dtype not in (*HALVES, torch.float32))
    ):
        return EFFICIENT
    return MATH


def attention(
    architecture: int, query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, scale: float | None, grouped: bool
) -> Any:
    """Run the attention that CUDA would choose, operator by operator."""
    chosen = choose_attention(query, key, value, mask, causal, grouped, dropout, architecture)
    if mask is not None and mask.dtype == torch.bool and chosen != MATH:
        allowed, forbidden = (torch.full((), value, dtype=query.dtype, device=query.device) for value in (0.0, float("-inf")))
        mask = torch.where(mask, allowed, forbidden)
        del allowed, forbidden
    if chosen == FLASH:
        width = query.shape[-1]
        scale = width**-0.5 if scale is None else scale
        short = -width % FLASH_ALIGNMENT
        if short:
            query, key, value = (pad(tensor, (0, short)) for tensor in (query, key, value))
        out = aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, False, scale=scale)[0]
        return out[..., :width] if short else out
    if chosen == EFFICIENT:
        if mask is not None:
            columns = mask.shape[-1]
            if columns % MASK_ALIGNMENT:
                mask = pad(mask, (0, -columns % MASK_ALIGNMENT))[..., :columns]
            mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        trains = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
        found = aten._scaled_dot_product_efficient_attention(query, key, value, mask, trains, dropout, causal, scale=scale)
        return found[0]
    return aten._scaled_dot_product_attention_math(query, key, value, mask, dropout, causal, None, scale=scale, enable_gqa=grouped)[0]
