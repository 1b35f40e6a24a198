"""Tables for people, made from the summary records: what a command prints without ``--json``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from lifecycle_sim.output.printable import one_line, shown
from lifecycle_sim.output.summary import Record
from lifecycle_sim.units import format_bytes, format_duration, format_exact

PIPED_WIDTH = 100
NARROWEST = 60
WIDEST = 140
NARROW = 80


def print_tables(parts: Iterable[RenderableType], file: IO[str] | None = None) -> None:
    """Print *parts* to *file*, by default standard output: in colour and at the terminal's width on a terminal, else plain.

    A pipe gets ``COLUMNS`` characters a line where that is set, else 100.
    """
    out = sys.stdout if file is None else file
    console = Console(file=out, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        columns = os.environ.get("COLUMNS", "")
        console.width = int(columns) if columns.isdigit() and int(columns) >= NARROWEST else PIPED_WIDTH
    console.width = min(console.width, WIDEST)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]  # one empty line in a row, none at first
    out.write("\n".join(kept).rstrip() + "\n")


def heading(text: str) -> Text:
    """A heading."""
    return Text(one_line(text), style="bold")


def title(document: Record) -> Text:
    """The line that says what was read."""
    source = document["source"]
    release = f" of PyTorch {source['release']}" if source["release"] else ""
    return heading(f"{source['name']} · {source['format']}{release} · {source['evidence']}")


def facts(pairs: Iterable[tuple[str, str | Text]]) -> RenderableType:
    """Two columns: a word, and what there is to say of it."""
    grid = Table.grid(Column(style="cyan", no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    for name, value in pairs:
        grid.add_row(name, value if isinstance(value, Text) else Text(value))
    return Padding(grid, (0, 0, 0, 2))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[str] = (), total: bool = False) -> RenderableType:
    """A table whose columns are aligned to the right except those named in *left*; the last row is a total if *total*."""
    return _Rows(tuple(headers), tuple(tuple(row) for row in rows), frozenset(left), total)


@dataclass(frozen=True)
class _Rows:
    """A table. On a narrow console the rounded bytes stand below the exact ones, so that words beside them need not be broken."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[str]
    total: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.max_width < NARROW
        between = "\n(" if narrow else " ("
        columns = [
            Column(
                name.replace(" ", "\n") if narrow else name,
                justify="left" if name in self.left else "right",
                overflow="fold",
                no_wrap=name not in self.left,
            )
            for name in self.headers
        ]
        made = Table(*columns, box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for number, row in enumerate(self.rows):
            cells = [Text(cell if name in self.left else cell.replace(" (", between)) for name, cell in zip(self.headers, row, strict=True)]
            made.add_row(*cells, end_section=self.total and number == len(self.rows) - 2)
        yield made


def stacked(*parts: RenderableType | None) -> Group:
    """The *parts* that are there, with an empty line between them."""
    there = [part for part in parts if part is not None]
    return Group(*(item for part in there for item in (part, Text())))


def share_of(part: int, whole: int) -> str:
    """*part* in percent of *whole*."""
    return f"{100 * part / whole:.1f} %" if whole else "–"


def at_event(event: int) -> str:
    """After which event."""
    return "before the first event" if event < 0 else f"after event {event:,}"


def moment(event: int, time: int | None, first: int | None, source: Record) -> str:
    """After which event, and when: since the first event in a recording, on its own clock in a simulation."""
    if time is None or first is None:
        return at_event(event)
    if source["evidence"] == "simulated":
        return f"{at_event(event)}, at {f'{time:,}' if source['clock'] == 'tick' else duration(time, source['clock'])}"
    return f"{at_event(event)}, {duration(time - first, source['clock'])} after the first"


def counted(count: int, what: str) -> str:
    """``"1 event"``, ``"2 events"``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def duration(ticks: int, clock: str) -> str:
    """A span of time in the trace's clock."""
    return format_duration(ticks) if clock == "ns" else f"{ticks:,} ticks"


def signed(count: int) -> str:
    """Bytes with their sign."""
    return f"{'+' if count > 0 else ''}{format_exact(count)}"


def handle(stream: int) -> str:
    """A stream's handle."""
    return "default" if stream == 0 else hex(stream)


__all__ = [
    "at_event",
    "counted",
    "duration",
    "facts",
    "format_bytes",
    "format_exact",
    "handle",
    "heading",
    "moment",
    "print_tables",
    "share_of",
    "shown",
    "signed",
    "stacked",
    "table",
    "title",
]
