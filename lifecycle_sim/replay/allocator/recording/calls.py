"""A recording's events as the calls that made them: requests, frees, and what changed at the device in between."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from lifecycle_sim.events import Events, Kind
from lifecycle_sim.events.kinds import GIVES_BACK, TAKES
from lifecycle_sim.events.trace import Bool, Int32

CHANGES = TAKES + GIVES_BACK


class Act(IntEnum):
    """What a call does."""

    ALLOC = 0
    FREE = 1
    """Freed, and complete at once."""
    DEFER = 2
    """Freed, but complete only later or not at all in the window."""
    FINISH = 3
    """A free completes that was asked for before."""
    CHANGE = 4
    """A segment or range is obtained or given back."""
    OOM = 5


class Call(NamedTuple):
    """One call. ``pool`` is a number in the trace's ``pools``; ``kind`` is the event's own."""

    act: int
    event: int
    kind: int
    address: int
    size: int
    stream: int
    pool: int


class Change(NamedTuple):
    """What changed at the device: a :class:`~lifecycle_sim.events.Kind`, an address, and bytes."""

    kind: int
    address: int
    size: int


def completed_at_once(events: Events) -> Bool:
    """Return which events are a FREE_REQUESTED with its own FREE_COMPLETED directly behind it."""
    at_once = np.zeros(len(events), bool)
    asked, done = events.kind[:-1] == Kind.FREE_REQUESTED, events.kind[1:] == Kind.FREE_COMPLETED
    at_once[:-1] = asked & done & (events.address[:-1] == events.address[1:])
    return at_once


def calls_of(events: Events, pool: Int32) -> Iterator[Call]:
    """Yield the calls behind *events*, in their order; *pool* holds the pool of each event."""
    at_once = completed_at_once(events)
    act = np.full(len(events), -1)
    for kind, value in ((Kind.ALLOC, Act.ALLOC), (Kind.FREE, Act.FREE), (Kind.FREE_REQUESTED, Act.DEFER), (Kind.OOM, Act.OOM)):
        act[events.kind == kind] = value
    act[events.kind == Kind.FREE_COMPLETED] = Act.FINISH
    act[np.isin(events.kind, CHANGES)] = Act.CHANGE
    act[at_once] = Act.FREE
    act[1:][at_once[:-1]] = -1
    rows = np.flatnonzero(act >= 0)
    columns = (act[rows], rows, events.kind[rows], events.address[rows], events.size[rows], events.stream[rows], pool[rows])
    return map(Call._make, zip(*(column.tolist() for column in columns), strict=True))
