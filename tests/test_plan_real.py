"""Every plan of a frontier applied for real: torch checkpoints the modules, and the step captured again peaks where it was told."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from lifecycle_sim.program.remat import edit  # noqa: E402
from lifecycle_sim.program.remat.search import frontier_of_regions  # noqa: E402
from lifecycle_sim.program.remat.step_problem import problem_of_step, usual_modules  # noqa: E402
from tests.remat_models import Gpt4, Shared, graph_of, on_cuda  # noqa: E402


def ids():
    return torch.randint(0, 61, (2, 16)), torch.randint(0, 61, (2, 16))


def rows():
    return torch.randn(2, 10, 24), torch.randn(2, 10, 24)


@pytest.fixture(scope="module", autouse=True)
def cuda():
    with on_cuda():
        yield


CASES = [(lambda: Gpt4(0.1, False, 3), ids, 4), (Shared, rows, 2)]


@pytest.mark.parametrize(("build", "batch", "points"), CASES, ids=["gpt", "shared mask"])
def test_every_plan_of_a_frontier_peaks_where_it_was_told(build, batch, points):
    graph = graph_of(build, batch)
    asked = problem_of_step(graph, [path for path in usual_modules(graph) if path.startswith("blocks.")])
    frontier = frontier_of_regions(asked.problem, solver="branch")
    assert (frontier.proven, frontier.exact) == (True, True)
    assert len(frontier.points) >= points
    for plan in frontier.points:
        real = edit(graph_of(build, batch, checkpointed=plan.chosen))
        assert max(high for _, high, _ in real.rows()) == plan.peak - asked.before, plan.chosen
