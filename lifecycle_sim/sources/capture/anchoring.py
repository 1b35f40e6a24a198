"""Puts what was there before a recording at its beginning, although some of it is only met later. It needs no torch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import replace

from lifecycle_sim.sources.capture.ledger import Ledger, Phase, Where


def anchored_first(ledger: Ledger, before: Collection[int], apart: Collection[int] = ()) -> Ledger:
    """Return *ledger* with the allocations of the storages *before* in front of all else, and without the storages *apart*.

    All else keeps its order; storages are numbered anew in the order of their allocation. What is moved has no phase: it happened
    before there was any.
    """
    storages = ledger.storages
    gone = set(apart)
    first = sorted(set(before) - gone, key=lambda number: storages[number].born)
    in_front = set(first)
    order = [*first, *(number for number in range(len(storages)) if number not in in_front and number not in gone)]
    renumbered = {number: position for position, number in enumerate(order)}
    lost = [storages[number].born for number in first]
    for number in gone:
        lost += [event for event in (storages[number].born, storages[number].died) if event is not None]
    lost.sort()

    def place(event: int) -> int:
        return event + len(first) - bisect_left(lost, event)

    taken = set(lost)
    kept = [event for event in range(len(ledger.events)) if event not in taken]
    numbers = [ledger.events[event] for event in kept]
    renewed = []
    for position, number in enumerate(order):
        storage = storages[number]
        died = None if storage.died is None else place(storage.died)
        if number in in_front:
            renewed.append(replace(storage, born=position, died=died, where=Where(Phase.NONE, storage.where.modules)))
        else:
            renewed.append(replace(storage, born=place(storage.born), died=died))
    return Ledger(
        renewed,
        [*range(len(first)), *(renumbered[number] if number >= 0 else ~renumbered[~number] for number in numbers)],
        [*(Phase.NONE for _ in first), *(ledger.phases[event] for event in kept)],
        [place(event) for event in ledger.backwards],
        [(place(start), place(stop)) for start, stop in ledger.steps],
    )
