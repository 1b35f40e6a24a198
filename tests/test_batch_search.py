"""The exact search: published vectors, brute force, and how the number of evaluations grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lifecycle_sim as ls

JAVA = [
    # the seven checks of the reference programme
    ((100, 30, 200, 10), 3),
    ((100, 30, 100, 10), 0),
    ((100, 30, 99, 10), -1),
    ((0, 1, 2**63 - 1, 2**63 - 1), 2**63 - 1),
    ((0, 1, 1000, 4), 4),
    ((0, 6 * 10**9 * 2 * 10**10, 6 * 10**9 * 2 * 10**10, 10), 1),
]


@pytest.mark.parametrize(("arguments", "expected"), JAVA)
def test_the_checks_of_the_reference_programme(arguments, expected):
    assert ls.max_batch(*arguments) == expected


def test_the_product_of_the_reference_programme_does_not_overflow():
    found = ls.feasible_range(0, 6 * 10**9, 6 * 10**9 * 2 * 10**10, 10**20)
    assert (found.batch, found.at) == (2 * 10**10, 120_000_000_000_000_000_000)


def test_a_sample_that_adds_nothing_is_an_error():
    with pytest.raises(ls.InputError, match="per_sample is 0: give 1 or more, for a sample must add bytes"):
        ls.max_batch(0, 0, 10, 10)


def test_the_two_hundred_vectors(shared: Path):
    vectors = json.loads((shared / "data/reference/batch_search_vectors.json").read_text())["vectors"]
    assert len(vectors) == 200
    for vector in vectors:
        fixed, per, budget, limit = (int(vector[name]) for name in ("fixed", "per", "budget", "limit"))
        if vector["expected"] == "ValueError":
            with pytest.raises(ValueError):
                ls.max_batch(fixed, per, budget, limit)
            continue
        found = ls.feasible_range(fixed, per, budget, limit)
        assert found.batch == int(vector["expected"]), vector["why"]
        assert found.evaluations <= limit.bit_length()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((-1, 1, 1, 1), "fixed is -1: give 0 or more"),
        ((1, -5, 1, 1), "per_sample is -5"),
        ((1, 1, -1, 1), "budget is -1"),
        ((1, 1, 1, -1), "limit is -1"),
        ((1.0, 1, 1, 1), "fixed is 1.0, not a whole number"),
        ((1, 1, 1e30, 1), "budget is 1e\\+30, not a whole number"),
        ((1, True, 1, 1), "per_sample is True, not a whole number"),
    ],
)
def test_bad_arguments_are_told(arguments, says):
    with pytest.raises(ls.InputError, match=says):
        ls.max_batch(*arguments)


def test_all_problems_are_told_at_once():
    with pytest.raises(ls.InputError) as caught:
        ls.max_batch(-1, 0, 2.5, -4)
    assert len(caught.value.problems) == 4


def test_witnesses_headroom_and_deficit():
    found = ls.feasible_range(100, 30, 200, 10)
    assert (found.batch, found.at, found.above, found.headroom, found.deficit) == (3, 190, 220, 10, 20)
    none = ls.feasible_range(100, 30, 99, 10)
    assert (none.batch, none.at, none.above, none.headroom, none.deficit) == (-1, None, 100, None, 1)
    capped = ls.feasible_range(0, 1, 1000, 4)
    assert (capped.batch, capped.capped, capped.headroom, capped.deficit) == (4, True, 996, None)


small = st.integers(0, 60)


@given(small, st.integers(1, 20), st.integers(0, 200), st.integers(0, 40))
def test_as_brute_force_does(fixed, per, budget, limit):
    fitting = [batch for batch in range(limit + 1) if fixed + per * batch <= budget]
    found = ls.feasible_range(fixed, per, budget, limit)
    assert found.batch == max(fitting, default=-1)
    assert found.at is None or found.at <= budget
    assert found.capped or found.above > budget
    assert found.evaluations <= limit.bit_length()


@given(st.integers(-1, 10**30), st.integers(0, 10**30))
def test_any_monotone_predicate(true_largest, limit):
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number <= true_largest

    found = ls.largest(holds, limit)
    assert found.value == min(true_largest, limit)
    assert found.evaluations == len(asked) == len(set(asked)) <= limit.bit_length() + 1
    assert found.capped == (true_largest >= limit)
    if found.proved:
        assert found.value in asked
    if found.refuted is not None:
        assert found.refuted == found.value + 1
        assert found.refuted in asked


@pytest.mark.parametrize("bits", [1, 8, 63, 64, 100, 1000])
def test_evaluations_grow_with_the_logarithm(bits):
    limit = 2**bits - 1
    found = [ls.feasible_range(0, 1, budget, limit).evaluations for budget in (0, limit // 3, limit - 1, limit, 2 * limit)]
    assert max(found) == bits
