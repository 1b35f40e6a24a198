"""A small decoder whose attention is written out (``eager``) or PyTorch's fused one (``fused``), in bfloat16.

It shows which term quadruples when sequences get twice as long: written out, every head keeps a score for each pair of tokens; fused, none.
Look for the owners whose bytes quadruple, and for how much longer sequences can be on the same card.

    lifecycle-sim fit scenarios/capture/attention.py:eager --device a10g --batch 4 --growth 2048
    lifecycle-sim fit scenarios/capture/attention.py:fused --device a10g --batch 4 --growth 2048
    lifecycle-sim fit scenarios/capture/attention.py:fused --device a10g --batch 4 --longest --limit 100000
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LAYERS = 8192, 512, 8, 4


class Attention(nn.Module):
    """Causal attention of several heads."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """Return what the heads find."""
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(stream).chunk(3, -1))
        if self.fused:
            heads = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(-1, -2) / key.shape[-1] ** 0.5
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            heads = scores.masked_fill(later, float("-inf")).softmax(-1) @ value
        return self.out(heads.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm and beside the residual stream."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.attention = Attention(fused)
        self.before_attention, self.before_layers = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """Return the stream, with what this block adds."""
        stream = stream + self.attention(self.before_attention(stream))
        return stream + self.layers(self.before_layers(stream))


class Decoder(nn.Module):
    """Embedding, blocks and head, and the cross-entropy of the next token."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(*(Block(fused) for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        logits = self.head(self.norm(self.blocks(self.tokens(ids))))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def program(fused: bool, batch: int, seq: int) -> dict[str, Callable[..., Any] | str]:
    """Return the functions of a training run."""
    return {
        "build_model": lambda: Decoder(fused),
        "make_batch": lambda: (torch.randint(0, VOCABULARY, (batch, seq)), torch.randint(0, VOCABULARY, (batch, seq))),
        "make_optimizer": lambda model: torch.optim.AdamW(model.parameters()),
        "dtype": "bf16",
    }


def eager(batch: int = 4, seq: int = 1024) -> dict[str, Callable[..., Any] | str]:
    """Attention written out."""
    return program(False, batch, seq)


def fused(batch: int = 4, seq: int = 1024) -> dict[str, Callable[..., Any] | str]:
    """PyTorch's own attention."""
    return program(True, batch, seq)
