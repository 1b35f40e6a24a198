"""The search over runs: against brute force on rising and on falling peaks, and how few runs it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.study.batch.seeking import Seen, seek, seek_all

lines = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**4)), min_size=1, max_size=4)


def find(peak, room, limit, window=0):
    runs: list[int] = []

    def measure(pairs):
        runs.extend(count for _, count in pairs)
        return [seen if isinstance(seen := peak(count), Seen) else Seen(seen) for _, count in pairs]

    return seek_all({"one": seek(room, limit, window)}, measure)["one"], runs


@given(lines, st.integers(0, 10**7), st.integers(1, 5000))
def test_as_brute_force_does_on_maxima_of_lines(phases, room, limit):
    def peak(batch):
        return max(fixed + per * batch for fixed, per in phases)

    found, runs = find(peak, room, limit)
    assert found.value == max((batch for batch in range(1, limit + 1) if peak(batch) <= room), default=0)
    assert len(runs) == len(set(runs)) <= 5 + 6 * limit.bit_length()
    assert found.value == 0 or found.peaks[found.value] <= room
    assert found.value == limit or found.peaks[found.value + 1] > room


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=200), st.integers(0, 10**5), st.integers(0, 3))
def test_as_brute_force_does_on_any_rising_peaks(steps, room, window):
    peaks = [0]
    for step in steps:
        peaks.append(peaks[-1] + step)
    found, runs = find(peaks.__getitem__, room, len(steps), window)
    assert found.value == max((batch for batch in range(1, len(peaks)) if peaks[batch] <= room), default=0)
    assert not found.holes
    assert not found.above
    assert len(runs) <= 5 + 6 * len(steps).bit_length() + 2 * window


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(0, 50), st.integers(1, 4))
def test_any_peaks_are_measured_on_both_sides_and_holes_are_told(peaks, room, window):
    found, _ = find(lambda batch: peaks[batch - 1], room, len(peaks), window)
    assert found.value == 0 or peaks[found.value - 1] <= room
    assert found.value == len(peaks) or peaks[found.value] > room
    first, last = found.scanned
    assert set(range(first, last + 1)) <= found.peaks.keys()
    assert {b for b in range(first, found.value) if peaks[b - 1] > room} <= set(found.holes)
    assert {b for b in range(found.value + 2, last + 1) if peaks[b - 1] <= room} <= set(found.above)


def test_a_straight_series_takes_two_rounds():
    found, runs = find(lambda batch: 10**9 + 3 * 10**7 * batch, 20 * 10**9, 2**20)
    assert (found.value, found.rounds, runs) == (633, 2, [1, 2, 4, 633, 634])
    assert (found.calibrated, found.proposed) == (4, 633)


def test_a_flat_beginning_is_left_behind():
    found, runs = find(lambda batch: max(10**9, 10**6 * batch), 5 * 10**9, 2**20)
    assert found.value == 5000
    assert len(runs) < 20


def test_parts_tell_beforehand_where_another_phase_takes_over():
    def peak(batch):
        parts = {"backward": 10**8 + 10**6 * batch, "optimizer": 10**9}
        return Seen(max(parts.values()) + 5 * 10**7, parts)

    found, runs = find(peak, 5 * 10**9, 2**20)
    assert (found.value, found.rounds, runs) == (4850, 2, [1, 2, 4, 4850, 4851])


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_a_small_limit_binds(limit):
    found, runs = find(lambda batch: batch, 100, limit)
    assert found.value == limit
    assert max(runs) == limit


def test_the_holes_of_reserved_bytes_are_told(shared: Path):
    rows = json.loads((shared / "data/reference/nonmonotone_reserved_model.json").read_text())["rows"]
    reserved = {row["B"]: row["peak_reserved"] for row in rows}
    assert reserved[9] > reserved[10]
    found, _ = find(reserved.__getitem__, reserved[10], len(reserved), window=2)
    assert (found.value, found.above) == (8, (10,))
    found, _ = find(reserved.__getitem__, reserved[13], len(reserved), window=2)
    assert (found.value, found.above) == (11, (13,))


def test_searches_share_their_rounds():
    batches = []

    def measure(pairs):
        batches.append(len(pairs))
        return [Seen(key * count) for key, count in pairs]

    found = seek_all({key: seek(1000, 10**6) for key in (1, 3, 10)}, measure)
    assert [each.value for each in found.values()] == [1000, 333, 100]
    assert batches == [9, 6]
