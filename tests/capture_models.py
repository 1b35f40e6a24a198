"""Small models of the usual families, and steps as people write them, for tests of captures."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Dropout(0.1), nn.Linear(64, 16))

    def forward(self, x, target):
        return F.cross_entropy(self.layers(x), target)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, 2, 1)
        self.head = nn.Linear(16, 10)

    def forward(self, images, target):
        x = F.relu(self.norm(self.first(images)), inplace=True)
        x = F.adaptive_avg_pool2d(F.relu(self.second(x)), 1).flatten(1)
        return F.cross_entropy(self.head(x), target)


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        heads = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        x = x + F.dropout(self.out(heads.transpose(1, 2).flatten(2)), 0.1, self.training)
        return x + self.down(F.gelu(self.up(self.after(x))))


class Gpt(nn.Module):
    """Tied embedding and head, learned positions."""

    def __init__(self, checkpointed=None):
        super().__init__()
        self.checkpointed = checkpointed
        self.token, self.position = nn.Embedding(100, 32), nn.Embedding(24, 32)
        self.blocks = nn.ModuleList(GptBlock(32, 4) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 100, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids, target):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x) if self.checkpointed is None else checkpoint(block, x, use_reentrant=self.checkpointed == "reentrant")
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.before, self.after = RmsNorm(width), RmsNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, count * self.size, bias=False) for count in (heads, groups, groups, heads))
        self.gate, self.up, self.down = (
            nn.Linear(a, b, bias=False) for a, b in ((width, 3 * width), (width, 3 * width), (3 * width, width))
        )

    def rotate(self, x):
        half = self.size // 2
        position = torch.arange(x.shape[2], device=x.device)[:, None] / 10_000 ** (torch.arange(half, device=x.device) / half)
        angles = torch.cat((position, position), -1)
        return x * angles.cos() + torch.cat((-x[..., half:], x[..., :half]), -1) * angles.sin()

    def forward(self, x):
        y = self.before(x)
        q, k, v = (layer(y).unflatten(-1, (-1, self.size)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k = self.rotate(q), self.rotate(k)
        k, v = (part.repeat_interleave(self.heads // self.groups, 1) for part in (k, v))
        scores = (q @ k.transpose(-1, -2)) / self.size**0.5
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device, dtype=scores.dtype).triu(1)
        heads = (scores + mask).softmax(-1, dtype=torch.float32).to(q.dtype) @ v
        x = x + self.o(heads.transpose(1, 2).flatten(2))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, checkpointed=None):
        super().__init__()
        self.checkpointed = checkpointed
        self.token, self.norm, self.head = nn.Embedding(100, 32), RmsNorm(32), nn.Linear(32, 100, bias=False)
        self.blocks = nn.ModuleList(LlamaBlock(32, 4, 2) for _ in range(3))

    def forward(self, ids, target):
        x = self.token(ids)
        for block in self.blocks:
            x = block(x) if self.checkpointed is None else checkpoint(block, x, use_reentrant=self.checkpointed == "reentrant")
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


def tokens():
    return torch.randint(0, 100, (4, 16)), torch.randint(0, 100, (4, 16))


def images():
    return torch.randn(4, 3, 12, 12), torch.randint(0, 10, (4,))


def rows():
    return torch.randn(8, 32), torch.randint(0, 16, (8,))


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), foreach=False, **options)


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)


def training(accumulate: int = 1, clip: float | None = None, autocast: Any = None, set_to_none: bool = True) -> Callable[..., None]:
    """A training step; *autocast* is on the CPU, where both fake and real tensors are."""

    def step(model, optimizer, batch):
        for _ in range(accumulate):
            with torch.autocast("cpu", dtype=autocast) if autocast else nullcontext():
                loss = model(*batch)
            (loss / accumulate).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip, foreach=False)
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)

    return step


JOBS: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[Any], Any], Callable[..., None]]] = {
    "mlp": (Mlp, rows, adamw, training()),
    "mlp_keeps_gradients": (Mlp, rows, sgd, training(set_to_none=False)),
    "conv": (ConvNet, images, sgd, training()),
    "gpt": (Gpt, tokens, adamw, training()),
    "gpt_checkpointed": (lambda: Gpt("newer"), tokens, adamw, training()),
    "gpt_reentrant": (lambda: Gpt("reentrant"), tokens, adamw, training(clip=1.0)),
    "gpt_accumulates": (Gpt, tokens, adamw, training(accumulate=3, clip=1.0)),
    "gpt_amp": (Gpt, tokens, adamw, training(autocast=torch.bfloat16)),
    "llama": (Llama, tokens, adamw, training()),
    "llama_checkpointed": (lambda: Llama("newer"), tokens, adamw, training(autocast=torch.bfloat16)),
    "llama_accumulates": (Llama, tokens, lambda model: adamw(model, amsgrad=True), training(accumulate=2)),
}
