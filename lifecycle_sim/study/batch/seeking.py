"""Seeks the largest count whose measured peak fits, where each peak costs a run: a model proposes, runs on both sides decide.

Three small counts are measured, lines through the last two, one for each part that is told apart, say where the budget would be met, and
that count and the next are measured. What they show narrows the range, until one fits and the next does not: then both were measured.
Peaks are taken to rise here; where they need not (reserved bytes), neighbours of the answer are measured too and told.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

from lifecycle_sim.study.batch.search import largest

FIRST = (1, 2, 4)
"""What is measured before anything is known."""
GROWTH = 8
"""How many times further to look where peaks do not grow."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Seen:
    """What was measured at a count: the peak, and the peaks of parts of the run, which need not count the same bytes."""

    peak: int
    parts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sought:
    """What was found.

    Attributes:
        value: the largest count that fits while the next does not, both measured; 0 if even 1 does not fit.
        limit: the largest that was allowed.
        peaks: all that was measured, by rising count.
        calibrated: the largest of the counts from which the first proposal was made.
        proposed: the first proposal.
        rounds: how many times counts were measured together.
        scanned: the neighbours that were looked at besides, first and last.
        holes: counts below the value that do not fit.
        above: counts above the value's next that do fit.
    """

    value: int
    limit: int
    peaks: Mapping[int, int]
    calibrated: int
    proposed: int
    rounds: int
    scanned: tuple[int, int]
    holes: tuple[int, ...]
    above: tuple[int, ...]


Search = Generator[tuple[int, ...], Mapping[int, Seen], Sought]
"""Yields counts to be measured, and is sent their peaks."""


def seek(room: int, limit: int, window: int = 0) -> Search:
    """Seek the largest count up to *limit* whose peak is at most *room* bytes.

    Args:
        room: bytes there are.
        limit: the largest count allowed, 1 or more.
        window: how many neighbours on each side of the answer to measure too.
    """
    seen: dict[int, Seen] = {}
    rounds, width = 0, limit + 1
    asked = {count for count in FIRST if count <= limit} | ({limit} if limit < FIRST[-1] else set())
    calibrated, proposed = max(asked), 0
    while asked:
        seen |= yield tuple(sorted(asked))
        rounds += 1
        low, above = _bracket(seen, room, limit)
        if above - low == 1 or above == 1:
            break
        guess = _guess(seen, room, low, above)
        proposed = proposed or guess
        asked = {guess, guess + 1} if above - low > 2 else {low + 1}
        if above <= limit and 2 * (above - low) > width:  # the line helps little: halve the range as well
            asked.add((low + above) // 2)
        width = above - low
        asked = {count for count in asked if low < count < above} - seen.keys()
    low, above = _bracket(seen, room, limit)
    first, last = max(1, low - window), min(limit, low + 1 + window)
    around = tuple(count for count in range(first, last + 1) if count not in seen) if window else ()
    if around:
        seen |= yield around
        rounds += 1
    peaks = {count: seen[count].peak for count in sorted(seen)}
    return Sought(
        low,
        limit,
        peaks,
        calibrated,
        proposed or low,
        rounds,
        (first, last) if window else (low, min(limit, low + 1)),
        tuple(count for count, peak in peaks.items() if count < low and peak > room),
        tuple(count for count, peak in peaks.items() if count > low + 1 and peak <= room),
    )


def _bracket(seen: Mapping[int, Seen], room: int, limit: int) -> tuple[int, int]:
    """The largest count that fits below the smallest that does not, and that one; 0 and one past the limit where there are none."""
    above = min((count for count, each in seen.items() if each.peak > room), default=limit + 1)
    return max((count for count, each in seen.items() if each.peak <= room and count < above), default=0), above


def _guess(seen: Mapping[int, Seen], room: int, low: int, above: int) -> int:
    """Where lines through two measured counts meet *room*, inside the bracket: its ends, or the largest two where it has no upper one."""
    counts = sorted(seen)
    if above not in seen:
        if len(counts) < 2:
            return above - 1
        one, other = counts[-2:]
    elif low in seen:
        one, other = low, above
    else:
        return above // 2
    names = seen[one].parts.keys() & seen[other].parts.keys()
    ends = [{name: each.parts[name] for name in names} or {"": each.peak} for each in (seen[one], seen[other])]
    slopes = {name: max(Fraction(0), Fraction(ends[1][name] - ends[0][name], other - one)) for name in ends[0]}
    if not any(slopes.values()):
        return min(GROWTH * other, above - 1)
    rest = [seen[count].peak - max(end.values()) for count, end in zip((one, other), ends, strict=True)]
    drift = Fraction(rest[1] - rest[0], other - one)
    drift = drift if above in seen else max(drift, Fraction(0))

    def predicted(count: int) -> Fraction:
        parts = max(ends[1][name] + slopes[name] * (count - other) for name in slopes)
        return parts + rest[1] + drift * (count - other)

    return min(max(largest(lambda count: count <= low or predicted(count) <= room, above - 1).value, low + 1), above - 1)


def seek_all(searches: Mapping[Key, Search], measure: Callable[[Sequence[tuple[Key, int]]], Sequence[Seen]]) -> dict[Key, Sought]:
    """Run *searches* side by side: in each round, what all of them ask for is measured together.

    Args:
        searches: the searches, by a key such as the length of sequences.
        measure: returns what is seen at pairs of key and count, in their order.
    """
    found: dict[Key, Sought] = {}
    waiting = {key: next(search) for key, search in searches.items()}
    while waiting:
        pairs = [(key, count) for key, counts in waiting.items() for count in counts]
        told: dict[Key, dict[int, Seen]] = {key: {} for key in waiting}
        for (key, count), seen in zip(pairs, measure(pairs), strict=True):
            told[key][count] = seen
        for key in list(waiting):
            try:
                waiting[key] = searches[key].send(told[key])
            except StopIteration as end:
                found[key] = end.value
                del waiting[key]
    return {key: found[key] for key in searches}
