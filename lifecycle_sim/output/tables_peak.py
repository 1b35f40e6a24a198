"""Tables of ``lifecycle-sim peak``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import counted, facts, heading, stacked, title
from lifecycle_sim.output.tables_device import (
    assumptions_table,
    device_facts,
    drift_table,
    end_table,
    steady_facts,
    verdict_text,
    who_holds,
)


def tables(document: Record) -> Iterator[RenderableType]:
    """Device by device: the levels, who holds them, what was assumed, whether it fits."""
    yield stacked(title(document))
    for device in document["devices"]:
        yield heading(f"{device['device']} · {counted(device['events'], 'event')}")
        yield stacked(
            facts([*device_facts(device, document["source"]), *steady_facts(device, document["source"])]),
            end_table(device),
            *who_holds(device),
            drift_table(device),
            assumptions_table(device),
            verdict_text(device),
        )
