"""What-ifs against what the allocator of the CPU really did, as torch.profiler saw it: real tensors, really checkpointed."""

from __future__ import annotations

import gc
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


def measured_peak(names: list[str]) -> int:
    """The highest level of the third step, above what was there before it."""
    torch.manual_seed(0)
    model = GPT()
    for name in names:
        models.checkpoint_forward(model.get_submodule(name), {})
    for _ in range(2):  # the first calls fill caches
        models.plain_step(model, models.tokens())
        model.zero_grad()
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            models.plain_step(model, models.tokens())
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


def test_the_state_of_the_generator_has_the_bytes_that_are_counted() -> None:
    assert torch.get_rng_state().nbytes == CPU_RNG_STATE
