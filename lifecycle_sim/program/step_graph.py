"""The graph of a captured step: its operators, and two kinds of lifetimes kept apart, on which every what-if rests.

A storage lives for as long as the program refers to it (its natural lifetime) or autograd holds it as a saved tensor (a hold). What a step
recomputes changes holds alone, so both are kept: as marks, one order of all that happens in the step. ``docs/whatif.md`` tells the rules.

    operator mm      alloc 7      save 7 as hold 3      free 7      …      unpack hold 3      operator mm      applied 3      release 3
                     ├──────── natural lifetime ───────────┤
                                  ├───────────────────────────── hold 3 ─────────────────────────────────────────────────┤
                     ├──────────────────────────────── lives, as the trace shows it ─────────────────────────────────────┤
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

NO_STORAGE = -1
"""Stands for a storage of no bytes, or of the host."""
NO_CALL = -1


class Mark(IntEnum):
    """What happens at a mark; its value is the number of an operator, storage, hold or call."""

    OPERATOR = 0
    """An operator runs. What it allocates follows it."""
    ALLOC = 1
    """A storage is allocated."""
    FREE = 2
    """The program's last reference to a storage goes: its natural lifetime ends."""
    SAVE = 3
    """Autograd saves a tensor: a hold begins."""
    UNPACK = 4
    """A backward node asks for what was saved."""
    APPLIED = 5
    """The node's work is done, and with it what was unpacked goes."""
    RELEASE = 6
    """Autograd lets the saved tensor go."""
    ENTER = 7
    """A module is called in a forward pass."""
    LEAVE = 8
    """It returns."""
    BACKWARD = 9
    """A backward pass begins to ask for what was saved; the value counts them."""
    CAST = 10
    """Autocast gives a cast again that it kept: the value is the operator that made it."""


class StepOperator(NamedTuple):
    """An operator of a step. ``detach`` is left out: checkpointing adds and removes it, and it moves nothing.

    Attributes:
        name: torch's name, such as ``"aten.mm.default"``.
        phase: forward, backward, recompute or optimizer, or "".
        module: the innermost module's path.
        flops: floating-point operations, 0 where torch's registry knows none.
        moved: bytes read and written, 0 for a view.
        dtype: torch's name of the type of its first output, such as ``"bfloat16"``.
        reads: storages it reads.
        writes: storages of its outputs: new ones, and those it returns a view of or changes in place.
        mutates: storages it changes in place.
        random: whether it draws random numbers.
        cached_cast: whether autocast keeps its output, the cast of a parameter, until autocast ends.
        product: whether it needs the workspace of a cuBLAS handle.
        upper: the most bytes that a kernel term without a value may add at a time while it runs.
    """

    name: str
    phase: str = ""
    module: str = ""
    flops: int = 0
    moved: int = 0
    dtype: str = ""
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    mutates: tuple[int, ...] = ()
    random: bool = False
    cached_cast: bool = False
    product: bool = False
    upper: int = 0


class Hold(NamedTuple):
    """What autograd saved once.

    Attributes:
        storage: the storage, or ``NO_STORAGE``.
        lasting: whether it is a parameter or buffer, which the hold does not keep alive.
    """

    storage: int
    lasting: bool = False


class Call(NamedTuple):
    """A call of a module in a forward pass.

    Attributes:
        module: the module's path.
        parent: the call around it, or ``NO_CALL``.
        grad: whether autograd recorded it.
        inputs: storages of the tensors among the positional arguments, one entry a tensor.
        others: storages of the tensors that other arguments hold: by name, in lists, in objects.
    """

    module: str
    parent: int = NO_CALL
    grad: bool = True
    inputs: tuple[int, ...] = ()
    others: tuple[int, ...] = ()


