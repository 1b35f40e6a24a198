"""Cuts layers into stages: as equal in number as can be, as equal in time, in bytes, or as one says."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from lifecycle_sim.errors import InputError

MOST_LAYERS = 2_000
"""The most layers that are balanced: the work grows with their square."""
LARGEST = 2**62


class Balance(StrEnum):
    """What of the stages is made as equal as can be."""

    LAYERS = "layers"
    TIME = "time"
    BYTES = "bytes"


Cut = Balance | tuple[int, ...]
"""What to balance, or how many layers each stage has."""


def read_cut(text: str) -> Cut:
    """Return what *text* says: ``layers``, ``time``, ``bytes``, or numbers of layers such as ``4,3,3,2``.

    Raises:
        InputError: it is none of them.
    """
    word = text.strip()
    if word in tuple(Balance):
        return Balance(word)
    numbers = [part.strip() for part in word.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part[:9]) > 0 and len(part) < 10 for part in numbers):
        raise InputError(
            f"{text!r} tells no cut: write layers, time or bytes, which of them is to be equal, or each stage's number of layers: 4,3,3,2"
        )
    return tuple(map(int, numbers))


def even(count: int, stages: int) -> tuple[int, ...]:
    """Return *count* layers in *stages* runs as equal in number as can be, the longer ones first."""
    return tuple(count // stages + (number < count % stages) for number in range(stages))


def given(sizes: tuple[int, ...], count: int, stages: int) -> tuple[int, ...]:
    """Return *sizes* if they cut *count* layers into *stages*.

    Raises:
        InputError: they don't.
    """
    if len(sizes) != stages:
        raise InputError(f"the layers of {len(sizes)} stages are given, and there are {stages}: give {stages} numbers")
    if sum(sizes) != count:
        raise InputError(
            f"the stages are given {sum(sizes)} layers, {' + '.join(map(str, sizes))}, and the model has {count}: give all of them"
        )
    return sizes


def balanced(fixed: Sequence[int], each: Sequence[int], times: Sequence[int]) -> tuple[int, ...]:
    """Return how many layers each stage has so that the heaviest stage is as light as can be, and of such cuts one of the most equal.

    Args:
        fixed: what each layer weighs in any stage.
        each: what each layer weighs besides, for every time that its stage counts.
        times: how often that counts in each stage, in their order.

    Raises:
        InputError: there are too many layers, or they weigh too much.
    """
    count = len(fixed)
    if count > MOST_LAYERS:
        raise InputError(f"{count:,} layers are not balanced, at most {MOST_LAYERS:,}: cut them by number, or join some")
    if sum(fixed) + max(times) * sum(each) >= LARGEST:
        raise InputError("the layers weigh 2**62 or more together, too much to balance: cut them by number")
    constant, growing = np.cumsum([0, *fixed], dtype=np.int64), np.cumsum([0, *each], dtype=np.int64)
    begin, end = np.meshgrid(np.arange(count + 1), np.arange(count + 1), indexing="ij")
    weights = [np.where(begin < end, constant - constant[:, None] + often * (growing - growing[:, None]), LARGEST) for often in times]
    heaviest = np.where(np.arange(count + 1) == 0, 0, LARGEST)
    for weight in weights:
        heaviest = np.maximum(heaviest[:, None], weight).min(axis=0)
    bound = int(heaviest[count])
    uneven = np.where(np.arange(count + 1) == 0, 0.0, np.inf)
    chosen = []
    for weight in weights:
        ways = uneven[:, None] + np.where(weight <= bound, weight.astype(np.float64) ** 2, np.inf)
        chosen.append(ways.argmin(axis=0))
        uneven = ways.min(axis=0)
    sizes, stop = [], count
    for first in reversed(chosen):
        sizes.append(stop - int(first[stop]))
        stop = int(first[stop])
    return tuple(reversed(sizes))
