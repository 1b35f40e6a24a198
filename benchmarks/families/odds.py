"""Jobs with layers and losses that the other families lack, at odd sizes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

torch.backends.cudnn.enabled = False


def noise(*shape: int) -> torch.Tensor:
    """Noise on the device."""
    return torch.randn(*shape, device="cuda")


def numbers(below: int, *shape: int) -> torch.Tensor:
    """Whole numbers from 0 to *below* on the device."""
    return torch.randint(0, below, shape, device="cuda")


class Sound(nn.Module):
    """Dilated convolutions over time with weights apart from their norms, gates, residuals."""

    def __init__(self, width: int = 40) -> None:
        super().__init__()
        normed = nn.utils.parametrizations.weight_norm
        self.first = nn.Conv1d(1, width, 1)
        self.layers = nn.ModuleList(normed(nn.Conv1d(width, 2 * width, 3, padding=2**k, dilation=2**k)) for k in range(3))
        self.norm, self.last = nn.BatchNorm1d(width), nn.Conv1d(width, 64, 1)

    def forward(self, waves: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        x = self.first(waves)
        for layer in self.layers:
            value, gate = layer(x).chunk(2, 1)
            x = x + value.tanh() * gate.sigmoid()
        return functional.cross_entropy(self.last(functional.leaky_relu(self.norm(x), 0.2)), values)


class Volumes(nn.Module):
    """Convolutions in three dimensions, instance norms, up again by transposed ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3d(2, 12, 3, padding=1), nn.Conv3d(12, 24, 3, 2, 1)
        self.norm, self.up, self.last = nn.InstanceNorm3d(24, affine=True), nn.ConvTranspose3d(24, 12, 2, 2), nn.Conv3d(12, 1, 1)

    def forward(self, volumes: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        x = functional.gelu(self.first(volumes))
        y = functional.max_pool3d(functional.relu(self.norm(self.second(x))), 2)
        y = self.up(functional.interpolate(y, scale_factor=2, mode="trilinear", align_corners=False))
        return functional.binary_cross_entropy_with_logits(self.last(x + y), inside)


class Upscaled(nn.Module):
    """A larger picture from a smaller one: grouped convolutions, channels to pixels, a robust loss."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1, padding_mode="reflect")
        self.inner = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, groups=4) for _ in range(2))
        self.slope, self.last = nn.PReLU(width), nn.Conv2d(width, 27, 3, padding=1)

    def forward(self, small: torch.Tensor, large: torch.Tensor) -> torch.Tensor:
        x = self.slope(self.first(small))
        for layer in self.inner:
            x = x + functional.dropout2d(functional.silu(layer(x)), 0.1, self.training)
        guess = functional.pixel_shuffle(self.last(x), 3) + functional.interpolate(small, scale_factor=3, mode="bicubic")
        return functional.huber_loss(guess, large, delta=0.5)


class Warped(nn.Module):
    """A spatial transformer: where to look is learned, then sampled."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(1, 8, 7), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 11 * 11, 6))
        spectral = nn.utils.parametrizations.spectral_norm
        self.body = nn.Sequential(spectral(nn.Conv2d(1, 16, 5, 2)), nn.ELU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10))

    def forward(self, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        grid = functional.affine_grid(self.look(images).view(-1, 2, 3), list(images.shape), align_corners=False)
        seen = functional.grid_sample(images, grid, align_corners=False, padding_mode="border")
        return functional.nll_loss(self.body(seen).log_softmax(1), classes)


class Contrasted(nn.Module):
    """Two views of everything, told apart from all else; and a triplet beside it."""

    def __init__(self, width: int = 70) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(90, width), nn.BatchNorm1d(width), nn.Mish(), nn.Linear(width, width), nn.LayerNorm(width))
        self.heat = nn.Parameter(torch.zeros(()))

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        a, b = functional.normalize(self.body(one), dim=-1), functional.normalize(self.body(other), dim=-1)
        alike = torch.einsum("id,jd->ij", a, b) * self.heat.exp()
        same = torch.arange(len(one), device=one.device)
        both = (functional.cross_entropy(alike, same) + functional.cross_entropy(alike.t(), same)) / 2
        return both + functional.triplet_margin_loss(a, b, b.roll(1, 0)) + (1 - functional.cosine_similarity(a, b)).mean()


