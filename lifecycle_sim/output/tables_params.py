"""Tables of ``lifecycle-sim params``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import counted, facts, format_exact, heading, shown, stacked, table

GIB = 2**30
NAMES_SHOWN = 4


def tables(document: Record) -> Iterator[RenderableType]:
    """A row for each storage, and the totals."""
    source = document["source"]
    yield stacked(heading(f"{source['name']} · {source['model']} · {' and '.join(source['optimizers']) or 'no optimizer'} · payload"))
    rows = [
        (
            _names(row["names"]),
            f"{row['references']:,}",
            f"{'×'.join(map(str, row['shape'])) or 'scalar'} {row['dtype']}",
            f"{row['elements']:,}",
            f"{row['bytes']:,} B",
            _what(row),
        )
        for row in document["shown"]
    ]
    left = ("names", "shape", "")
    yield stacked(
        table(("names", "references", "shape", "elements", "bytes", ""), rows, left=left) if rows else None, facts(_totals(document))
    )


def _names(names: list[str]) -> str:
    first = ", ".join(shown(name) for name in names[:NAMES_SHOWN])
    return first if len(names) <= NAMES_SHOWN else f"{first} and {len(names) - NAMES_SHOWN:,} more"


def _what(row: Record) -> str:
    return "buffer" if row["buffer"] else "" if row["trainable"] else "frozen"


def _bytes(size: int) -> str:
    """Bytes in both ways, and in GiB whatever their size."""
    return f"{format_exact(size)}" if size >= GIB else f"{size:,} B ({size / GIB:.6f} GiB)"


def _totals(document: Record) -> Iterator[tuple[str, str]]:
    parameters, state = document["parameters"], document["optimizer_state"]
    yield (
        "parameters",
        f"{_bytes(parameters['bytes'])}: {parameters['elements']:,} elements in {counted(parameters['storages'], 'storage')}",
    )
    if document["buffers"]["storages"]:
        yield "buffers", _bytes(document["buffers"]["bytes"])
    shared = document["by_name"] - parameters["bytes"] - document["buffers"]["bytes"]
    if shared > 0:
        yield "shared", f"{format_exact(shared)} that names have in common and that count once"
    yield "gradients", f"{_bytes(document['gradients'])}, after a backward pass"
    if document["source"]["optimizers"]:
        keys = ", ".join(f"{shown(each['key'])} {each['bytes']:,} B" for each in state["keys"])
        yield "optimizer state", f"{_bytes(state['bytes'])}, after the first step{f': {keys}' if keys else ''}"
        yield "counters", f"{document['counters']:,} B of scalars on the host, apart from the total"
    yield "together", _bytes(document["total"])
