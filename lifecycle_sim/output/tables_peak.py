"""Tables of ``lifecycle-sim peak``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import facts, heading, stacked, title
from lifecycle_sim.output.tables_device import (
    assumptions_table,
    device_facts,
    drift_table,
    end_table,
    shares_table,
    steady_facts,
    verdict_text,
)


def tables(document: Record) -> Iterator[RenderableType]:
    """Device by device: the levels, who holds them, what was assumed, whether it fits."""
    yield stacked(title(document))
    for device in document["devices"]:
        yield heading(f"{device['device']} · {device['events']:,} events")
        yield stacked(
            facts([*device_facts(device, document["source"]["clock"]), *steady_facts(device)]),
            end_table(device),
            None if device["owners"] is None else shares_table(device["owners"]),
            drift_table(device),
            assumptions_table(device),
            verdict_text(device),
        )
