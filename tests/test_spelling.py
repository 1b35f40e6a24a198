"""A misspelt word finds the one that was meant, and never costs much."""

import time

import pytest

from lifecycle_sim.spelling import closest


@pytest.mark.parametrize(
    ("word", "meant"),
    [("duraton", "duration"), ("SIZE", "size"), ("sise", "size"), ("reeds", "reads"), ("zebra", None), ("", None)],
)
def test_the_word_that_was_meant(word, meant):
    assert closest(word, ["duration", "size", "reads", "writes"]) == meant


def test_of_words_that_differ_in_case_only_that_one_is_meant():
    assert closest("Batch", ["batches", "batch"]) == "batch"


def test_among_very_many_words_none_is_looked_for():
    begin = time.perf_counter()
    assert closest("layer_x", (f"layer_{i}" for i in range(100_000))) is None
    assert time.perf_counter() - begin < 1