@dataclass(frozen=True)
class StepGraph:
    """One captured step.

    Attributes:
        name: the step's name in the trace.
        start: the trace's event with which it begins.
        stop: the event before which it ends.
        operators: in the order in which they ran.
        holds: in the order in which autograd saved them.
        calls: calls of modules, in the order in which they began.
        kinds: the kind of each mark.
        values: the value of each mark.
        sizes: bytes by storage; storages are the numbers in the trace's address column.
        unsound: why no what-if about the step would be exact, None if one is.
        recomputed: paths of the modules that the step itself recomputes.
    """

    name: str
    start: int
    stop: int
    operators: tuple[StepOperator, ...]
    holds: tuple[Hold, ...]
    calls: tuple[Call, ...]
    kinds: Sequence[int]
    values: Sequence[int]
    sizes: Mapping[int, int]
    unsound: str | None = None
    recomputed: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"StepGraph({self.name!r}, {len(self.operators):,} operators, {len(self.holds):,} holds, {len(self.calls):,} calls)"

    def marks(self) -> Iterator[tuple[int, int]]:
        """Yield each mark as (kind, value)."""
        return zip(self.kinds, self.values, strict=True)

    @cached_property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """For each call the marks ``(enter, leave)``; a call that never returned ends with the step."""
        found = [[-1, len(self.kinds)] for _ in self.calls]
        for position, (kind, value) in enumerate(self.marks()):
            if kind == Mark.ENTER:
                found[value][0] = position
            elif kind == Mark.LEAVE:
                found[value][1] = position
        return tuple((enter, leave) for enter, leave in found)

    @cached_property
    def made(self) -> dict[int, int]:
        """The storages that the step allocates, with the mark of each."""
        return {value: position for position, (kind, value) in enumerate(self.marks()) if kind == Mark.ALLOC}

    @cached_property
    def older(self) -> tuple[int, ...]:
        """The storages that were there before the step and that a mark or a call names."""
        named = {value for kind, value in self.marks() if kind == Mark.FREE} | {hold.storage for hold in self.holds}
        named.update(storage for call in self.calls for storage in (*call.inputs, *call.others))
        return tuple(sorted(named - self.made.keys() - {NO_STORAGE}))

    @cached_property
    def changes(self) -> dict[int, list[int]]:
        """The marks at which an operator changes a storage in place, by storage."""
        found: dict[int, list[int]] = {}
        for position, (kind, value) in enumerate(self.marks()):
            if kind == Mark.OPERATOR:
                for storage in self.operators[value].mutates:
                    found.setdefault(storage, []).append(position)
        return found

    @cached_property
    def workspaces(self) -> dict[int, int]:
        """The workspaces that library handles take in the step and keep, with the operator that first needed each."""
        freed = {value for kind, value in self.marks() if kind == Mark.FREE}
        found, last = {}, -1
        for kind, value in self.marks():
            if kind == Mark.OPERATOR:
                last = value
            elif kind == Mark.ALLOC and value not in freed and last >= 0:
                needing = self.operators[last]
                if needing.product and value not in needing.writes:
                    found[value] = last
        return found

    @cached_property
    def workspace_in_backward(self) -> int | None:
        """The workspace that the backward pass's handle takes in this step, None if it was there before."""
        phases = ("backward", "recompute")
        return next((storage for storage, operator in self.workspaces.items() if self.operators[operator].phase in phases), None)

    @cached_property
    def events(self) -> tuple[int, ...]:
        """The step's events as the trace has them: n for the allocation of storage n, ~n for its free, both lifetimes together."""
        return tuple(event for event, _ in self.union())

    def union(self) -> Iterator[tuple[int, int]]:
        """Yield each event of the step with the number of the mark at which it happens: a storage goes with its last holder."""
        held: dict[int, int] = {}
        waiting: set[int] = set()
        open_: dict[int, int] = {}
        holds = self.holds
        for position, (kind, value) in enumerate(self.marks()):
            if kind == Mark.ALLOC:
                yield value, position
            elif kind == Mark.FREE:
                if held.get(value):
                    waiting.add(value)
                else:
                    yield ~value, position
            elif kind in (Mark.SAVE, Mark.UNPACK):
                storage, lasting = holds[value]
                if not lasting and storage != NO_STORAGE:
                    open_[value] = open_.get(value, 0) + 1
                    if kind == Mark.SAVE:
                        held[storage] = held.get(storage, 0) + 1
            elif kind in (Mark.APPLIED, Mark.RELEASE) and value in open_:
                open_[value] -= 1
                if not open_[value]:
                    del open_[value]
                    storage = holds[value].storage
                    held[storage] -= 1
                    if not held[storage] and storage in waiting:
                        waiting.discard(storage)
                        yield ~storage, position
