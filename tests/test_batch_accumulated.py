"""The micro-batch for a global batch: against brute force over all ways, and times read from files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.study.batch import find_largest
from lifecycle_sim.study.batch.accumulated import largest_accumulated
from lifecycle_sim.study.batch.accumulation import LARGEST_GLOBAL_BATCH, accumulations
from lifecycle_sim.study.batch.deadline import StraightTime, feasible
from lifecycle_sim.study.batch.measured import StepPeaks
from lifecycle_sim.study.batch.times import read_times, times_at


def runs(fixed, per_sample, asked):
    def measure(places):
        asked.extend(batch for _, batch in places)
        return [StepPeaks(batch, seq, {"requested": fixed + per_sample * batch}) for seq, batch in places]

    return measure


@given(st.integers(0, 500), st.integers(1, 50), st.integers(0, 900), st.integers(1, 2500), st.integers(1, 400))
def test_the_way_is_the_largest_that_fits(fixed, per_sample, gradients, budget, global_batch):
    asked: list[int] = []
    single, several = runs(fixed, per_sample, []), runs(fixed + gradients, per_sample, asked)
    (found,) = find_largest(single, budget, basis="requested")
    if found.value < 1:
        return
    chosen = largest_accumulated(single, several, found, global_batch)
    ways = accumulations(global_batch, found.value)
    fit = [way for way in ways if fixed + (gradients if way.steps > 1 else 0) + per_sample * way.micro_batch <= budget]
    assert chosen.way == (fit[0] if fit else None)
    if chosen.way is not None and chosen.way != ways[0]:
        assert chosen.larger is not None
        assert chosen.larger.batch == ways[ways.index(chosen.way) - 1].micro_batch
        assert chosen.larger.peak("requested") > budget
        assert chosen.left is not None
        assert chosen.left >= 0
    assert len(asked) == len(set(asked)) <= 2 + 2 * len(ways).bit_length()


@pytest.mark.parametrize("global_batch", [0, LARGEST_GLOBAL_BATCH + 1, 10**27])
def test_global_batches_with_too_many_ways_are_refused(global_batch):
    with pytest.raises(ls.InputError, match="give 1 to 10,000,000,000"):
        accumulations(global_batch, 5)
    with pytest.raises(ls.InputError, match="give 1 to 10,000,000,000"):
        feasible(global_batch, 5, StraightTime(1, 1))


def test_times_of_a_file():
    times = read_times("Batch,seq,time,peak\n1,64,2 ms,x\n4,64,5 ms,x\n\n4,64,6 ms,x\n1,128,4 ms,x\n")
    assert times_at(times, 64).times == ((1, 2_000_000), (4, 6_000_000))
    assert times_at(times, 65).times == ((1, 4_000_000),)  # a longer sequence takes no less
    with pytest.raises(ls.InputError, match="longer than the longest that was timed, 128"):
        times_at(times, 129)
    with pytest.raises(ls.InputError, match="say which one"):
        times_at(times, None)
    assert times_at(read_times("batch,time\n2,1 s\n"), 999).longest == 2
    assert times_at(read_times("batch,time,seq\n2,1 s,8\n"), None).longest == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no column 'batch'"),
        ("batch,when\n1,2 s\n", "has no column 'time': its first line is batch, when"),
        ("batch,micro_batch,time\n1,1,2 s\n", "has several columns 'batch'"),
        ("batch,time\n", "holds no time"),
        ("batch,time\n1\n", "line 2: "),
        ("batch,time\n1,-2 s\n", "line 2: .*negative"),
        ("batch,time\n1,2 parsec\n", "line 2: "),
        (f"batch,time\n{2**63},2 s\n", "line 2: batch .* is no whole number from 1"),
        ("batch,time,seq\n1,2 s,8\n2,3 s,\n", "some times tell the length"),
        ("batch,time\n1,3 s\n2,2 s\n", "mine: a micro-batch of 2 takes less"),
        ('batch,time\n"1,2 s\n', "line 2: "),
    ],
)
def test_bad_times_are_told(text, says):
    with pytest.raises(ls.InputError, match=says):
        read_times(text, "mine")
