"""A ResNet with bottlenecks, trained with momentum; written out, so that torchvision is not needed.

Look for the interval: cuDNN chooses its workspace at run time, so the peak is told with an upper bound.

    lifecycle-sim capture scenarios/capture/resnet.py --batch 32 --seq 224 -o resnet.jsonl
"""

import torch
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        outer = 4 * width
        self.reduce, self.norm_reduce = nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)
        self.middle, self.norm_middle = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.expand, self.norm_expand = nn.Conv2d(width, outer, 1, bias=False), nn.BatchNorm2d(outer)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return what the block makes of *images*."""
        inner = functional.relu(self.norm_reduce(self.reduce(images)), inplace=True)
        inner = functional.relu(self.norm_middle(self.middle(inner)), inplace=True)
        outer = self.norm_expand(self.expand(inner))
        outer += self.shortcut(images)
        return functional.relu(outer, inplace=True)


class ResNet(nn.Module):
    """ResNet-50, and the cross-entropy of its classes."""

    def __init__(self, counts: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, inner = [], 64
        for stage, count in enumerate(counts):
            width = 64 * 2**stage
            for number in range(count):
                blocks.append(Bottleneck(inner, width, 2 if stage and not number else 1))
                inner = 4 * width
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inner, classes)

    def forward(self, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        images = functional.relu(self.norm(self.stem(images)), inplace=True)
        images = self.blocks(functional.max_pool2d(images, 3, 2, 1))
        return functional.cross_entropy(self.head(functional.adaptive_avg_pool2d(images, 1).flatten(1)), classes)


def build_model() -> nn.Module:
    """Make the model."""
    return ResNet()


def make_batch(batch: int = 32, seq: int = 224) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the input of a step: *batch* images of *seq* × *seq*."""
    return torch.randn(batch, 3, seq, seq), torch.randint(0, 1000, (batch,))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
