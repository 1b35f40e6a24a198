"""The steady state: what steps leave behind, what they need on top of it, and what drifts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lifecycle_sim.display import Shown
from lifecycle_sim.events import Basis, Category, Evidence, Kind, Span
from lifecycle_sim.events.trace import Bool, Int64
from lifecycle_sim.replay.attribution import others_key, sums
from lifecycle_sim.replay.device import DeviceReplay
from lifecycle_sim.replay.grouping import group
from lifecycle_sim.replay.pairing import release_kinds
from lifecycle_sim.replay.steps import find_steps
from lifecycle_sim.replay.timeline import Peak
from lifecycle_sim.units import format_exact


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        start, stop: its events ``[start, stop)``.
        peak: the highest level from just before its first event to just after its last.
        level: the level after it, in bytes.
        same: whether it leaves the live set as the step before left it: as many storages of each size and owner (of each size, where
            events carry no identity). The owner of a storage whose allocation was not recorded is not known: it may be replaced by any of
            its size. None for the first step.
    """

    start: int
    stop: int
    peak: Peak
    level: int
    same: bool | None


@dataclass(frozen=True)
class Drift:
    """What an owner's storages grew by from the end of the first step to the end of the last.

    Attributes:
        key: the owner; the category where events carry no identity.
        size: bytes, negative if it shrank.
        count: storages.
    """

    key: str
    size: int
    count: int


@dataclass(frozen=True)
class SteadyState(Shown):
    """What steps leave behind. The first step is not a step: state that is made lazily is made in it, so it is never judged.

    Attributes:
        device: the device's name.
        basis: what the bytes count.
        evidence: whether they were measured or simulated.
        how: how steps were found, or that none were.
        steps: the steps, the first included.
        since: the number in ``steps`` of the first step from which on every step leaves the live set as it found it; None if the last
            step does not.
        drift: bytes by which the level after each step differs from that after the step before, from the second step on.
        drifting: the owners that grew or shrank over those steps, the most first; others in one. They add up to the sum of ``drift``.
    """

    device: str
    basis: Basis | str
    evidence: Evidence
    how: str
    steps: tuple[Step, ...]
    since: int | None
    drift: tuple[int, ...]
    drifting: tuple[Drift, ...]

    def __repr__(self) -> str:
        if not self.steps:
            return f"SteadyState({self.device!r}, {self.how})"
        if self.since is None:
            told = f"not steady, drift {self.drift_per_step:,} B a step" if self.drift_per_step is not None else "not enough steps"
        else:
            told = f"{self.level:,} B {self.basis} since step {self.since + 1} of {len(self.steps)}, transient {self.transient:,} B"
        return f"SteadyState({self.device!r}, {len(self.steps)} steps, {told})"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows: the level, what steps need on top of it, and how the steps were found."""
        told = [("device", self.device), ("steps", f"{len(self.steps):,}: {self.how}")]
        if self.level is not None and self.transient is not None and self.since is not None:
            told.append(("steady state", f"{format_exact(self.level)} {self.basis}, {self.evidence}, since step {self.since + 1}"))
            told.append(("transient", format_exact(self.transient)))
        elif self.drift:
            told.append(("steady state", f"none; {format_exact(sum(self.drift))} {self.basis} more over {len(self.drift):,} steps"))
        return told + [(drift.key, f"{drift.size:+,} B, {drift.count:+,} storages") for drift in self.drifting]

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Where steps end: positions before the event of that number."""
        return tuple(step.stop for step in self.steps)

    @property
    def level(self) -> int | None:
        """The steady level, in bytes; None if there is no steady state."""
        return None if self.since is None else self.steps[-1].level

    @property
    def peak(self) -> Peak | None:
        """The peak of the steady steps (the first of the highest), None if there is no steady state."""
        return None if self.since is None else max((step.peak for step in self.steps[self.since :]), key=lambda peak: peak.size)

    @property
    def transient(self) -> int | None:
        """What the steady steps need above the steady level, in bytes; None if there is no steady state."""
        return None if self.peak is None or self.level is None else self.peak.size - self.level

    @property
    def drift_per_step(self) -> float | None:
        """The mean of ``drift`` in bytes, None with fewer than two steps."""
        return sum(self.drift) / len(self.drift) if self.drift else None


def steady_state(replayed: DeviceReplay, steps: Sequence[int] | str | None = None, top: int = 10) -> SteadyState:
    """Judge whether the steps of *replayed* leave a steady state.

    Args:
        replayed: what was recorded on one device.
        steps: where they end, or the annotation that names them; by default they are looked for,
            see :func:`~lifecycle_sim.replay.steps.find_steps`.
        top: how many drifting owners to name; the others are put together.

    Raises:
        InputError: *steps* does not fit the trace.
    """
    found = find_steps(replayed, steps)
    ends = np.array([stop for _, stop in found.ranges], np.int64)
    levels = [int(level) for level in replayed.timeline.levels[ends].tolist()]
    changes = _changes_between(replayed, ends)
    changed = set(_changed_steps(changes))
    judged = [
        Step(start, stop, replayed.span_peak(Span("step", "", start, stop)), levels[number], number not in changed if number else None)
        for number, (start, stop) in enumerate(found.ranges)
    ]
    since = None
    for number in range(len(judged) - 1, 0, -1):
        if not judged[number].same:
            break
        since = number
    return SteadyState(
        replayed.device,
        replayed.timeline.basis,
        replayed.timeline.evidence,
        found.how,
        tuple(judged),
        since,
        tuple(later - level for level, later in pairwise(levels)),
        _drifting(changes, top),
    )


