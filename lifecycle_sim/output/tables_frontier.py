"""Tables of ``lifecycle-sim frontier``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import facts, format_bytes, format_exact, heading, shown, stacked, table, title
from lifecycle_sim.output.tables_plan import cost_text, names_text


def tables(document: Record) -> Iterator[RenderableType]:
    """The plans from the cheapest to the lowest peak, usual choices beside them, and what is proven last."""
    for device in document["devices"]:
        yield stacked(title(document), facts(_facts(device)), _points(device), _strategies(device), _verdict(device))


def _facts(device: Record) -> Iterator[tuple[str, str]]:
    yield "plans", f"{len(device['points']):,}, chosen from {device['candidates']:,} modules"
    yield "resolution", f"peaks that differ by less than {format_bytes(device['resolution'])} are not told apart"


def _points(device: Record) -> RenderableType:
    rows = [
        (
            format_exact(each["peak"]),
            cost_text(each["cost"], device["unit"]),
            "yes" if each["proven"] else "no",
            f"{len(each['modules']):,}",
            names_text(each["modules"], 4),
        )
        for each in device["points"]
    ]
    return stacked(
        heading(f"Cheapest plans, peak of {device['basis']} bytes, simulated"),
        table(("peak", "cost", "proven", "modules", "recomputed"), rows, left=("recomputed",)),
    )


def _strategies(device: Record) -> RenderableType:
    rows = [
        (
            shown(each["name"]),
            format_exact(each["peak"]),
            cost_text(each["cost"], device["unit"]),
            "" if each["least_cost"] is None else cost_text(each["least_cost"], device["unit"]),
            "yes" if each["dominated"] else "no",
        )
        for each in device["strategies"]
    ]
    return stacked(heading("Usual choices"), table(("choice", "peak", "cost", "least at that peak", "dominated"), rows, left=("choice",)))


def _verdict(device: Record) -> Text:
    if device["proven"]:
        return Text("each plan is proven the cheapest at its peak, and none goes below the last", style="green")
    return Text("not every plan is proven the cheapest at its peak", style="yellow")
