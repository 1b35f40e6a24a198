"""Summaries of storages and their live intervals: the few that stand out, and all of them by size and span."""

from __future__ import annotations

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Category
from lifecycle_sim.events.trace import Bool, Int64
from lifecycle_sim.output.summary import Record, certainty_record, storages_record
from lifecycle_sim.replay import DeviceReplay, Lifetimes
from lifecycle_sim.replay.grouping import group
from lifecycle_sim.replay.lifespans import Lifespans, lifespans, temporary_storages

SORTS = ("size", "span", "birth")


def order_of(found: Lifetimes, chosen: Bool, sort: str) -> Int64:
    """Return the *chosen* storages in order: largest, longest or oldest first; equal ones by birth.

    Raises:
        InputError: *sort* is not known.
    """
    rows = np.flatnonzero(chosen)
    keys = {"size": -found.size, "span": found.alloc - found.free, "birth": found.alloc}
    if sort not in keys:
        raise InputError(f"storages cannot be sorted by {sort!r}: choose one of {', '.join(SORTS)}")
    return rows[np.argsort(keys[sort][rows], kind="stable")]


def storage_rows(replayed: DeviceReplay, rows: Int64) -> list[Record]:
    """One record for each storage in *rows*, numbers in the replay's lifetimes."""
    found, trace = replayed.identified_lifetimes(), replayed.trace
    owners = group(replayed, "owner")
    return [
        {
            "bytes": int(found.size[row]),
            "alloc": int(found.alloc[row]),
            "free": None if found.free[row] == found.events else int(found.free[row]),
            "span": int(found.free[row] - max(found.alloc[row], 0)),
            "span_known": bool(found.alloc[row] >= 0 and found.free[row] < found.events),
            "stream": int(found.stream[row]),
            "address": int(found.address[row]),
            "label": trace.label(int(found.label[row])),
            "category": Category(int(found.category[row])).word,
            "owner": owners.keys[owners.of[row]],
        }
        for row in rows.tolist()
    ]


def choose(replayed: DeviceReplay, leaked: bool = False, temporary: int | None = None) -> Bool:
    """Return which storages to tell of: all, those never freed, or those that are temporary within *temporary* further allocations.

    Raises:
        InputError: the record's events carry no identity.
    """
    found = replayed.identified_lifetimes()
    if leaked:
        return found.leaked
    if temporary is None:
        return np.ones(len(found), bool)
    return temporary_storages(replayed, temporary)


def lifetimes_record(
    replayed: DeviceReplay, leaked: bool = False, temporary: int | None = None, sort: str = "size", top: int = 10
) -> Record:
    """Return the first of the storages of one device that are asked for, and all storages by size and span.

    Args:
        replayed: what was recorded on the device.
        leaked: tell only of storages that are never freed.
        temporary: tell only of those freed within so many further allocations.
        sort: ``"size"``, ``"span"`` or ``"birth"``.
        top: of how many storages to tell.

    Raises:
        InputError: the record's events carry no identity, or *sort* is not known.
    """
    order = order_of(replayed.identified_lifetimes(), choose(replayed, leaked, temporary), sort)
    sizes = replayed.identified_lifetimes().size[order]
    return {
        "device": replayed.device,
        "events": len(replayed.timeline),
        "basis": str(replayed.timeline.basis),
        "evidence": str(replayed.timeline.evidence),
        **certainty_record(replayed),
        "storages": storages_record(replayed),
        "chosen": {
            "which": "never_freed" if leaked else "all" if temporary is None else "temporary",
            "within": temporary,
            "sort": sort,
            "count": len(order),
            "bytes": int(sizes.sum(dtype=object)),
        },
        "shown": storage_rows(replayed, order[:top]),
        "lifespans": lifespans_record(lifespans(replayed, temporary)),
    }


def lifespans_record(told: Lifespans) -> Record:
    """How long storages live: four totals, and the cells of a table of sizes by spans in allocations."""
    totals = {name: getattr(told, name) for name in ("temporary", "passing", "long_lived", "older_freed")}
    return {
        "within": told.within,
        **{name: {"count": total.count, "bytes": total.size, "at_peak": total.at_peak} for name, total in totals.items()},
        "sizes": list(told.size_names),
        "spans": list(told.span_names),
        "cells": [{"size": cell.size_class, "span": cell.span_class, "count": cell.count, "bytes": cell.size} for cell in told.cells],
    }
