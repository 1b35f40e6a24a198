"""What the readers of one document's parts share: its problems, its assumptions, and the tables of stacks, labels and pools."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lifecycle_sim.events import NO_STACK, Assumption, Frame, StackBuilder
from lifecycle_sim.sources.document_problems import DocumentProblems, Where, describe, path_of, plain

INT64_MAX = (1 << 63) - 1
MOST_BYTES = 1 << 62
"""Bytes up to which sizes may add up, so that levels stay within 64-bit integers."""


@dataclass
class Context:
    """The state of reading one document. Objects are recognised by ``id``, so a context must not outlive its document."""

    problems: DocumentProblems = field(default_factory=DocumentProblems)
    stacks: StackBuilder = field(default_factory=StackBuilder)
    labels: dict[str, int] = field(default_factory=dict)
    pools: dict[tuple[int, int], int] = field(default_factory=lambda: {(0, 0): 0})
    stack_of_list: dict[int, int] = field(default_factory=dict)
    _frame_of_dict: dict[int, int] = field(default_factory=dict)
    _place_of_list: dict[int, Where] = field(default_factory=dict)
    _assumed: dict[str, tuple[int, str]] = field(default_factory=dict)

    def assume(self, code: str, count: int, text: str) -> None:
        """Count *count* more cases of the assumption *code*, which *text* explains."""
        if count:
            self._assumed[code] = (self._assumed.get(code, (0, ""))[0] + count, text)

    def assumptions(self) -> tuple[Assumption, ...]:
        """Return what was assumed, in the order of first appearance."""
        return tuple(Assumption(code, count, text) for code, (count, text) in self._assumed.items())

    def listing(self, value: Any, where: Where, of: str) -> list[Any]:
        """Return *value* if it is a list that stands at one place only; else note the problem and return an empty list.

        A list that is not empty and stands at two places would make the work grow with the square of the file's size.
        """
        if not isinstance(value, (list, tuple)):
            self.problems.wrong(where, value, f"a list of {of}")
            return []
        if value:
            other = self._place_of_list.setdefault(id(value), where)
            if other != where:
                self.problems.add(where, f"is the very same list as {path_of(other)}, should be a list of its own")
                return []
        return value if isinstance(value, list) else list(value)

    def integer(
        self, record: dict[Any, Any], key: str, where: Where, *, low: int = 0, high: int = INT64_MAX, default: int | None = None
    ) -> int:
        """Return the integer ``record[key]`` within [low, high]; else note the problem and return *low*. A missing one is *default*."""
        value = record.get(key)
        if type(value) is int and low <= value <= high:
            return value
        if key not in record:
            if default is not None:
                return default
            self.problems.missing((*where, key), _range(low, high))
        else:
            self.problems.wrong((*where, key), value, _range(low, high))
        return low

    def text(self, record: dict[Any, Any], key: str, where: Where, default: str | None = None) -> str:
        """Return the string ``record[key]``; else note the problem and return ``""``. A missing one is *default*."""
        value = record.get(key)
        if type(value) is str:
            return plain(value)
        if key in record:
            self.problems.wrong((*where, key), value, "a string")
        elif default is None:
            self.problems.missing((*where, key), "a string")
        return default or ""

    def stack(self, frames: Any, where: Where) -> int:
        """Return the number of the stack *frames*, a list of dicts, innermost first."""
        known = self.stack_of_list.get(id(frames))
        if known is not None:
            return known
        if not isinstance(frames, (list, tuple)):
            self.problems.wrong(where, frames, "a list of frames")
            return NO_STACK
        numbers: list[int] = []
        for i, frame in enumerate(frames):
            number = self._frame_of_dict.get(id(frame))
            numbers.append(self._frame(frame, (*where, i)) if number is None else number)
        number = self.stack_of_list[id(frames)] = self.stacks.stack(numbers)
        return number

    def _frame(self, frame: Any, where: Where) -> int:
        if not isinstance(frame, dict):
            self.problems.wrong(where, frame, "a frame: a dict with name, filename and line")
            return 0
        name = self.text(frame, "name", where, default="")
        filename = self.text(frame, "filename", where, default="")
        line = self.integer(frame, "line", where, low=-INT64_MAX, default=0)
        number = self._frame_of_dict[id(frame)] = self.stacks.frame(Frame(name, filename, max(line, 0)))
        return number

    def label(self, text: str) -> int:
        """Return the number of the label *text*."""
        return self.labels.setdefault(plain(text), len(self.labels))

    def pool(self, value: Any, where: Where) -> int:
        """Return the number of the pool *value*, a pair of integers as list or tuple."""
        if isinstance(value, (list, tuple)) and len(value) == 2 and all(type(part) is int and 0 <= part < 1 << 64 for part in value):
            return self.pools.setdefault((value[0], value[1]), len(self.pools))
        self.problems.add(where, f"is {describe(value)}, should be a pool: a pair of integers from 0 to 2^64 - 1")
        return 0


def _range(low: int, high: int) -> str:
    if high < INT64_MAX:
        return f"an integer from {low} to {high}"
    return "an integer that fits 64 bits" if low < 0 else f"an integer, {low} or more, that fits 64 bits"
