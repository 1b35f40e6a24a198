"""A decoder whose feed-forward parts are experts, chosen per token."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Experts(nn.Module):
    """Each token goes to two of several experts; each expert takes a fixed number of tokens, those it is most wanted for."""

    def __init__(self, width: int, count: int, room: int) -> None:
        super().__init__()
        self.room, self.router = room, nn.Linear(width, count, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(count, width, 3 * width)), nn.Parameter(torch.randn(count, 3 * width, width))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = x.flatten(0, -2)
        wanted = self.router(tokens).softmax(-1)
        weight, chosen = wanted.topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        sent = torch.zeros_like(wanted).scatter(1, chosen, weight)
        weight, place = sent.t().topk(self.room, -1)
        given = tokens[place.flatten()].unflatten(0, place.shape)
        made = torch.bmm(functional.gelu(torch.bmm(given, self.up)), self.down) * weight.unsqueeze(-1)
        out = torch.zeros_like(tokens).index_add(0, place.flatten(), made.flatten(0, 1))
        balance = (wanted.mean(0) * functional.one_hot(chosen[:, 0], wanted.shape[-1]).float().mean(0)).sum() * wanted.shape[-1]
        return out.view_as(x), balance


class Model(nn.Module):
    """Two layers of attention and experts."""

    def __init__(self, words: int = 1500, width: int = 128, room: int = 100) -> None:
        super().__init__()
        self.word, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.attention = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2))
        self.experts = nn.ModuleList(Experts(width, 8, room) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x, balance = self.word(ids), 0.0
        for number, (attention, experts) in enumerate(zip(self.attention, self.experts, strict=True)):
            y = self.norms[2 * number](x)
            x = x + attention(y, y, y, need_weights=False)[0]
            y, own = experts(self.norms[2 * number + 1](x))
            x, balance = x + y, balance + own
        return functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten()) + 0.01 * balance


def experts() -> dict[str, object]:
    """Float32, RMSprop."""
    return {
        "build_model": Model,
        "make_batch": lambda: torch.randint(0, 1500, (4, 96), device="cuda"),
        "make_optimizer": lambda model: torch.optim.RMSprop(model.parameters(), momentum=0.9),
    }


def experts_amp() -> dict[str, object]:
    """Under bfloat16 autocast, AdamW."""
    return experts() | {"make_optimizer": lambda model: torch.optim.AdamW(model.parameters()), "autocast": "bf16"}
