"""The moves of a checkpointing schedule on a uniform chain, and a player that checks a schedule and counts what it costs.

A chain has steps 0 to n−1. A forward step may run without keeping anything (an advance), or keep what its backward step needs. To
reverse the chain every step must be run keeping its data, the last first, and then reversed. What a schedule may keep in between are
inputs of steps (checkpoints), in slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from lifecycle_sim.errors import InputError


class Act(StrEnum):
    """What a move does."""

    SAVE = "save"
    """Keep the input of step ``at``, at which the run stands, in a slot."""
    ADVANCE = "advance"
    """Run steps from ``at`` up to, not including, ``to``, keeping nothing."""
    REVERSE = "reverse"
    """Run step ``at`` keeping its data, then its backward step."""
    RESTORE = "restore"
    """Go back to the input of step ``at`` that a slot keeps."""
    DROP = "drop"
    """Empty the slot that keeps the input of step ``at``."""


class Store(StrEnum):
    """Where a slot is."""

    RAM = "ram"
    DISK = "disk"


class Move(NamedTuple):
    """One move of a schedule; ``to`` is of meaning for an advance only, ``store`` for a slot only."""

    act: Act
    at: int
    to: int = -1
    store: Store = Store.RAM


@dataclass(frozen=True)
class Played:
    """What a schedule does, counted move by move.

    Attributes:
        advances: forward steps run without keeping anything.
        forwards: all forward steps, the ones that keep their data included.
        writes: saves to disk.
        reads: restores from disk.
        ram: slots in memory that are taken at once at most.
        disk: slots on disk that are taken at once at most.
    """

    advances: int
    forwards: int
    writes: int
    reads: int
    ram: int
    disk: int


def play(steps: int, schedule: Iterable[Move]) -> Played:
    """Follow *schedule* on a chain of *steps* steps and count what it does.

    Raises:
        InputError: a move is impossible where it stands, or steps are left that were not reversed.
    """
    at, left = 0, steps
    slots: dict[tuple[int, Store], None] = {}
    advances = writes = reads = 0
    most = {Store.RAM: 0, Store.DISK: 0}
    for number, move in enumerate(schedule):
        slot = (move.at, move.store)
        if move.act is Act.RESTORE:
            possible, at = slot in slots, move.at
            reads += move.store is Store.DISK
        elif move.act is Act.DROP:
            possible = slot in slots
            slots.pop(slot, None)
        elif move.act is Act.SAVE:
            possible = move.at == at
            slots[slot] = None
            writes += move.store is Store.DISK
            most[move.store] = max(most[move.store], sum(1 for _, store in slots if store is move.store))
        elif move.act is Act.ADVANCE:
            possible, at = move.at == at < move.to < left, move.to
            advances += move.to - move.at
        else:
            possible, at = move.at == at == left - 1, -1
            left -= 1
        if not possible:
            raise InputError(f"move {number:,} of the schedule ({move.act} at step {move.at:,}) is not possible there")
    if left:
        raise InputError(f"the schedule leaves {left:,} of {steps:,} steps unreversed")
    return Played(advances, advances + steps, writes, reads, most[Store.RAM], most[Store.DISK])


def at_least(value: int, least: int, what: str) -> int:
    """Return *value*, the number of *what*.

    Raises:
        InputError: it is no whole number or below *least*.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{value!r} {what}: give a whole number of {least} or more")
    return value
