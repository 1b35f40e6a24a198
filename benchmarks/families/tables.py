"""Models of rows of tables: a recommender that is mostly embeddings."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Recommender(nn.Module):
    """Bags of categories and a few numbers, their products two by two, and a network on top."""

    def __init__(self, rows: tuple[int, ...] = (5000, 2000, 300), width: int = 32) -> None:
        super().__init__()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(count, width, mode=mode) for count, mode in zip(rows, ("sum", "mean", "sum"), strict=True)
        )
        self.user = nn.Embedding(4000, width)
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + 10, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.tril_indices(5, 5, -1))

    def forward(self, numbers: torch.Tensor, user: torch.Tensor, clicked: torch.Tensor, *bags: torch.Tensor) -> torch.Tensor:
        dense = self.bottom(numbers)
        found = [dense, self.user(user), *(bag(ids) for bag, ids in zip(self.bags, bags, strict=True))]
        stacked = torch.stack(found, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return functional.binary_cross_entropy_with_logits(self.top(torch.cat((dense, products), 1)).squeeze(1), clicked)


def recommender(bags: tuple[int, ...] = (7, 20, 3)) -> dict[str, object]:
    """Two optimizers: Adagrad for embeddings, Adam for the rest."""

    def batch() -> tuple[torch.Tensor, ...]:
        ids = (torch.randint(0, 300, (256, length), device="cuda") for length in bags)
        clicked = torch.randint(0, 2, (256,), device="cuda").float()
        return torch.randn(256, 13, device="cuda"), torch.randint(0, 4000, (256,), device="cuda"), clicked, *ids

    def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
        embedded = [*model.bags.parameters(), *model.user.parameters()]
        rest = [*model.bottom.parameters(), *model.top.parameters()]
        return [torch.optim.Adagrad(embedded), torch.optim.Adam(rest)]

    return {"build_model": Recommender, "make_batch": batch, "make_optimizer": optimizers}
