"""Tables of ``lifecycle-sim lifetimes``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.apart import tell_apart
from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import counted, facts, format_exact, handle, heading, shown, stacked, table, title
from lifecycle_sim.output.tables_device import storages_text

FIRST = {"size": "Largest", "span": "Longest", "birth": "Oldest"}
CELLS = 10
WORDS = {
    "temporary": "temporary: freed within {allocations}",
    "passing": "passing: freed later",
    "long_lived": "long-lived: never freed",
    "older_freed": "older than the window, freed",
}
NO_HISTORY = "No history was recorded: how long these storages live cannot be told."
NO_STACK = "(no stack recorded)"
ALL_BYTES = "bytes in all"
MEANING = f"{ALL_BYTES}: the sizes of all these storages added up, though most were not live together."


def tables(document: Record) -> Iterator[RenderableType]:
    """Device by device: the storages that stand out, and all of them by size and span."""
    yield stacked(title(document))
    for device in document["devices"]:
        yield heading(f"{device['device']} · {counted(device['events'], 'event')} · {device['basis']} bytes, {device['evidence']}")
        told = facts([("storages", storages_text(device["storages"], device["history"]))])
        yield stacked(told, _storages(device), *(_lifespans(device["lifespans"]) if device["history"] else (Text(NO_HISTORY),)))


def _storages(device: Record) -> RenderableType:
    chosen = device["chosen"]
    which = {"all": "", "never_freed": ", never freed", "temporary": f", temporary: freed within {chosen['within']} further allocations"}[
        chosen["which"]
    ]
    names = list(dict.fromkeys(row["owner"] for row in device["shown"]))
    texts = dict(zip(names, tell_apart(names), strict=True))
    owners = [texts[row["owner"]] for row in device["shown"]]
    with_streams = any(row["stream"] for row in device["shown"])
    headers = ["bytes", "alloc", "free", "events", *(["stream"] if with_streams else []), "what", "owner"]
    rows = [
        [
            format_exact(row["bytes"]),
            "before" if row["alloc"] < 0 else f"{row['alloc']:,}",
            "never" if row["free"] is None else f"{row['free']:,}",
            f"{'' if row['span_known'] else '≥ '}{row['span']:,}",
            *([handle(row["stream"])] if with_streams else []),
            " ".join(word for word in (shown(row["label"] or "", 40), row["category"] if row["category"] != "unknown" else "") if word),
            owner,
        ]
        for row, owner in zip(device["shown"], owners, strict=True)
    ]
    for column in ("owner", "what"):
        place = headers.index(column)
        if all(row[place] in ("", NO_STACK) for row in rows):
            headers, rows = headers[:place] + headers[place + 1 :], [row[:place] + row[place + 1 :] for row in rows]
    count = f"{len(rows):,} of {counted(chosen['count'], 'storage')}{which}"
    total = f" (all {chosen['count']:,} add up to {format_exact(chosen['bytes'])})" if len(rows) > 1 else ""
    name = f"{FIRST[chosen['sort']]} {count}{total}"
    return stacked(heading(name), table(headers, rows, left=("what", "owner")) if rows else Text("  none"))


def _lifespans(told: Record) -> Iterator[RenderableType]:
    rows = [
        (
            f"{told[name]['count']:,}",
            format_exact(told[name]["bytes"]),
            format_exact(told[name]["at_peak"]),
            words.format(allocations=counted(told["within"], "allocation")),
        )
        for name, words in WORDS.items()
        if told[name]["count"]
    ]
    made = table(("storages", ALL_BYTES, "live at the peak", "how long"), rows, left=("how long",))
    yield stacked(heading("How long they live"), made, Text(MEANING))
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
    return stacked(heading("Sizes and spans that hold the most"), table(("size", "span in allocations", "storages", ALL_BYTES), rows))
