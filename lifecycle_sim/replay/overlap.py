"""Finds storages that cannot have been live before the window, because something else lived on their addresses inside it.

A storage whose allocation was never seen is taken to be older than the window, until an address tells otherwise::

    event      0     1     2     3
    A [0, 8)   +     -
    B [4, 12)                    -     its allocation was not seen, and A was on its addresses until 1:
                                       B was allocated in (1, 3], and the recording lost that

Requested ranges are compared, so what overlaps truly cannot have been live together.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lifecycle_sim.events import DeviceTrace, Kind
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.pairing import BEFORE_WINDOW, Pairing


def settle_by_overlap(trace: DeviceTrace, pairing: Pairing, address: Int64, size: Int64) -> Pairing:
    """Return *pairing* with the allocations that must lie inside the window marked as lost, between the positions that are left.

    Args:
        trace: the recording. Without recorded segments its addresses may be mere numbers, and nothing is changed.
        pairing: its storages.
        address: the first byte of each storage.
        size: its requested bytes.
    """
    unseen = np.flatnonzero((pairing.alloc_first == BEFORE_WINDOW) & (size > 0))
    if trace.final is None or not len(unseen):
        return pairing
    unseen = unseen[np.argsort(address[unseen], kind="stable")]
    begin, end, gone = address[unseen], address[unseen] + size[unseen], pairing.free_last[unseen]
    settled = _settled_by_each_other(begin, end, gone)
    _settle_by_allocations(trace, settled, begin, end, gone)
    late = settled > BEFORE_WINDOW
    if not late.any():
        return pairing
    rows = unseen[late]
    first, last, lost = pairing.alloc_first.copy(), pairing.alloc_last.copy(), pairing.lost_alloc.copy()
    first[rows], last[rows], lost[rows] = settled[late], gone[late], True
    return replace(pairing, alloc_first=first, alloc_last=last, lost_alloc=lost)


def _settled_by_each_other(begin: Int64, end: Int64, gone: Int64) -> Int64:
    """Of two unseen storages that overlap, the one that is freed later was allocated after the other was freed."""
    settled = np.full(len(begin), BEFORE_WINDOW)
    if (begin[1:] >= np.maximum.accumulate(end)[:-1]).all():
        return settled
    standing = 0  # the last storage so far that nothing contradicts; those before it end where it begins, or earlier
    for row in range(1, len(begin)):
        if begin[row] >= end[standing]:
            standing = row
            continue
        early, late = (row, standing) if gone[row] < gone[standing] else (standing, row)
        settled[late] = min(gone[early] + 1, gone[late])
        standing = early
    return settled


def _settle_by_allocations(trace: DeviceTrace, settled: Int64, begin: Int64, end: Int64, gone: Int64) -> None:
    """Raise *settled* to after the last allocation that was made on a storage's addresses before it went."""
    apart = np.flatnonzero(settled == BEFORE_WINDOW)
    begin, end, gone = begin[apart], end[apart], gone[apart]  # these do not overlap, so both ends are ascending
    if not len(apart):
        return
    allocs = np.flatnonzero(trace.events.kind == Kind.ALLOC)
    address, size = trace.events.address[allocs], trace.events.size[allocs]
    first, stop = np.searchsorted(end, address, side="right"), np.searchsorted(begin, address + size)
    touching = np.flatnonzero(first < stop)
    if not len(touching):
        return
    # Of the storages [first, stop) that an allocation touches, the one that goes last tells whether it contradicts any.
    ranges = np.stack([first[touching], stop[touching]], axis=1).ravel()
    last_gone = np.maximum.reduceat(np.append(gone, BEFORE_WINDOW), ranges)[::2]
    for alloc in touching[allocs[touching] < last_gone].tolist():
        touched = slice(first[alloc], stop[alloc])
        rows = apart[touched][allocs[alloc] < gone[touched]]
        settled[rows] = np.maximum(settled[rows], allocs[alloc] + 1)
