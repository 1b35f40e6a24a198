"""Tables of what the allocator would do under other settings."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import facts, format_bytes, format_exact, heading, shown, signed, stacked, table
from lifecycle_sim.output.tables_device import assumptions_table

CAPACITY_FROM = {"given": "as given", "source": "as the source states", "out of memory": "what an out-of-memory event of the recording tells"}
STARTS = {"empty": "empty", "rebuilt": "rebuilt", "placed": "placed"}


def what_if_tables(device: Record) -> Iterator[RenderableType]:
    """The rows, how far the first is from the recording, notes, and what was assumed."""
    found = device["what_if"]
    yield heading(f"{device['device']} · {device['events']:,} events")
    yield stacked(
        facts(_facts(found)),
        stacked(heading("What if" + (", best first" if found["ranked"] else "")), _rows(found)),
        _failures(found),
        _notes(found),
        assumptions_table(found),
    )


def _facts(found: Record) -> Iterator[tuple[str, str | Text]]:
    yield "rules", f"PyTorch {found['release']}"
    if found["capacity"] is not None:
        yield "capacity", f"{format_exact(found['capacity'])}, {CAPACITY_FROM[found['capacity_from']]}"
    base = found["base"]
    if base["recorded_peak"] is None:
        yield "recorded peak", "none: the source tells nothing of reserved bytes, so the error is not known"
        return
    yield "recorded peak", f"{format_exact(base['recorded_peak'])} reserved"
    yield "error", _error(base["error"], base["recorded_peak"])
    if base["placed"] is not None:
        yield "", f"{_error(base['placed_error'], base['recorded_peak'])} when it begins placed, like other settings"


def _error(error: int | None, recorded: int) -> str:
    if error is None:
        return "not known: the device differs from the recorded one"
    return "0 B: the first row has the recorded peak" if error == 0 else f"{signed(error)}, {100 * error / recorded:+.2f} %"


def _rows(found: Record) -> RenderableType:
    """One row for each replay; the columns that say nothing are left out."""
    rows = list(found["rows"])
    if found["base"]["placed"] is not None:
        rows.insert(1, found["base"]["placed"])
    judged, base = found["capacity"] is not None, rows[0]["peak_reserved"]["bytes"]
    starts = {row["start"] for row in rows}
    made = []
    for row in rows:
        peak, there = row["peak_reserved"]["bytes"], row["at_peak"]
        cells = [shown(row["name"], 70), format_bytes(peak), "" if peak == base else f"{100 * (peak - base) / base:+.1f} %" if base else ""]
        cells += [format_bytes(row["peak_allocated"]), format_bytes(there["internal"]), format_bytes(there["external"])]
        cells += [f"{row['num_device_alloc']:,}"]
        if judged:
            cells += [f"{row['num_alloc_retries']:,}", "fits" if row["fits"] else "does not fit"]
        if len(starts) > 1:
            cells += [STARTS[row["start"]]]
        made.append(cells)
    headers = ["settings", "peak reserved", "", "peak allocated", "internal waste", "external waste", "device calls"]
    headers += ["retries", "verdict"] if judged else []
    headers += ["begins"] if len(starts) > 1 else []
    return table(headers, made, left=("settings", "verdict", "begins"))


def _failures(found: Record) -> RenderableType | None:
    """Where memory ran out, row by row."""
    rows = [(shown(row["name"], 70), failure_text(row["failure"])) for row in found["rows"] if row["failure"] is not None]
    return stacked(heading("Out of memory"), table(("settings", "where"), rows, left=("settings", "where"))) if rows else None


def failure_text(failure: Record) -> str:
    """Where memory ran out, what was asked for, and what there was."""
    where = "for a storage older than the window" if failure["event"] < 0 else f"at event {failure['event']:,}"
    again = ", as in the recording" if failure["failed_in_recording"] else ""
    return (
        f"{where}{again}: asked for {format_exact(failure['requested'])}, with {format_bytes(failure['reserved'])} reserved, "
        f"{format_bytes(failure['reserved'] - failure['active'])} of them free, and {format_bytes(failure['device_free'])} left on the device"
    )


def _notes(found: Record) -> RenderableType | None:
    lines = [(shown(row["name"], 70), row["note"]) for row in found["rows"] if row["note"] is not None]
    tried = [(shown(row["name"], 70), row["recorded_failures"]) for row in found["rows"] if row["recorded_failures"]["tried"]]
    lines += [(name, f"of {each['tried']:,} requests that failed in the recording, {each['met']:,} are met") for name, each in tried if each["met"]]
    return stacked(heading("Notes"), facts(lines)) if lines else None


