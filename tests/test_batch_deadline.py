"""Memory and a deadline together, accumulation, and configurations compared."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.study.batch.accumulation import accumulations, blocks
from lifecycle_sim.study.batch.configurations import compare, read_job
from lifecycle_sim.study.batch.deadline import Binds, MeasuredTime, StraightTime, feasible, step_time
from tests.conftest import ROOT

small = st.integers(1, 300)


def test_the_published_feasible_set(shared: Path):
    truth = json.loads((shared / "data/reference/deadline_nonmonotone.json").read_text())
    time = StraightTime(1, 1)
    assert [[batch, step_time(100, batch, time)] for batch in range(1, 101)] == truth["rows"]
    found = feasible(100, 100, time, truth["deadline"])
    assert list(found.batches) == truth["feasible"] == [50, 100]
    assert found.binds is Binds.DEADLINE
    less = feasible(100, 99, time, truth["deadline"])
    assert (list(less.batches), less.binds, less.fastest) == ([50], Binds.BOTH, (50, 102))
    none = feasible(100, 49, time, truth["deadline"])
    assert (none.batches, none.binds) == ((), Binds.BOTH)
    assert feasible(100, 49, time).binds is Binds.MEMORY
    assert feasible(100, 100, time).binds is Binds.NEITHER


@given(small, st.integers(-1, 400), st.integers(0, 50), st.integers(0, 50), st.one_of(st.none(), st.integers(0, 20_000)))
def test_as_brute_force_does(global_batch, memory, overhead, per_sample, deadline):
    time = StraightTime(overhead, per_sample)
    truth = [
        batch
        for batch in range(1, min(memory, global_batch) + 1)
        if deadline is None or -(-global_batch // batch) * (overhead + per_sample * batch) <= deadline
    ]
    found = feasible(global_batch, memory, time, deadline)
    assert list(found.batches) == truth
    times = [step_time(global_batch, batch, time) for batch in range(1, min(memory, global_batch) + 1)]
    assert (found.fastest is None) == (not times)
    assert found.fastest is None or found.fastest[1] == min(times) == step_time(global_batch, found.fastest[0], time)
    assert all(each.padded == each.steps * each.first - global_batch for each in found.ranges)


@given(st.integers(1, 10**6))
def test_only_so_many_numbers_of_micro_batches_are_asked(global_batch):
    asked = list(blocks(global_batch, global_batch))
    assert len(asked) <= 2 * global_batch**0.5 + 1
    assert sum(last - first + 1 for first, last, _ in asked) == global_batch


def test_measured_times_are_those_of_the_next_micro_batch():
    time = MeasuredTime(((8, 100), (1, 30), (4, 60)))
    assert [time.at(batch) for batch in (1, 2, 4, 5, 8)] == [30, 60, 60, 100, 100]
    found = feasible(16, 100, time, 240)
    assert found.batches == (4, 8)
    with pytest.raises(ls.InputError, match="no micro-batch as large as 9 was timed: the largest is 8"):
        time.at(9)
    with pytest.raises(ls.InputError, match="a micro-batch of 4 takes less"):
        MeasuredTime(((1, 30), (4, 20)))


@given(small, st.integers(1, 300))
def test_accumulations_are_those_that_no_other_betters(global_batch, memory):
    found = accumulations(global_batch, memory)
    every = [(micro, -(-global_batch // micro)) for micro in range(1, min(memory, global_batch) + 1)]
    best = [(micro, steps) for micro, steps in every if not any((m <= micro and s <= steps) and (m, s) != (micro, steps) for m, s in every)]
    assert sorted((each.micro_batch, each.steps) for each in found) == sorted(best)
    assert all(each.padded == each.micro_batch * each.steps - global_batch < each.micro_batch for each in found)


def test_bad_arguments():
    for call in (lambda: accumulations(0, 1), lambda: feasible(0, 1, StraightTime(1, 1)), lambda: feasible(1, 1, StraightTime(1, 1), -1)):
        with pytest.raises(ls.InputError, match=r"give 1 to 10,000,000,000|give a time of 0 or more"):
            call()
    with pytest.raises(ls.InputError, match="overhead is -1"):
        StraightTime(-1, 0)


TABLE = ROOT / "scenarios" / "batch" / "three_configurations.toml"


def test_the_table_that_ships_says_what_its_comment_promises():
    plain, fused, recomputed = compare(read_job(tomllib.loads(TABLE.read_text(encoding="utf-8")), TABLE.name))
    assert fused.configuration.time.per_sample < plain.configuration.time.per_sample
    assert (plain.memory.batch, fused.memory.batch, recomputed.memory.batch) == (32, 10, 136)
    assert (plain.micro_batch, fused.micro_batch, recomputed.micro_batch) == (32, 10, 128)
    assert plain.total_time < recomputed.total_time < fused.total_time
    assert fused.total_time == 10_000 * 52 * (12 + 17) * 10**6
    assert (fused.samples, fused.padded) == (520 * 10_000, 8)
    assert {each.configuration.quality_data for each in (plain, fused, recomputed)} == {"held-out set A"}


def test_all_that_is_wrong_with_a_table_is_told():
    job = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    job["buget"] = job.pop("budget")
    job["steps"] = 0
    first, second, third = job["configuration"]
    first["per_sample"] = "0 B"
    second["name"] = "plain"
    second["quality_data"] = "training set"
    del third["quality_data"], third["overhead"]
    with pytest.raises(ls.InputError) as caught:
        read_job(job, "table")
    told = "\n".join(caught.value.problems)
    for said in ("did you mean 'budget'", "budget is missing", "steps is 0", "per_sample is '0 B'", "measured on the training data",
                 "does not say what it was measured on", "overhead is missing", "two configurations are called 'plain'"):  # fmt: skip
        assert said in told
    with pytest.raises(ls.InputError, match=r"no table \[\[configuration\]\]"):
        read_job({}, "table")
