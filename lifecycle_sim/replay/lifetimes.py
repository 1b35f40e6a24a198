"""Live intervals: one row for each storage, however many tensors, names or modules share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.events import NO_LABEL, NO_STACK, DeviceTrace, Kind
from lifecycle_sim.events.trace import Bool, Int32, Int64, UInt8
from lifecycle_sim.replay.loss import Bounds, Gap, bound, find_gaps
from lifecycle_sim.replay.overlap import settle_by_overlap
from lifecycle_sim.replay.pairing import BEFORE_WINDOW, Pairing, pair
from lifecycle_sim.replay.timeline import levels_of_intervals


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """The storages of one device and their live intervals ``[alloc, free)`` in events, by birth and then by address.

    Attributes:
        address: identity together with the device and the interval.
        size: bytes.
        stream: raw handle of the stream it was allocated on.
        stack: number in the trace's ``stacks``, or ``NO_STACK``.
        label: number in the trace's ``labels``, or ``NO_LABEL``.
        category: :class:`~lifecycle_sim.events.kinds.Category`.
        alloc: event that allocated it, -1 if it was live before the first event.
        free: event that ended it, n if none did: the interval is open.
        alloc_earliest, alloc_latest, free_earliest, free_latest: bounds where the recording lost events, else equal to the above.
        lost_alloc, lost_free: whether that event happened inside the window without being recorded.
        events: number n of events.
    """

    address: Int64
    size: Int64
    stream: Int64
    stack: Int32
    label: Int32
    category: UInt8
    alloc: Int64
    free: Int64
    alloc_earliest: Int64
    alloc_latest: Int64
    free_earliest: Int64
    free_latest: Int64
    lost_alloc: Bool
    lost_free: Bool
    events: int

    def __len__(self) -> int:
        return len(self.size)

    def __repr__(self) -> str:
        older, leaked = int(self.before_window.sum()), int(self.leaked.sum())
        return f"Lifetimes({len(self):,} storages, {older:,} older than the window, {leaked:,} never freed)"

    @property
    def before_window(self) -> Bool:
        """Storages that were live before the first event."""
        return np.equal(self.alloc, BEFORE_WINDOW)

    @property
    def leaked(self) -> Bool:
        """Storages that the window never frees."""
        return np.equal(self.free, self.events)

    def live_at(self, event: int) -> Bool:
        """Return which storages are live after *event*; -1 asks for the state before the first event."""
        return (self.alloc <= event) & (event < self.free)

    def levels(self, chosen: Bool | None = None) -> NDArray[Any]:
        """Return the n + 1 levels of the *chosen* storages (all by default): before the first event, then after each."""
        rows = slice(None) if chosen is None else chosen
        return levels_of_intervals(self.alloc[rows], self.free[rows], self.size[rows], self.events)

    def lower_levels(self) -> NDArray[Any]:
        """Return the least levels that the recording allows, apart from what lived and died inside a gap."""
        return levels_of_intervals(self.alloc_latest, self.free_earliest, self.size, self.events)

    def upper_levels(self) -> NDArray[Any]:
        """Return the greatest levels that the recording allows, apart from what lived and died inside a gap."""
        return levels_of_intervals(self.alloc_earliest, self.free_latest, self.size, self.events)


def lifetimes(trace: DeviceTrace) -> tuple[Lifetimes, tuple[Gap, ...]]:
    """Return the live intervals of *trace*, anchored on its final state where there is one, and the gaps found on the way."""
    pairing = pair(trace)
    columns = _describe(trace, pairing)
    pairing = settle_by_overlap(trace, pairing, columns["address"], columns["size"])
    gaps = find_gaps(pairing, trace.events.time)
    bounds = bound(pairing, gaps, trace, columns["address"])
    order = np.lexsort((columns["address"], bounds.alloc))
    in_order: dict[str, Any] = {name: column[order] for name, column in columns.items()} | _bounds_in_order(bounds, order)
    found = Lifetimes(
        **in_order,
        lost_alloc=pairing.lost_alloc[order],
        lost_free=pairing.lost_free[order],
        events=len(trace.events),
    )
    return _labelled(found, trace), gaps


def _bounds_in_order(bounds: Bounds, order: Int64) -> dict[str, Int64]:
    sorted_once: dict[int, Int64] = {}
    return {name: sorted_once.setdefault(id(column), column[order]) for name, column in vars(bounds).items()}


def _describe(trace: DeviceTrace, pairing: Pairing) -> dict[str, NDArray[Any]]:
    """Address, size, stream, stack, label and category of each storage.

    They come from the event that allocated it, else from its block in the final state; of a storage that was only seen to be
    freed the stack is not known, because a free may carry the stack of the free.
    """
    events, event, block = trace.events, pairing.source_event, pairing.source_block
    told = event >= 0
    of_event = {name: getattr(events, name)[event[told]] for name in ("address", "size", "stream", "stack", "label", "category")}
    of_event["stack"] = np.where(events.kind[event[told]] == Kind.ALLOC, of_event["stack"], NO_STACK)
    columns = {name: np.empty(len(event), column.dtype) for name, column in of_event.items()}
    for name, column in of_event.items():
        columns[name][told] = column
    if trace.final is not None and not told.all():
        blocks, rows = trace.final.blocks, block[~told]
        columns["address"][~told], columns["size"][~told] = blocks.address[rows], blocks.requested[rows]
        columns["stream"][~told] = trace.final.segments.stream[blocks.segment[rows]]
        columns["stack"][~told], columns["label"][~told] = blocks.stack[rows], NO_LABEL
        columns["category"][~told] = blocks.category[rows]
    return columns


def _labelled(found: Lifetimes, trace: DeviceTrace) -> Lifetimes:
    """Give each storage the label of the last annotation made while it was live."""
    events = trace.events
    for event in np.flatnonzero((events.kind == Kind.ANNOTATE) & (events.label >= 0)).tolist():
        found.label[found.live_at(event) & (found.address == events.address[event])] = events.label[event]
    return found
