"""Small models for what-ifs, and captures of one step of them in this process, plain or really checkpointed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from lifecycle_sim.program.step_graph import StepGraph
from lifecycle_sim.sources.capture.answers import Answers
from lifecycle_sim.sources.capture.building import build_on_meta, moves_left_out, to_fake
from lifecycle_sim.sources.capture.named import TERMS
from lifecycle_sim.sources.capture.profiles import find_profile
from lifecycle_sim.sources.capture.semantics import Cuda
from lifecycle_sim.sources.capture.terms import KernelTerms
from lifecycle_sim.sources.capture.tracker import Tracker

PROFILE = find_profile("a100-80g")
Step = Callable[[Any, Any], None]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, fused: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.heads, self.dropout, self.fused = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            heads,
            dropout,
            fused,
        )

    def forward(self, x: Any) -> Any:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout)
        else:
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(mask, float("-inf"))
            y = F.dropout(scores.softmax(-1), self.dropout) @ v
        return F.dropout(self.out(y.transpose(1, 2).flatten(2)), self.dropout)


class FeedForward(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.up, self.down, self.dropout = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), dropout

    def forward(self, x: Any) -> Any:
        return F.dropout(self.down(F.gelu(self.up(x))), self.dropout)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, fused: bool) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width, heads, dropout, fused), FeedForward(width, dropout)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.after(x))


class Gpt4(nn.Module):
    """Four blocks, tied embedding and head."""

    def __init__(self, dropout: float = 0.0, fused: bool = False, blocks: int = 4) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(61, 32), nn.Embedding(16, 32)
        self.blocks = nn.ModuleList(Block(32, 4, dropout, fused) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 61, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids: Any, target: Any) -> Any:
        x = self.token(ids) + self.position(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


class MaskedBlock(nn.Module):
    """Takes a mask by name that all blocks share, and positions by place; keeps a tensor in the context of its function."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.linear = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Any, angle: Any, *, mask: Any) -> Any:
        scores = (self.inner(x) * angle) @ x.transpose(-1, -2)
        return x + self.linear(Keeping.apply((scores + mask).softmax(-1) @ x))


class Keeping(torch.autograd.Function):
    """Keeps a tensor as an attribute of its context: checkpointing does not free it."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.kept = x.sigmoid()
        return x * ctx.kept

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.kept * (2 - ctx.kept)


class Shared(nn.Module):
    """Three blocks that share a mask and angles."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(MaskedBlock(24) for _ in range(3))

    def forward(self, x: Any, target: Any) -> Any:
        mask, angle = torch.full((10, 10), -1e4).triu(1), torch.arange(10.0)[:, None].cos() * torch.ones(24)
        for block in self.blocks:
            x = block(x, angle, mask=mask)
        return F.mse_loss(x, target)


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.last_norm = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm(self.first(x)), inplace=True)
        return F.relu(self.last_norm(self.second(y)) + x, inplace=True)


class ResNet5(nn.Module):
    """Batch norms whose buffers change, and ReLUs in place."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)
        self.layers = nn.Sequential(*(ResidualBlock(8) for _ in range(3)))

    def forward(self, x: Any, target: Any) -> Any:
        return F.cross_entropy(self.head(self.layers(self.stem(x)).mean((2, 3))), target)


class Recurrent(nn.Module):
    """One cell for five calls."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(12, 20), nn.Linear(20, 4)

    def forward(self, x: Any, target: Any) -> Any:
        h, c = (torch.zeros(x.shape[1], 20) for _ in range(2))
        for step in x:
            h, c = self.cell(step, (h, c))
        return F.cross_entropy(self.head(h), target)


class InPlace(nn.Module):
    """Changes what its parts were called with: in the part, and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.ReLU(inplace=True), nn.Linear(24, 24)

    def forward(self, x: Any, target: Any) -> Any:
        y = self.first(x * 2)
        z = self.second(y)
        y.add_(1)
        return F.mse_loss(z.sin() + y, target)


class SelfAttention(nn.Module):
    """torch's own attention, which asks whether its three inputs are one object."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.attention = nn.Linear(24, 24), nn.MultiheadAttention(24, 4, batch_first=True)

    def forward(self, x: Any, target: Any) -> Any:
        y = self.linear(x)
        return F.mse_loss(self.attention(y, y, y, need_weights=False)[0], target)


