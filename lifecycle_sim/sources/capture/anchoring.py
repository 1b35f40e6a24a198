"""Puts what was there before a recording at its beginning, although some of it is only met later. It needs no torch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import replace

from lifecycle_sim.sources.capture.ledger import Ledger, Phase, Where


def anchored_first(ledger: Ledger, before: Collection[int]) -> Ledger:
    """Return *ledger* with the allocations of the storages *before* in front of all else, in the order in which they were met.

    Storages keep their numbers; all else keeps its order. What is moved has no phase: it happened before there was any.
    """
    first = sorted(before, key=lambda number: ledger.storages[number].born)
    moved = [ledger.storages[number].born for number in first]

    def place(event: int) -> int:
        return event + len(moved) - bisect_left(moved, event)

    front = {number: position for position, number in enumerate(first)}
    storages = [
        replace(
            storage,
            born=front[number] if number in front else place(storage.born),
            died=None if storage.died is None else place(storage.died),
            where=Where(Phase.NONE, storage.where.modules) if number in front else storage.where,
        )
        for number, storage in enumerate(ledger.storages)
    ]
    taken = set(moved)
    kept = [event for event in range(len(ledger.events)) if event not in taken]
    return Ledger(
        storages,
        [*first, *(ledger.events[event] for event in kept)],
        [*(Phase.NONE for _ in first), *(ledger.phases[event] for event in kept)],
        [place(event) for event in ledger.backwards],
        [(place(start), place(stop)) for start, stop in ledger.steps],
    )
