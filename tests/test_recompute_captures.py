"""What-ifs against captures of the same program with torch's checkpoint in it: every level of every step, to the byte."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

import lifecycle_sim as ls  # noqa: E402
from tests import remat_models as models  # noqa: E402
from tests.capture_models import ConvNet, images  # noqa: E402
from tests.cli_support import json_of, lifecycle_sim  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.test_capture_recordings import tool  # noqa: E402


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


def test_the_command_captures_a_file_first() -> None:
    program = ROOT / "scenarios" / "capture" / "mlp.py"
    result = lifecycle_sim("whatif", program, "--checkpoint", "layers", "--batch", 64, "--device", "l4", "--json")
    assert result.returncode == 0, result.stderr
    document = json_of(result)
    (device,) = document["devices"]
    assert device["recomputed"]["modules"] == ["layers"]
    assert device["cost"]["again"]["flops"] == 2 * 64 * (1024 * 4096 + 4096 * 4096)


def test_the_allocator_under_pytorchs_own_cuda_code_did_what_the_what_if_says(shared: Path) -> None:
    """The recorded job checkpoints its blocks; the capture is of the same job without. Every level of every step, to the byte."""
    jobs = tool(shared, "stub_jobs")
    job = jobs.JOBS["gpt2_bf16_checkpointed"]
    truth = json.loads((shared / "data" / "stub_jobs.json").read_text())["gpt2_bf16_checkpointed"]["steps"]

    def step(model: Any, optimizer: Any, _batch: None) -> None:
        jobs.train_step(model, optimizer, job["batch"], autocast=job["autocast"])

    captured = ls.capture(
        lambda: jobs.GPT(checkpointed=False).train(),
        lambda: None,
        lambda model: job["optimizer"](list(model.parameters())),
        step,
        warmup=0,
        steps=len(truth),
    )
    found = ls.what_if(captured, "blocks.*")
    predicted = ls.predict(found.trace, capacity=80 * 2**30)
    for edited, recorded in zip(predicted.steps, truth, strict=True):
        for level in ("requested", "allocated", "reserved"):
            told = {"peak": getattr(edited, level), "after": getattr(edited, f"{level}_after")}
            assert told == recorded[f"{level}_bytes"], level
    assert found.saves > 2 * 2**30
