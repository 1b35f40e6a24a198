"""Stacks of frames, interned by value: equal stacks have equal numbers, whatever file or object they came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NO_STACK = -1


class Frame(NamedTuple):
    """One frame of a stack, in PyTorch's words."""

    name: str
    filename: str
    line: int

    def __str__(self) -> str:
        where = f"{self.filename}:{self.line}" if self.line else self.filename
        return f"{where} {self.name}" if self.name else where


@dataclass(frozen=True)
class StackTable:
    """The distinct stacks of a trace.

    Attributes:
        frames: the distinct frames.
        stacks: each stack as indices into ``frames``, innermost first.
    """

    frames: tuple[Frame, ...] = ()
    stacks: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.stacks)

    def __repr__(self) -> str:
        return f"StackTable({len(self.stacks):,} stacks, {len(self.frames):,} frames)"

    def frames_of(self, stack: int) -> tuple[Frame, ...]:
        """Return the frames of stack number *stack*, innermost first; none for ``NO_STACK``."""
        return () if stack < 0 else tuple(self.frames[i] for i in self.stacks[stack])


@dataclass
class StackBuilder:
    """Collects stacks and numbers them in order of first appearance."""

    _frames: dict[Frame, int] = field(default_factory=dict)
    _stacks: dict[tuple[int, ...], int] = field(default_factory=dict)

    def frame(self, frame: Frame) -> int:
        """Return the number of *frame*, adding it when it is new."""
        return self._frames.setdefault(frame, len(self._frames))

    def stack(self, frames: Iterable[int]) -> int:
        """Return the number of the stack of the frame numbers *frames*, innermost first; an empty stack is ``NO_STACK``."""
        key = tuple(frames)
        return self._stacks.setdefault(key, len(self._stacks)) if key else NO_STACK

    def add(self, frames: Sequence[Frame]) -> int:
        """Return the number of the stack made of *frames*, innermost first."""
        return self.stack(self.frame(frame) for frame in frames)

    def table(self) -> StackTable:
        """Return what was collected so far."""
        return StackTable(tuple(self._frames), tuple(self._stacks))
