"""Recurrent networks, with the cells that PyTorch has without cuDNN."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

torch.backends.cudnn.enabled = False


class Language(nn.Module):
    """Embedding, recurrent layers, words; the state is carried from batch to batch by the caller, or not at all."""

    def __init__(self, kind: type[nn.RNNBase], words: int = 1200, width: int = 96, layers: int = 2) -> None:
        super().__init__()
        self.word, self.drop, self.head = nn.Embedding(words, width), nn.Dropout(0.2), nn.Linear(width, words)
        self.body = kind(width, width, layers, dropout=0.2, batch_first=True)
        self.head.weight = self.word.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found, _ = self.body(self.drop(self.word(ids)))
        return functional.cross_entropy(self.head(self.drop(found)).flatten(0, 1), ids.flatten())


class Tagger(nn.Module):
    """Two directions, a tag for each word by connectionist temporal classification's softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.GRU(40, 64, bidirectional=True), nn.Linear(128, 30)

    def forward(self, sounds: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        return functional.nll_loss(self.head(self.body(sounds)[0]).log_softmax(-1).flatten(0, 1), tags.flatten())


def clipped(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    """A step with gradients clipped."""
    loss = model(batch)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    optimizer.zero_grad()


def lstm() -> dict[str, object]:
    """A language model of two layers, SGD."""
    return {
        "build_model": lambda: Language(nn.LSTM),
        "make_batch": lambda: torch.randint(0, 1200, (16, 20), device="cuda"),
        "make_optimizer": lambda model: torch.optim.SGD(model.parameters(), 1.0),
        "step": clipped,
    }


def gru() -> dict[str, object]:
    """Two directions, Adagrad."""
    return {
        "build_model": Tagger,
        "make_batch": lambda: (torch.randn(25, 10, 40, device="cuda"), torch.randint(0, 30, (25, 10), device="cuda")),
        "make_optimizer": lambda model: torch.optim.Adagrad(model.parameters()),
    }
