"""What a schedule of 64 ranks and 1024 micro-batches takes, and how that grows: CPU seconds, the least of three."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lifecycle_sim.study.pipeline.schedule_orders import schedule
from lifecycle_sim.study.pipeline.schedule_result import run_schedule

NAMES = ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zbv", "dualpipev")


@pytest.mark.parametrize("name", NAMES)
def test_64_ranks_and_1024_micro_batches(benchmark: Any, name: str) -> None:
    """Make the lists, run them and measure every rank."""

    def seconds() -> float:
        begin = time.process_time()
        made.append(run_schedule(schedule(name, 64, 1024)))
        taken.append(time.process_time() - begin)
        return taken[-1]

    made: list[Any] = []
    taken: list[float] = []
    benchmark.pedantic(seconds, rounds=3, iterations=1)
    count = len(made[0].schedule)
    print(f"\n{name}: {count:,} actions in {min(taken):.2f} CPU s, {count / min(taken):,.0f} a second")


@pytest.mark.parametrize("name", ["1f1b", "zbv"])
def test_growth(benchmark: Any, name: str) -> None:
    """Eight times the actions take about eight times as long."""

    def seconds(microbatches: int) -> float:
        best = float("inf")
        for _ in range(3):
            begin = time.process_time()
            run_schedule(schedule(name, 32, microbatches))
            best = min(best, time.process_time() - begin)
        return best

    small, large = seconds(128), benchmark.pedantic(seconds, args=(1024,), rounds=1, iterations=1)
    print(f"\n{name}: 8 × the actions take {large / small:.1f} × the time")
