"""Layers cut into stages: against every cut there is, and what is refused."""

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis
from lifecycle_sim.study.pipeline.schedule_costs import TIMES, Layer, Model
from lifecycle_sim.study.pipeline.schedule_cut import Balance, balanced, even, read_cut
from lifecycle_sim.study.pipeline.schedule_orders import SCHEDULES, schedule
from lifecycle_sim.study.pipeline.schedule_result import in_flight, peaks, run_schedule
from tests.conftest import ROOT


def cuts(count, stages):
    """Every way to cut *count* layers into *stages*, each with one at least."""
    for inner in combinations(range(1, count), stages - 1):
        yield tuple(b - a for a, b in pairwise((0, *inner, count)))


def heaviest(sizes, fixed, each, times):
    first, found = 0, []
    for size, often in zip(sizes, times, strict=True):
        found.append(sum(fixed[first : first + size]) + often * sum(each[first : first + size]))
        first += size
    return max(found), sum(weight**2 for weight in found)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=9), st.data())
def test_the_heaviest_stage_is_as_light_as_in_any_cut_and_the_rest_as_equal(layers, data):
    fixed, each = zip(*layers, strict=True)
    times = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=len(layers)))
    sizes = balanced(fixed, each, times)
    assert len(sizes) == len(times)
    assert min(sizes) >= 1
    assert heaviest(sizes, fixed, each, times) == min(heaviest(other, fixed, each, times) for other in cuts(len(fixed), len(times)))


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_in_flight_in_the_stages_of_a_rank_with_one_is_what_is_on_the_rank(name):
    made = schedule(name, 4, 8)
    assert len(made.in_flight) == made.stages
    for rank in range(4):
        most = max(level.during for level in in_flight(made, rank))
        held = [made.in_flight[stage] for stage in made.stages_of(rank)]
        assert max(held) <= most <= sum(held)


UNEVEN = Model(tuple(Layer(t, t, t, weight_input=1000, static=2000) for t in (1, 1, 1, 1, 1, 1, 1, 5)), basis=Basis.PAYLOAD, title="uneven")


def test_equal_times_make_the_run_shorter_and_the_assumption_says_how_it_was_cut():
    made = schedule("1f1b", 4, 8)
    plain, timed = run_schedule(made, UNEVEN), run_schedule(made, replace(UNEVEN, cut=Balance.TIME))
    assert timed.work == plain.work
    assert timed.makespan < plain.makespan
    assert max(sum(getattr(stage, name) for name in TIMES) for stage in timed.costs.stages) == 15
    assert timed.costs.assumptions[-1].startswith("the 8 layers are cut into 4 stages of 2, 2, 3, 1, so that the stage that takes longest")


def test_equal_bytes_take_layers_from_the_ranks_with_most_in_flight_and_lower_the_peak():
    made = schedule("1f1b", 4, 8)
    plain, sized = run_schedule(made, UNEVEN), run_schedule(made, replace(UNEVEN, cut=Balance.BYTES))
    assert plain.peak == 2 * (2000 + 4 * 1000)
    least = min(max(peaks(made, replace(UNEVEN, cut=sizes).costs(4))) for sizes in cuts(8, 4))
    assert sized.peak == least < plain.peak


def test_gpt3_fits_if_its_stages_are_equal_in_bytes():
    model = ls.load_layers(ROOT / "scenarios/schedule/gpt3.toml")
    made = schedule("1f1b", 8, 32)
    assert run_schedule(made, model).peak > 80 << 30
    assert run_schedule(made, replace(model, cut=Balance.BYTES)).peak < 74 << 30


def test_stages_as_they_are_given():
    assert [stage.static for stage in replace(UNEVEN, cut=(4, 2, 1, 1)).costs(4).stages] == [8000, 4000, 2000, 2000]
    for sizes, says in (((4, 4), "the layers of 2 stages are given, and there are 4"), ((4, 2, 1, 2), "are given 9 layers, 4 + 2 + 1 + 2")):
        with pytest.raises(InputError, match=says.replace("+", r"\+")):
            replace(UNEVEN, cut=sizes).costs(4)


def test_what_a_cut_is_called():
    assert read_cut("bytes") is Balance.BYTES
    assert read_cut("4, 3,1") == (4, 3, 1)
    assert even(10, 4) == (3, 3, 2, 2)
    for text in ("", "size", "4,,3", "4,0", "-1", "4,x", "9999999999", "²"):
        with pytest.raises(InputError, match="tells no cut"):
            read_cut(text)


def test_what_is_too_much_to_balance_is_refused():
    with pytest.raises(InputError, match="2,001 layers are not balanced, at most 2,000"):
        balanced([1] * 2001, [1] * 2001, [1])
    with pytest.raises(InputError, match="too much to balance"):
        balanced([2**61, 2**61], [0, 0], [1])
