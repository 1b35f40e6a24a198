"""Transformers that read and write text: encoders, an encoder and decoder, a decoder with grouped heads, and generation with a cache."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def numbers(below: int, *shape: int) -> torch.Tensor:
    """Whole numbers from 0 to *below* on the device."""
    return torch.randint(0, below, shape, device="cuda")


class Attention(nn.Module):
    """Attention with a projection each for queries, keys and values, which may come from another sequence."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(
        self, here: torch.Tensor, there: torch.Tensor, mask: torch.Tensor | None = None, causal: bool = False, dropout: float = 0.0
    ) -> torch.Tensor:
        heads = (self.query(here), self.key(there), self.value(there))
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in heads)
        found = functional.scaled_dot_product_attention(query, key, value, mask, dropout, causal)
        return self.out(found.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """A layer as in BERT: norms after the sums, GELU, dropout."""

    def __init__(self, width: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.attention, self.dropout = Attention(width, heads), dropout
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        dropout = self.dropout if self.training else 0.0
        x = self.first(x + functional.dropout(self.attention(x, x, mask, dropout=dropout), self.dropout, self.training))
        return self.second(x + functional.dropout(self.down(functional.gelu(self.up(x))), self.dropout, self.training))


class Bert(nn.Module):
    """Masked words from a padded batch."""

    def __init__(self, words: int = 3000, width: int = 192, heads: int = 6, layers: int = 2, longest: int = 160) -> None:
        super().__init__()
        self.word, self.place, self.kind = nn.Embedding(words, width, 0), nn.Embedding(longest, width), nn.Embedding(2, width)
        self.norm, self.layers = nn.LayerNorm(width), nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        self.transform, self.last, self.bias = nn.Linear(width, width), nn.LayerNorm(width), nn.Parameter(torch.zeros(words))

    def forward(self, ids: torch.Tensor, present: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.word(ids) + self.place(places) + self.kind(torch.zeros_like(ids))
        x = functional.dropout(self.norm(x), 0.1, self.training)
        mask = present[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, mask)
        logits = functional.linear(self.last(functional.gelu(self.transform(x))), self.word.weight, self.bias)
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=-100)


class Sequences(nn.Module):
    """A translator: encoder, and a decoder that attends to it."""

    def __init__(self, words: int = 2000, width: int = 128, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.encoder = nn.ModuleList(EncoderLayer(width, heads, 0.0) for _ in range(layers))
        self.own, self.other = (nn.ModuleList(Attention(width, heads) for _ in range(layers)) for _ in range(2))
        self.feed = nn.ModuleList(nn.Sequential(nn.Linear(width, 3 * width), nn.ReLU(), nn.Linear(3 * width, width)) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 * layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x, y = self.word(source), self.word(target[:, :-1])
        for layer in self.encoder:
            x = layer(x, None)
        for number, (own, other, feed) in enumerate(zip(self.own, self.other, self.feed, strict=True)):
            first, second, third = self.norms[3 * number : 3 * number + 3]
            before = first(y)
            y = y + own(before, before, causal=True)
            y = y + other(second(y), x)
            y = y + feed(third(y))
        logits = self.head(y)
        return functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)


class RmsNorm(nn.Module):
    """Llama's norm, in float32 inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * wide.to(x.dtype)


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """*x* with its halves rotated against each other."""
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


class LlamaLayer(nn.Module):
    """Grouped heads, rotary places, SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int, inner: int) -> None:
        super().__init__()
        self.size = width // heads
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.before, self.between = RmsNorm(width), RmsNorm(width)

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], cache: list[torch.Tensor] | None = None) -> torch.Tensor:
        y = self.before(x)
        query, key, value = (layer(y).unflatten(-1, (-1, self.size)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        query, key = rotated(query, *turn), rotated(key, *turn)
        if cache is not None:
            if cache:
                key, value = torch.cat((cache[0], key), 2), torch.cat((cache[1], value), 2)
            cache[:] = key, value
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=query.shape[2] > 1, enable_gqa=True)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """A decoder with grouped heads."""

    def __init__(self, words: int = 4000, width: int = 256, heads: int = 8, groups: int = 2, layers: int = 2, longest: int = 512) -> None:
        super().__init__()
        self.word, self.norm, self.head = nn.Embedding(words, width), RmsNorm(width), nn.Linear(width, words, bias=False)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, groups, 3 * width - 64) for _ in range(layers))
        size = width // heads
        angles = torch.outer(torch.arange(longest).float(), 10_000.0 ** (-torch.arange(0, size, 2).float() / size))
        self.register_buffer("cosine", torch.cat((angles, angles), -1).cos(), persistent=False)
        self.register_buffer("sine", torch.cat((angles, angles), -1).sin(), persistent=False)

    def forward(self, ids: torch.Tensor, caches: list[list[torch.Tensor]] | None = None, start: int = 0) -> torch.Tensor:
        x = self.word(ids)
        turn = tuple(table[start : start + ids.shape[1]].to(x.dtype) for table in (self.cosine, self.sine))
        for number, layer in enumerate(self.layers):
            x = layer(x, turn, None if caches is None else caches[number])
        return self.head(self.norm(x))


