"""The exact search and the fit: how long they take, as ratios within one run."""

from __future__ import annotations

from lifecycle_sim.events import Evidence
from lifecycle_sim.study.batch import Probe, decide, fit, max_batch


def test_a_search_among_ten_to_the_thirty(benchmark) -> None:
    assert benchmark(max_batch, 10**9, 3, 10**30, 10**40) == (10**30 - 10**9) // 3


def test_a_fit_of_two_hundred_probes(benchmark) -> None:
    probes = [Probe(batch, 10**9 + 10**6 * batch, evidence=Evidence.SIMULATED) for batch in range(1, 201)]
    assert benchmark(lambda: decide(fit(probes), 10**9 + 10**8).batch) == 100
