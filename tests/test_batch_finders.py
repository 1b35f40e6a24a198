"""Finders side by side: the replayed ones return what was published of them, and this one the truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.finders import CAP, CASES, side_by_side
from lifecycle_sim import max_batch

OTHERS = (
    "lightning_power",
    "lightning_binsearch",
    "lightning_binsearch_margin0",
    "lightning_binsearch_init1",
    "accelerate_0.9_from128",
    "accelerate_halving_from128",
)


def test_the_replayed_finders_do_what_was_published_of_them(shared: Path):
    rows = json.loads((shared / "data/reference/finder_comparison.json").read_text())["rows"]
    table = side_by_side()
    assert {row["case"]: (row["fixed"], row["per"], row["budget"]) for row in rows} == CASES
    for row in rows:
        for name in OTHERS:
            found = table[row["case"]][name]
            told = (row[name], row[f"{name}_probes"], row[f"{name}_tested_ok"])
            assert (found.found, found.runs, found.tested) == told, (row["case"], name)
        assert table[row["case"]]["this"].found == row["exact"]


@pytest.mark.parametrize("case", CASES)
def test_this_finds_the_truth_without_running_out_of_memory(case: str):
    row = side_by_side()[case]
    fixed, per_sample, budget = CASES[case]
    truth = max_batch(fixed, per_sample, budget, 2**20)
    found = row["this"]
    assert found.found == truth
    assert found.out_of_memory == 0
    assert found.runs <= 6
    assert found.tested == (truth >= 1)
    wrong = [name for name in OTHERS if row[name].found not in (truth, min(truth, CAP)) or not row[name].tested]
    assert wrong or truth == 1
