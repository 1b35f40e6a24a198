"""How memory grows with the sequence: two captures, one twice as long, and each storage's factor.

Storages of the two are matched by owner, operator and turn. What stays is a state; what doubles is a row a token; what quadruples is a
score for every pair of tokens. Owners and operators that only one of them has tell that another kernel ran.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.replay import replay_device
from lifecycle_sim.replay.grouping import group
from lifecycle_sim.sources.capture.record import Capture
from lifecycle_sim.units import format_exact

CONSTANT, LINEAR, QUADRATIC, OTHER = "constant", "linear", "quadratic", "other"
TERMS = {Fraction(1): CONSTANT, Fraction(2): LINEAR, Fraction(4): QUADRATIC}


@dataclass(frozen=True)
class OwnerGrowth:
    """An owner's bytes at the two peaks.

    Attributes:
        owner: the module.
        before, after: bytes at the peak with the shorter and with the longer sequence.
        terms: of the bytes after, how much grew how: constant, linear, quadratic, other.
    """

    owner: str
    before: int
    after: int
    terms: Mapping[str, int]

    @property
    def factor(self) -> float | None:
        """How many times as many bytes; None from nothing."""
        return self.after / self.before if self.before else None


@dataclass(frozen=True)
class Growth(Shown):
    """What a doubled sequence does.

    Attributes:
        before, after: the requested peaks in bytes.
        phases: the phase in which each lies, None for none.
        owners: the owners that hold something at one of the peaks, by bytes at the second.
        quadratic: bytes at the second peak that quadrupled, by operator, the most first.
        kernels: operators that ran in one of the two alone, as (only with the shorter, only with the longer).
        unmatched: storages that had no counterpart: (of the shorter, of the longer).
        caches: constant bytes at the second peak that are workspaces or buffers, by category.
    """

    before: int
    after: int
    phases: tuple[str | None, str | None]
    owners: tuple[OwnerGrowth, ...]
    quadratic: Mapping[str, int] = field(default_factory=dict)
    kernels: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    unmatched: tuple[int, int] = (0, 0)
    caches: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Growth({self.before:,} B to {self.after:,} B, {sum(self.quadratic.values()):,} B quadratic, {len(self.owners)} owners)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        told = [("peaks", f"{format_exact(self.before)} to {format_exact(self.after)}")]
        told += [(f"quadruples: {name}", format_exact(size)) for name, size in self.quadratic.items()]
        return told + [(each.owner, f"{format_exact(each.before)} to {format_exact(each.after)}") for each in self.owners]


@dataclass(frozen=True)
class _Step:
    """The storages that are live in the last step: key, size, category, and whether at its peak; in their order."""

    peak: int
    phase: str | None
    rows: tuple[tuple[str, str, int, str, bool], ...]
    operators: frozenset[str]


def growth(shorter: Capture, longer: Capture) -> Growth:
    """Return how bytes grow from *shorter* to *longer*, captures of the same step with sequences once and twice as long.

    Raises:
        InputError: a capture has no measured step.
    """
    one, two = _step(shorter), _step(longer)
    lists: tuple[dict[tuple[str, str], list[int]], ...] = (defaultdict(list), defaultdict(list))
    for step, found in zip((one, two), lists, strict=True):
        for owner, label, size, _, _ in step.rows:
            found[owner, label].append(size)
    terms: dict[str, Counter[str]] = defaultdict(Counter)
    quadratic: Counter[str] = Counter()
    caches: Counter[str] = Counter()
    turn: Counter[tuple[str, str]] = Counter()
    for owner, label, size, category, live in two.rows:
        before, after = lists[0].get((owner, label), []), lists[1][owner, label]
        number = turn[owner, label]
        turn[owner, label] += 1
        term = OTHER if len(before) != len(after) or not before[number] else TERMS.get(Fraction(size, before[number]), OTHER)
        if live:
            terms[owner][term] += size
            quadratic[label] += size if term == QUADRATIC else 0
            caches[category] += size if term == CONSTANT and category in ("workspace", "buffer") else 0
    at = [Counter[str](), Counter[str]()]
    for held, step in zip(at, (one, two), strict=True):
        for owner, _, size, _, live in step.rows:
            held[owner] += size if live else 0
    owners = [
        OwnerGrowth(owner, at[0][owner], at[1][owner], dict(terms[owner])) for owner in {**at[1], **at[0]} if at[0][owner] or at[1][owner]
    ]
    unmatched = [sum(len(mine[key]) for key in mine if len(mine[key]) != len(other.get(key, []))) for mine, other in (lists, lists[::-1])]
    return Growth(
        one.peak,
        two.peak,
        (one.phase, two.phase),
        tuple(sorted(owners, key=lambda each: (-each.after, each.owner))),
        dict(sorted(((name, size) for name, size in quadratic.items() if size), key=lambda pair: (-pair[1], pair[0]))),
        (tuple(sorted(one.operators - two.operators)), tuple(sorted(two.operators - one.operators))),
        (unmatched[0], unmatched[1]),
        {name: size for name, size in sorted(caches.items()) if size},
    )


def _step(captured: Capture) -> _Step:
    if not captured.steps:
        raise InputError("a capture without a measured step tells no growth")
    span = captured.steps[-1]
    replayed = replay_device(captured.trace)
    peak = replayed.span_peak(span)
    found = replayed.identified_lifetimes()
    owners, labels, categories = (group(replayed, by) for by in ("owner", "label", "category"))
    live = np.flatnonzero((found.alloc < span.stop) & (found.free >= span.start))
    at_peak = found.live_at(peak.event)
    rows = tuple(
        (
            owners.keys[owners.of[number]],
            labels.keys[labels.of[number]],
            int(found.size[number]),
            categories.keys[categories.of[number]],
            bool(at_peak[number]),
        )
        for number in live.tolist()
    )
    phases: Sequence[str] = [each.name for each in replayed.recorded.spans if each.kind == "phase" and each.start <= peak.event < each.stop]
    return _Step(peak.size, phases[0] if phases else None, rows, frozenset(row.name for row in captured.operators))
