"""Who holds the bytes: the level at an event, or over all events, in disjoint shares that add up to it exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import NO_STACK, Basis, Category, Evidence, Kind
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.device import DeviceReplay
from lifecycle_sim.replay.grouping import BY_STACK, group
from lifecycle_sim.replay.pairing import release_kinds
from lifecycle_sim.replay.timeline import EXACT_IN_INT64
from lifecycle_sim.units import format_exact

UNIDENTIFIED_KEY = "(live before the window, not identified)"

NAMES_OF_GROUPS = {"category": ("category", "categories"), "size": ("size class", "size classes")}
"""What one group and several are called, where it is not the word that storages are grouped by, and the same with an s."""


@dataclass(frozen=True)
class Share:
    """A part of a level.

    Attributes:
        key: the name of the group that holds it.
        size: bytes. Negative only where events carry no identity and more was freed in a category than allocated since the start.
        count: storages; None where events carry no identity, or the bytes belong to no storage that is known.
        total: the level that it is a part of.
        stack: the stack of its biggest storage (the oldest of those), a number in the trace's ``stacks``, where the level is shared
            out by owner, frame or stack; else ``NO_STACK``.
    """

    key: str
    size: int
    count: int | None
    total: int
    stack: int = NO_STACK

    @property
    def fraction(self) -> float:
        """The part of the level, 0 to 1; 0 where the level is 0."""
        return self.size / self.total if self.total else 0.0


@dataclass(frozen=True)
class Attribution(Shown):
    """A level in shares.

    Attributes:
        device: the device's name.
        by: what the level is shared out by.
        event: the level is the one after this event; -1 for before the first.
        time: the time of that event, None without a clock or for -1.
        total: the level, in bytes: the exact sum of the shares.
        basis: what the bytes count.
        evidence: whether they were measured or simulated.
        groups: how many groups hold something at this event.
        shares: the largest by size and then by key; then all other groups in one; then what is not identified.
    """

    device: str
    by: str
    event: int
    time: int | None
    total: int
    basis: Basis | str
    evidence: Evidence
    groups: int
    shares: tuple[Share, ...]

    def __repr__(self) -> str:
        first = f", most {self.shares[0].size:,} B by {self.shares[0].key}" if self.shares else ""
        return f"Attribution({self.device!r}, {self.total:,} B {self.basis} after event {self.event}, {self.groups:,} by {self.by}{first})"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows: each share, and the level they add up to."""
        told = [(share.key, f"{format_exact(share.size)}, {share.fraction:.1%}") for share in self.shares]
        where = "before the first event" if self.event < 0 else f"after event {self.event:,}"
        return [*told, ("total", f"{format_exact(self.total)} {self.basis}, {self.evidence}, {where}")]


def attribute(replayed: DeviceReplay, by: str = "owner", at: int | None = None, top: int | None = 10) -> Attribution:
    """Share out the level of *replayed* after an event.

    Args:
        replayed: what was recorded on one device.
        by: what to group storages by: ``"owner"`` (the user's own line), ``"frame"`` (the innermost Python frame), ``"stack"``,
            ``"stream"``, ``"size"`` (classes between powers of two), ``"label"``, ``"category"``, or the innermost ``"annotation"``,
            ``"step"``, ``"phase"`` or ``"operator"`` in which a storage was allocated. Without identities only ``"category"`` can be told.
        at: the event; -1 for before the first; by default the peak.
        top: how many groups to name; the others are one share. None names all.

    Raises:
        InputError: there is no such event, *by* is not known or cannot be told, or *top* is negative.
    """
    event, n = replayed.peak.event if at is None else at, len(replayed.timeline)
    if not -1 <= event < n:
        raise InputError(f"{replayed.device}: there is no event {event}: choose 0 to {n - 1}, or -1 for the level before the first event")
    total = replayed.timeline.at(event)
    keys, sizes, counts, stacks = _groups_at(replayed, by, event)
    order = sorted(range(len(keys)), key=lambda number: (-sizes[number], keys[number]))
    named, others = order[: _limit(top, len(order))], order[_limit(top, len(order)) :]
    shares = [Share(keys[number], sizes[number], counts[number], total, stacks[number]) for number in named]
    if others:
        count = None if replayed.lifetimes is None else sum(counts[number] or 0 for number in others)
        shares.append(Share(others_key(by, len(others)), sum(sizes[number] for number in others), count, total))
    if rest := total - sum(sizes):
        shares.append(Share(UNIDENTIFIED_KEY, rest, None, total))
    return Attribution(
        replayed.device,
        by,
        event,
        replayed.time_of(event),
        total,
        replayed.timeline.basis,
        replayed.timeline.evidence,
        len(keys),
        tuple(shares),
    )


