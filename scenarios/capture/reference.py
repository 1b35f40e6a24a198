"""A decoder language model with everything written by hand: attention, norms, rotary positions, and an AdamW that replaces its moments.

Nothing is fused and every intermediate has a tensor of its own, so the peak is far above that of a library's kernels. A local name keeps
its tensor until its function returns: names are a part of a program's memory.

    lifecycle-sim capture scenarios/capture/reference.py:full --device rtx5090 --batch 4 --seq 256 --warmup 5 -o reference.jsonl
    lifecycle-sim capture scenarios/capture/reference.py:mixed --device rtx5090 --batch 4 --seq 512 --warmup 5 -o mixed.jsonl

Look for the place of the peak: at 128 tokens it is in the optimizer, from 256 on before it.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

VOCABULARY, WIDTH, LAYERS, HEADS, HIDDEN = 10_000, 1024, 24, 16, 4096


def weight(*shape: int) -> nn.Parameter:
    """Make a parameter."""
    return nn.Parameter(torch.empty(*shape))


class Project(nn.Module):
    """A linear map without bias, as an einsum."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.weight = weight(outer, inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map the last dimension."""
        return torch.einsum("...i,oi->...o", x, self.weight)


class Norm(nn.Module):
    """Root mean square, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = weight(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return *x*, normalised."""
        kind = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return (self.weight * x).to(kind)


class Rotary(nn.Module):
    """Rotates pairs of features by angles that grow with the position; one table for all blocks."""

    def __init__(self, context: int, size: int) -> None:
        super().__init__()
        angle = torch.arange(context)[:, None] * 10_000.0 ** -(torch.arange(0, size, 2) / size)[None, :]
        self.register_buffer("table", torch.stack((angle.cos(), angle.sin())), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return *x*, rotated."""
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        cosine, sine = self.table[:, : x.size(-2), :].unbind(0)
        first = cosine * even - sine * odd
        second = sine * even + cosine * odd
        return torch.concat((first, second), dim=-1)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax over the last dimension."""
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    parts = torch.exp(shifted)
    return parts / torch.sum(parts, dim=-1, keepdim=True)


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return what each query finds among the keys it may see."""
    scores = torch.einsum("...qd,...kd->...qk", query, key) / key.shape[-1] ** 0.5
    scores = torch.where(seen, scores, float("-inf"))
    shares = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", shares, value)


class Attention(nn.Module):
    """Causal attention of several heads."""

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (Project(WIDTH, WIDTH) for _ in range(4))
        self.rotary = rotary

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the heads find."""
        query, key, value = self.query(x), self.key(x), self.value(x)
        query, key, value = (each.unflatten(-1, (HEADS, -1)).transpose(-2, -3) for each in (query, key, value))
        query = self.rotary(query)
        key = self.rotary(key)
        position = torch.arange(x.size(-2), device=x.device)
        seen = (position[:, None] >= position[None, :])[None, ...]
        heads = attend(query, key, value, seen)
        heads = heads.transpose(1, 2).flatten(-2).contiguous()
        return self.out(heads)


class Gated(nn.Module):
    """A feed-forward layer with a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.down, self.up = Project(WIDTH, HIDDEN), Project(HIDDEN, WIDTH), Project(WIDTH, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's result."""
        return self.down(swish(self.gate(x)) * self.up(x))


def swish(x: torch.Tensor) -> torch.Tensor:
    """Return x · sigmoid(x)."""
    return x * torch.sigmoid(x)


class Block(nn.Module):
    """Attention and feed-forward layer, each behind a norm."""

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.attention, self.layers = Attention(rotary), Gated()
        self.before_attention, self.before_layers = Norm(WIDTH), Norm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the stream, with what this block adds."""
        found = self.attention(self.before_attention(x))
        x = x + found
        made = self.layers(self.before_layers(x))
        return x + made


class Decoder(nn.Module):
    """Embedding, blocks, norm and head."""

    def __init__(self, context: int) -> None:
        super().__init__()
        self.embedding = weight(VOCABULARY, WIDTH)
        self.rotary = Rotary(context, WIDTH // HEADS)
        self.blocks = nn.ModuleList(Block(self.rotary) for _ in range(LAYERS))
        self.norm, self.head = Norm(WIDTH), Project(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        embedded = self.embedding[ids, :]
        x = embedded
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x)


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of the softmax over the last dimension."""
    largest = torch.max(x, dim=-1, keepdim=True)[0]
    x = x - largest
    return x - torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))


def mean_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean negative log-likelihood of *targets*."""
    negative = -log_softmax(logits)
    return torch.mean(torch.gather(negative, -1, targets.unsqueeze(-1)))


class AdamW(torch.optim.Optimizer):
    """AdamW in plain tensor arithmetic; its moments are new tensors in each step."""

    def __init__(self, parameters: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), decay: float = 0.01) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "decay": decay})

    def step(self, closure: Any = None) -> None:
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            lr, (first, second), decay = group["lr"], group["betas"], group["decay"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient, state = parameter.grad.data, self.state[parameter]
                count = state.get("count", 1)
                rate = lr * (1 - second**count) ** 0.5 / (1 - first**count)
                parameter.data -= lr * decay * parameter.data
                old_mean = state.get("mean", torch.zeros_like(gradient))
                old_square = state.get("square", torch.zeros_like(gradient))
                mean = first * old_mean + (1 - first) * gradient
                square = second * old_square + (1 - second) * torch.square(gradient)
                parameter.data -= rate * mean / (torch.sqrt(square) + 1e-8)
                state["mean"], state["square"], state["count"] = mean, square, count + 1


def program(batch: int, seq: int, low: torch.dtype | None) -> dict[str, Callable[..., Any]]:
    """Return the functions of a run that keeps its last outputs, loss and gradients; steps of warm-up clear their gradients."""
    kept: list[torch.Tensor] = []

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: tuple[torch.Tensor, torch.Tensor]) -> None:
        optimizer.zero_grad()
        kept.clear()
        with torch.autocast("cuda", dtype=low) if low else nullcontext():
            logits = model(inputs[0])
            loss = mean_loss(logits, inputs[1])
        loss.backward()
        optimizer.step()
        kept[:] = logits, loss

    return {
        "build_model": lambda: Decoder(seq),
        "make_batch": lambda: (torch.randint(0, VOCABULARY, (batch, seq)), torch.randint(0, VOCABULARY, (batch, seq))),
        "make_optimizer": lambda model: AdamW(model.parameters()),
        "step": step,
    }


def full(batch: int = 4, seq: int = 128) -> dict[str, Callable[..., Any]]:
    """Train in float32."""
    return program(batch, seq, None)


def mixed(batch: int = 4, seq: int = 512) -> dict[str, Callable[..., Any]]:
    """Train in bfloat16 under autocast."""
    return program(batch, seq, torch.bfloat16)
