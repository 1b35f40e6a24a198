"""Comparisons of sizes: what they need, the law fitted to their runs, and an experiment with repeated data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from lifecycle_sim.study.budget import LAWS, Law, Run, fit_law, repetition_experiment
from lifecycle_sim.study.budget.fit import REACH, _linear
from lifecycle_sim.study.budget.protocol import read_protocol, read_runs
from tests.conftest import ROOT

SHIPPED = ROOT / "scenarios" / "budget" / "isoflop.toml"
TEXT = SHIPPED.read_text(encoding="utf-8")
DRAWS = 30  # enough to see that an interval is there


def runs_of(law: Law, noise: float = 0.0, seed: int = 0, budgets: tuple[float, ...] = (3e17, 1e18, 3e18, 1e19)) -> list[Run]:
    """Five sizes at each of the budgets."""
    generator = np.random.default_rng(seed)
    made = []
    for work in budgets:
        for size in (1e7, 2.5e7, 6e7, 1.5e8, 3.5e8):
            tokens = work / 6 / size
            made.append(Run(int(size), int(tokens), law.loss(size, tokens) * (1 + noise * float(generator.standard_normal()))))
    return made


# ── the law ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["chinchilla", "besiroglu"])
def test_a_law_without_noise_is_found_again(name):
    law = LAWS[name]
    fit = fit_law(runs_of(law), draws=DRAWS)
    assert (fit.law.e, fit.law.alpha, fit.law.beta) == pytest.approx((law.e, law.alpha, law.beta), rel=0.02)
    assert fit.residual < 1e-4
    assert fit.check is not None
    assert fit.check.worst < 1e-3
    assert fit.forecast(10**9, 10**10).interval.value == pytest.approx(law.loss(1e9, 1e10), rel=1e-3)


def test_the_fit_is_the_least_sum_of_squares_that_a_plain_search_finds():
    """A plain search over all five constants, begun at the fit, finds nothing better."""
    runs = runs_of(LAWS["chinchilla"], noise=0.005, seed=3)

    def cost(law: Law) -> float:
        return sum((law.loss(run.parameters, run.tokens) / run.loss - 1) ** 2 for run in runs)

    found = fit_law(runs, draws=DRAWS).law
    best, step = found, 0.02
    for _ in range(60):
        tries = [
            Law("", *(getattr(best, key) * (1 + sign * step * (key == changed)) for key in ("e", "a", "b", "alpha", "beta")))
            for changed in ("e", "a", "b", "alpha", "beta")
            for sign in (-1, 1)
        ]
        better = min(tries, key=cost)
        if cost(better) < cost(best):
            best = better
        else:
            step /= 2
    assert cost(best) > cost(found) * (1 - 1e-3)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(3, 8))
def test_no_constant_falls_below_zero_and_no_others_do_better(seed, runs):
    """Against coordinate descent, which knows no subsets: each constant in turn goes to its own least, or to 0."""
    generator = np.random.default_rng(seed)
    columns = generator.uniform(0.1, 1, (1, runs, 3)) * generator.choice([0.2, 1, 3], 3)
    costs, constants = _linear(columns)
    assert (constants >= 0).all()
    assert float(((columns[0] @ constants[0] - 1) ** 2).sum()) == pytest.approx(float(costs[0]), abs=1e-9)
    found = np.zeros(3)
    for _ in range(3000):
        for place in range(3):
            left = 1 - columns[0] @ found + columns[0][:, place] * found[place]
            found[place] = max(0.0, columns[0][:, place] @ left / (columns[0][:, place] @ columns[0][:, place]))
    assert float(costs[0]) <= float(((columns[0] @ found - 1) ** 2).sum()) + 1e-6


def test_a_loss_that_rises_with_size_leaves_its_term_out():
    runs = [Run(run.parameters, run.tokens, 2 + run.parameters / 1e9 + 400 / run.tokens**0.3) for run in runs_of(LAWS["chinchilla"])]
    fit = fit_law(runs, draws=DRAWS)
    assert fit.law.a == 0
    assert min(fit.law.e, fit.law.b) >= 0


def test_intervals_hold_the_truth_and_the_same_seed_gives_the_same():
    law = LAWS["besiroglu"]
    fit = fit_law(runs_of(law, 0.003, 1), draws=40)
    wide = {
        name: (each.low - 0.2 * (each.high - each.low), each.high + 0.2 * (each.high - each.low)) for name, each in fit.intervals.items()
    }
    truth = {"E": law.e, "A": law.a, "B": law.b, "alpha": law.alpha, "beta": law.beta}
    assert all(low <= truth[name] <= high for name, (low, high) in wide.items())
    assert fit_law(runs_of(law, 0.003, 1), draws=40) == fit


def test_beyond_the_range_there_is_a_warning_and_then_a_refusal():
    fit = fit_law(runs_of(LAWS["chinchilla"], 0.002), draws=DRAWS)
    inside, beyond, far = fit.forecast(10**8, 10**9), fit.forecast(10**9, 10**10), fit.forecast(10**10, 10**12)
    assert (inside.beyond, inside.text) == (1.0, "inside the fitted range")
    assert 1 < beyond.beyond < REACH < far.beyond
    assert beyond.text.startswith("extrapolated: ")
    assert beyond.interval.low < beyond.interval.value < beyond.interval.high
    assert far.interval is None
    assert "too far" in far.text


def test_a_law_that_does_not_go_on_fails_at_the_intermediate_scale_and_is_asked_nothing_beyond():
    law = LAWS["chinchilla"]
    bent = [Run(run.parameters, run.tokens, run.loss * (1.05 if run.work > 5e18 else 1)) for run in runs_of(law, 0.001)]
    fit = fit_law(bent, draws=DRAWS)
    assert fit.check is not None
    assert not fit.check.passed
    forecast = fit.forecast(10**9, 10**10)
    assert forecast.interval is None
    assert "intermediate-scale check failed" in forecast.text
    assert fit.forecast(10**8, 10**9).interval is not None


def test_too_few_runs_are_refused_or_cannot_be_checked():
    runs = runs_of(LAWS["chinchilla"])
    with pytest.raises(ls.InputError, match="5 runs: a law of five constants needs 6"):
        fit_law(runs[:5])
    with pytest.raises(ls.InputError, match="1 different parameters among 7 runs"):
        fit_law([Run(10**8, 10**9 * factor, 3.0) for factor in range(1, 8)])
    with pytest.raises(ls.InputError, match="in nats a token"):
        fit_law([Run(1, 1, 1e-300)])
    with pytest.raises(ls.InputError, match="10,000 at most"):
        fit_law(runs, draws=10**6)
    with pytest.raises(ls.InputError, match="loss of run 1 is 0"):
        fit_law([Run(1, 1, 0.0)])
    few = fit_law([*runs[:3], *runs[5:8]], draws=DRAWS)
    assert few.check is None
    assert "too few runs for an intermediate-scale check" in few.forecast(10**10, 10**10).text


# ── the protocol ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def written(tmp_path: Path, text: str, runs: str | None = None) -> str:
    (tmp_path / "isoflop.csv").write_text((SHIPPED.parent / "isoflop.csv").read_text() if runs is None else runs)
    (tmp_path / "p.toml").write_text(text)
    return str(tmp_path / "p.toml")


WITHOUT_FIT = TEXT[: TEXT.index("[fit]")]


def test_the_shipped_comparison_can_answer():
    protocol = read_protocol(str(SHIPPED))
    assert protocol.sound
    assert [forecast.interval is None for forecast in protocol.forecasts] == [False, False, True]
    assert all(abs(pair.deviation) < 0.002 for pair in protocol.pairs)
    assert protocol.pairs[0].work == 6 * 25_000_000 * 66_700_000_000
    assert protocol.fit is not None
    assert protocol.fit.check is not None
    assert protocol.fit.check.passed


@pytest.mark.parametrize(
    ("old", "new", "unmet"),
    [
        ("fixed_beforehand = true", "fixed_beforehand = false", "quality fixed beforehand"),
        ("tokens = 4_760_000_000", "tokens = 4_960_000_000", "one budget"),
        ("tolerance = 0.02", "tolerance = 0.9", "one budget"),
        ('definition = "non-embedding"\n', "", "N is defined"),
        ('name = "60M"', 'name = "60M"\nschedule = "constant"', "same schedule"),
        ('name = "60M"', 'name = "60M"\nevaluation = "another split"', "same evaluation"),
        ('name = "60M"', 'name = "60M"\nmeasure = "accuracy"', "same measure"),
        ("parameters = 60_000_000\ntokens = 27_800_000_000", "parameters = 25e6\ntokens = 667e8", "three sizes"),
    ],
)
def test_what_a_comparison_lacks_is_named(tmp_path, old, new, unmet):
    text = WITHOUT_FIT.replace(old, new)
    if unmet == "three sizes":
        text = text.replace("parameters = 150_000_000\ntokens = 11_100_000_000", "parameters = 25e6\ntokens = 667e8")
    protocol = read_protocol(written(tmp_path, text))
    assert [each.name for each in protocol.requirements if not each.met] == [unmet]
    result = CliRunner().invoke(main, ["protocol", str(tmp_path / "p.toml"), "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["sound"] is False


def problems_of(path: str) -> list[str]:
    with pytest.raises(ls.InputError) as caught:
        read_protocol(path)
    return list(caught.value.problems)


def test_all_problems_are_told_with_their_lines(tmp_path):
    text = (
        TEXT.replace('work = "1e19"', "work = -5")
        .replace("tolerance = 0.02", "tolerence = 0.02")
        .replace("tokens = 66_700_000_000", "tokens = 0.5")
    )
    told = problems_of(written(tmp_path, text))
    assert len(told) == 4
    assert any("line" in each and "tolerence: unknown key; did you mean 'tolerance'?" in each for each in told)
    assert any("-5 is too few" in each for each in told)
    assert any("0.5 is not exact" in each for each in told)
    assert any("tolerance is missing" in each for each in told)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "[budget] is missing"),
        ("x = [", "is not TOML"),
        ("budget = 3", "is no table"),
        ("run = 3", "is no list of tables"),
        (WITHOUT_FIT + "[[forecast]]\nparameters = 1\ntokens = 1\n", "name the CSV of runs"),
        (WITHOUT_FIT + '[fit]\ndata = "absent.csv"\n', "cannot read the runs"),
        (WITHOUT_FIT.replace('work = "1e19"', 'work = "1e19 B"'), "is not a count"),
        (WITHOUT_FIT.replace('work = "1e19"', 'work = "1.5"'), "is not a whole number"),
        (WITHOUT_FIT.replace('better = "lower"', 'better = "less"'), "is not one of lower, higher"),
        (WITHOUT_FIT.replace("fixed_beforehand = true", 'fixed_beforehand = "yes"'), "is not true or false"),
        (WITHOUT_FIT.replace("tolerance = 0.02", "tolerance = 0"), "give a number above 0"),
    ],
)
def test_files_that_are_no_protocol_are_refused_in_words(tmp_path, text, says):
    assert any(says in problem for problem in problems_of(written(tmp_path, text)))


def test_files_that_cannot_be_read_are_refused_in_words(tmp_path):
    assert "cannot read" in problems_of(str(tmp_path / "absent.toml"))[0]
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8" in problems_of(str(tmp_path / "binary.toml"))[0]
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 20) + b"##")
    assert "is larger than" in problems_of(str(tmp_path / "large.toml"))[0]


@pytest.mark.parametrize(
    ("csv", "says"),
    [
        ("", "no column N, D, loss"),
        ("N,loss\n1,2\n", "no column D"),
        ("N,D,loss\n1,2,x\n1.5,3,4\n-1,3,4\n7B,1,1\n1,1\n", "run 1"),
        ("N,D,loss\n1e8,1e9,nan\n", "above 0"),
        ("N,D,loss\n1,1," + "1" * 200_000 + "\n", "is no CSV file"),
        ("N" * 200_000 + ",D,loss\n", "is no CSV file"),
    ],
)
def test_runs_that_cannot_be_read_are_told_one_by_one(tmp_path, csv, says):
    (tmp_path / "runs.csv").write_text(csv)
    with pytest.raises(ls.InputError, match=says) as caught:
        read_runs(str(tmp_path / "runs.csv"))
    assert len(caught.value.problems) == (5 if "7B" in csv else 1)


def test_too_few_runs_to_fit_are_an_answer_and_no_error(tmp_path):
    path = written(tmp_path, TEXT, "D, N, loss, seed\n1e9, 1e8, 3.1, 0\n2e9, 1e8, 3.0, 1\n")
    protocol = read_protocol(path)
    assert protocol.unfitted == "2 runs: a law of five constants needs 6 at least"
    assert protocol.sound
    result = CliRunner().invoke(main, ["protocol", path])
    assert result.exit_code == 1
    assert "Not fitted: 2 runs" in result.stdout


def test_the_command_prints_what_the_document_holds():
    result = CliRunner().invoke(main, ["protocol", str(SHIPPED)])
    assert result.exit_code == 1  # one forecast is refused
    document = json.loads(CliRunner().invoke(main, ["protocol", str(SHIPPED), "--json"]).stdout)
    assert (document["schema"], document["sound"], document["answered"]) == ("lifecycle-sim/protocol/1", True, False)
    for run in document["runs"]:
        assert f"{run['tokens']:,}" in result.stdout
    assert document["fit"]["scale_check"]["passed"]
    assert "refused: " in result.stdout


# ── repeated data ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_equal_work_is_not_equal_gain():
    told = repetition_experiment()
    assert {each.flops for each in told} == {64 * (2 * 10) * (2 * 16 * 32 + 3 * 32)}  # 64 batches of ten, five products each
    assert {each.accesses for each in told} == {640}
    assert [(each.rate, each.distinct, each.fewest, each.most) for each in told] == [
        (rate, 640 // rate, rate, rate) for rate in (1, 2, 4, 8, 16, 32)
    ]
    gains = [each.gain for each in told]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < 0.85 * gains[0]
    assert [each.seen for each in told] == sorted((each.seen for each in told), reverse=True)  # what is met often is learned by heart
    assert all(each.before == told[0].before for each in told)


def test_the_experiment_stays_small_and_whole():
    for options, says in [
        ({"samples": 900, "held_out": 200}, "1,000 at most"),
        ({"rates": (3,)}, "does not divide 640"),
        ({"rates": (0,)}, "rate is 0"),
        ({"samples": 15}, "whole batches"),
        ({"seeds": ()}, "from one to 100"),
    ]:
        with pytest.raises(ls.InputError, match=says):
            repetition_experiment(**options)
    small: dict[str, Any] = {"samples": 40, "held_out": 10, "seeds": (1,)}
    assert repetition_experiment((4,), **small) == repetition_experiment((4,), **small)
