"""Llamas of 1 and 7 billion parameters in bfloat16, trained with AdamW on 2,048 tokens: what the speed of captures is told by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 32_000


class Norm(nn.Module):
    """Root mean square, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return *x*, normalised."""
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Block(nn.Module):
    """Attention with rotated positions, and a gated feed-forward layer."""

    def __init__(self, width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = Norm(width), Norm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (
            nn.Linear(width, hidden, bias=False),
            nn.Linear(width, hidden, bias=False),
            nn.Linear(hidden, width, bias=False),
        )

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """Return the stream, with what this block adds."""
        y = self.before(x)
        query, key, value = (layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        query, key = (part * cosine + torch.cat((-part.chunk(2, -1)[1], part.chunk(2, -1)[0]), -1) * sine for part in (query, key))
        heads = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        y = self.after(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Embedding, blocks, norm, head and loss."""

    def __init__(self, width: int, hidden: int, layers: int, heads: int, seq: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, hidden, heads) for _ in range(layers))
        self.norm, self.head = Norm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.register_buffer("cosine", torch.ones(seq, width // heads))
        self.register_buffer("sine", torch.ones(seq, width // heads))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the loss of the next token."""
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), ids.flatten())


def program(width: int, hidden: int, layers: int, heads: int, batch: int, seq: int) -> dict[str, Callable[..., Any] | str]:
    """Return the functions of a training run."""
    return {
        "build_model": lambda: Llama(width, hidden, layers, heads, seq),
        "make_batch": lambda: (torch.randint(0, VOCABULARY, (batch, seq)),),
        "make_optimizer": lambda model: torch.optim.AdamW(model.parameters()),
        "dtype": "bf16",
    }


def one_billion(batch: int = 1, seq: int = 2048) -> dict[str, Any]:
    """Make 1.1 billion parameters in 22 blocks."""
    return program(2048, 5632, 22, 32, batch, seq)


def seven_billion(batch: int = 1, seq: int = 2048) -> dict[str, Any]:
    """Make 6.7 billion parameters in 32 blocks."""
    return program(4096, 11_008, 32, 32, batch, seq)
