"""Networks for pictures, with the convolutions that PyTorch has without cuDNN."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

torch.backends.cudnn.enabled = False


def pictures(count: int, channels: int, size: int) -> torch.Tensor:
    """Noise on the device."""
    return torch.randn(count, channels, size, size, device="cuda")


class Double(nn.Sequential):
    """Two convolutions, each with a norm."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(
            nn.Conv2d(before, after, 3, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        )


class Unet(nn.Module):
    """Down by pooling, up by transposed convolution, with the way down beside."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.first, self.second, self.lowest = Double(3, width), Double(width, 2 * width), Double(2 * width, 4 * width)
        self.up, self.higher = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), Double(4 * width, 2 * width)
        self.top, self.highest = nn.ConvTranspose2d(2 * width, width, 2, 2), Double(2 * width, width)
        self.last = nn.Conv2d(width, 5, 1)

    def forward(self, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        first = self.first(images)
        second = self.second(functional.max_pool2d(first, 2))
        x = self.lowest(functional.max_pool2d(second, 2))
        x = self.higher(torch.cat((self.up(x), second), 1))
        x = self.highest(torch.cat((self.top(x), first), 1))
        logits = self.last(x)
        share = logits.softmax(1)
        wanted = functional.one_hot(classes, 5).movedim(-1, 1).float()
        overlap = 2 * (share * wanted).sum((0, 2, 3)) / (share + wanted).sum((0, 2, 3)).clamp(min=1e-6)
        return functional.cross_entropy(logits, classes) + 1 - overlap.mean()


class Vit(nn.Module):
    """Patches, a class token, layers of the library."""

    def __init__(self, width: int = 96, size: int = 48, patch: int = 8) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width))
        layers = [nn.TransformerEncoderLayer(width, 3, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(2)]
        self.body, self.norm, self.head = nn.Sequential(*layers), nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.place
        return functional.cross_entropy(self.head(self.norm(self.body(x))[:, 0]), classes, label_smoothing=0.1)


class ConvNext(nn.Module):
    """Depthwise convolutions, norms over channels, a scale for each layer."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.depth = nn.ModuleList(nn.Conv2d(width, width, 7, padding=3, groups=width) for _ in range(2))
        self.norm = nn.ModuleList(nn.LayerNorm(width, 1e-6) for _ in range(3))
        self.up, self.down = (nn.ModuleList(nn.Linear(a * width, b * width) for _ in range(2)) for a, b in ((1, 4), (4, 1)))
        self.scale = nn.ParameterList(nn.Parameter(1e-6 * torch.ones(width)) for _ in range(2))
        self.lower, self.head = nn.Conv2d(width, 2 * width, 2, 2), nn.Linear(2 * width, 10)

    def forward(self, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        x = self.stem(images)
        for number, (depth, up, down, scale) in enumerate(zip(self.depth, self.up, self.down, self.scale, strict=True)):
            y = self.norm[number](depth(x).permute(0, 2, 3, 1))
            y = down(functional.gelu(up(y))) * scale
            x = x + y.permute(0, 3, 1, 2)
        x = self.norm[2](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return functional.cross_entropy(self.head(self.lower(x).mean((-2, -1))), classes)


class Noised(nn.Module):
    """A denoiser: the time embedded, group norms, attention in the middle, nearest-neighbour up."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.into, self.lower = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, channels) for channels in (width, 2 * width, 2 * width, 3 * width))
        self.shift = nn.ModuleList(nn.Linear(4 * width, channels) for channels in (width, 2 * width))
        self.inner = nn.ModuleList((nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(2 * width, 2 * width, 3, padding=1)))
        self.qkv, self.out = nn.Conv2d(2 * width, 6 * width, 1), nn.Conv2d(2 * width, 2 * width, 1)
        self.last = nn.Conv2d(3 * width, 3, 3, padding=1)

    def forward(self, images: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        angles = time[:, None].float() * torch.exp(-9.2 * torch.arange(half, device=time.device) / half)
        when = self.time(torch.cat((angles.sin(), angles.cos()), -1))
        high = self.into(images)
        high = high + self.inner[0](functional.silu(self.norms[0](high)) + self.shift[0](when)[:, :, None, None])
        low = self.lower(high)
        low = low + self.inner[1](functional.silu(self.norms[1](low)) + self.shift[1](when)[:, :, None, None])
        batch, channels, rows, columns = low.shape
        qkv = self.qkv(self.norms[2](low)).view(batch, 3, 4, channels // 4, rows * columns).transpose(-1, -2)
        found = functional.scaled_dot_product_attention(*qkv.unbind(1))
        low = low + self.out(found.transpose(-1, -2).reshape(batch, channels, rows, columns))
        x = torch.cat((functional.interpolate(low, scale_factor=2.0, mode="nearest"), high), 1)
        return self.last(functional.silu(self.norms[3](x)))


def labelled(count: int, size: int, classes: int) -> object:
    """Makes pictures and their classes."""
    return lambda: (pictures(count, 3, size), torch.randint(0, classes, (count,), device="cuda"))


def unet() -> dict[str, object]:
    """Segmentation with cross-entropy and overlap, gradients zeroed in place."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, ...]) -> None:
        optimizer.zero_grad(set_to_none=False)
        model(*batch).backward()
        optimizer.step()

    return {
        "build_model": Unet,
        "make_batch": lambda: (pictures(3, 3, 48), torch.randint(0, 5, (3, 48, 48), device="cuda")),
        "make_optimizer": lambda model: torch.optim.Adam(model.parameters()),
        "step": step,
    }


def vit() -> dict[str, object]:
    """Classes, AdamW."""
    return {
        "build_model": Vit,
        "make_batch": labelled(10, 48, 100),
        "make_optimizer": lambda model: torch.optim.AdamW(model.parameters()),
    }


def vit_amp() -> dict[str, object]:
    """The same under float16 autocast with a scaler."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, ...]) -> None:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(*batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    scaler = torch.amp.GradScaler("cuda")
    return vit() | {"step": step}


def convnext() -> dict[str, object]:
    """Classes, AdamW."""
    return {
        "build_model": ConvNext,
        "make_batch": labelled(6, 64, 10),
        "make_optimizer": lambda model: torch.optim.AdamW(model.parameters(), weight_decay=0.05),
    }


def diffusion() -> dict[str, object]:
    """Noise predicted, and an averaged copy of the model moved after each step."""

    class Averaged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.average = Noised(), Noised().requires_grad_(False)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            noise, time = torch.randn_like(images), torch.randint(0, 1000, (images.shape[0],), device=images.device)
            share = torch.cos(time.float() / 1000 * 1.57)[:, None, None, None]
            return functional.mse_loss(self.model(share * images + (1 - share**2).sqrt() * noise, time), noise)

    def step(both: Averaged, optimizer: torch.optim.Optimizer, images: torch.Tensor) -> None:
        both(images).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for average, current in zip(both.average.parameters(), both.model.parameters(), strict=True):
                average.lerp_(current, 0.001)

    return {
        "build_model": Averaged,
        "make_batch": lambda: pictures(4, 3, 32),
        "make_optimizer": lambda both: torch.optim.AdamW(both.model.parameters()),
        "step": step,
    }
