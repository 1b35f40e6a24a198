"""From a list of events to the rows of a region problem: who holds which storage from when to when, swept once.

A hold is one reason for which a storage is held over an interval of events; holds of one storage that overlap count once. Rows that
cannot bind, because another row holds at least as much under every plan, are left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.remat.problem import Row, When


@dataclass(frozen=True)
class Hold:
    """One reason for which a storage is held from event ``start`` up to, not including, event ``stop``.

    Attributes:
        storage: the identity of the storage.
        size: its bytes.
        start: index of the first event at which it is held.
        stop: index of the first event at which it no longer is.
        when: the plans under which it is; None for all.
    """

    storage: Hashable
    size: int
    start: int
    stop: int
    when: When | None = None


@dataclass(frozen=True)
class Rerun:
    """A region run again: for a while it holds more than what is held right before.

    Attributes:
        only_if: the candidates that must all be chosen for it to happen.
        at: the event right before which it runs.
        extra: bytes held at most above the level right before it.
        event: what it is, for people.
    """

    only_if: frozenset[int]
    at: int
    extra: int
    event: str = ""


def rows_of_holds(holds: Iterable[Hold], reruns: Iterable[Rerun] = (), labels: Sequence[str] = ()) -> tuple[Row, ...]:
    """Return the rows of all events that may bind.

    Args:
        holds: every reason for which a storage is held.
        reruns: what recomputing adds while it runs.
        labels: what happens at each event, for people.

    Raises:
        InputError: a storage has two sizes.
    """
    changes: dict[int, list[tuple[Hold, int]]] = {}
    sizes: dict[Hashable, int] = {}
    for hold in holds:
        if sizes.setdefault(hold.storage, hold.size) != hold.size:
            raise InputError(f"storage {hold.storage!r} has two sizes, {sizes[hold.storage]:,} and {hold.size:,} bytes")
        if hold.start < hold.stop and hold.size:
            changes.setdefault(hold.start, []).append((hold, 1))
            changes.setdefault(hold.stop, []).append((hold, -1))
    later = {at: tuple(group) for at, group in groupby(sorted(reruns, key=lambda rerun: rerun.at), key=lambda rerun: rerun.at)}
    level = _Level()
    found: dict[tuple[tuple[tuple[When, int], ...], frozenset[int]], tuple[int, str]] = {}

    def note(extra: int, only_if: frozenset[int], event: str) -> None:
        key = (level.held(), only_if)
        if key not in found or found[key][0] < level.base + extra:
            found[key] = (level.base + extra, event)

    last = -1  # the last event at which something began; a level is a possible peak when the first thing ends after it
    for at in sorted({*changes, *later}):
        if last >= 0 and any(step < 0 for _, step in changes.get(at, ())):
            note(0, frozenset(), _label(labels, last))
            last = -1
        for rerun in later.get(at, ()):
            note(rerun.extra, rerun.only_if, rerun.event or _label(labels, at))
        for hold, step in sorted(changes.get(at, ()), key=lambda change: change[1]):
            level.change(hold, step)
            last = at if step > 0 else last
    if last >= 0:
        note(0, frozenset(), _label(labels, last))
    found.setdefault(((), frozenset()), (0, "nothing is held"))
    return without_dominated(Row(base, held, only_if, event) for (held, only_if), (base, event) in found.items())


def _label(labels: Sequence[str], at: int) -> str:
    return labels[at] if 0 <= at < len(labels) else f"event {at:,}"


class _Level:
    """What is held now: a base, and bytes by condition."""

    def __init__(self) -> None:
        self.base = 0
        self.sizes: dict[When, int] = {}
        self._reasons: dict[Hashable, dict[When | None, int]] = {}

    def change(self, hold: Hold, step: int) -> None:
        reasons = self._reasons.setdefault(hold.storage, {})
        self._count(_condition(reasons), -hold.size)
        reasons[hold.when] = reasons.get(hold.when, 0) + step
        if not reasons[hold.when]:
            del reasons[hold.when]
        self._count(_condition(reasons), hold.size)

    def _count(self, when: When | None, size: int) -> None:
        if when is None:
            self.base += size
        elif when.chosen or when.unless:
            left = self.sizes.pop(when, 0) + size
            if left:
                self.sizes[when] = left

    def held(self) -> tuple[tuple[When, int], ...]:
        return tuple(sorted(self.sizes.items(), key=_order))


def _order(item: tuple[When, int]) -> tuple[list[int], list[list[int]]]:
    when, _ = item
    return sorted(when.chosen), sorted(sorted(group) for group in when.unless)


def _condition(reasons: Iterable[When | None]) -> When | None:
    """The condition under which any of *reasons* holds, as short as it gets; None if that is always."""
    chosen: set[int] = set()
    groups: set[frozenset[int]] = set()
    for when in reasons:
        if when is None:
            return None
        chosen |= when.chosen
        groups |= when.unless
    short = {group - chosen for group in groups}  # of a group that is not reached because one of it is chosen, the chosen one holds
    if frozenset() in short:
        return None
    return When(frozenset(chosen), frozenset(group for group in short if not any(other < group for other in short)))


def without_dominated(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows that may bind, the largest base first: those that no other row exceeds or equals under every plan."""
    every = sorted(rows, key=lambda row: (-row.base - sum(size for _, size in row.held), len(row.only_if), -row.base))
    conditions: dict[When, int] = {}
    for row in every:
        for when, _ in row.held:
            conditions.setdefault(when, len(conditions))
    sizes = np.zeros((len(every), len(conditions)), np.int64)
    for index, row in enumerate(every):
        for when, size in row.held:
            sizes[index, conditions[when]] += size
    base = np.array([row.base for row in every], np.int64)
    kept: list[int] = []
    for index, row in enumerate(every):
        if not any(
            every[kept[place]].only_if <= row.only_if
            for place in np.flatnonzero(_covers(base[kept], sizes[kept], base[index], sizes[index]))
        ):
            kept.append(index)
    return tuple(sorted((every[index] for index in kept), key=lambda row: (-row.base, len(row.only_if))))


def _covers(base: NDArray[np.int64], sizes: NDArray[np.int64], other: np.int64, held: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows hold at least as much as the *other*: whatever they lack of each condition, their base has to spare."""
    lacks: NDArray[np.int64] = np.maximum(held - sizes, 0).sum(axis=1)
    return base - other >= lacks
