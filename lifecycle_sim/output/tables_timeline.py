"""Tables of ``lifecycle-sim timeline``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import at_event, facts, format_exact, handle, heading, shown, stacked, table, title

BAR = 30


def tables(document: Record) -> Iterator[RenderableType]:
    """The level of each device as a bar chart lying on its side, then the peaks of its parts."""
    yield stacked(title(document))
    for device in document["devices"]:
        peak = device["peak"]
        yield heading(f"{device['device']} · {device['events']:,} events · {device['basis']} bytes, {device['evidence']}")
        told = [("peak", f"{format_exact(peak['bytes'])}, {at_event(peak['event'])}")]
        if device["reserved"] is not None:
            reserved = device["reserved"]["peak"]
            told.append(("reserved", f"peak {format_exact(reserved['bytes'])}, {at_event(reserved['event'])}"))
        yield stacked(facts(told), _bars(device))
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
        ranges = [
            (format_exact(row["bytes"]), _event(row["event"]), _events(row), f"{row['kind']} {shown(row['name'], 60)}")
            for row in parts["shown"]
        ]
        made = table(("peak", "after event", "events", "range"), ranges, left=("range",))
    more = parts["count"] - len(parts["shown"])
    return stacked(heading(f"Peak of each {parts['by']}"), made, Text(f"and {more:,} more: raise --top") if more else None)


def _events(row: Record) -> str:
    return f"{row['first']:,} – {row['stop']:,}" + ("" if row["closed"] else " (open)")


def _event(event: int) -> str:
    return "start" if event < 0 else f"{event:,}"
