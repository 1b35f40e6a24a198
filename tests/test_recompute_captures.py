"""What-ifs against captures of the same program with torch's checkpoint in it: every level of every step, to the byte."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

import lifecycle_sim as ls  # noqa: E402
from tests import remat_models as models  # noqa: E402
from tests.capture_models import ConvNet, images  # noqa: E402


def adamw(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters())


def checkpointed(build: Any, names: list[str]) -> Any:
    model = build()
    for name in names:
        models.checkpoint_forward(model.get_submodule(name), {})
    return model


@pytest.mark.parametrize(
    ("build", "batch", "names", "autocast"),
    [
        (partial(models.Gpt4, 0.1, True), models.tokens, ["blocks.0", "blocks.1", "blocks.2"], "bf16"),
        (models.ResNet5, models.images, ["layers.0", "layers.1"], None),
    ],
    ids=["gpt under autocast", "resnet"],
)
def test_requested_allocated_and_reserved_bytes_of_all_steps(build: Any, batch: Any, names: list[str], autocast: str | None) -> None:
    options: dict[str, Any] = {"device": "a100-80g", "warmup": 1, "autocast": autocast}
    plain = ls.capture(build, batch, adamw, **options)
    real = ls.capture(lambda: checkpointed(build, names), batch, adamw, **options)
    found = ls.what_if(plain, names)
    assert ls.predict(found.trace).steps == ls.predict(real.trace).steps
    assert found.edited == ls.predict(real.trace).steps[-1]
    categories, owners = ([_shares(trace, by) for trace in (found.trace, real.trace)] for by in ("category", "owner"))
    assert categories[0] == categories[1]
    assert owners[0] == owners[1]
    assert found.upper == (plain.upper[-1], real.upper[-1])


def _shares(trace: ls.Trace, by: str) -> list[tuple[str, int]]:
    return [(share.key, share.size) for share in ls.attribute(ls.replay_device(trace), by, top=None).shares]


def test_a_module_that_is_checkpointed_already_is_told() -> None:
    captured = ls.capture(lambda: checkpointed(models.Gpt4, ["blocks.0"]), models.tokens, adamw, warmup=0)
    with pytest.raises(ls.InputError, match=r"blocks\.0, or a module in it, is recomputed in the capture already"):
        ls.what_if(captured, "blocks.0")
    assert ls.what_if(captured, "blocks.1").extra.operators > 10


def test_a_capture_without_training_has_no_graph() -> None:
    captured = ls.capture(ConvNet, images, warmup=0)
    with pytest.raises(ls.InputError, match="the trace holds no operators and holds"):
        ls.what_if(captured, "first")
