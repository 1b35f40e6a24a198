"""Operations, utilisation, time, allocations and candidates: against published tables and by plain arithmetic."""

from __future__ import annotations

import csv
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.study.budget import (
    LAWS,
    PEAKS,
    Experts,
    Law,
    allocate,
    attention_flops,
    candidates,
    equal_loss,
    experts_of,
    hfu,
    inference_flops,
    mfu,
    recompute_factor,
    sequence_work,
    state_budget,
    step_time,
    steps_for,
    theoretical_time,
    token_count,
    training_flops,
    training_time,
)
from lifecycle_sim.study.budget.activations import selective_work
from lifecycle_sim.study.budget.planner import EVIDENCE


def rows_of(shared: Path, name: str) -> list[dict[str, str]]:
    with (shared / "data" / "reference" / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


# ── work ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_six_n_d_is_exact():
    assert training_flops(10**9, 2 * 10**10) == 6 * 10**9 * 2 * 10**10 == 120_000_000_000_000_000_000
    assert training_flops(174_600_000_000, 300 * 10**9) == 314_280_000_000_000_000_000_000  # GPT-3, published as 3.14e23
    assert inference_flops(10**9, 10**6) == 2 * 10**15
    with pytest.raises(ls.InputError, match="tokens is -1"):
        training_flops(1, -1)
    with pytest.raises(ls.InputError, match="write 1000000000"):
        training_flops(1e9, 1)  # type: ignore[arg-type]


def test_appendix_f_comes_out_without_embeddings_and_logits_only(shared):
    for row in rows_of(shared, "chinchilla_appF_ratios"):
        sizes = {key: int(row[key]) for key in ("num_layers", "d_model", "ffw", "heads", "seq", "vocab", "N")}
        size = sizes["d_model"] // sizes["heads"]
        work = sequence_work(sizes["num_layers"], sizes["d_model"], sizes["ffw"], sizes["heads"], size, sizes["seq"], sizes["vocab"])
        assert work.total() == int(row["flops_per_seq_no_emb"])
        assert work.total(ends=True) == int(row["flops_per_seq_with_emb_logits"])
        six = training_flops(sizes["N"], sizes["seq"])
        assert six == int(row["six_N_s"])
        assert round(work.total() / six, 2) == float(row["published"])
        assert round(work.total(ends=True) / six, 2) > float(row["published"])


def test_the_work_of_recomputation():
    assert recompute_factor("none") == 1
    assert recompute_factor("full") == Fraction(4, 3)
    assert float(recompute_factor("selective", 2048, 12_288) - 1) * 3 == pytest.approx(0.027, abs=5e-4)
    with pytest.raises(ls.InputError, match="give sequence and width"):
        recompute_factor("selective")
    assert attention_flops(2, 8, 16) == 12 * 2 * 8 * 16 == 2 * attention_flops(2, 8, 16, causal=True)


def test_of_a_mixture_of_experts_what_a_token_meets_is_counted():
    experts = experts_of(shared=10**9, router=10**6, expert=10**8, experts=64, active=2)
    assert experts == Experts(10**9, 10**6, 10**8, 64, 2)
    assert (experts.total, experts.activated) == (7_401_000_000, 1_201_000_000)
    assert training_flops(experts.activated, 10**9) < training_flops(experts.total, 10**9) // 6
    with pytest.raises(
        ls.InputError, match="total parameters alone do not tell what a token meets: give shared, router, expert, experts, active"
    ):
        experts_of(total=7_401_000_000)
    with pytest.raises(ls.InputError, match="give router"):
        experts_of(shared=1, expert=1, experts=2, active=1)
    with pytest.raises(ls.InputError, match="add up to 7,401,000,000"):
        experts_of(shared=10**9, router=10**6, expert=10**8, experts=64, active=2, total=10**10)
    with pytest.raises(ls.InputError, match="3 active experts of 2"):
        Experts(1, 1, 1, 2, 3)


# ── utilisation ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_row_of_the_mosaic_table_within_a_hundredth_of_a_point(shared):
    table = rows_of(shared, "mfu_mosaicml_mpt")
    for row in table:
        parameters, layers, width, sequence = (int(row[key]) for key in ("n_params", "n_layers", "d_model", "seq"))
        peak, throughput, gpus = PEAKS[row["gpu"].split("_")[0]], int(row["tokens_per_s"]), int(row["gpus"])
        share = mfu(6 * parameters + attention_flops(layers, width, sequence), throughput, gpus, peak)
        factor = recompute_factor("full" if row["act_ckpt"] == "1" else "none")
        assert float(share) * 100 == pytest.approx(float(row["MFU"]), abs=0.01)
        assert float(hfu(share, factor)) * 100 == pytest.approx(float(row["HFU"]), abs=0.011)
        assert float(mfu(6 * parameters, throughput, gpus, peak)) * 100 == pytest.approx(float(row["MFU_6N_only"]), abs=0.005)
    assert len(table) == 41


def test_published_utilisation_that_can_be_recomputed(shared):
    table = {row["model"]: row for row in rows_of(shared, "mfu_published")}
    shapes = {"PaLM 540B": (540_350_000_000, 118, 48 * 256, "tpu-v4"), "MT-NLG 530B": (529_600_000_000, 105, 20_480, "a100")}
    for name, (parameters, layers, width, device) in shapes.items():
        row = table[name]
        gpus, throughput = int(re.match(r"\d+", row["hw"])[0]), int(row["tokens_per_s"])  # type: ignore[index]
        full = float(mfu(6 * parameters + attention_flops(layers, width, 2048), throughput, gpus, PEAKS[device])) * 100
        plain = float(mfu(6 * parameters, throughput, gpus, PEAKS[device])) * 100
        assert full == pytest.approx(float(row["recomputed"]), abs=0.03)
        assert plain == pytest.approx(float(row["recomputed_6N"]), abs=0.03)
        assert full == pytest.approx(float(row["MFU"]), abs=0.1)
        assert plain == pytest.approx(float(row["MFU_no_attn"]), abs=0.1)
    gpt = ls.budget.shapes.gpt2(12, 768)
    tokens = Fraction(100 * 1024 * 1000, 755)
    share = mfu(6 * gpt.count("with-head") + attention_flops(12, 768, 1024), tokens, 1, PEAKS["a100"])
    (row,) = [row for name, row in table.items() if name.startswith("nanoGPT")]
    assert float(share) * 100 == pytest.approx(float(row["MFU"]), abs=0.2)


def test_published_hardware_utilisation_counts_scores_three_times(shared):
    table = {row["model"]: row for row in rows_of(shared, "mfu_published") if row["HFU"]}
    compared = 0
    for row in rows_of(shared, "korthikanti_activation"):
        published = table[f"Megatron {row['model'].split()[-1]}"]
        sequence, width = int(row["s"]), int(row["h"])
        again = selective_work(sequence, width)
        low, high = (float((Fraction(published["MFU"]) + Fraction(shift, 100)) * (1 + again)) for shift in (-5, 5))
        assert low - 0.05 <= float(published["HFU"]) <= high + 0.05
        assert recompute_factor("selective", sequence, width) == 1 + again / 3
        compared += 1
    assert compared == 4
    assert float(Fraction("51.4") * recompute_factor("selective", 2048, 12_288)) == pytest.approx(51.9, abs=0.05)


def test_more_than_the_peak_is_no_utilisation():
    with pytest.raises(ls.InputError, match="no device does more than its peak"):
        mfu(6 * 10**9, 10**6, 1, PEAKS["a100"])
    with pytest.raises(ls.InputError, match="tokens a second is 0"):
        mfu(6, 0, 1, 1)


# ── tokens and time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_tokens_processed_effective_and_distinct_are_three_figures():
    counted = token_count(1000, batch=4, sequence=1024, effective=2048, distinct=500_000)
    assert (counted.positions, counted.processed, counted.distinct, counted.samples) == (4_096_000, 2_048_000, 500_000, 4000)
    assert counted.epochs == Fraction(2_048_000, 500_000)
    assert counted.padding == Fraction(1, 2)
    assert token_count(10, batch=1, sequence=8, distinct=10**9).distinct == 80
    assert token_count(1, batch=1, sequence=1).epochs is None
    assert steps_for(2_048_001, 2048) == 1001
    with pytest.raises(ls.InputError, match="no room for them"):
        token_count(1, batch=1, sequence=8, effective=9)


def test_steps_are_measured_after_warm_up_and_split_into_what_is_given():
    told = step_time([900, 100, 120, 110], 1, compute=[800, 70, 70, 70], data=[50, 20, 30, 10])
    assert (told.step, told.fastest, told.slowest, told.measured) == (110, 100, 120, 3)
    assert told.parts == {"compute": 70, "data": 20}
    assert told.rest == 20
    assert told.throughput(2048) == Fraction(2048 * 10**9, 110)
    assert step_time([2, 1], 1).rest is None
    for arguments, says in [
        (([1, 2], 0), "leave 1 step out at least"),
        (([1, 2], 2), "none is left"),
        (([1, 0], 1), "step 2 is 0"),
    ]:
        with pytest.raises(ls.InputError, match=says):
            step_time(*arguments)
    with pytest.raises(ls.InputError, match="1 times for 2 steps"):
        step_time([1, 2], 1, data=[1])
    with pytest.raises(ls.InputError, match="unknown part"):
        step_time([1, 2], 1, idle=[1, 1])


@given(st.integers(0, 10**16), st.integers(1, 10**9), st.integers(1, 10**6))
def test_time_comes_from_throughput_and_is_rounded_up(tokens, throughput, seconds):
    told = training_time(tokens, throughput)
    assert told * throughput >= tokens * 10**9 > (told - 1) * throughput
    assert training_time(throughput * seconds, throughput, saving=7, saves=3) == seconds * 10**9 + 21


def test_the_peak_gives_a_bound_only():
    assert theoretical_time(6 * 5 * 10**7 * 2 * 10**8, PEAKS["a100"]) == 192_307_692_308
    with pytest.raises(ls.InputError, match="tokens a second is 0"):
        training_time(1, 0)


# ── allocation and candidates ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_tables_of_chinchilla_and_their_misprint(shared):
    misprints = []
    for row in rows_of(shared, "chinchilla_tables"):
        parameters, tokens = int(float(row["N"])), int(float(row["tokens"]))
        ratio = float(row["flops_printed"]) / training_flops(parameters, tokens)
        assert ratio == pytest.approx(float(row["ratio_printed_to_6ND"]), abs=5e-4)
        if not 0.95 < ratio < 1.05:
            misprints.append((row["approach"], row["params"], round(ratio, 2)))
            continue
        if row["approach"] in "12":
            found = allocate(int(float(row["flops_printed"])), row["approach"])
            assert found.parameters == pytest.approx(parameters, rel=0.08)
            assert found.parameters * found.tokens * 6 == pytest.approx(found.work, rel=1e-6)
    assert misprints == [("3", "175B", 0.1)]  # printed 1.26e24; 6 · 175e9 · 12e12 is 1.26e25


def test_approach_three_is_the_minimum_of_its_law(shared):
    constants = {row["item"]: row for row in rows_of(shared, "scaling_constants")}
    for name, item in (("chinchilla", "Chinchilla approach 3 (paper)"), ("besiroglu", "Besiroglu 2024 refit")):
        law, row = LAWS[name], constants[item]
        assert (law.e, law.a, law.b, law.alpha, law.beta) == tuple(float(row[key]) for key in ("E", "A", "B", "alpha", "beta"))
        for work in (10**19, 10**20, 10**21):
            parameters, tokens = law.best(work)
            least = law.loss(parameters, tokens)
            assert parameters * tokens * 6 == pytest.approx(work)
            assert all(law.loss(parameters * factor, tokens / factor) > least for factor in (0.5, 0.9, 1.1, 2))
    told = allocate(221 * 10**17, "chinchilla")
    assert (round(told.parameters / 1e6), round(told.tokens / 1e9, 2)) == (326, 11.29)  # and not the 400M and 9.2B of table A3
    # half-decade steps of N give 10^8.5 = 316M and 11.65B, which is where a coarse grid stops
    assert LAWS["chinchilla"].loss(10**8.5, 2.21e19 / 6 / 10**8.5) > told.loss
    assert not told.extrapolated
    assert allocate(10**25).extrapolated
    assert allocate(10**25, "2").loss is None
    assert allocate(10**20, Law("mine", 1, 1, 1, 0.5, 0.5)).extrapolated
    with pytest.raises(ls.InputError, match="known are 1, 2, chinchilla, besiroglu"):
        allocate(10**20, "4")


def test_candidates_keep_their_order_and_name_what_is_missing():
    sizes = [10**9, 10**8, 4 * 10**8]
    states = [state_budget(size) for size in sizes]
    made = candidates(10**19, sizes, distinct=10**9, law=LAWS["besiroglu"], states=states, given=["throughput"])
    assert [each.parameters for each in made] == sizes
    assert [each.states for each in made] == [16 * size for size in sizes]
    assert all(each.training <= 10**19 < each.training + 6 * each.parameters for each in made)
    assert all(each.missing == ("loss", "memory") for each in made)
    assert made[1].epochs == Fraction(made[1].tokens, 10**9)
    assert set(EVIDENCE) == set(candidates(10**19, sizes)[0].missing)
    with pytest.raises(ls.InputError, match="not enough for a single token"):
        candidates(5, [1])
    with pytest.raises(ls.InputError, match="2 budgets of states"):
        candidates(100, [1], states=states[:2])


def test_with_much_to_serve_a_smaller_model_trained_for_longer_needs_less_work():
    law = LAWS["besiroglu"]
    sizes = [10**9, 2 * 10**9, 4 * 10**9]
    loss = law.loss(2 * 10**9, 40 * 10**9)
    alone, served = equal_loss(loss, sizes, law), equal_loss(loss, sizes, law, served=10**12)
    cheapest = min(alone, key=lambda each: each.total)
    assert cheapest.parameters == 2 * 10**9
    assert min(served, key=lambda each: each.total).parameters == 10**9
    smallest = served[0]
    assert smallest.tokens > served[1].tokens > served[2].tokens
    assert smallest.inference == 2 * 10**9 * 10**12 == smallest.total - smallest.training
    assert law.loss(smallest.parameters, smallest.tokens) == pytest.approx(loss)
    with pytest.raises(ls.InputError, match="none of these sizes reaches it"):
        equal_loss(1.0, sizes, law)
