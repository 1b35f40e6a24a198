"""The count of what an allocator decided as recorded, and of what it decided otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from lifecycle_sim.events import Kind
from lifecycle_sim.events.kinds import TAKES
from lifecycle_sim.replay.allocator.recording.calls import CHANGES, Change
from lifecycle_sim.units import format_exact

LISTED = 20
"""Differences that are kept in words; the rest are counted."""
PLACEMENT, OUT_OF_MEMORY, LOST = "placement", "oom", "lost"
DECISIONS = (PLACEMENT, *(Kind(kind).name.lower() for kind in CHANGES), OUT_OF_MEMORY)


@dataclass(frozen=True)
class Score:
    """How many of the recorded decisions of a kind were predicted.

    Attributes:
        exact: those predicted at the right moment, with the right size and address (of a new segment: told).
        recorded: all that were recorded and compared.
        extra: those predicted but not recorded.
    """

    exact: int
    recorded: int
    extra: int = 0

    @property
    def all_exact(self) -> bool:
        """Whether nothing differs."""
        return self.exact == self.recorded and not self.extra


@dataclass(frozen=True)
class Difference:
    """A point where the allocator decided otherwise than the recording.

    Attributes:
        event: the event.
        decision: one of ``DECISIONS``, or ``"lost"`` for an event that makes no sense where the recording lost others.
        predicted: what the allocator did, in words.
        recorded: what was recorded, in words.
    """

    event: int
    decision: str
    predicted: str
    recorded: str


class Tally:
    """Counts decisions as they are compared."""

    def __init__(self) -> None:
        self.exact: Counter[str] = Counter()
        self.recorded: Counter[str] = Counter()
        self.extra: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.first: list[Difference] = []
        self.differences = 0
        self.reserved_error = 0

    def scores(self) -> dict[str, Score]:
        """Return the score of each kind of decision."""
        return {name: Score(self.exact[name], self.recorded[name], self.extra[name]) for name in DECISIONS}

    def count_of(self, decision: str) -> int:
        """Return how many differences of a kind were kept or counted."""
        return self.kinds[decision]

    def agree(self, decision: str, count: int = 1) -> None:
        """Count decisions that were predicted exactly."""
        self.exact[decision] += count
        self.recorded[decision] += count

    def differ(self, event: int, decision: str, predicted: str, recorded: str) -> None:
        """Count a recorded decision that was not predicted; a lost event is none."""
        if decision != LOST:
            self.recorded[decision] += 1
        self.note(event, decision, predicted, recorded)

    def note(self, event: int, decision: str, predicted: str, recorded: str) -> None:
        """Keep a difference."""
        self.differences += 1
        self.kinds[decision] += 1
        if len(self.first) < LISTED:
            self.first.append(Difference(event, decision, predicted, recorded))

    def changes(self, event: int, predicted: Sequence[Change], recorded: Sequence[Change]) -> bool:
        """Compare what changed at the device up to *event*; return whether it is the same, in the same order."""
        for change in recorded:
            self.recorded[_name(change)] += 1
        if list(predicted) == list(recorded):
            for change in recorded:
                self.exact[_name(change)] += 1
            return True
        self.reserved_error = max(self.reserved_error, abs(_total(predicted) - _total(recorded)))
        for tag, a, b, c, d in SequenceMatcher(None, predicted, recorded, autojunk=False).get_opcodes():
            if tag == "equal":
                for change in recorded[c:d]:
                    self.exact[_name(change)] += 1
                continue
            for change in recorded[c:d]:
                self.note(event, _name(change), "not at this point", _words(change))
            for change in predicted[a:b]:
                self.extra[_name(change)] += 1
                self.note(event, _name(change), _words(change), "not at this point")
        return False

    def told(self, event: int, changes: Sequence[Change], why: str) -> None:
        """Keep as differences what was done because it was recorded, though it agrees."""
        for change in changes:
            self.exact[_name(change)] -= 1
            self.note(event, _name(change), why, _words(change))

    def wanted(self, event: int, kind: Kind, size: int) -> None:
        """Count memory that was asked of the device but not in the recording."""
        self.extra[kind.name.lower()] += 1
        self.reserved_error = max(self.reserved_error, size)
        self.note(event, kind.name.lower(), f"{kind.name.lower()} of {format_exact(size)}", "not at this point")


def _name(change: Change) -> str:
    return Kind(change.kind).name.lower()


def _words(change: Change) -> str:
    return f"{_name(change)} of {format_exact(change.size)} at {change.address:#x}"


def _total(changes: Sequence[Change]) -> int:
    return sum(change.size if change.kind in TAKES else -change.size for change in changes)
