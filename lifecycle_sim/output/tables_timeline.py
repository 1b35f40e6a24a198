"""Tables of ``lifecycle-sim timeline``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import at_event, counted, facts, format_exact, handle, heading, shown, stacked, table, title
from lifecycle_sim.output.tables_device import level_facts

BAR = 30
SMALL = 1000
"""The level of a device whose peak is below this part of the highest peak is not drawn beside it."""


def tables(document: Record) -> Iterator[RenderableType]:
    """The level of each device as a bar chart lying on its side, then the peaks of its parts."""
    yield stacked(title(document))
    highest = max((device["peak"]["bytes"] for device in document["devices"]), default=0)
    for device in document["devices"]:
        small = device["peak"]["bytes"] * SMALL < highest
        yield heading(f"{device['device']} · {counted(device['events'], 'event')}")
        told = list(level_facts(device, document["source"]))
        if device["reserved"] is not None and device["history"]:
            reserved = device["reserved"]["peak"]
            told.append(("reserved", f"peak {format_exact(reserved['bytes'])}, {at_event(reserved['event'])}"))
        if small:
            told.append(("level", f"left out, so small is it beside the others: --device {shown(device['device'])} shows it"))
        yield stacked(facts(told), None if small or not device["history"] else _bars(device))
        if "parts" in device:
            yield stacked(_parts(device["parts"]))


def _bars(device: Record) -> RenderableType:
    """One line a point; bars begin at zero, or at the lowest level if that is below."""
    events, levels = device["points"]["event"], device["points"]["bytes"]
    low, peak = min(0, *levels), device["peak"]
    height = max(1, max(levels) - low)
    rows = [
        (
            f"{event:,}" if event >= 0 else "start",
            format_exact(level),
            "█" * round(BAR * (level - low) / height) + (" peak" if event == peak["event"] else ""),
        )
        for event, level in zip(events, levels, strict=True)
    ]
    return table(("event", f"{device['basis']} after it", "level"), rows, left=("level",))


def _parts(parts: Record) -> RenderableType:
    if parts["by"] == "stream":
        streams = [(format_exact(row["bytes"]), _event(row["event"]), handle(row["stream"])) for row in parts["shown"]]
        made = table(("peak", "after event", "stream"), streams, left=("stream",))
    else:
        ranges = [(format_exact(row["bytes"]), _event(row["event"]), _events(row), _named(row)) for row in parts["shown"]]
        made = table(("peak", "after event", "events", "range"), ranges, left=("range",))
    more = parts["count"] - len(parts["shown"])
    left_out = [f"and {more:,} more: raise --top"] if more else []
    left_out += [f"{parts['empty']:,} without an event of this device are left out"] if parts["empty"] else []
    return stacked(heading(f"Peak of each {parts['by']}"), made, Text("; ".join(left_out)) if left_out else None)


def _events(row: Record) -> str:
    return f"{row['first']:,} – {row['stop']:,}" + ("" if row["closed"] else " (open)")


def _named(row: Record) -> str:
    name = shown(row["name"], 60)
    return name if name.startswith(f"{row['kind']} ") else f"{row['kind']} {name}"


def _event(event: int) -> str:
    return "start" if event < 0 else f"{event:,}"
