"""Eight parameters under AdamW: when do weights, gradients and moments come to be, and how many bytes does each take?

It shows: 32 bytes of weights, 32 of gradients after the backward pass, no optimizer state before the first step and 64 bytes of moments
after it, 128 in all; the step counters are scalars of the host and stand apart. And that large products stay exact.

Look for: eight checks that hold.

    python scenarios/capture/adamw_experiment.py
"""

from __future__ import annotations

import torch
from torch import nn

import lifecycle_sim as ls

FLOPS_PER_TOKEN_AND_PARAMETER = 6


def build_model() -> nn.Module:
    """Return a linear layer of eight parameters."""
    return nn.Linear(4, 2, bias=False)


def make_batch() -> tuple[torch.Tensor]:
    """Return one row."""
    return (torch.ones(1, 4),)


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW."""
    return torch.optim.AdamW(model.parameters())


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor]) -> None:
    """Make a training step that keeps its gradients."""
    model(*batch).sum().backward()
    optimizer.step()


def eight_checks() -> list[tuple[str, int, int]]:
    """Make one step, and return what is checked: its name, what was found, and what is right."""
    model = build_model()
    optimizer = make_optimizer(model)
    with ls.record(model, optimizer) as recording:
        before = ls.params(model, optimizer)
        model(*make_batch()).sum().backward()
        gradients = sum(parameter.grad.untyped_storage().nbytes() for parameter in model.parameters())
        held_before_step = ls.params(model, optimizer).state
        optimizer.step()
        recording.step()
    after = recording.parameters
    replayed = ls.replay_device(recording.trace)
    end = len(recording.trace) - 1
    held = {share.key: share.size for share in ls.attribute(replayed, at=end, by="category").shares}
    kept = sum(held.get(category, 0) for category in ("parameter", "gradient", "optimizer_state"))
    training = FLOPS_PER_TOKEN_AND_PARAMETER * 10**9 * 20 * 10**9
    return [
        ("parameters", before.elements, 8),
        ("bytes of weights", held.get("parameter", 0), 32),
        ("bytes of gradients after backward", gradients, 32),
        ("bytes of optimizer state before the first step", held_before_step, 0),
        ("bytes of moments after it", held.get("optimizer_state", 0), 64),
        ("bytes in all", kept, 128),
        ("bytes of step counters, apart", after.counters, 4),
        ("floating-point operations for 10^9 parameters and 20·10^9 tokens", training, 120_000_000_000_000_000_000),
    ]


def main() -> int:
    """Print the checks; return 0 if all hold."""
    checks = eight_checks()
    for name, found, right in checks:
        print(f"{'holds' if found == right else f'fails, should be {right:,}':<8} {name}: {found:,}")
    return int(any(found != right for _, found, right in checks))


if __name__ == "__main__":
    raise SystemExit(main())