@dataclass(frozen=True, eq=False)
class _Changes:
    """Storages that came into or went out of the live set between the ends of two steps that follow each other.

    A storage that came and went within one step is left out, or stands in it twice. ``step`` is the later of the two steps, ``sign`` +1 or
    -1, ``of`` a number in ``keys``; storages are alike if their size and ``kind`` are.
    """

    step: Int64
    sign: Int64
    size: Int64
    kind: Int64
    of: Int64
    keys: tuple[str, ...]
    by: str


def _changes_between(replayed: DeviceReplay, ends: Int64) -> _Changes:
    """The changes from the end of the first step to the end of the last."""
    if replayed.lifetimes is None:
        events = replayed.recorded.events
        freed = np.isin(events.kind, release_kinds(replayed.recorded))
        rows = np.flatnonzero(freed | (events.kind == Kind.ALLOC))
        step, sign, size = np.searchsorted(ends, rows, side="right"), np.where(freed[rows], -1, 1), events.size[rows]
        of, unknown = events.category[rows].astype(np.int64), np.zeros(len(rows), bool)
        keys, by = tuple(category.word for category in Category), "category"
    else:
        found, grouping = replayed.lifetimes, group(replayed, "owner")
        born, gone = np.searchsorted(ends, found.alloc, side="right"), np.searchsorted(ends, found.free, side="right")
        rows = np.flatnonzero(born != gone)
        step, sign = np.concatenate([born[rows], gone[rows]]), np.repeat(np.array([1, -1]), len(rows))
        size, of = np.tile(found.size[rows], 2), np.tile(grouping.of[rows].astype(np.int64), 2)
        unknown = np.tile((found.before_window | found.lost_alloc)[rows] & (found.stack[rows] < 0), 2)
        keys, by = grouping.keys, "owner"
    inside = (step > 0) & (step < len(ends))
    step, sign, size, of = step[inside], sign[inside], size[inside], of[inside]
    of = _replaced(step, sign, size, of, unknown[inside])
    return _Changes(step, sign, size, np.zeros_like(of) if replayed.lifetimes is None else of, of, keys, by)


def _replaced(step: Int64, sign: Int64, size: Int64, of: Int64, unknown: Bool) -> Int64:
    """Give each storage of an *unknown* owner that went away the owner of one of its size that came in the same step, if there is one."""
    if not unknown.any():
        return of
    of = of.copy()
    rows = np.flatnonzero(np.isin(step, step[unknown]) & ~unknown).tolist()
    came: Counter[tuple[int, int, int]] = Counter()
    for row in rows:
        came[int(step[row]), int(size[row]), int(of[row])] += int(sign[row])
    owners: dict[tuple[int, int], list[int]] = {}
    for (number, bytes_, owner), count in came.items():
        owners.setdefault((number, bytes_), []).extend([owner] * count)
    for row in np.flatnonzero(unknown).tolist():
        if waiting := owners.get((int(step[row]), int(size[row]))):
            of[row] = waiting.pop(0)
    return of


def _changed_steps(changes: _Changes) -> list[int]:
    """The steps that leave another live set than the step before."""
    if not len(changes.step):
        return []
    order = np.lexsort((changes.kind, changes.size, changes.step))
    step, size, kind = changes.step[order], changes.size[order], changes.kind[order]
    other = (step[1:] != step[:-1]) | (size[1:] != size[:-1]) | (kind[1:] != kind[:-1])
    first = np.concatenate([[0], np.flatnonzero(other) + 1])
    net = np.add.reduceat(changes.sign[order], first)
    return [int(number) for number in np.unique(step[first[net != 0]]).tolist()]


def _drifting(changes: _Changes, top: int) -> tuple[Drift, ...]:
    size = sums(changes.of, changes.sign * changes.size, len(changes.keys))
    count = sums(changes.of, changes.sign, len(changes.keys))
    drifts = [Drift(key, size[number], count[number]) for number, key in enumerate(changes.keys) if size[number] or count[number]]
    drifts.sort(key=lambda drift: (-abs(drift.size), drift.key))
    if others := drifts[top:]:
        total = Drift(others_key(changes.by, len(others)), sum(drift.size for drift in others), sum(drift.count for drift in others))
        return (*drifts[:top], total)
    return tuple(drifts)
