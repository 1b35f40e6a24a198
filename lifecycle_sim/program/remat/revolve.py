"""Binomial checkpointing (Revolve): a uniform chain reversed with c slots and the fewest forward steps.

Source: A. Griewank, A. Walther, "Algorithm 799: revolve", ACM TOMS 26(1), 2000. With r the smallest number for which C(c + r, c) ≥ n,
the fewest advances are t(n, c) = r·n − C(c + r, c + 1). The input of the chain takes one of the c slots. Where a slot may hold the data
of a step as well as an input, fewer forward steps do: J. Maddison, "Step-based checkpointing with high-level algorithmic
differentiation", 2023.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

import numpy as np

from lifecycle_sim.program.remat.moves import Act, Move, at_least


def repetitions(steps: int, slots: int) -> int:
    """Return r: how often a step is run without keeping anything at most, the fewest possible for *steps* and *slots*.

    Raises:
        InputError: less than one step or slot.
    """
    at_least(steps, 1, "steps")
    at_least(slots, 1, "slots")
    count = 0
    while comb(slots + count, slots) < steps:
        count += 1
    return count


def fewest_advances(steps: int, slots: int) -> int:
    """Return t(n, c): the fewest forward steps run without keeping anything, beside the *steps* runs that keep their data.

    Raises:
        InputError: less than one step or slot.
    """
    slots = min(at_least(slots, 1, "slots"), at_least(steps, 1, "steps"))
    often = repetitions(steps, slots)
    return often * steps - comb(slots + often, slots + 1)


def binomial_schedule(steps: int, slots: int) -> Iterator[Move]:
    """Yield the moves of a schedule with :func:`fewest_advances`.

    Raises:
        InputError: less than one step or slot.
    """
    slots = min(at_least(slots, 1, "slots"), at_least(steps, 1, "steps"))
    yield Move(Act.SAVE, 0)
    todo: list[tuple[int, int, int] | Move] = [(0, steps, slots)]
    while todo:
        item = todo.pop()
        if isinstance(item, Move):
            yield item
            continue
        first, count, free = item  # the run stands at step `first`, whose input is in one of the `free` slots
        if count == 1:
            yield Move(Act.DROP, first)
            yield Move(Act.REVERSE, first)
        elif free == 1:
            yield Move(Act.ADVANCE, first, first + count - 1)
            yield Move(Act.REVERSE, first + count - 1)
            todo += [(first, count - 1, 1), Move(Act.RESTORE, first)]
        else:
            split = first + _split(count, free)
            yield Move(Act.ADVANCE, first, split)
            yield Move(Act.SAVE, split)
            todo += [(first, split - first, free), Move(Act.RESTORE, first), (split, first + count - split, free - 1)]


def _split(steps: int, slots: int) -> int:
    """How far to advance before the next checkpoint: as far as leaves both parts within their r."""
    slots = min(slots, steps)
    often = repetitions(steps, slots)
    return min(comb(slots + often - 1, slots), steps - comb(slots + often - 2, slots - 1))


def fewest_mixed_forwards(steps: int, slots: int) -> int:
    """Return the fewest forward steps in all if a slot may hold the data of a step as well as the input of one.

    By dynamic programming, O(steps² · slots). The data of the step that is reversed next needs no slot; the input of the chain needs one
    as long as it must be returned to.

    Raises:
        InputError: less than one step or slot.
    """
    at_least(slots, 1, "slots")
    at_least(steps, 1, "steps")
    never = np.int64(2**62)
    before = np.full(steps + 1, never)  # with no slot, a single step
    before[:2] = 0, 1
    for _ in range(min(slots, steps - 1) if steps > 1 else 0):
        best = np.full(steps + 1, never)
        best[:2] = 0, 1
        for count in range(2, steps + 1):
            data = 1 + before[count - 1]
            gone = np.arange(1, count)
            split = gone + before[count - gone] + best[gone]
            best[count] = min(data, int(split.min()), never)
        before = best
    return int(before[steps])
