"""What-ifs against what the allocator of the CPU really did, as torch.profiler saw it: real tensors, really checkpointed."""

from __future__ import annotations

import gc
from collections.abc import Collection
from functools import partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

from torch.profiler import ProfilerActivity, profile  # noqa: E402

from lifecycle_sim.program.remat import chosen_regions, edit  # noqa: E402
from lifecycle_sim.program.step_graph import StepGraph  # noqa: E402
from lifecycle_sim.study.recompute import CPU_RNG_STATE  # noqa: E402
from tests import remat_models as models  # noqa: E402

SCALARS = 64
"""Bytes of scalars that kernels take beside what operators return."""
GPT = partial(models.Gpt4, 0.1)


@pytest.fixture(scope="module")
def graph() -> StepGraph:
    return models.graph_on_cpu(GPT, models.tokens)


def measured_peak(names: Collection[str], build: Any = GPT, batch: Any = models.tokens, step: models.Step = models.plain_step) -> int:
    """The highest level of the third step, above what was there before it."""
    torch.manual_seed(0)
    model = build()
    for name in names:
        models.checkpoint_forward(model.get_submodule(name), {})
    for _ in range(2):  # the first calls fill caches
        step(model, batch())
        model.zero_grad()
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            step(model, batch())
    finally:
        if enabled:
            gc.enable()
    level = peak = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]":
            level += event.nbytes()
            peak = max(peak, level)
    return peak


@pytest.mark.parametrize(
    "names", [[], ["blocks.0", "blocks.1"], ["blocks.1", "blocks.2", "blocks.3"]], ids=lambda names: f"{len(names)} blocks"
)
def test_the_peak_is_that_of_the_allocator_with_the_generators_state(names: list[str], graph: StepGraph) -> None:
    edited = edit(graph, chosen_regions(graph, names) if names else (), rng_state=CPU_RNG_STATE)
    predicted = max(high for _, high, _ in edited.rows())
    assert 0 <= measured_peak(names) - predicted <= SCALARS
    if names:
        without = max(high for _, high, _ in edit(graph, chosen_regions(graph, names)).rows())
        assert predicted - without >= CPU_RNG_STATE  # without it the answer would be off


@pytest.mark.parametrize(
    ("build", "batch", "names", "own"),
    [
        (partial(models.Gpt4, 0.1, True), models.tokens, ["blocks.0.mlp", "blocks.1.attention", "blocks.3"], False),
        (models.Recurrent, models.series, ["cell"], False),
        (models.ResNet5, models.images, ["layers.0", "layers.1"], True),
    ],
    ids=["parts of a gpt", "a cell for all steps", "resnet"],
)
def test_other_models(build: Any, batch: Any, names: list[str], own: bool) -> None:
    """Convolutions take memory of their own on a CPU, whether or not they are checkpointed: it is taken from the step as it was."""
    graph = models.graph_on_cpu(build, batch)
    beside = error_of(graph, [], build, batch) if own else 0
    assert 0 <= error_of(graph, names, build, batch) - beside <= SCALARS


@pytest.mark.filterwarnings("ignore")  # transformers' own
@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_models_that_others_have_written(family: str) -> None:
    """Scalars that kernels take are taken in the step as it was too: what a plan changes is told within 64 bytes."""
    pytest.importorskip("transformers", reason="transformers is not installed: these are its models")
    from tests.test_remat_transformers import BUILDS, FAMILIES, ids, step

    _, stem, parts = FAMILIES[family]
    build = BUILDS[family, "eager"]
    graph = models.graph_on_cpu(build, ids, step)
    beside = error_of(graph, [], build, ids, step)
    assert abs(beside) <= 2 * SCALARS
    for names in ([f"{stem}.0", f"{stem}.1"], [f"{stem}.0{parts[1]}", f"{stem}.2"]):
        assert abs(error_of(graph, names, build, ids, step) - beside) <= SCALARS


def error_of(graph: StepGraph, names: list[str], build: Any, batch: Any, step: models.Step = models.plain_step) -> int:
    """Bytes by which the allocator's peak is above the predicted one."""
    edited = edit(graph, chosen_regions(graph, names) if names else (), rng_state=CPU_RNG_STATE)
    return measured_peak(names, build, batch, step) - max(high for _, high, _ in edited.rows())


def test_the_state_of_the_generator_has_the_bytes_that_are_counted() -> None:
    assert torch.get_rng_state().nbytes == CPU_RNG_STATE
