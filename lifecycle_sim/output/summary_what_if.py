"""Summaries of what the allocator would do under other settings: one record a replay."""

from __future__ import annotations

from lifecycle_sim.output.summary import Record, assumption_record
from lifecycle_sim.replay.allocator.rerun import Failure, Outcome
from lifecycle_sim.replay.allocator.settings_text import options_text
from lifecycle_sim.study.what_if import WhatIf, WhatIfRow


def what_if_record(found: WhatIf, ranked: bool = False) -> Record:
    """Return the rows of a what-if, the recorded settings first; *ranked* says that the others stand in the order of their merit.

    ``base`` holds how far the recorded settings' replay is from the recorded reserved peak, and, where the other rows had to begin
    without what the recording began with, how far it is when it begins like them.
    """
    return {
        "release": found.release,
        "capacity": found.capacity,
        "capacity_from": found.capacity_from,
        "ranked": ranked,
        "base": {
            "recorded_peak": found.recorded_peak,
            "error": found.error,
            "placed": None if found.placed is None else row_record(found.placed),
            "placed_error": found.placed_error,
        },
        "rows": [row_record(row) for row in found.rows],
        "assumptions": [assumption_record(each) for each in found.assumptions],
    }


def row_record(row: WhatIfRow) -> Record:
    """One replay."""
    return {
        "name": row.name,
        "options": options_text(row.settings),
        "start": row.start,
        "fits": row.fits,
        **outcome_record(row.outcome),
        "note": row.note,
    }


def outcome_record(came: Outcome) -> Record:
    """What came of a replay."""
    return {
        "peak_reserved": {"bytes": came.peak_reserved, "event": came.peak_event},
        "peak_allocated": came.peak_allocated,
        "at_peak": {"requested": came.requested_at_peak, "internal": came.internal_at_peak, "external": came.external_at_peak},
        "end_reserved": came.end_reserved,
        "num_device_alloc": came.device_allocs,
        "num_device_free": came.device_frees,
        "num_alloc_retries": came.retries,
        "recorded_failures": {"tried": came.attempts, "met": came.attempts_met},
        "failure": None if came.failure is None else failure_record(came.failure),
    }


def failure_record(failure: Failure) -> Record:
    """The request at which memory ran out."""
    return {
        "event": failure.event,
        "failed_in_recording": failure.recorded,
        "requested": failure.requested,
        "rounded": failure.rounded,
        "segment": failure.segment,
        "stream": failure.stream,
        "pool": list(failure.pool),
        "small": failure.small,
        "allocated": failure.allocated,
        "active": failure.active,
        "reserved": failure.reserved,
        "given_back": failure.given_back,
        "device_free": failure.device_free,
        "limit": failure.limit,
    }


def what_ifs_fit(devices: list[Record]) -> bool | None:
    """Whether any of the settings fits on every device; None where no capacity tells."""
    answers = [[row["fits"] for row in device["what_if"]["rows"]] for device in devices]
    if any(not any(fits is not False for fits in rows) for rows in answers):
        return False
    return None if any(None in rows for rows in answers) else True
