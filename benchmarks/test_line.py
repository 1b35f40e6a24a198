"""Visits per second of a line: 100,000 customers of an M/M/1 queue here and in Ciw, in one run; and how the time grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import lifecycle_sim as ls

CUSTOMERS = 100_000
QUEUE = """
seed = 1
parameters = {{ customers = {customers} }}
[[item]]
count = "customers"
arrivals = "poisson"
every = "1250 ms"
[[stage]]
name = "clerk"
time = {{ draw = "exponential", mean = "1 s" }}
"""


def least(work: Callable[[], Any], times: int = 3) -> float:
    """The least CPU time of some turns of *work*, in seconds."""
    spent = []
    for _ in range(times):
        begin = time.process_time()
        work()
        spent.append(time.process_time() - begin)
    return min(spent)


def ours(customers: int) -> Any:
    """Run and measure the queue."""
    return ls.measure_line(ls.run_line(ls.load_line(QUEUE.format(customers=customers))))


def test_customers_of_one_clerk(benchmark: Any) -> None:
    """Draws, run and all figures; the other one runs and collects its records."""
    ciw: Any = pytest.importorskip("ciw", reason="ciw is not installed: it is what this is compared with")

    def theirs() -> int:
        network = ciw.create_network(
            arrival_distributions=[ciw.dists.Exponential(0.8)], service_distributions=[ciw.dists.Exponential(1.0)], number_of_servers=[1]
        )
        ciw.seed(1)
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_customers(CUSTOMERS, method="Finish")
        return len(simulation.get_all_records())

    assert benchmark.pedantic(lambda: ours(CUSTOMERS), rounds=3).finished == CUSTOMERS
    own, other = least(lambda: ours(CUSTOMERS)), least(theirs, 2)
    print(f"\n{CUSTOMERS / own:,.0f} visits/s here, {CUSTOMERS / other:,.0f} in ciw {ciw.__version__}: {other / own:.1f} times as fast")
    assert own < other


def test_time_grows_with_the_visits(benchmark: Any) -> None:
    """Ten times the customers take about ten times as long."""
    benchmark.pedantic(lambda: ours(10_000), rounds=3)
    small, large = least(lambda: ours(10_000)), least(lambda: ours(100_000))
    print(f"\n10 times the visits take {large / small:.1f} times as long")
    assert large < 16 * small
