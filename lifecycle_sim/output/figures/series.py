"""Levels of groups of storages at chosen events: what stacked figures draw."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.events import Category
from lifecycle_sim.events.trace import Int32, Int64
from lifecycle_sim.output.downsample import choose_positions
from lifecycle_sim.replay import DeviceReplay, Lifetimes
from lifecycle_sim.replay.attribution import UNIDENTIFIED_KEY, others_key
from lifecycle_sim.replay.grouping import group
from lifecycle_sim.replay.timeline import EXACT_IN_INT64

RANKED_AT = 60
SHARE_AT_PEAK = 0.75

CATEGORY_ORDER = tuple(
    category.word
    for category in (
        Category.PARAMETER,
        Category.BUFFER,
        Category.OPTIMIZER_STATE,
        Category.GRADIENT,
        Category.ACTIVATION,
        Category.INPUT,
        Category.TEMPORARY,
        Category.WORKSPACE,
        Category.UNKNOWN,
    )
)
"""Categories from the longest-lived to the shortest-lived: the order in which they are stacked."""


@dataclass(frozen=True, eq=False)
class Ranked:
    """The storages of a device in few groups: the largest ones, and one for all others.

    Attributes:
        by: what they are grouped by.
        keys: the name of each group; the largest first, the others last.
        of: the group of each storage, a number in ``keys``.
        merged: how many groups the others are; 0 if there are none.
    """

    by: str
    keys: tuple[str, ...]
    of: Int64
    merged: int


@dataclass(frozen=True, eq=False)
class Series:
    """The levels of groups at chosen positions, from the lowest in a stack to the highest.

    Attributes:
        by: what the storages are grouped by.
        keys: the name of each group.
        levels: bytes of each group at each position, shape (groups, positions). They add up to the timeline.
        ranking: the names in order of rank.
    """

    by: str
    keys: tuple[str, ...]
    levels: NDArray[Any]
    ranking: tuple[str, ...]


def chosen_grouping(replayed: DeviceReplay, by: str | None) -> str | None:
    """Return what to group by: for ``"auto"`` category where categories are known, else owner where stacks are, else nothing.

    None stays None, and it is None where there are no identities to group.
    """
    found = replayed.lifetimes
    if found is None or not len(found):
        return None
    if by != "auto":
        return by
    if (found.category != Category.UNKNOWN).any():
        return "category"
    return "owner" if (found.stack >= 0).any() else None


def rank(replayed: DeviceReplay, by: str, top: int) -> Ranked:
    """Group the storages of *replayed* and keep *top* groups; the rest become one.

    Three of four places go to those that hold the most at the peak, the last ones to those that rise highest elsewhere, so that none of
    the rest holds more at the peak than most that are named. Every figure ranks in this way, so that a group has the same colour in all
    of them. Groups are compared at the peak and at a few dozen other events; those that are equal there by bytes times events lived.
    """
    positions = choose_positions(replayed.timeline.levels, RANKED_AT, keep=[replayed.peak.event + 1])
    found, grouping = replayed.identified_lifetimes(), group(replayed, by)
    levels = _levels(found, grouping.of, len(grouping), positions).astype(np.float64)
    greatest, at_peak = levels.max(axis=1, initial=0), levels[:, int(positions.searchsorted(replayed.peak.event + 1))]
    lived = np.bincount(grouping.of, found.size * (found.free - found.alloc).astype(np.float64), len(grouping))
    by_rise, number = np.lexsort((-lived, -greatest)), np.arange(len(grouping))
    first = np.lexsort((number, -lived, -greatest, -at_peak))[: ceil(SHARE_AT_PEAK * top)]
    order = np.concatenate([first, by_rise[~np.isin(by_rise, first)]])
    kept, merged = (order, 0) if len(order) <= top + 1 else (order[:top], len(order) - top)
    number = np.full(len(grouping), len(kept), np.int64)
    number[kept] = np.arange(len(kept))
    keys = tuple(grouping.keys[k] for k in kept.tolist())
    return Ranked(by, (*keys, others_key(by, merged)) if merged else keys, number[grouping.of], merged)


def series(replayed: DeviceReplay, by: str, positions: Int64, top: int) -> Series:
    """Return the levels of the *top* groups and of the others at *positions*.

    Args:
        replayed: what was recorded on one device.
        by: what to group by, see :func:`~lifecycle_sim.replay.grouping.group`.
        positions: ascending positions in the timeline's levels: 0 before the first event, i + 1 after event i.
        top: how many groups to keep.
    """
    ranked = rank(replayed, by, top)
    levels = _levels(replayed.identified_lifetimes(), ranked.of, len(ranked.keys), positions)
    order = _stacking_order(ranked, levels)
    keys, levels = tuple(ranked.keys[k] for k in order), levels[order]
    rest = replayed.timeline.levels[positions] - levels.sum(axis=0)
    if (rest != 0).any():
        keys, levels = (UNIDENTIFIED_KEY, *keys), np.concatenate([rest[None], levels])
    return Series(by, keys, levels, (*ranked.keys, UNIDENTIFIED_KEY))


def _levels(found: Lifetimes, group_of: Int64 | Int32, groups: int, positions: Int64) -> NDArray[Any]:
    """The level of each group at each of *positions*, shape (groups, positions)."""
    columns = len(positions) + 1
    row = group_of.astype(np.int64) * columns
    sizes = found.size if float(found.size.sum(dtype=np.float64)) < EXACT_IN_INT64 else found.size.astype(object)
    change = np.zeros(groups * columns, sizes.dtype)
    np.add.at(change, row + np.searchsorted(positions, found.alloc + 1), sizes)
    np.subtract.at(change, row + np.searchsorted(positions, found.free + 1), sizes)
    return np.cumsum(change.reshape(groups, columns), axis=1)[:, :-1]


def _stacking_order(ranked: Ranked, levels: NDArray[Any]) -> list[int]:
    """Others at the bottom, then what holds the most on average; categories in their own order."""
    numbers = range(len(ranked.keys))
    if ranked.by == "category":
        return sorted(numbers, key=lambda k: CATEGORY_ORDER.index(ranked.keys[k]) if ranked.keys[k] in CATEGORY_ORDER else -1)
    mean = levels.astype(np.float64).mean(axis=1)
    is_others = [bool(ranked.merged) and k == len(ranked.keys) - 1 for k in numbers]
    return sorted(numbers, key=lambda k: (not is_others[k], -mean[k], k))
