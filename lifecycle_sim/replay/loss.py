"""What a recording lost: where, and what that leaves open.

Each storage whose allocation or free is missing gives an interval of positions that holds the lost event. The fewest gaps in the
recording that explain all of them are found by stabbing those intervals; a gap's own position is only known as far as its
intervals overlap::

    lost free    [-----------]
    lost alloc         [-------------]
    lost free       [------]
    gap                [---]                 one gap explains all three

Losses are then put at the gaps: that is the estimate. The bounds let each lost event fall anywhere in the gaps that can hold it.
A storage that was never seen to be allocated was live before the window, or, where there is a gap, may have come to life in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lifecycle_sim.events import DeviceTrace, Kind
from lifecycle_sim.events.kinds import TAKES
from lifecycle_sim.events.trace import Bool, Int64
from lifecycle_sim.replay.pairing import BEFORE_WINDOW, Pairing


@dataclass(frozen=True)
class Gap:
    """A place where the recording lost events.

    Attributes:
        first, last: it lies before event ``first`` at the earliest and before event ``last`` at the latest.
        position: the estimate: the longest pause between those two, or ``last`` where there are no times.
    """

    first: int
    last: int
    position: int


@dataclass(frozen=True, eq=False)
class Bounds:
    """From when to when each storage of a :class:`~lifecycle_sim.replay.pairing.Pairing` was live: the estimate and its bounds.

    ``earliest`` and ``latest`` are the same array as the estimate where nothing was lost.
    """

    alloc: Int64
    alloc_earliest: Int64
    alloc_latest: Int64
    free: Int64
    free_earliest: Int64
    free_latest: Int64


def find_gaps(pairing: Pairing, time: Int64) -> tuple[Gap, ...]:
    """Return the fewest gaps that explain every lost event of *pairing*, in order.

    Args:
        pairing: the storages of a device.
        time: the time of each event; a pause places a gap more closely.
    """
    first = np.concatenate([pairing.alloc_first[pairing.lost_alloc], pairing.free_first[pairing.lost_free]])
    last = np.concatenate([pairing.alloc_last[pairing.lost_alloc], pairing.free_last[pairing.lost_free]])
    order = np.argsort(last, kind="stable")
    gaps: list[Gap] = []
    low, high = 0, -1
    for begin, end in zip(first[order].tolist(), last[order].tolist(), strict=True):
        if begin > high:
            if high >= 0:
                gaps.append(_place(low, high, time))
            low, high = begin, end
        else:
            low = max(low, begin)
    if high >= 0:
        gaps.append(_place(low, high, time))
    return tuple(gaps)


def _place(first: int, last: int, time: Int64) -> Gap:
    pauses = np.diff(time[max(first - 1, 0) : last + 1])
    if len(pauses) and pauses.max() > 0:
        return Gap(first, last, max(first, 1) + int(np.argmax(pauses)))
    return Gap(first, last, last)


def bound(pairing: Pairing, gaps: tuple[Gap, ...], trace: DeviceTrace, address: Int64) -> Bounds:
    """Return from when to when each storage was live, with the bounds that the *gaps* leave.

    Args:
        pairing: the storages of the device.
        gaps: where the recording lost events.
        trace: the recording.
        address: the first byte of each storage of *pairing*.
    """
    if not gaps:
        return Bounds(
            pairing.alloc_first, pairing.alloc_first, pairing.alloc_first, pairing.free_first, pairing.free_first, pairing.free_first
        )
    firsts, lasts, positions = (np.array([getattr(gap, name) for gap in gaps]) for name in ("first", "last", "position"))

    def spread(lost: Bool, begin: Int64, end: Int64) -> tuple[Int64, Int64, Int64]:
        """Estimate, earliest and latest position of a lost event known to lie in ``[begin, end]``."""
        one, other = np.searchsorted(lasts, begin[lost]), np.searchsorted(firsts, end[lost], side="right") - 1
        estimate, earliest, latest = begin.copy(), begin.copy(), begin.copy()
        earliest[lost] = np.maximum(begin[lost], firsts[one])
        latest[lost] = np.minimum(end[lost], lasts[other])
        estimate[lost] = np.clip(positions[one], earliest[lost], latest[lost])
        return estimate, earliest, latest

    alloc, alloc_earliest, alloc_latest = spread(pairing.lost_alloc, pairing.alloc_first, pairing.alloc_last)
    free, free_earliest, free_latest = spread(pairing.lost_free, pairing.free_first, pairing.free_last)

    unseen = np.flatnonzero(pairing.alloc_first == BEFORE_WINDOW)
    end = pairing.free_last[unseen]
    last_gap = np.searchsorted(firsts, end, side="right") - 1
    late = last_gap >= 0  # only what outlived the first gap can have come to life in one
    unseen, last_gap, end = unseen[late], last_gap[late], end[late]
    alloc_latest[unseen] = np.minimum(end, lasts[last_gap])
    if late.all() and _began_empty(trace, gaps[0].first, address[unseen]):
        alloc[unseen] = np.minimum(end, positions[0])
    return Bounds(alloc, alloc_earliest, alloc_latest, free, free_earliest, free_latest)


def _began_empty(trace: DeviceTrace, gap: int, unseen: Int64) -> bool:
    """Whether the part before the first gap looks like the beginning of a run, so that *unseen* storages came to life in the gap.

    An allocator fills its segments from low addresses. If every unseen storage lies above all that was touched before the gap
    in a segment that was touched, or in a segment created later, nothing speaks for a storage older than the window.
    """
    if trace.final is None or not len(unseen):
        return False
    events, segments = trace.events, trace.final.segments
    order = np.argsort(segments.address)
    starts, ends = segments.address[order], (segments.address + segments.size)[order]
    kinds, addresses = events.kind[:gap], events.address[:gap]
    touched = addresses[kinds == Kind.ALLOC]
    tops = np.zeros(len(starts), np.int64)
    row = np.searchsorted(starts, touched, side="right") - 1
    inside = (row >= 0) & (touched < ends[np.maximum(row, 0)])
    np.maximum.at(tops, row[inside], touched[inside])
    created = np.isin(starts, events.address[np.isin(events.kind, TAKES)])
    home = np.searchsorted(starts, unseen, side="right") - 1
    known = (home >= 0) & (unseen < ends[np.maximum(home, 0)])
    fresh = created[home] | ((tops[home] > 0) & (unseen > tops[home]))
    return bool(np.all(known & fresh))
