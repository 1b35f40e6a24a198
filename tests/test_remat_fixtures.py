"""The exact edit against real checkpoint measurements: 110 plans on three captures, operator by operator, by their hashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle_sim.program.remat import candidates, edit
from tests.remat_fixtures import NAMES, read_fixture, sha


@pytest.mark.parametrize("name", NAMES)
def test_every_measured_plan_is_met_operator_by_operator(name: str, shared: Path) -> None:
    graph, plans = read_fixture(shared / "data" / "recompute" / "whatif_fixtures", name)
    for plan in plans:
        edited = edit(graph, [number for number, call in enumerate(graph.calls) if call.module in plan["plan"]])
        rows = edited.rows()
        assert sha(rows) == plan["ops_sha"], plan["plan"]
        assert max(high for _, high, _ in rows) == plan["measured_peak"]
        assert len(edited.again) == plan["extra_ops"]
        assert sum(graph.operators[number].flops for number in edited.again) == plan["extra_flops"]


@pytest.mark.parametrize("name", NAMES)
def test_the_price_of_a_region_is_that_of_recomputing_it_alone(name: str, shared: Path) -> None:
    graph, _ = read_fixture(shared / "data" / "recompute" / "whatif_fixtures", name)
    regions = candidates(graph)
    assert len(regions) > 20
    for region in regions:
        again = edit(graph, [region.call]).again
        assert again == tuple(region.again)
        assert sum(graph.operators[number].flops for number in again) == region.flops
