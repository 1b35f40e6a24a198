"""What recording costs: CPU seconds of a step alone, under ``record`` and under torch's own MemTracker; and per operator.

Each figure is the least of several steps after a warm-up, on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

import lifecycle_sim as ls

torch: Any = pytest.importorskip("torch", reason="torch is not installed: a recording needs it")
from torch import nn  # noqa: E402

STEPS = 12


class Tiny(nn.Module):
    """Very many very small operators, so that what each costs is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Any) -> Any:
        """Return a scalar."""
        for _ in range(500):
            x = x * self.scale
        return x.sum()


def encoder() -> tuple[Any, Any]:
    """Four encoder layers, and a batch of 16 × 64 rows."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(16, 64, 128)


JOBS: dict[str, Callable[[], tuple[Any, Any]]] = {"tiny operators": lambda: (Tiny(), torch.randn(8)), "encoder": encoder}


def ours(model: Any, optimizer: Any) -> AbstractContextManager[Any]:
    """Record."""
    return ls.record(model, optimizer)


def theirs(model: Any, optimizer: Any) -> AbstractContextManager[Any]:
    """Follow with MemTracker."""
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    return tracker


WAYS: dict[str, Callable[[Any, Any], AbstractContextManager[Any]]] = {
    "alone": lambda _model, _optimizer: nullcontext(),
    "record": ours,
    "MemTracker": theirs,
}


def nothing() -> None:
    """Do nothing between steps, where nothing has to be done."""


def least(job: str, way: str) -> tuple[float, int]:
    """Return the CPU seconds of the fastest step, and how many operators a step has where that is known."""
    torch.manual_seed(0)
    model, x = JOBS[job]()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    taken = []
    with WAYS[way](model, optimizer) as follower:
        for _ in range(STEPS):
            start = time.process_time()
            step()
            taken.append(time.process_time() - start)
            getattr(follower, "reset_mod_stats", nothing)()
    return min(taken), getattr(follower, "operators", 0) // STEPS


@pytest.mark.parametrize("job", JOBS)
def test_overhead(benchmark: Any, job: str) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = {way: least(job, way) for way in WAYS}
    finally:
        torch.set_num_threads(before)
    operators = found["record"][1]
    alone = found["alone"][0]
    print(f"\n{job}, {operators:,} operators a step: {1000 * alone:.2f} ms alone")
    for way in ("record", "MemTracker"):
        seconds = found[way][0]
        each = 1e6 * (seconds - alone) / operators
        print(f"  under {way}: {1000 * seconds:.2f} ms, {seconds / alone:.1f} times as long, {each:.1f} µs more an operator")
    benchmark.extra_info.update({way: seconds for way, (seconds, _) in found.items()})
    benchmark.pedantic(lambda: None)
    assert found["record"][0] < found["MemTracker"][0]
