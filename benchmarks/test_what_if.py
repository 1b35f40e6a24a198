"""How long a what-if takes on a step of a model with about 1.1 billion parameters, and how that grows with its blocks."""

from __future__ import annotations

import time
from functools import cache, partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

import lifecycle_sim as ls  # noqa: E402
from lifecycle_sim.program.remat import chosen_regions, edit  # noqa: E402
from lifecycle_sim.program.step_graph import StepGraph  # noqa: E402
from lifecycle_sim.program.stored_steps import graphs_of  # noqa: E402
from scenarios.capture.gpt import Gpt, make_batch  # noqa: E402


@cache
def captured(layers: int) -> ls.Capture:
    build = partial(Gpt, width=1792, layers=layers, heads=14)
    return ls.capture(build, partial(make_batch, 4, 512), lambda model: torch.optim.AdamW(model.parameters()), autocast="bf16", warmup=1)


def graph_of(layers: int) -> StepGraph:
    return graphs_of(captured(layers).trace)[-1]


def test_one_edit_of_a_step(benchmark: Any) -> None:
    graph = graph_of(24)
    calls = chosen_regions(graph, ["blocks.*"])
    edited = benchmark(edit, graph, calls)
    assert len(edited.again) > 500
    benchmark.extra_info |= {"operators": len(graph.operators), "marks": len(graph.kinds), "capture_seconds": captured(24).seconds}


def test_one_whole_answer(benchmark: Any) -> None:
    """All steps edited, replayed, and given to the allocator's model, as captured and edited."""
    trace = captured(24).trace
    found = benchmark.pedantic(ls.what_if, (trace, "blocks.*"), rounds=3)
    assert found.extra.operators > 500


def test_time_grows_as_the_step_does() -> None:
    """Three times the blocks take no more than six times as long: what is more than linear would show."""

    def least(layers: int) -> float:
        graph = graph_of(layers)
        calls = chosen_regions(graph, ["blocks.*"])
        edit(graph, calls)
        taken = []
        for _ in range(5):
            start = time.process_time()
            edit(graph, calls)
            taken.append(time.process_time() - start)
        return min(taken)

    assert least(24) <= 6 * least(8)
