"""Two linear layers with one weight, applied to the same input: do they pay for it twice?

It shows: one object under two names, 8,192 elements, counted once. With its gradient and its optimizer state the weight takes 131,072 B in
fp32 under AdamW, 65,536 B if all of it is bf16, and 131,072 B again if the weight and the gradient are bf16 while a master copy and
the moments are fp32: half the weight's bytes do not mean half the memory.

Look for: one row with two references.

    lifecycle-sim params scenarios/capture/shared_linear.py
    lifecycle-sim params scenarios/capture/shared_linear.py --dtype bf16
    lifecycle-sim params scenarios/capture/shared_linear.py:with_master
"""

from __future__ import annotations

import torch
from torch import nn


class SharedLinear(nn.Module):
    """Query and key of one input through one weight of [128, 64]; their product is the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(64, 128, bias=False)
        self.key = nn.Linear(64, 128, bias=False)
        self.key.weight = self.query.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean product of query and key, a scalar."""
        return (self.query(x) * self.key(x)).mean()


class MasterAdamW(torch.optim.Optimizer):
    """AdamW for low-precision weights: it keeps an fp32 master copy of each, and fp32 moments, and rounds after each step."""

    def __init__(self, parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), decay: float = 1e-2) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        """Update masters and weights."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            first, second = group["betas"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["count"] = 0
                    state["master"] = weight.float()
                    state["exp_avg"] = torch.zeros_like(state["master"])
                    state["exp_avg_sq"] = torch.zeros_like(state["master"])
                state["count"] += 1
                gradient = weight.grad.float()
                state["exp_avg"].lerp_(gradient, 1 - first)
                state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
                size = group["lr"] / (1 - first ** state["count"])
                spread = (state["exp_avg_sq"] / (1 - second ** state["count"])).sqrt_().add_(1e-8)
                state["master"].mul_(1 - group["lr"] * group["decay"]).addcdiv_(state["exp_avg"], spread, value=-size)
                weight.copy_(state["master"])
        return loss


def build_model() -> nn.Module:
    """Return the module."""
    return SharedLinear()


def make_batch(batch: int = 32) -> tuple[torch.Tensor]:
    """Return rows of 64."""
    return (torch.randn(batch, 64),)


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW."""
    return torch.optim.AdamW(model.parameters())


def with_master() -> dict[str, object]:
    """Return the same in bf16, with fp32 master copies and moments."""
    return {
        "build_model": build_model,
        "make_batch": make_batch,
        "make_optimizer": lambda model: MasterAdamW(model.parameters()),
        "dtype": torch.bfloat16,
    }
