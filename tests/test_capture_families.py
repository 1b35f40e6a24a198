"""Captures of jobs as people have them against what PyTorch's own CUDA code allocated for them, to the byte on all three levels.

All jobs and the command that recorded them are in benchmarks/families; here half of them run, two steps each.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

from benchmarks.families.__main__ import JOBS, RECORDED, file_of, levels_of  # noqa: E402
from lifecycle_sim.sources.capture.launch import FORKED, FRESH, _report, apart  # noqa: E402
from lifecycle_sim.sources.capture.plan import Plan, PlanFile  # noqa: E402
from lifecycle_sim.sources.capture.profiles import find_profile  # noqa: E402

STEPS = 2
CHOSEN = (
    "bert",
    "translator",
    "llama_float32",
    "generation",
    "experts_amp",
    "lstm",
    "gru",
    "vit_amp",
    "convnext",
    "diffusion",
    "recommender",
    "adamw_loop",
    "in_backward",
    "checkpointed_reentrant",
    "checkpointed_selective",
    "accumulated",
    "volumes",
    "upscaled",
    "sampled",
    "masked",
)


def unused() -> None:
    """Stands for what the job's file defines."""


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 13):
        pytest.skip("the jobs were recorded under PyTorch 2.14: operators of releases before 2.13 are made of others")
    import lifecycle_sim.sources.capture.perform  # noqa: F401  (once, not in each process of its own)

    with torch._subclasses.fake_tensor.FakeTensorMode():
        (torch.empty(2, requires_grad=True) + 1).sum()
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize("name", CHOSEN)
def test_every_level_is_predicted_to_the_byte(recorded: dict[str, Any], name: str) -> None:
    plan = Plan(unused, unused, None, None, find_profile("h100"), warmup=0, steps=STEPS, operators=False)
    captured = apart(_report, PlanFile(file_of(name), name, {}, plan), FORKED if sys.platform == "linux" else FRESH)
    assert levels_of(captured) == recorded[name][:STEPS]


def test_every_job_is_recorded() -> None:
    assert list(json.loads(RECORDED.read_text())) == [job for jobs in JOBS.values() for job in jobs]