def levels_by(replayed: DeviceReplay, by: str = "owner", top: int | None = 8) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Share out the level of *replayed* over all events.

    Args:
        replayed: what was recorded on one device.
        by: as for :func:`attribute`.
        top: how many groups to name: those that hold most at the peak. The others are one row. None names all.

    Returns:
        The k keys, and as many rows of n + 1 levels in bytes, whose column sums are ``replayed.timeline.levels`` exactly. The rows are
        in the order of :func:`attribute` at the peak.

    Raises:
        InputError: *by* is not known or cannot be told, or *top* is negative.
    """
    keys, of, position, change = _changes(replayed, by)
    at_peak = dict.fromkeys(keys, 0)
    names, sizes, _, _ = _groups_at(replayed, by, replayed.peak.event)
    at_peak.update(zip(names, sizes, strict=True))
    order = sorted(range(len(keys)), key=lambda number: (-at_peak[keys[number]], keys[number]))
    kept = _limit(top, len(order))
    row_of = np.full(len(keys), kept, np.int64)
    row_of[order[:kept]] = np.arange(kept)
    shown = [keys[number] for number in order[:kept]] + ([others_key(by, len(order) - kept)] if kept < len(order) else [])
    levels = np.zeros((len(shown) + 1, len(replayed.timeline) + 2), replayed.timeline.levels.dtype)
    np.add.at(levels, (row_of[of], position), change.astype(levels.dtype))
    np.cumsum(levels, axis=1, out=levels)
    levels = levels[:, :-1]
    levels[-1] = replayed.timeline.levels - levels[:-1].sum(axis=0)
    if not levels[-1].any():
        return tuple(shown), levels[:-1]
    return (*shown, UNIDENTIFIED_KEY), levels


def others_key(by: str, count: int) -> str:
    """Return the name of the share of *count* groups that are not named."""
    one, several = NAMES_OF_GROUPS.get(by, (by, f"{by}s"))
    return f"({count:,} other {one if count == 1 else several})"


def _limit(top: int | None, groups: int) -> int:
    if top is not None and top < 0:
        raise InputError(f"top is {top}: give the number of groups to name, 0 or more")
    return groups if top is None else min(top, groups)


def _groups_at(replayed: DeviceReplay, by: str, event: int) -> tuple[list[str], list[int], Sequence[int | None], list[int]]:
    """Keys, bytes, storages and stacks of the groups that hold something after *event*."""
    if replayed.lifetimes is None and by == "category":
        keys, of, position, change = _changes(replayed, by)
        seen = position <= event + 1
        sizes = sums(of[seen], change[seen], len(keys))
        holding = [number for number, size in enumerate(sizes) if size]
        return [keys[number] for number in holding], [sizes[number] for number in holding], [None] * len(holding), [NO_STACK] * len(holding)
    grouping, found = group(replayed, by), replayed.identified_lifetimes()
    live = np.flatnonzero(found.live_at(event))
    of, size = grouping.of[live], found.size[live]
    counts, totals = np.bincount(of, minlength=len(grouping)), sums(of, size, len(grouping))
    biggest = np.zeros(len(grouping), np.int64)
    np.maximum.at(biggest, of, size)
    candidates = np.flatnonzero(size == biggest[of])[::-1]
    stack = np.full(len(grouping), NO_STACK, np.int64)
    stack[of[candidates]] = found.stack[live][candidates] if by in BY_STACK else NO_STACK
    holding = np.flatnonzero(counts).tolist()
    return (
        [grouping.keys[number] for number in holding],
        [totals[number] for number in holding],
        counts[holding].tolist(),
        stack[holding].tolist(),
    )


def _changes(replayed: DeviceReplay, by: str) -> tuple[tuple[str, ...], NDArray[Any], Int64, Int64]:
    """Each change of a level: the keys, and for each change its key's number, the first of the n + 1 levels it is in, and its bytes."""
    if replayed.lifetimes is None and by == "category":
        events = replayed.recorded.events
        freed = np.isin(events.kind, release_kinds(replayed.recorded))
        chosen = np.flatnonzero(freed | (events.kind == Kind.ALLOC))
        change = np.where(freed, -events.size, events.size)[chosen]
        present, of = np.unique(events.category[chosen], return_inverse=True)
        return tuple(Category(number).word for number in present.tolist()), of, chosen + 1, change
    grouping, found = group(replayed, by), replayed.identified_lifetimes()
    position = np.concatenate([found.alloc + 1, found.free + 1])
    return grouping.keys, np.concatenate([grouping.of, grouping.of]), position, np.concatenate([found.size, -found.size])


def sums(of: NDArray[Any], size: Int64, groups: int) -> list[int]:
    """Return the exact sum of *size* in each of the *groups* that *of* names."""
    small = float(np.abs(size.astype(np.float64)).sum()) < EXACT_IN_INT64
    totals = np.zeros(groups, np.int64 if small else object)
    np.add.at(totals, of, size.astype(totals.dtype))
    return [int(total) for total in totals.tolist()]
