"""Which storage each event is about."""

from __future__ import annotations

import numpy as np

from lifecycle_sim.events import Events, Kind
from lifecycle_sim.events.trace import Bool, Int64
from lifecycle_sim.replay.lifetimes import Lifetimes

OF_STORAGES = (Kind.ALLOC, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED, Kind.FREE, Kind.ANNOTATE, Kind.SHARE, Kind.RELEASE)
"""The kinds of events that are about a storage; the others are about the device."""
NOBODY = -1


def storage_of_events(events: Events, found: Lifetimes) -> Int64:
    """Return for each event the storage on whose address and in whose live interval, both ends included, it lies, else ``NOBODY``."""
    owner = np.full(len(events), NOBODY, np.int64)
    if not len(found):
        return owner
    rows = np.flatnonzero(np.isin(events.kind, OF_STORAGES))
    addresses, number = np.unique(found.address, return_inverse=True)
    span = found.events + 2
    key = number * span + found.alloc + 1
    order = np.argsort(key, kind="stable")
    place = np.searchsorted(addresses, events.address[rows])
    known = place < len(addresses)
    known[known] = addresses[place[known]] == events.address[rows][known]
    rows, place = rows[known], place[known]
    candidate = order[np.searchsorted(key[order], place * span + rows + 1, side="right") - 1]
    fits = (number[candidate] == place) & (found.alloc[candidate] <= rows) & (rows <= found.free[candidate])
    owner[rows[fits]] = candidate[fits]
    return owner


def given_up(events: Events, owner: Int64, found: Lifetimes, before: int) -> Bool:
    """Return which storages the program gave up before event *before*: their free was requested."""
    rows = np.flatnonzero((events.kind[:before] == Kind.FREE_REQUESTED) & (owner[:before] != NOBODY))
    requested = np.zeros(len(found), np.bool_)
    requested[owner[rows]] = True
    return requested