class Twice(torch.autograd.Function):
    """Asks twice for what it saved."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * ctx.saved_tensors[0].cos() + 0 * x


class Asking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 24)

    def forward(self, x: Any) -> Any:
        return Twice.apply(self.linear(x))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Asking()

    def forward(self, x: Any, target: Any) -> Any:
        return F.mse_loss(self.part(x), target)


def tokens() -> tuple[Any, Any]:
    return torch.randint(0, 61, (3, 16)), torch.randint(0, 61, (3, 16))


def vectors() -> tuple[Any, Any]:
    return torch.randn(4, 10, 24, requires_grad=True), torch.randn(4, 10, 24)


def images() -> tuple[Any, Any]:
    return torch.randn(4, 3, 12, 12), torch.randint(0, 5, (4,))


def series() -> tuple[Any, Any]:
    return torch.randn(5, 6, 12), torch.randint(0, 4, (6,))


def plain_step(model: Any, batch: Any) -> None:
    model(*batch).backward()


def autocast_step(model: Any, batch: Any) -> None:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(*batch)
    loss.backward()


def accumulating_step(model: Any, batch: Any) -> None:
    for _ in range(2):
        (model(*batch) / 2).backward()


def frozen_step(model: Any, batch: Any) -> None:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(("blocks.2", "blocks.3.mlp", "norm")))
    model(*batch).backward()


def both_then_backward_step(model: Any, batch: Any) -> None:
    first, second = model(*batch), model(*batch)
    (first + second).backward()


def retained_step(model: Any, batch: Any) -> None:
    loss = model(*batch)
    loss.backward(retain_graph=True)
    (loss * 2).backward()


def backward_under_autocast_step(model: Any, batch: Any) -> None:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        model(*batch).backward()


def second_order_step(model: Any, batch: Any) -> None:
    loss = model(*batch)
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    (loss + sum(gradient.pow(2).sum() for gradient in gradients)).backward()


@contextmanager
def on_cuda() -> Iterator[None]:
    """CUDA's semantics for fake tensors, in this process: install them once for many captures."""
    FakeTensorMode()  # what torch imports for it must not see what is installed
    cuda = Cuda(PROFILE, "2.14")
    with cuda.installed(), moves_left_out():
        on_cuda.rules = cuda  # type: ignore[attr-defined]
        yield


def graph_of(
    build: Callable[[], Any],
    batch: Callable[[], Any],
    step: Step = plain_step,
    checkpointed: Collection[str] = (),
    **options: Any,
) -> StepGraph:
    """The graph of one step of a model, in which torch checkpoints the modules *checkpointed*; inside of :func:`on_cuda`."""
    cuda = on_cuda.rules  # type: ignore[attr-defined]
    tracker = Tracker(
        Answers(0.5, 1.0),
        lambda ledger, where: KernelTerms(ledger, where, PROFILE, tuple(TERMS)),
        cuda.run,
        cuda.scalars_on_host,
        graph=True,
    )
    assert tracker.graph is not None
    tracker.graph.follow(cuda.casts)
    return _tracked(tracker, build, batch, step, checkpointed, options)


def graph_on_cpu(build: Callable[[], Any], batch: Callable[[], Any], step: Step = plain_step) -> StepGraph:
    """The graph of one step on a CPU, outside of :func:`on_cuda`."""
    return _tracked(Tracker(Answers(0.5, 1.0), graph=True), build, batch, step, (), {})


def _tracked(
    tracker: Tracker, build: Callable[[], Any], batch: Callable[[], Any], step: Step, checkpointed: Collection[str], options: dict[str, Any]
) -> StepGraph:
    assert tracker.graph is not None
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    enabled = gc.isenabled()
    gc.disable()
    try:
        model = build_on_meta(build, None)
        to_fake(mode, model)
        with mode, tracker:
            modules = dict(model.named_modules())
            for name in checkpointed:
                checkpoint_forward(modules[name], options)
            tracker.watch_model(model)
            start = tracker.begin_step()
            given = batch()
            tracker.watch_inputs(given)
            step(model, given)
            del given
            tracker.end_step(start)
            tracker.graph.forget()
            tracker.identities.forget()
    finally:
        if enabled:
            gc.enable()
    (graph,) = tracker.graph.graphs(["step 1"])
    return graph


def checkpoint_forward(module: Any, options: dict[str, Any]) -> None:
    """Let torch checkpoint the forward of *module*."""
    forward = module.forward

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **options, **kwargs)

    module.forward = checkpointed
