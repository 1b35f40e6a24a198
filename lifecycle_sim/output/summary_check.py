"""Summaries of checks: what a trace contradicts, what it lost, and how its replayed end differs from the recorded one."""

from __future__ import annotations

from collections.abc import Iterable

from lifecycle_sim.events import Finding
from lifecycle_sim.output.summary import Record, assumption_record, certainty_record, reconciliation_record
from lifecycle_sim.replay import DeviceReplay

LOSSES = ("gap", "lost_free", "lost_alloc", "start_unsettled", "negative_level")
"""Assumptions that stand for events which the recording lost; the others concern what lies before or after it."""


def finding_record(finding: Finding) -> Record:
    """One rule that the trace breaks."""
    return {
        "severity": finding.severity,
        "code": finding.code,
        "event": finding.event,
        "count": finding.count,
        "text": finding.text,
    }


def check_record(replayed: DeviceReplay, findings: Iterable[Finding]) -> Record:
    """Return what is wrong with one device, given the *findings* on its trace.

    ``sound`` is False when there is an error among the findings, events were lost, or the replayed end differs from the recorded one.
    """
    own = [finding_record(finding) for finding in findings if finding.device == replayed.device]
    losses = [assumption_record(each) for each in replayed.assumptions if each.code in LOSSES]
    other = [assumption_record(each) for each in replayed.assumptions if each.code not in LOSSES]
    wrong = any(finding["severity"] == "error" for finding in own)
    return {
        "device": replayed.device,
        "events": len(replayed.timeline),
        "basis": str(replayed.timeline.basis),
        **certainty_record(replayed),
        "sound": not wrong and not losses and not replayed.reconciliation.difference,
        "findings": own,
        "losses": losses,
        "assumptions": other,
        "reconciliation": reconciliation_record(replayed),
    }


def whole_findings(findings: Iterable[Finding]) -> list[Record]:
    """The findings that concern the trace as a whole."""
    return [finding_record(finding) for finding in findings if finding.device is None]


def is_sound(whole: Iterable[Record], devices: Iterable[Record]) -> bool:
    """Whether neither the trace as a whole nor any of its *devices* has a problem."""
    return all(finding["severity"] != "error" for finding in whole) and all(device["sound"] for device in devices)
