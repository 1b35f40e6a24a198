"""A GPT-like language model, trained in bfloat16 under autocast; ``checkpointed`` does the same with recomputation, and ``small`` is one
that a CPU runs too.

Look for what holds the peak: the logits and their gradient, one vocabulary wide for each token, and for how much less checkpointing keeps.

    lifecycle-sim capture scenarios/capture/gpt.py --autocast bf16 --batch 4 --seq 1024 -o gpt.jsonl
    lifecycle-sim capture scenarios/capture/gpt.py:checkpointed --batch 4 --seq 1024 -o checkpointed.jsonl
    lifecycle-sim peak gpt.jsonl --by owner
    lifecycle-sim sweep scenarios/capture/gpt.py:small --batch 1,2,4,8 --seq 64,128,256
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY, CONTEXT = 50_257, 1024


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm and beside the residual stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """Return the stream, with what this block adds."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.before_attention(stream)).chunk(3, -1)
        )
        heads = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.out(heads.transpose(1, 2).flatten(2))
        return stream + self.layers(self.before_layers(stream))


class Gpt(nn.Module):
    """Learned positions, a tied head, and the cross-entropy of the next token."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12, recomputes: bool = False) -> None:
        super().__init__()
        self.recomputes = recomputes
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        stream = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            stream = checkpoint(block, stream, use_reentrant=False) if self.recomputes else block(stream)
        logits = self.head(self.norm(stream))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build_model() -> nn.Module:
    """Make the model."""
    return Gpt()


def make_batch(batch: int = 4, seq: int = 1024) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the input of a step."""
    return torch.randint(0, VOCABULARY, (batch, seq)), torch.randint(0, VOCABULARY, (batch, seq))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer."""
    return torch.optim.AdamW(model.parameters(), lr=3e-4)


def checkpointed(batch: int = 4, seq: int = 1024) -> dict[str, Callable[..., Any] | str]:
    """The same model, whose blocks are recomputed in backward."""
    return {
        "build_model": lambda: Gpt(recomputes=True),
        "make_batch": lambda: make_batch(batch, seq),
        "make_optimizer": make_optimizer,
        "autocast": "bf16",
    }


def small(batch: int = 4, seq: int = 128) -> dict[str, Callable[..., Any]]:
    """Two narrow blocks in float32, for runs on a CPU."""
    return {
        "build_model": lambda: Gpt(width=128, layers=2, heads=4),
        "make_batch": lambda: make_batch(batch, seq),
        "make_optimizer": make_optimizer,
    }