class Waves(nn.Module):
    """A state that is carried through time by sums, with gates: a linear recurrence without a loop."""

    def __init__(self, width: int = 60) -> None:
        super().__init__()
        self.word, self.into, self.out = nn.Embedding(500, width), nn.Linear(width, 3 * width), nn.Linear(width, 500)
        self.mix = nn.Conv1d(width, width, 4, padding=3, groups=width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.word(ids)
        x = self.mix(x.transpose(1, 2))[..., : ids.shape[1]].transpose(1, 2)
        value, decay, gate = self.into(functional.silu(x)).chunk(3, -1)
        decay = functional.logsigmoid(decay).cumsum(1)
        state = (value * (-decay).exp()).cumsum(1) * decay.exp()
        logits = self.out(state * functional.hardswish(gate))
        return functional.cross_entropy(logits.transpose(1, 2), ids)


class Gathered(nn.Module):
    """Messages along the edges of a graph, gathered, weighed and added up at nodes."""

    def __init__(self, width: int = 33) -> None:
        super().__init__()
        self.into, self.message, self.weigh = nn.Linear(20, width), nn.Linear(2 * width, width), nn.Linear(width, 1)
        self.cell, self.out = nn.GRUCell(width, width), nn.Linear(width, 7)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        x = functional.celu(self.into(nodes))
        for _ in range(2):
            sent = self.message(torch.cat((x.index_select(0, edges[0]), x[edges[1]]), -1))
            weight = self.weigh(sent).sigmoid()
            total = torch.zeros_like(x).index_add(0, edges[1], sent * weight)
            count = torch.zeros(len(x), 1, device=x.device).scatter_add(0, edges[1][:, None], weight)
            x = self.cell(total / count.clamp(min=1e-3), x)
        return functional.multi_margin_loss(self.out(x), classes)


class Normed(nn.Module):
    """Norms of every kind, pools of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 24, 3, bias=False), nn.Conv2d(24, 24, 1)
        self.groups, self.batch, self.instance = nn.GroupNorm(6, 24), nn.BatchNorm2d(24), nn.InstanceNorm2d(24)
        self.frozen, self.layer, self.head = nn.BatchNorm2d(24), nn.LayerNorm((24, 5, 5)), nn.Linear(600, 11)

    def forward(self, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        x = functional.softplus(self.groups(self.first(images)))
        x = functional.avg_pool2d(self.instance(x), 2) + functional.max_pool2d(self.batch(x), 2)
        x = functional.selu(self.frozen.eval()(self.second(x)))
        x = self.layer(functional.adaptive_max_pool2d(x, 5))
        return functional.cross_entropy(self.head(x.flatten(1)), classes, weight=torch.ones(11, device=x.device))


class Masked(nn.Module):
    """Attention written out with a mask that is added, relative places looked up, and heads that are dropped."""

    def __init__(self, width: int = 48, heads: int = 4, longest: int = 64) -> None:
        super().__init__()
        self.heads, self.word = heads, nn.Embedding(300, width)
        self.qkv, self.out, self.near = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Embedding(2 * longest, heads)
        self.head = nn.Linear(width, 300)

    def forward(self, ids: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        x = self.word(ids)
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        places = torch.arange(ids.shape[1], device=x.device)
        near = self.near((places[:, None] - places[None, :]).abs()).permute(2, 0, 1)
        scores = torch.baddbmm(near.repeat(len(ids), 1, 1), query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2), alpha=0.3)
        scores = scores.view(len(ids), self.heads, *scores.shape[1:]).masked_fill(present[:, None, None] < 0.5, float("-inf"))
        weights = functional.dropout(scores.softmax(-1), 0.2, self.training)
        x = x + self.out((weights @ value).transpose(1, 2).flatten(2))
        return functional.kl_div(self.head(x).log_softmax(-1), functional.one_hot(ids, 300).float(), reduction="batchmean")


def job(build: type[nn.Module], batch: object, optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW) -> dict[str, object]:
    """A job with the default step."""
    return {"build_model": build, "make_batch": batch, "make_optimizer": lambda model: optimizer(model.parameters())}


def sound() -> dict[str, object]:
    """Dilated convolutions with weight norm, RAdam."""
    return job(Sound, lambda: (noise(5, 1, 500), numbers(64, 5, 500)), torch.optim.RAdam)


def volumes() -> dict[str, object]:
    """Three dimensions, Adamax."""
    return job(Volumes, lambda: (noise(2, 2, 12, 16, 20), torch.rand(2, 1, 12, 16, 20, device="cuda")), torch.optim.Adamax)


def upscaled() -> dict[str, object]:
    """Grouped convolutions and channels to pixels, Adadelta."""
    return job(Upscaled, lambda: (noise(3, 3, 22, 18), noise(3, 3, 66, 54)), torch.optim.Adadelta)


def warped() -> dict[str, object]:
    """A spatial transformer, spectral norm."""
    return job(Warped, lambda: (noise(9, 1, 28, 28), numbers(10, 9)))


def contrasted() -> dict[str, object]:
    """Contrast and triplets."""
    return job(Contrasted, lambda: (noise(77, 90), noise(77, 90)))


def waves() -> dict[str, object]:
    """A linear recurrence by cumulative sums."""
    return job(Waves, lambda: numbers(500, 3, 210))


def sampled() -> dict[str, object]:
    """Words drawn from the most likely ones, in inference mode, with top-k and top-p."""

    def step(model: nn.Module, _optimizer: None, ids: torch.Tensor) -> None:
        with torch.inference_mode():
            for _ in range(3):
                logits = model.out(functional.silu(model.word(ids)).cumsum(1)[:, -1])
                logits = logits.masked_fill(logits < logits.topk(20)[0][:, -1:], float("-inf"))
                ordered, places = logits.sort(-1, descending=True)
                beyond = ordered.softmax(-1).cumsum(-1) > 0.9
                logits = logits.masked_fill(beyond.scatter(-1, places, beyond), float("-inf"))
                ids = torch.cat((ids, torch.multinomial(logits.softmax(-1), 1)), -1)

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word, self.out = nn.Embedding(30_000, 40), nn.Linear(40, 30_000)

    return {"build_model": Words, "make_batch": lambda: numbers(30_000, 6, 30), "step": step}


def gathered() -> dict[str, object]:
    """A graph of nodes and edges, Rprop."""
    return job(Gathered, lambda: (noise(150, 20), numbers(150, 2, 900), numbers(7, 150)), torch.optim.Rprop)


def normed() -> dict[str, object]:
    """Norms and pools, RAdam."""
    return job(Normed, lambda: (noise(7, 3, 33, 29), numbers(11, 7)), torch.optim.RAdam)


def masked() -> dict[str, object]:
    """Attention written out, divergence as a loss."""
    return job(Masked, lambda: (numbers(300, 5, 47), noise(5, 47)))
