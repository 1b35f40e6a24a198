"""Summaries of why memory ran out."""

from __future__ import annotations

from lifecycle_sim.output.summary import Record, assumption_record
from lifecycle_sim.output.summary_what_if import failure_record, outcome_record
from lifecycle_sim.study.remedies import Remedy
from lifecycle_sim.study.why import AllMet, FreeBlocks, Why


def why_record(found: Why | AllMet) -> Record:
    """Return why a request failed; ``failure`` and what follows from it are None or empty where none did."""
    failed = found if isinstance(found, Why) else None
    return {
        "release": found.release,
        "capacity": found.capacity,
        "capacity_from": found.capacity_from,
        "options": found.settings,
        "start": found.start,
        "fits": failed is None,
        "failure": None if failed is None else failure_record(failed.failure),
        "free": None
        if failed is None
        else {
            "bytes": failed.free_size,
            "count": failed.free_count,
            "enough_in_all": failed.fragmented,
            "places": [_place(each) for each in failed.free],
            "largest": list(failed.pieces),
        },
        "remedies": [] if failed is None else [_remedy(each) for each in failed.remedies],
        "until_then": outcome_record(found.outcome),
        "assumptions": [assumption_record(each) for each in found.assumptions],
    }


def _place(free: FreeBlocks) -> Record:
    return {
        "pool": list(free.pool),
        "small": free.small,
        "stream": free.stream,
        "bytes": free.size,
        "count": free.count,
        "largest": free.largest,
        "usable": free.usable,
    }


def _remedy(remedy: Remedy) -> Record:
    return {
        "means": remedy.means,
        "name": remedy.name,
        "met": remedy.met,
        "fits": remedy.fits,
        "bytes": remedy.size,
        "total": remedy.total,
        "failure": None if remedy.failure is None else failure_record(remedy.failure),
    }
