"""Chooses the positions of a timeline that a figure draws: few, and never without a peak."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.events.trace import Int64

COLUMNS = 2000


def choose_positions(levels: NDArray[Any], columns: int = COLUMNS, keep: Iterable[int] = ()) -> Int64:
    """Return the positions of *levels* to draw, in ascending order and each once.

    The levels are cut into ``columns // 2`` buckets of equal width. Of each bucket the first position of its least and the first of
    its greatest level are kept, and besides these the first and last position of all, and those in *keep*. So the greatest level of
    every bucket, and with it the exact peak at its first position, is among those drawn. Levels that are few are all drawn.

    Args:
        levels: one level or more.
        columns: about how many positions to return at most: there may be up to 2 more, and those in *keep*.
        keep: positions in *levels* that must be returned.

    Raises:
        ValueError: there are no levels, or fewer than 2 columns.
    """
    if not len(levels) or columns < 2:
        raise ValueError(f"positions are chosen from 1 level or more for 2 columns or more, not from {len(levels)} for {columns}")
    if len(levels) <= columns:
        return np.arange(len(levels))
    width = -(-len(levels) // (columns // 2))
    buckets = -(-len(levels) // width)
    padded = np.concatenate([levels, np.repeat(levels[-1:], buckets * width - len(levels))]).reshape(buckets, width)
    begins = np.arange(buckets) * width
    chosen = (begins + padded.argmin(axis=1), begins + padded.argmax(axis=1), [0, len(levels) - 1], list(keep))
    return np.unique(np.concatenate(chosen).astype(np.int64))
