"""One checkpointed call while a step runs: what it holds, what it saved, and what was computed again for it."""

from __future__ import annotations

from dataclasses import dataclass, field

Key = int | tuple[int, int]
"""What a region saved: the number of a hold, or (call, place) for an input of a region inside of it."""


@dataclass(eq=False, slots=True)
class Frame:
    """A checkpointed call.

    Attributes:
        call: its number.
        start, stop: its marks.
        parent: the checkpointed call around it.
        inputs: storage, and who has it: a storage that the frame itself holds, or the key under which the parent saved it.
        held: storages that it holds until it ends: inputs, and the state of the random number generator.
        total: how much was saved in it in the forward pass; its recomputation stops early at the last.
        left: how much of that is not released yet.
        closed: whether the call has returned.
        ended: whether all was released.
        again: for each backward pass, what was computed again, by key.
        kept: outputs that a policy saves, by operator: copies by storage.
        kept_at: the marks at which they were saved.
    """

    call: int
    start: int
    stop: int
    parent: Frame | None
    inputs: list[tuple[int, Key | None]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    total: int = 0
    left: int = 0
    closed: bool = False
    ended: bool = False
    again: dict[int, dict[Key, int | None]] = field(default_factory=dict)
    kept: dict[int, dict[int, int]] = field(default_factory=dict)
    kept_at: dict[int, int] = field(default_factory=dict)
