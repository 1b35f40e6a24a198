"""Downsampling never loses a peak, and groups add up at whatever events are drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.output.downsample import choose_positions

LEVELS = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=300)


@given(LEVELS, st.integers(2, 40), st.booleans())
def test_peak_ends_and_extrema_of_buckets_survive(values: list[int], columns: int, big: bool) -> None:
    levels = np.array([value * 2**40 for value in values], object) if big else np.array(values)
    chosen = choose_positions(levels, columns)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert len(chosen) <= columns + 2
    assert {0, len(values) - 1, values.index(max(values)), values.index(min(values))} <= set(chosen.tolist())
    if len(values) > columns:
        width = -(-len(values) // (columns // 2))
        for begin in range(0, len(values), width):
            bucket = values[begin : begin + width]
            assert {begin + bucket.index(max(bucket)), begin + bucket.index(min(bucket))} <= set(chosen.tolist())


@given(LEVELS, st.integers(2, 40), st.data())
def test_positions_to_keep_are_kept(values: list[int], columns: int, data: st.DataObject) -> None:
    keep = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=5))
    assert set(keep) <= set(choose_positions(np.array(values), columns, keep).tolist())


def test_one_event_peak_among_a_million_survives() -> None:
    levels = np.full(1_000_001, 5)
    levels[777_777] = 6
    chosen = choose_positions(levels)
    assert 777_777 in chosen
    assert len(chosen) <= 2002


@pytest.mark.parametrize(("levels", "columns"), [([], 10), ([1, 2, 3], 1)])
def test_nothing_to_choose_from_is_said(levels: list[int], columns: int) -> None:
    with pytest.raises(ValueError, match="positions are chosen"):
        choose_positions(np.array(levels), columns)
