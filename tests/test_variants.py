"""Programs changed before they are captured, against the same programs written by hand: every level of every step, to the byte."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

import lifecycle_sim as ls  # noqa: E402
from lifecycle_sim.sources.capture.plan import Plan, PlanFile  # noqa: E402
from lifecycle_sim.sources.capture.profiles import find_profile  # noqa: E402
from lifecycle_sim.sources.capture.variant import AS_IT_IS  # noqa: E402
from tests import remat_models as models  # noqa: E402

OPTIONS: dict[str, Any] = {"device": "a100-80g", "warmup": 1, "steps": 1}


def gpt() -> Any:
    return models.Gpt4(0.1, True, blocks=2)


def adamw(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters())


class Tiny(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(61, 80), torch.nn.Linear(80, 7)

    def forward(self, ids: Any, _target: Any) -> Any:
        return self.second(torch.nn.functional.one_hot(ids, 61).float() @ self.first.weight.T).square().mean() + self.first.bias.sum()


def captured(
    variant: ls.Variant = AS_IT_IS, optimizer: Any = adamw, step: Any = None, build: Any = Tiny, batch: Any = models.tokens, **more: Any
) -> ls.Capture:
    return ls.capture(build, batch, optimizer, step, variant=variant, **{"operators": False, **OPTIONS, **more})


def levels(made: ls.Capture) -> Any:
    return ls.predict(made.trace).steps


BY_HAND = {
    "sgd-momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5),
    "adamw-foreach": adamw,
    "adamw-fused": lambda model: torch.optim.AdamW(model.parameters(), fused=True),
    "adamw-loop": lambda model: torch.optim.AdamW(model.parameters(), foreach=False),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_an_optimizer_in_place_of_another(name: str) -> None:
    assert levels(captured(ls.Variant(optimizer=name), lambda model: torch.optim.SGD(model.parameters()))) == levels(
        captured(AS_IT_IS, BY_HAND[name])
    )


def test_moments_of_8_bits() -> None:
    """A byte an element and four for every 256, twice; two maps of 1 KiB; tensors below 4,096 elements keep float32."""
    made = captured(ls.Variant(optimizer="adamw-8bit"))
    sizes = [row.size // 4 for row in made.parameters if row.trainable]
    expected = sum(2 * (n + 4 * -(-n // 256)) if n >= 4096 else 8 * n for n in sizes) + 2 * 1024
    last = made.trace.devices[0].spans[-1].stop - 1
    shares = ls.attribute(ls.replay_device(made.trace), "category", last, None).shares
    assert {share.key: share.size for share in shares}["optimizer_state"] == expected


def test_updates_in_the_backward_pass() -> None:
    def step(model: Any, optimizers: Any, batch: Any) -> None:
        if not hasattr(model, "hooked"):
            model.hooked = True
            for parameter in model.parameters():
                parameter.register_post_accumulate_grad_hook(lambda p: (optimizers[p].step(), optimizers[p].zero_grad(), None)[2])
        model(*batch).backward()

    def each(model: Any) -> Any:
        return {parameter: torch.optim.AdamW([parameter]) for parameter in model.parameters()}

    early = captured(ls.Variant(in_backward=True))
    assert levels(early) == levels(captured(AS_IT_IS, each, step))
    assert levels(early)[-1].requested < levels(captured())[-1].requested


def test_micro_batches() -> None:
    parts = 3

    def step(model: Any, optimizer: Any, batch: Any) -> None:
        for _ in range(parts):
            micro = models.tokens()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(*micro) / parts
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    by_hand = captured(AS_IT_IS, step=step, build=gpt, batch=lambda: ())
    assert levels(captured(ls.Variant(accumulate=parts), build=gpt, autocast="bf16")) == levels(by_hand)


def test_frozen_parts() -> None:
    def frozen() -> Any:
        model = gpt()
        for part in (model.token, model.blocks[0]):
            part.requires_grad_(False)
        return model

    assert levels(captured(ls.Variant(freeze=("token", "blocks.0")), build=gpt)) == levels(captured(build=frozen))


def test_a_changed_program_is_edited_and_set_beside_the_program_as_it_was() -> None:
    plain, changed = (captured(ls.Variant(accumulate=parts), operators=True) for parts in (1, 3))
    found = ls.what_if(changed, "second", base=plain)
    alone = ls.what_if(changed, "second")
    assert found.base == levels(plain)[-1]
    assert (found.edited, found.extra, found.ran) == (alone.edited, alone.extra, alone.ran)
    assert found.cost.operators < alone.cost.operators
    told = {row.what: (row.base, row.edited) for row in found.changes}
    assert told["FLOPs of the model, forward and backward"] == (found.cost.flops, 3 * found.cost.flops)


@pytest.mark.parametrize(
    ("variant", "says"),
    [
        ({"optimizer": "adam-w"}, r"optimizer 'adam-w' is not known: did you mean 'adamw'\?"),
        ({"accumulate": 0}, "accumulate is 0: give the number of micro-batches"),
        ({"accumulate": 2, "in_backward": True}, "exclude each other"),
    ],
)
def test_variants_refused(variant: dict[str, Any], says: str) -> None:
    with pytest.raises(ls.CaptureError, match=says):
        ls.Variant(**variant)


@pytest.mark.parametrize(
    ("variant", "more", "says"),
    [
        (ls.Variant(freeze=("secnod",)), {}, r"freeze 'secnod' chooses no parameter: did you mean 'second'\?"),
        (ls.Variant(freeze=("**",)), {}, "everything is frozen"),
        (ls.Variant(accumulate=2), {"step": lambda *_: None}, "2 micro-batches a step do not go with a step of its own"),
        (ls.Variant(optimizer="sgd"), {"optimizer": None}, "optimizer sgd: the program defines no make_optimizer"),
    ],
)
def test_captures_refused(variant: ls.Variant, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ls.CaptureError, match=says):
        captured(variant, **more)


FILE = """
import torch
def build_model():
    return torch.nn.Linear(4, 4)
def make_batch(batch=6):
    return torch.randn(batch, 4)
def make_optimizer(model):
    return torch.optim.AdamW(model.parameters())
"""


def test_the_batch_of_a_file_is_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    path = tmp_path / "divided_net.py"
    path.write_text(FILE)

    def rows(parts: int, parameters: dict[str, int]) -> int:
        plan = Plan(gpt, gpt, None, None, find_profile("h100"), variant=ls.Variant(accumulate=parts))
        return len(PlanFile(str(path), None, parameters, plan).load().make_batch())

    assert (rows(1, {}), rows(3, {}), rows(4, {"batch": 8})) == (6, 2, 2)
    with pytest.raises(ls.CaptureError, match="a batch of 8 cannot be divided into 3 equal micro-batches"):
        rows(3, {"batch": 8})
    path.write_text(FILE.replace("batch=6", "").replace("batch, 4", "6, 4"))
    with pytest.raises(ls.CaptureError, match="no function takes a parameter batch"):
        rows(3, {})
