"""The tables that events refer to by number while JSON lines are read: frames, stacks, labels and pools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from lifecycle_sim.errors import TraceFormatError
from lifecycle_sim.events import NO_STACK, Frame, StackTable
from lifecycle_sim.sources.native.grammar import FrameLine, LabelLine, StackLine

_HAND_FRAME = re.compile(r"(?P<filename>.+):(?P<line>\d{1,9})(?: (?P<name>.*))?")


class _FrameObject(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    filename: str = ""
    line: int = 0


class Tables:
    """Grows by lines that give an entry, and by events that name one by value."""

    def __init__(self, pools: Sequence[tuple[int, int]]) -> None:
        self.pools = list(pools)
        self.labels: list[str] = []
        self._frames: list[Frame] = []
        self._stacks: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[str, Any], int] = {("pool", pool): number for number, pool in enumerate(pools)}

    def stacks(self) -> StackTable:
        """Return the frames and stacks so far."""
        return StackTable(tuple(self._frames), tuple(self._stacks))

    def add_frame(self, line: FrameLine) -> None:
        """Add the frame that *line* gives."""
        self._add("frame", Frame(*line.frame), self._frames)

    def add_stack(self, line: StackLine) -> None:
        """Add the stack that *line* gives as frame numbers."""
        if not all(0 <= number < len(self._frames) for number in line.stack):
            raise TraceFormatError(f"stack {line.stack} refers to a frame that no line above gives: there are {len(self._frames)}")
        self._add("stack", tuple(line.stack), self._stacks)

    def add_label(self, line: LabelLine) -> None:
        """Add the label that *line* gives."""
        self._add("label", line.label, self.labels)

    def label(self, value: Any) -> int:
        """Return the number of the label *value*, text or number."""
        if type(value) is int:
            return _within("label", value, self.labels)
        if not isinstance(value, str):
            raise TraceFormatError(f"label {value!r} is neither text nor a number")
        return self._intern("label", value, self.labels)

    def pool(self, value: Any) -> int:
        """Return the number of the pool *value*, ``[a, b]`` or number."""
        if type(value) is int:
            return _within("pool", value, self.pools)
        if not isinstance(value, list | tuple) or len(value) != 2 or not all(type(part) is int for part in value):
            raise TraceFormatError(f"pool {value!r} is neither [a, b] nor a number")
        return self._intern("pool", tuple(value), self.pools)

    def stack(self, value: Any) -> int:
        """Return the number of the stack *value*: a number, or a list of frames, innermost first."""
        if type(value) is int:
            return NO_STACK if value == NO_STACK else _within("stack", value, self._stacks)
        if not isinstance(value, list):
            raise TraceFormatError(f'stack {value!r} is not a list of frames such as ["train.py:12 forward"], innermost first')
        frames = tuple(self._intern("frame", _frame(frame), self._frames) for frame in value)
        return self._intern("stack", frames, self._stacks) if frames else NO_STACK

    def _intern(self, what: str, value: Any, table: list[Any]) -> int:
        number = self._numbers.setdefault((what, value), len(table))
        if number == len(table):
            table.append(value)
        return number

    def _add(self, what: str, value: Any, table: list[Any]) -> None:
        self._numbers.setdefault((what, value), len(table))
        table.append(value)


def _within(what: str, number: int, table: list[Any]) -> int:
    if not 0 <= number < len(table):
        raise TraceFormatError(f"{what} {number} is not in the table above it, which has {len(table)}")
    return number


def _frame(value: Any) -> Frame:
    """Return the frame written as ``"file:line name"``, as a bare name, or as an object."""
    if isinstance(value, str):
        match = _HAND_FRAME.fullmatch(value)
        return Frame(match["name"] or "", match["filename"], int(match["line"])) if match else Frame(value, "", 0)
    try:
        frame = msgspec.convert(value, _FrameObject)
    except msgspec.ValidationError as error:
        raise TraceFormatError(f'frame {value!r} is neither "file:line name" nor an object with name, filename, line: {error}') from None
    return Frame(frame.name, frame.filename, frame.line)
