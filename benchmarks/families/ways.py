"""One small GPT, trained in the ways in which people train: optimizers, low precision, checkpoints, accumulation, adapters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

WORDS, WIDTH, LAYERS = 1000, 128, 3
MATRICES = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)


def matrices_kept(_context: object, operator: object, *_args: object, **_kwargs: object) -> CheckpointPolicy:
    """Keep what matrix products give, make the rest again."""
    return CheckpointPolicy.MUST_SAVE if operator in MATRICES else CheckpointPolicy.PREFER_RECOMPUTE


CHECKPOINTS: dict[str, Callable[..., torch.Tensor]] = {
    "plain": partial(checkpoint, use_reentrant=False),
    "reentrant": partial(checkpoint, use_reentrant=True),
    "selective": partial(checkpoint, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, matrices_kept)),
}


class Block(nn.Module):
    """Attention and a feed-forward part, norms first."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1))
        found = functional.scaled_dot_product_attention(query, key, value, None, self.dropout if self.training else 0.0, True)
        x = x + functional.dropout(self.out(found.transpose(1, 2).flatten(2)), self.dropout, self.training)
        return x + functional.dropout(self.down(functional.gelu(self.up(self.second(x)), approximate="tanh")), self.dropout, self.training)


class Gpt(nn.Module):
    """Tied embeddings, learned places."""

    def __init__(self, checkpoints: str | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.through = None if checkpoints is None else CHECKPOINTS[checkpoints]
        self.word, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(256, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block(dropout) for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.word.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.word(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x) if self.through is None else self.through(block, x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), ids.flatten())


class Adapted(nn.Module):
    """A linear layer that stays as it is, and two narrow ones beside it that learn."""

    def __init__(self, layer: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.layer, self.scale = layer, 2.0
        kind = layer.weight.dtype
        self.a = nn.Linear(layer.in_features, rank, bias=False, dtype=kind)
        self.b = nn.Linear(rank, layer.out_features, bias=False, dtype=kind)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.b(self.a(functional.dropout(x, 0.05, self.training))) * self.scale


class Blockwise(torch.optim.Optimizer):
    """Adam with its moments in 8 bits, a scale for each block of 256."""

    def __init__(self, parameters: object, rate: float = 1e-3) -> None:
        super().__init__(parameters, {"rate": rate})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    for name in ("first", "second"):
                        state[name] = torch.zeros(-(-parameter.numel() // 256) * 256, dtype=torch.uint8, device=parameter.device)
                        state[f"{name}_scale"] = torch.zeros(-(-parameter.numel() // 256), device=parameter.device)
                moments = [self._wide(state, name)[: parameter.numel()].view_as(parameter) for name in ("first", "second")]
                moments[0].lerp_(parameter.grad, 0.1)
                moments[1].mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                parameter.addcdiv_(moments[0], moments[1].sqrt().add_(1e-8), value=-group["rate"])
                for name, moment in zip(("first", "second"), moments, strict=True):
                    self._narrow(state, name, moment)

    @staticmethod
    def _wide(state: dict[str, torch.Tensor], name: str) -> torch.Tensor:
        return ((state[name].float() - 128).view(-1, 256) * state[f"{name}_scale"][:, None]).flatten()

    @staticmethod
    def _narrow(state: dict[str, torch.Tensor], name: str, moment: torch.Tensor) -> None:
        blocks = functional.pad(moment.flatten(), (0, -moment.numel() % 256)).view(-1, 256)
        scale = blocks.abs().amax(1) / 127
        state[f"{name}_scale"].copy_(scale)
        state[name].copy_((blocks / scale.clamp(min=1e-12)[:, None]).round().add(128).flatten())


def ids(batch: int = 4, length: int = 128) -> Callable[[], torch.Tensor]:
    """Makes words on the device."""
    return lambda: torch.randint(0, WORDS, (batch, length), device="cuda")


def job(
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    build: Callable[[], nn.Module] = Gpt,
    batch: Callable[[], torch.Tensor] | None = None,
    **rest: object,
) -> dict[str, object]:
    """A job of the small GPT."""

    def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return optimizer([parameter for parameter in model.parameters() if parameter.requires_grad])

    return {"build_model": build, "make_batch": batch or ids(), "make_optimizer": make_optimizer, **rest}


# ── optimizers ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def sgd() -> dict[str, object]:
    """SGD with momentum and decay."""
    return job(partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4))


def adam_amsgrad() -> dict[str, object]:
    """Adam with amsgrad."""
    return job(partial(torch.optim.Adam, amsgrad=True, weight_decay=0.01))


def adamw_fused() -> dict[str, object]:
    """AdamW in one kernel."""
    return job(partial(torch.optim.AdamW, fused=True))


def adamw_loop() -> dict[str, object]:
    """AdamW parameter by parameter."""
    return job(partial(torch.optim.AdamW, foreach=False))


def adafactor() -> dict[str, object]:
    """Adafactor."""
    return job(torch.optim.Adafactor)


def rmsprop() -> dict[str, object]:
    """RMSprop, centred."""
    return job(partial(torch.optim.RMSprop, centered=True))


def eight_bits() -> dict[str, object]:
    """A hand-written Adam with moments in 8 bits."""
    return job(Blockwise)


def in_backward() -> dict[str, object]:
    """An optimizer for each parameter that steps as soon as its gradient is there, and drops it."""

    def make_optimizer(model: nn.Module) -> list[torch.optim.Optimizer]:
        steps = {parameter: torch.optim.AdamW([parameter], foreach=False) for parameter in model.parameters()}

        def apply(parameter: nn.Parameter) -> None:
            steps[parameter].step()
            steps[parameter].zero_grad()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(apply)
        return list(steps.values())

    def step(model: nn.Module, _optimizers: list[torch.optim.Optimizer], words: torch.Tensor) -> None:
        model(words).backward()

    return job() | {"make_optimizer": make_optimizer, "step": step}


# ── precision ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def half_scaled() -> dict[str, object]:
    """Float16 autocast, a scaler, gradients unscaled and clipped."""
    scaler = torch.amp.GradScaler("cuda")

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, words: torch.Tensor) -> None:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(words)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    return job(build=partial(Gpt, dropout=0.1), step=step)


def bfloat_autocast() -> dict[str, object]:
    """bfloat16 autocast, an odd batch and length."""
    return job(build=partial(Gpt, dropout=0.1), batch=ids(3, 201), autocast="bf16")


def bfloat_pure() -> dict[str, object]:
    """All in bfloat16, gradients added up over three batches."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, words: torch.Tensor) -> None:
        for part in words.chunk(3):
            (model(part) / 3).backward()
        optimizer.step()
        optimizer.zero_grad()

    return job(build=lambda: Gpt().to(torch.bfloat16), batch=ids(6), step=step)


# ── memory kept or made again ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def checkpointed() -> dict[str, object]:
    """Each block made again, with dropout."""
    return job(build=partial(Gpt, "plain", 0.1))


def checkpointed_reentrant() -> dict[str, object]:
    """Each block made again, reentrant, under bfloat16 autocast."""
    return job(build=partial(Gpt, "reentrant", 0.1), autocast="bf16")


def checkpointed_selective() -> dict[str, object]:
    """All but matrix products made again."""
    return job(build=partial(Gpt, "selective"), batch=ids(2, 250), autocast="bf16")


def accumulated() -> dict[str, object]:
    """Four small batches a step under autocast, gradients zeroed in place, clipped."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, words: torch.Tensor) -> None:
        for part in words.split(2):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(part) / 4
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return job(batch=ids(8, 100), step=step)


def adapters() -> dict[str, object]:
    """Low-rank adapters on a frozen bfloat16 model, each block made again."""

    def build() -> nn.Module:
        model = Gpt("plain").to(torch.bfloat16).requires_grad_(False)
        for block in model.blocks:
            block.qkv, block.out = Adapted(block.qkv), Adapted(block.out)
        model.word.register_forward_hook(lambda _module, _inputs, output: output.requires_grad_())
        return model

    return job(build=build)


def distilled() -> dict[str, object]:
    """A small model taught by another that does not learn."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.teacher, self.pupil = nn.Linear(300, 500), nn.Sequential(nn.Linear(300, 64), nn.GELU(), nn.Linear(64, 500))
            self.teacher.requires_grad_(False)

        def forward(self, x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                wanted = (self.teacher(x) / 2).softmax(-1)
            found = self.pupil(x)
            taught = functional.kl_div((found / 2).log_softmax(-1), wanted, reduction="batchmean")
            return taught * 4 + functional.cross_entropy(found, classes)

    return job(build=Both, batch=lambda: (torch.randn(200, 300, device="cuda"), torch.randint(0, 500, (200,), device="cuda")))
