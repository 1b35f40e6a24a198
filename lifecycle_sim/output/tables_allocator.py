"""Tables of ``lifecycle-sim allocator``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import at_event, facts, format_exact, heading, share_of, shown, stacked, table, title
from lifecycle_sim.output.tables_device import assumptions_table
from lifecycle_sim.output.tables_what_if import what_if_tables
from lifecycle_sim.output.tables_why import why_tables

WORDS = {"placement": "blocks handed out", "oom": "out of memory"}
PARTS = (
    ("requested", "requested", None),
    ("rounding", "internal", "rounding"),
    ("unsplit tails", "internal", "tails"),
    ("free pieces of split segments", "external", "pieces"),
    ("free whole segments and pages", "external", "whole"),
)


def tables(document: Record) -> Iterator[RenderableType]:
    """Device by device: what was predicted, the four levels, where reserved bytes go, what was assumed."""
    yield stacked(title(document))
    if "fits" in document:
        yield from _questions(document)
        return
    for device in document["devices"]:
        yield heading(f"{device['device']} · {device['events']:,} events")
        yield stacked(
            facts(_facts(device)),
            _predictions(device),
            _levels(device),
            _waste(device["waste"]),
            _differences(device),
            assumptions_table(device),
        )
    yield _verdict(document["exact"])


def _questions(document: Record) -> Iterator[RenderableType]:
    """The answers to what if, and to why memory ran out."""
    for device in document["devices"]:
        yield from what_if_tables(device) if "what_if" in device else why_tables(device)


def _verdict(exact: bool) -> Text:
    return Text("reproduced exactly", style="green") if exact else Text("not reproduced exactly", style="red")


def _facts(device: Record) -> Iterator[tuple[str, str]]:
    allocator, start, layout = device["allocator"], device["start"], device["layout"]
    told = "given" if allocator["release_given"] else f"the file is of {allocator['release_told'] or 'an unknown release'}"
    yield "rules", f"PyTorch {allocator['release']} ({told})"
    yield "options", shown(allocator["options"]) or "none"
    sizes = start["open_sizes"]
    text = f"rebuilt: {start['segments']:,} segments, {start['blocks']:,} blocks"
    if sizes["count"]:
        text += f"; {sizes['count']:,} sizes left open, {sizes['settled']:,} of them told by later addresses"
    yield "start", text if start["segments"] else "empty"
    if device["compared"] < device["events"]:
        yield "compared", f"{device['compared']:,} events; the comparison was ended there: too many differences"
    if layout is not None:
        yield "final layout", _layout_text(layout)
    yield "reserved error", f"{format_exact(device['reserved_error'])} at most"


def _layout_text(layout: Record) -> str:
    if layout["equal"]:
        return f"equal: all {layout['segments']:,} segments, all {layout['blocks']:,} blocks"
    text = f"{layout['segments_exact']:,} of {layout['segments']:,} segments, {layout['blocks_exact']:,} of {layout['blocks']:,} blocks"
    return text if layout["first"] is None else f"{text}; the first other at {layout['first']:#x}"


def _predictions(device: Record) -> RenderableType:
    rows = [
        (WORDS.get(name, name), f"{score['exact']:,}", f"{score['recorded']:,}", f"{score['extra']:,}" if score["extra"] else "")
        for name, score in device["predicted"].items()
        if score["recorded"] or score["extra"] or name == "placement"
    ]
    return stacked(heading("Predicted"), table(("", "exactly", "of", "not recorded"), rows, left=("",)))


def _levels(device: Record) -> RenderableType:
    rows = []
    for name, level in device["levels"].items():
        peak = level["peak"]
        event = f"{peak['event']:,}" if peak["event"] >= 0 else "start"
        rows.append((name, f"{peak['bytes']:,}", event, f"{level['start']:,}", f"{level['end']:,}"))
    made = table(("bytes", "peak", "after event", "start", "end"), rows, left=("bytes",))
    open_by = max(level["peak"]["upper"] - level["peak"]["bytes"] for level in device["levels"].values())
    note = f"the peaks of allocated and active bytes may be higher by up to {format_exact(open_by)}: see below" if open_by else None
    return stacked(heading("Levels"), made, None if note is None else Text(note))


def _waste(waste: Record) -> RenderableType:
    total = waste["reserved"]
    rows = []
    for words, part, name in PARTS:
        size = waste[part] if name is None else waste[part][name]
        rows.append((format_exact(size), share_of(size, total), words))
    rows.append((format_exact(total), share_of(total, total), "reserved"))
    made = table(("bytes", "share", "what"), rows, left=("what",), total=True)
    notes = f"the largest free block is {format_exact(waste['external']['largest_piece'])}"
    if waste["pending"]:
        notes += f"; {format_exact(waste['pending'])} of the active bytes await their free"
    return stacked(heading("Reserved " + at_event(waste["event"])), made, Text(notes))


def _differences(device: Record) -> RenderableType | None:
    differences = device["differences"]
    if not differences["count"]:
        return None
    rows = [(f"{each['event']:,}", each["decision"], shown(each["predicted"]), shown(each["recorded"])) for each in differences["first"]]
    more = differences["count"] - len(rows)
    made = table(("event", "what", "predicted", "recorded"), rows, left=("what", "predicted", "recorded"))
    return stacked(heading(f"Differences: {differences['count']:,}"), made, Text(f"and {more:,} more") if more else None)
