"""Tables of what the allocator would do under other settings."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import facts, format_bytes, format_exact, heading, shown, signed, stacked, table
from lifecycle_sim.output.tables_device import assumptions_table

CAPACITY_FROM = {
    "given": "as given",
    "source": "as the source states",
    "out of memory": "what an out-of-memory event of the recording tells",
}


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
    """One row for each replay; columns that would say nothing are left out."""
    rows = [(row["name"], row) for row in found["rows"]]
    if found["base"]["placed"] is not None:
        rows[0] = (f"{rows[0][0]} (rebuilt)", rows[0][1])
        rows.insert(1, ("recorded (placed)", found["base"]["placed"]))
    base = rows[0][1]["peak_reserved"]["bytes"]
    judged, retried = found["capacity"] is not None, any(row["num_alloc_retries"] for _, row in rows)
    made = []
    for name, row in rows:
        peak, there = row["peak_reserved"]["bytes"], row["at_peak"]
        cells = [shown(name, 70), short(peak), "" if peak == base or not base else f"{100 * (peak - base) / base:+.1f} %"]
        cells += [short(size) for size in (row["peak_allocated"], there["internal"], there["external"])]
        cells += [f"{row['num_device_alloc']:,}"]
        cells += [f"{row['num_alloc_retries']:,}"] if retried else []
        cells += ["yes" if row["fits"] else "no"] if judged else []
        made.append(cells)
    headers = ["settings", "reserved", "", "allocated", "internal", "external", "calls"]
    headers += ["retries"] if retried else []
    headers += ["fits"] if judged else []
    text = (
        "Peaks of reserved and allocated bytes; internal and external waste at the reserved peak; calls are successful ones of the device."
    )
    return stacked(table(headers, made, left=("settings", "fits")), Text(text + _begun(found)))


def _begun(found: Record) -> str:
    """How rows began, where that differs."""
    placed = found["base"]["placed"]
    others = {row["start"] for row in found["rows"][1:]} - {"rebuilt"}
    return " Rows of other settings than the recorded ones begin placed." if placed is not None and others else ""


def short(count: int) -> str:
    """Bytes in binary units, to four digits."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.4g} {unit}"
    return f"{count} B"


def _failures(found: Record) -> RenderableType | None:
    """Where memory ran out, row by row."""
    rows = [(shown(row["name"], 70), failure_text(row["failure"])) for row in found["rows"] if row["failure"] is not None]
    return stacked(heading("Out of memory"), table(("settings", "where"), rows, left=("settings", "where"))) if rows else None


def failure_text(failure: Record) -> str:
    """Where memory ran out, what was asked for, and what there was."""
    where = "for a storage older than the window" if failure["event"] < 0 else f"at event {failure['event']:,}"
    again = ", as in the recording" if failure["failed_in_recording"] else ""
    free = format_bytes(failure["reserved"] - failure["active"])
    left = format_bytes(failure["device_free"])
    held = format_bytes(failure["reserved"])
    asked = format_exact(failure["requested"])
    return f"{where}{again}: asked for {asked}, with {held} reserved, {free} of them free, {left} left on the device"


def _notes(found: Record) -> RenderableType | None:
    lines = [(shown(row["name"], 70), row["note"]) for row in found["rows"] if row["note"] is not None]
    tried = [(shown(row["name"], 70), row["recorded_failures"]) for row in found["rows"] if row["recorded_failures"]["tried"]]
    lines += [
        (name, f"of {each['tried']:,} requests that failed in the recording, {each['met']:,} are met")
        for name, each in tried
        if each["met"]
    ]
    return stacked(heading("Notes"), facts(lines)) if lines else None
