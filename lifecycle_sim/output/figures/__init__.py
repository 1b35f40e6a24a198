"""Figures: each function draws one, on axes it is given or on a new figure, and returns the axes.

matplotlib is imported when the first of them is asked for, so importing this package costs nothing. No figure belongs to a window or
to pyplot. In a notebook a cell that ends in the axes of a figure of its own, or in ``axes.figure``, shows the figure, whichever backend
is chosen; :func:`save` writes it to a file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lifecycle_sim.output.figures.blocks import address_map
    from lifecycle_sim.output.figures.edges import batch_frontier
    from lifecycle_sim.output.figures.files import save
    from lifecycle_sim.output.figures.intervals import lifecycle_chart
    from lifecycle_sim.output.figures.line_gantt import line_visits
    from lifecycle_sim.output.figures.line_levels import line_occupancy, line_variants
    from lifecycle_sim.output.figures.lines import levels
    from lifecycle_sim.output.figures.occupancy import timeline
    from lifecycle_sim.output.figures.plans import plan_frontier
    from lifecycle_sim.output.figures.recomputed import recomputed_lifecycles, recomputed_timeline
    from lifecycle_sim.output.figures.rectangles import address_time
    from lifecycle_sim.output.figures.schedules import schedule_chart, schedule_twins
    from lifecycle_sim.output.figures.shares import composition
    from lifecycle_sim.output.figures.sizes import size_span

__all__ = [
    "address_map",
    "address_time",
    "batch_frontier",
    "composition",
    "levels",
    "lifecycle_chart",
    "line_occupancy",
    "line_variants",
    "line_visits",
    "plan_frontier",
    "recomputed_lifecycles",
    "recomputed_timeline",
    "save",
    "schedule_chart",
    "schedule_twins",
    "size_span",
    "timeline",
]

_HOMES = {
    "address_map": "blocks",
    "address_time": "rectangles",
    "batch_frontier": "edges",
    "composition": "shares",
    "levels": "lines",
    "lifecycle_chart": "intervals",
    "line_occupancy": "line_levels",
    "line_variants": "line_levels",
    "line_visits": "line_gantt",
    "plan_frontier": "plans",
    "recomputed_lifecycles": "recomputed",
    "recomputed_timeline": "recomputed",
    "save": "files",
    "schedule_chart": "schedules",
    "schedule_twins": "schedules",
    "size_span": "sizes",
    "timeline": "occupancy",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
