"""Schedules of pipeline-parallel training: which rank does what in which order.

A model is cut into *stages*, and each of *p* ranks holds *v* of them, its chunks. A step is *m* micro-batches. A rank works through its
own list of actions, one at a time, and waits before each until what it needs has come from the rank before or after it::

    1f1b, p = 2, m = 3          rank 0   0F0 0F1 0B0 0F2 0B1 0B2
                                rank 1   1F0 1B0 1F1 1B1 1F2 1B2

An action reads stage, kind of work, micro-batch, as ``torch.distributed.pipelining`` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple


class Work(StrEnum):
    """What an action does with a micro-batch in a stage."""

    FORWARD = "F"
    BACKWARD = "B"
    """The gradients of the input and of the weights in one."""
    INPUT_GRADIENT = "I"
    """The gradient of the stage's input alone, for which the stage before waits."""
    WEIGHT_GRADIENT = "W"
    """The gradients of the weights, for which nobody waits."""


class Action(NamedTuple):
    """One piece of work: ``2F5`` is the forward of micro-batch 5 in stage 2."""

    stage: int
    work: Work
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.work.value}{self.microbatch}"


Result = tuple[int, str, int]
"""What an action makes: stage, ``F``, ``I`` or ``W`` (a letter, for speed), and micro-batch."""


@dataclass(frozen=True)
class Schedule:
    """Which rank does what in which order.

    Attributes:
        name: what it is called.
        microbatches: how many there are, m.
        lists: the actions of each rank, in their order.
        pairs: for each rank the places in its list at which a forward and the backward behind it are a pair: it begins when all that either
            needs is there. Empty where no rank has any.
    """

    name: str
    microbatches: int
    lists: tuple[tuple[Action, ...], ...]
    pairs: tuple[frozenset[int], ...] = ()

    @property
    def ranks(self) -> int:
        """How many ranks there are, p."""
        return len(self.lists)

    @cached_property
    def rank_of(self) -> dict[int, int]:
        """The rank that holds each stage."""
        return {action.stage: rank for rank, actions in enumerate(self.lists) for action in actions}

    @cached_property
    def stages(self) -> int:
        """How many stages there are, p · v."""
        return len(self.rank_of)

    @cached_property
    def held(self) -> tuple[tuple[int, ...], ...]:
        """The stages that each rank holds, in order."""
        found: list[list[int]] = [[] for _ in self.lists]
        for stage, rank in sorted(self.rank_of.items()):
            found[rank].append(stage)
        return tuple(map(tuple, found))

    @cached_property
    def in_flight(self) -> tuple[int, ...]:
        """The most micro-batches of each stage that are between its forward and the end of its backward, the weights' part of it too."""
        level, most = dict.fromkeys(range(self.stages), 0), dict.fromkeys(range(self.stages), 0)
        for actions in self.lists:
            for stage, work, _ in actions:
                level[stage] += 1 if work is Work.FORWARD else 0 if work is Work.INPUT_GRADIENT else -1
                most[stage] = max(most[stage], level[stage])
        return tuple(most.values())

    @property
    def chunks(self) -> int:
        """How many stages a rank holds, v; the most, where ranks differ."""
        return max(map(len, self.held))

    @cached_property
    def splits(self) -> bool:
        """Whether any backward is done in two, input and weights apart."""
        return any(action.work is Work.INPUT_GRADIENT for actions in self.lists for action in actions)

    def needs(self, rank: int, place: int) -> tuple[Result, ...]:
        """Return what has to be done before *rank* begins what stands at *place* of its list, as :func:`needed` does; a pair as one."""
        last, actions = self.stages - 1, self.lists[rank]
        found = needed(actions[place], last)
        if self.pairs and place in self.pairs[rank]:
            own = result(actions[place])
            found += tuple(need for need in needed(actions[place + 1], last) if need != own)
        return found

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """Return the stages that *rank* holds, in order."""
        return self.held[rank]

    def __len__(self) -> int:
        return sum(map(len, self.lists))

    def __repr__(self) -> str:
        return (
            f"Schedule({self.name!r}, {self.ranks} ranks, {self.microbatches} micro-batches, {self.stages} stages, {len(self):,} actions)"
        )


def result(action: Action) -> Result:
    """Return what *action* makes, as others need it: a whole backward gives the input's gradient, and that of the weights."""
    stage, work, microbatch = action
    if work is Work.FORWARD:
        return stage, "F", microbatch
    return stage, "W" if work is Work.WEIGHT_GRADIENT else "I", microbatch


def needed(action: Action, last_stage: int) -> tuple[Result, ...]:
    """Return what has to be made before *action*.

    A forward needs that of the stage before it. A backward needs the gradient from the stage behind it, and its own forward; the gradient
    of the weights needs that of the input.
    """
    stage, work, microbatch = action
    if work is Work.FORWARD:
        return ((stage - 1, "F", microbatch),) if stage else ()
    if work is Work.WEIGHT_GRADIENT:
        return ((stage, "I", microbatch),)
    own = (stage, "F", microbatch)
    return (own,) if stage == last_stage else (own, (stage + 1, "I", microbatch))
