"""The handed frontier of GPT-2 medium, captured anew from transformers' own model: every plan, peak and cost of it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed: the model is its GPT-2")
pytest.importorskip("highspy", reason="highspy is not installed: 72 candidates are searched with it")

from lifecycle_sim.program.remat.search import frontier_of_regions  # noqa: E402
from lifecycle_sim.program.remat.step_problem import problem_of_step  # noqa: E402
from tests import remat_models as models  # noqa: E402

BATCH = 4 * 1024 * 8
"""Bytes of the ids, which the handed peaks leave out."""
PARTS = [f"transformer.h.{number}{part}" for number in range(24) for part in ("", ".attn", ".mlp")]


def gpt2_medium() -> Any:
    sizes = {"n_embd": 1024, "n_layer": 24, "n_head": 16}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, attn_implementation="eager", use_cache=False))


def ids() -> Any:
    return torch.randint(0, 50_257, (4, 1024))


def step(model: Any, batch: Any) -> None:
    model(batch, labels=batch).loss.backward()


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_the_frontier_of_gpt2_medium_is_the_handed_one(shared: Path) -> None:
    with (shared / "data" / "recompute" / "frontier_gpt2medium.csv").open(newline="") as file:
        handed = [
            (int(row["peak_bytes"]), round(float(row["extra_flops"])), tuple(filter(None, row["plan"].split(";"))))
            for row in csv.DictReader(file)
        ]
    asked = problem_of_step(models.graph_on_cpu(gpt2_medium, ids, step), PARTS)
    assert len(asked.problem.candidates) == 72
    above = asked.before + BATCH
    for peak, cost, plan in handed:
        assert asked.problem.cost(asked.problem.numbers(plan)) == cost
        assert asked.problem.evaluate(plan) - above == peak
    found = frontier_of_regions(asked.problem, solver="highs")
    assert (found.proven, found.exact, found.corrections) == (True, True, 0)
    assert [(plan.peak - above, plan.cost) for plan in found.points] == [(peak, cost) for peak, cost, _ in handed]
