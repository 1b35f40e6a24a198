"""A small MLP with AdamW: what each of weights, gradients and moments takes, and when.

Look for where the peak is. With 256 rows it is in the optimizer, and the first step peaks as high as the second: AdamW has made its two
moments by then. With 2,048 rows it is in the backward pass from the second step on, and the first, which has no moments there, peaks lower.

    lifecycle-sim capture scenarios/capture/mlp.py --device h100 --batch 256 -o mlp.jsonl
    lifecycle-sim peak mlp.jsonl --by category
"""

import torch
from torch import nn


class Mlp(nn.Module):
    """Three layers, and the cross-entropy of what they say."""

    def __init__(self, width: int = 1024, hidden: int = 4096, classes: int = 100) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, classes))

    def forward(self, rows: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        return nn.functional.cross_entropy(self.layers(rows), classes)


def build_model() -> nn.Module:
    """Make the model."""
    return Mlp()


def make_batch(batch: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the input of a step."""
    return torch.randn(batch, 1024), torch.randint(0, 100, (batch,))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer."""
    return torch.optim.AdamW(model.parameters())
