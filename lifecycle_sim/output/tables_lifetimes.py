"""Tables of ``lifecycle-sim lifetimes``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import facts, format_exact, handle, heading, shown, stacked, table, title
from lifecycle_sim.output.tables_device import storages_text

FIRST = {"size": "Largest", "span": "Longest", "birth": "Oldest"}
CELLS = 10
WORDS = {
    "temporary": "temporary",
    "passing": "passing: freed later",
    "long_lived": "long-lived: never freed",
    "older_freed": "older: freed, birth unseen",
}


def tables(document: Record) -> Iterator[RenderableType]:
    """Device by device: the storages that stand out, and all of them by size and span."""
    yield stacked(title(document))
    for device in document["devices"]:
        yield heading(f"{device['device']} · {device['events']:,} events · {device['basis']} bytes, {device['evidence']}")
        yield stacked(facts([("storages", storages_text(device["storages"]))]), _storages(device), *_lifespans(device["lifespans"]))


def _storages(device: Record) -> RenderableType:
    chosen = device["chosen"]
    which = {"all": "", "never_freed": ", never freed", "temporary": f", temporary: freed within {chosen['within']} further allocations"}[
        chosen["which"]
    ]
    with_streams = any(row["stream"] for row in device["shown"])
    headers = ["bytes", "alloc", "free", "events", *(["stream"] if with_streams else []), "what", "owner"]
    rows = [
        [
            format_exact(row["bytes"]),
            "before" if row["alloc"] < 0 else f"{row['alloc']:,}",
            "never" if row["free"] is None else f"{row['free']:,}",
            f"{row['span']:,}",
            *([handle(row["stream"])] if with_streams else []),
            " ".join(word for word in (shown(row["label"] or "", 40), row["category"] if row["category"] != "unknown" else "") if word),
            shown(row["owner"], 160),
        ]
        for row in device["shown"]
    ]
    if all(not row[-2] for row in rows):
        headers, rows = [name for name in headers if name != "what"], [[*row[:-2], row[-1]] for row in rows]
    count = f"{len(rows):,} of {chosen['count']:,} storages{which}, {format_exact(chosen['bytes'])} together"
    return stacked(heading(f"{FIRST[chosen['sort']]}: {count}"), table(headers, rows, left=("what", "owner")) if rows else Text("  none"))


def _lifespans(told: Record) -> Iterator[RenderableType]:
    rows = [
        (f"{told[name]['count']:,}", format_exact(told[name]["bytes"]), format_exact(told[name]["at_peak"]), words)
        for name, words in WORDS.items()
        if told[name]["count"]
    ]
    named = f"temporary is freed within {told['within']} further allocations"
    yield stacked(heading(f"How long they live; {named}"), table(("storages", "bytes in all", "live at the peak", ""), rows, left=("",)))
    yield _cells(told)


def _cells(told: Record) -> RenderableType:
    """The cells of the table of sizes by spans that hold the most bytes; the other cells in one row."""
    cells = sorted(told["cells"], key=lambda cell: (-cell["bytes"], cell["size"], cell["span"]))
    rows = [
        (told["sizes"][cell["size"]], told["spans"][cell["span"]], f"{cell['count']:,}", format_exact(cell["bytes"]))
        for cell in cells[:CELLS]
    ]
    if rest := cells[CELLS:]:
        rows.append(
            (f"{len(rest)} other", "", f"{sum(cell['count'] for cell in rest):,}", format_exact(sum(cell["bytes"] for cell in rest)))
        )
    return stacked(heading("Sizes and spans that hold the most"), table(("size", "span in allocations", "storages", "bytes in all"), rows))