class LlamaLoss(nn.Module):
    """The loss of the next words."""

    def __init__(self, **sizes: int) -> None:
        super().__init__()
        self.model = Llama(**sizes)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self.model(ids).float()
        return functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def bert() -> dict[str, object]:
    """Masked words, padding mask, float32, AdamW with groups with and without decay."""

    def batch() -> tuple[torch.Tensor, ...]:
        return numbers(3000, 6, 120), torch.ones(6, 120, dtype=torch.int64, device="cuda"), numbers(3000, 6, 120)

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
        rest = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
        return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}])

    return {"build_model": Bert, "make_batch": batch, "make_optimizer": optimizer}


def bert_amp() -> dict[str, object]:
    """The same at an odd length under bfloat16 autocast."""
    job = bert()

    def batch() -> tuple[torch.Tensor, ...]:
        return numbers(3000, 5, 77), torch.ones(5, 77, dtype=torch.int64, device="cuda"), numbers(3000, 5, 77)

    return job | {"make_batch": batch, "autocast": "bf16"}


def translator() -> dict[str, object]:
    """Encoder and decoder, lengths that differ, label smoothing."""
    return {
        "build_model": Sequences,
        "make_batch": lambda: (numbers(2000, 8, 61), numbers(2000, 8, 50)),
        "make_optimizer": lambda model: torch.optim.Adam(model.parameters(), betas=(0.9, 0.98)),
    }


def llama() -> dict[str, object]:
    """Grouped heads under bfloat16 autocast, clipped."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, ids: torch.Tensor) -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return {
        "build_model": LlamaLoss,
        "make_batch": lambda: numbers(4000, 2, 384),
        "make_optimizer": lambda model: torch.optim.AdamW(model.parameters(), weight_decay=0.1),
        "step": step,
    }


def llama_float32() -> dict[str, object]:
    """Grouped heads in float32, for which only the mathematical attention is there."""
    return {
        "build_model": lambda: LlamaLoss(layers=3),
        "make_batch": lambda: numbers(4000, 3, 130),
        "make_optimizer": lambda model: torch.optim.AdamW(model.parameters()),
    }


def generation() -> dict[str, object]:
    """A prompt and a few words after it, with a cache of keys and values that grows, all in bfloat16."""

    def step(model: nn.Module, _optimizer: None, ids: torch.Tensor) -> None:
        with torch.inference_mode():
            caches: list[list[torch.Tensor]] = [[] for _ in model.layers]
            for place in range(6):
                logits = model(ids if not place else ids[:, -1:], caches, ids.shape[1] - 1 if place else 0)
                ids = torch.cat((ids, logits[:, -1].argmax(-1, keepdim=True)), 1)

    return {
        "build_model": lambda: Llama().to(torch.bfloat16).eval(),
        "make_batch": lambda: numbers(4000, 4, 100),
        "step": step,
    }


def library_encoder() -> dict[str, object]:
    """``nn.TransformerEncoder`` with a padding mask and a causal mask, dropout, norms first."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(96, 4, 200, 0.1, batch_first=True, norm_first=True)
            self.word, self.body = nn.Embedding(1000, 96), nn.TransformerEncoder(layer, 2, nn.LayerNorm(96), enable_nested_tensor=False)
            self.head = nn.Linear(96, 1000)

        def forward(self, ids: torch.Tensor, padded: torch.Tensor) -> torch.Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
            logits = self.head(self.body(self.word(ids), mask, padded, is_causal=True))
            return functional.cross_entropy(logits.transpose(1, 2), ids)

    return {
        "build_model": Model,
        "make_batch": lambda: (numbers(1000, 7, 45), torch.zeros(7, 45, device="cuda")),
        "make_optimizer": lambda model: torch.optim.NAdam(model.parameters()),
    }
