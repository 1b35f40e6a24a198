"""Tables of ``lifecycle-sim check``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import counted, facts, format_exact, heading, shown, stacked, table, title
from lifecycle_sim.output.tables_device import reconciliation_text

SOUND = "sound: no errors, nothing lost, no difference at the end"


def tables(document: Record) -> Iterator[RenderableType]:
    """What is wrong, device by device, and the answer last."""
    yield stacked(title(document), _findings(document["findings"]))
    for device in document["devices"]:
        yield heading(f"{device['device']} · {counted(device['events'], 'event')}")
        yield stacked(
            _findings(device["findings"]) or Text("  nothing in it contradicts itself"),
            _assumed("Lost", device["losses"]),
            _assumed("Assumed", device["assumptions"]),
            _reconciled(device),
        )
    yield Text(SOUND, style="green") if document["sound"] else Text(f"problems found: {'; '.join(_problems(document))}", style="red")


def _problems(document: Record) -> Iterator[str]:
    """What keeps the recording from being sound: errors, losses and a replayed end that differs; warnings do not."""
    findings = document["findings"] + [each for device in document["devices"] for each in device["findings"]]
    if errors := sum(each["severity"] == "error" for each in findings):
        yield counted(errors, "error")
    if any(device["losses"] for device in document["devices"]):
        yield "events were lost"
    if any(device["reconciliation"]["difference"] for device in document["devices"]):
        yield "the replayed end is not the recorded one"


def _findings(findings: list[Record]) -> RenderableType | None:
    if not findings:
        return None
    rows = [
        (each["severity"], f"{each['count']:,}", "" if each["event"] is None else f"{each['event']:,}", shown(each["text"]))
        for each in findings
    ]
    return table(("", "count", "first event", "finding"), rows, left=("", "finding"))


def _assumed(name: str, assumptions: list[Record]) -> RenderableType | None:
    if not assumptions:
        return None
    rows = [
        (f"{each['count']:,}", "" if each["bytes"] is None else format_exact(each["bytes"]), shown(each["text"])) for each in assumptions
    ]
    return stacked(heading(name), table(("count", "bytes", "what"), rows, left=("what",)))


def _reconciled(device: Record) -> RenderableType | None:
    if device["reconciliation"]["recorded_end"] is None:
        return None
    return facts([("reconciliation", reconciliation_text(device["reconciliation"]))])
