"""Models fitted to probes: published series, random maxima of lines, and what is refused."""

from __future__ import annotations

import csv
import io
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.events import Evidence
from lifecycle_sim.study.batch import Binding, Probe, Shape, decide, decide_all, fit, read_probes, residuals

GB = 10**9
SIMULATED = Evidence.SIMULATED


def probes(*pairs, **more):
    return [Probe(batch, peak, **more) for batch, peak in pairs]


# -- published series ------------------------------------------------------------------------------------------------


def published(shared: Path, series: str) -> tuple[Probe, ...]:
    text = (shared / "data/reference/measured_peak_vs_microbatch.csv").read_text()
    head, *rows = text.splitlines()
    return read_probes("\n".join([head, *(row for row in rows if ",OOM," not in row)]), "published", series, "allocated")


SHAPES = {
    "litgpt phi-1.5 1xA100 LoRA": (Shape.AFFINE, -40_000_000),
    "litgpt StableLM-3B 1xA100 LoRA": (Shape.AFFINE, 0),
    "litgpt phi-1.5 2xA100 LoRA FSDP": (Shape.CONVEX, -450_000_000),
    "litgpt StableLM-3B 2xA100 LoRA FSDP": (Shape.CONVEX, -130_000_000),
    "litgpt Llama2-7B 2xA100 LoRA FSDP": (Shape.CONVEX, -340_000_000),
    "yolov5s 640 A100-40": (Shape.CONCAVE, 97_000_000),
    "yolov8n 480 RTX4090": (Shape.MIXED, 20_000_000),
}


@pytest.mark.parametrize("series", SHAPES)
def test_a_published_series_is_predicted_at_its_largest_point_within_the_margin(shared: Path, series: str):
    given_probes = published(shared, series)
    model = fit(given_probes)
    last = residuals(model)[-1]
    assert (model.segments[0].shape, last.error) == SHAPES[series]
    assert last.covered
    assert last.upper is not None
    assert last.estimate is not None
    assert last.estimate + (last.upper - last.estimate) >= last.probe.peak  # estimate and margin together
    assert all(residual.above >= 0 for residual in residuals(model))


def test_two_convex_points_do_not_say_yes_and_do_not_say_no_wrongly(shared: Path):
    for series in (name for name in SHAPES if "FSDP" in name):
        *first, last = published(shared, series)
        model = fit(first)
        assert not model.excludes(last.batch, last.peak)
        with pytest.raises(ls.InputError, match="probe a third batch"):
            model.upper(1)


def test_the_adapter_of_the_seven_billion_model_is_predicted_not_to_fit_at_four(shared: Path):
    model = fit(published(shared, "litgpt Llama2-7B 1xA100 LoRA"))
    assert model.segments[0].shape is Shape.UNVERIFIED
    assert model.estimate(4) == 44_610_000_000
    assert model.excludes(4, 40 * GB)
    assert not model.excludes(3, 40 * GB)
    assert model.estimate(0) == 13_530_000_000  # its inference was measured at 13.52 GB
    with pytest.raises(ls.InputError, match="two probes give a line that nothing could contradict"):
        decide(model, 40 * GB)


@pytest.mark.parametrize(
    ("series", "says"),
    [
        ("yolov5m 416 GTX1080", "non-monotone: from batch 4 to 8 they fall from 2,842,000,000 B .* \\(and 2 times more\\)"),
        ("vLLM mllama max_num_seqs, A100-80", "non-monotone: from batch 69 to 70"),
        ("litgpt Llama2-13B 1xA100 LoRA", "all probes are of batch 1: two are needed to say no"),
    ],
)
def test_series_that_decide_nothing_are_refused_with_the_reason(shared: Path, series: str, says: str):
    with pytest.raises(ls.InputError, match=says):
        fit(published(shared, series))


def test_the_line_that_was_drawn_seventeen_times_too_far_is_refused(shared: Path):
    model = fit(published(shared, "yolov8n 480 RTX4090"))
    with pytest.raises(ls.InputError, match="batch 281 is beyond the largest that was probed, 16: measure again"):
        model.upper(281)
    decision = decide(model, 20 * GB)
    assert (decision.batch, decision.binding, decision.reach) == (16, Binding.CALIBRATED_RANGE, 1)


def test_reserved_peaks_that_fall_are_refused_and_allocated_ones_are_not(shared: Path):
    import json

    rows = json.loads((shared / "data/reference/nonmonotone_reserved_model.json").read_text())["rows"]
    allocated = fit([Probe(row["B"], row["peak_allocated"], basis="allocated", evidence=SIMULATED) for row in rows])
    assert all(allocated.upper(row["B"]) >= row["peak_allocated"] for row in rows)
    for few in ((4, 16, 32, 64, 96), (1, 2, 4, 8, 16, 32, 64, 96), (8, 24, 48, 96), (4, 8, 96), (2, 4, 8, 16, 32)):
        model = fit([Probe(row["B"], row["peak_allocated"], basis="allocated", evidence=SIMULATED) for row in rows if row["B"] in few])
        between = [row for row in rows if few[0] <= row["B"] <= few[-1]]
        assert all(model.upper(row["B"]) >= row["peak_allocated"] for row in between)
        assert model.segments[0].margin < 0.2 * model.segments[0].probed(few[-1])
    with pytest.raises(ls.InputError, match="non-monotone"):
        fit([Probe(row["B"], row["peak_reserved"], basis="reserved", evidence=SIMULATED) for row in rows])


def test_steps_of_the_model_that_are_the_first_are_no_probes(shared: Path):
    with pytest.raises(ls.InputError, match="first step, before optimizer state is there"):
        fit([Probe(1, 100, step=1), Probe(2, 200, step=2), Probe(3, 300, step=2)])


# -- shapes and refusals ---------------------------------------------------------------------------------------------


def test_flat_peaks_are_refused():
    with pytest.raises(ls.InputError, match="flat: they do not grow from batch 1 to 4"):
        fit(probes((1, 500), (2, 500), (4, 500)))
    with pytest.raises(ls.InputError, match="flat"):
        fit(probes((1, 10**10), (2, 10**10 + 10**6), (4, 10**10 + 2 * 10**6)))
    assert fit(probes((1, 10**10), (2, 10**10 + 10**6), (4, 10**10 + 3 * 10**6), evidence=SIMULATED)).segments[0].shape is Shape.AFFINE


def test_all_that_is_wrong_with_probes_is_told_at_once():
    with pytest.raises(ls.InputError) as caught:
        fit([Probe(0, 5), Probe(2, -1), Probe(3, 5.5), Probe(4, 1, basis="used"), Probe(5, 9, seq=3, step=1)])  # type: ignore[arg-type]
    assert len(caught.value.problems) == 7
    with pytest.raises(ls.InputError, match="there are no probes"):
        fit([])


def test_kinds_are_not_mixed():
    with pytest.raises(ls.InputError, match="count different bytes \\(allocated, requested\\)"):
        fit([Probe(1, 1), Probe(2, 2, basis="allocated")])
    with pytest.raises(ls.InputError, match="not of one kind"):
        fit([Probe(1, 1), Probe(2, 2, evidence=SIMULATED)])


def test_equal_batches_keep_the_higher_peak_and_both_probes():
    model = fit(probes((1, 10), (2, 20), (2, 26), (3, 36)))
    assert model.upper(2) >= 26
    assert len(model.probes) == 4


def test_lengths_that_contradict_each_other_are_refused():
    with pytest.raises(ls.InputError, match="batch 2 needs less with 256 tokens"):
        fit([Probe(b, peak, seq=s) for b, s, peak in ((1, 128, 10), (2, 128, 50), (3, 128, 90), (1, 256, 20), (2, 256, 40), (3, 256, 60))])


def test_a_concave_bound_is_the_neighbours_drawn_out():
    model = fit(probes((1, 100), (2, 180), (4, 300), (8, 460)))
    assert model.segments[0].shape is Shape.CONCAVE
    assert model.upper(3) == 260  # the chord from 1 to 2 gives 260, that from 4 to 8 back 260, the next probe 300
    assert model.upper(6) == 420  # the chord from 2 to 4 drawn out
    assert model.estimate(6) == 380


def test_a_mixed_bound_is_the_next_probe():
    model = fit(probes((1, 285), (2, 445), (4, 470), (8, 719), (16, 1197)))
    assert model.segments[0].shape is Shape.MIXED
    assert [model.upper(batch) for batch in (1, 2, 3, 5, 8, 9)] == [285, 445, 470, 719, 719, 1197]


def test_rounded_bytes_of_any_shape_may_jump_by_a_sample_and_a_bit():
    pairs = ((1, 285), (2, 445), (4, 470), (8, 719), (16, 1197))
    model = fit(probes(*((batch, peak * GB) for batch, peak in pairs), basis="reserved"))
    jump = 2 << 20
    assert [model.upper(batch) - jump for batch in (1, 3, 8)] == [(285 + 160) * GB, 470 * GB + 25 * GB // 2, 719 * GB + 249 * GB // 4]
    assert decide(model, 719 * GB).batch == 8  # seen


def test_only_tokens_matter_where_all_lengths_lie_on_one_line():
    given_probes = [Probe(b, 1000 + 7 * b * s, seq=s, evidence=SIMULATED) for s in (64, 128) for b in (1, 2, 4)]
    model = fit(given_probes)
    assert model.by == "tokens"
    assert model.upper(5, 100) == 1000 + 3500
    with pytest.raises(ls.InputError, match="beyond the largest"):
        model.upper(6, 100)
    scores = fit([Probe(b, 1000 + 7 * b * s * s, seq=s, evidence=SIMULATED) for s in (64, 128) for b in (1, 2, 4)])
    assert scores.by == "sequence"
    assert scores.upper(2, 100) == scores.upper(2, 128) == 1000 + 14 * 128**2
    with pytest.raises(ls.InputError, match="longer than the longest that was probed, 128"):
        scores.upper(2, 129)


def test_widening_is_explicit_and_in_proportion():
    model = fit(probes((1, 4_860), (2, 5_050), (4, 5_880)))
    with pytest.raises(ls.InputError, match="measure again"):
        model.upper(5)
    assert model.upper(8, widen=2) == 2 * 5_880
    allocated = fit(probes((1, 4 * GB), (2, 5 * GB), (3, 6 * GB), basis="allocated"))
    assert allocated.upper(2) == 6 * GB + (2 << 20)  # that of the next sample, and 2 MiB
    assert (decide(allocated, 5 * GB).batch, decide(allocated, 5 * GB - 1).batch) == (2, 1)  # measured, so it counts
    with pytest.raises(ls.InputError, match="beyond 2 times the largest"):
        model.upper(9, widen=2)
    steep = fit(probes((10, 100), (20, 900), (30, 1700)))
    with pytest.raises(ls.InputError, match="grow faster than the batch"):
        steep.upper(31, widen=2)


# -- decisions -------------------------------------------------------------------------------------------------------


def test_a_decision_can_be_checked_with_a_pencil():
    decision = decide(fit(probes((1, 130), (4, 220), (8, 340))), 290, limit=10, headroom=40)
    assert (decision.batch, decision.at, decision.above, decision.left, decision.deficit) == (5, 250, 280, 0, 30)
    assert (decision.binding, decision.reach, decision.margin, decision.lost) == (Binding.MEMORY, Fraction(5, 8), 0, 0)


def test_none_zero_and_some_are_kept_apart():
    model = fit(probes((1, 130), (4, 220), (8, 340)))
    assert [decide(model, budget).batch for budget in (99, 100, 129, 130, 10**9)] == [-1, 0, 0, 1, 8]
    bindings = [decide(model, budget, limit=6).binding for budget in (99, 100, 200, 10**9)]
    assert bindings == [Binding.FIXED, Binding.MEMORY, Binding.MEMORY, Binding.LIMIT]
    assert decide(fit(probes((4, 220), (6, 280), (8, 340))), 200).binding is Binding.SMALLEST_PROBE


def test_the_batches_that_the_margin_costs_are_told():
    decision = decide(fit(probes((1, 285), (2, 445), (4, 470), (8, 719), (16, 1197))), 800)
    assert (decision.batch, decision.lost, decision.shape) == (8, 1, Shape.MIXED)


def test_the_phase_that_binds_is_named():
    def probe(batch: int) -> Probe:
        peaks = {"forward": 50 + 10 * batch, "backward": 40 + 20 * batch, "optimizer": 120}
        return Probe(batch, max(peaks.values()), phases=peaks, evidence=SIMULATED)

    model = fit([probe(batch) for batch in (1, 2, 8)])
    assert {name for name, _ in model.segments[0].lines} == {"forward", "backward", "optimizer"}
    assert decide(model, 160).phase == "backward"
    assert decide(model, 119).phase == "optimizer"
    assert [model.upper(batch) for batch in (2, 4, 5, 8)] == [120, 120, 140, 200]  # the kink is between two probes, and exact


def test_a_decision_for_each_length():
    model = fit([Probe(b, 1000 + 7 * b * s * s, seq=s, evidence=SIMULATED) for s in (64, 128) for b in (1, 2, 8)])
    found = decide_all(model, 1000 + 7 * 4 * 128**2)
    assert [(each.seq, each.batch) for each in found] == [(64, 8), (128, 4)]


# -- properties ------------------------------------------------------------------------------------------------------

lines = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)), min_size=1, max_size=4)
batches = st.lists(st.integers(1, 60), min_size=3, max_size=7, unique=True)


@given(lines, batches, st.integers(0, 10**7))
def test_a_maximum_of_lines_is_never_above_the_bound(phases, counts, budget):
    def truth(batch: int) -> int:
        return max(fixed + per * batch for fixed, per in phases)

    given_probes = [Probe(batch, truth(batch), evidence=SIMULATED) for batch in counts]
    assume(len({probe.peak for probe in given_probes}) > 1)
    model = fit(given_probes)
    last = max(counts)
    assert all(model.upper(batch) >= truth(batch) for batch in range(1, last + 1))
    assert all(model.estimate(batch) <= truth(batch) + 1 for batch in range(last, 3 * last))  # so it never says no wrongly
    assert all(model.upper(b) - model.estimate(b) <= model.segments[0].margin for b in range(min(counts), last + 1))
    decision = decide(model, budget)
    if decision.batch > 0:
        assert truth(decision.batch) <= budget
        assert decision.batch + decision.lost >= max((b for b in range(1, last + 1) if model.estimate(b) <= budget), default=0)
    if not any(line.fixed < 0 for _, line in model.segments[0].lines):
        assert all(model.upper(batch, widen=3) >= truth(batch) for batch in range(last, 3 * last))


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10**6)), min_size=2, max_size=8))
def test_a_model_is_never_below_a_probe(pairs):
    given_probes = probes(*pairs)
    try:
        model = fit(given_probes)
    except ls.InputError:
        return
    segment = model.segments[0]
    assert all(segment.upper(batch) >= peak for batch, peak in pairs)
    assert all(max(line.at(batch) for _, line in segment.lines) >= peak for batch, peak in pairs)
    assert all(residual.above >= 0 for residual in residuals(model))


@given(lines, batches)
def test_named_phases_bound_as_well_as_their_maximum(phases, counts):
    def probe(batch: int) -> Probe:
        peaks = {str(number): fixed + per * batch for number, (fixed, per) in enumerate(phases)}
        return Probe(batch, max(peaks.values()), phases=peaks, evidence=SIMULATED)

    given_probes = [probe(batch) for batch in counts]
    assume(len({each.peak for each in given_probes}) > 1)
    model = fit(given_probes)
    for batch in range(min(counts), max(counts) + 1):
        assert model.upper(batch) == model.estimate(batch) == probe(batch).peak


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=8), st.data())
def test_a_concave_series_is_never_above_the_bound(steps, data):
    slopes = sorted(steps, reverse=True)
    truth = [5000]
    for slope in slopes:
        truth.append(truth[-1] + slope)
    counts = data.draw(st.lists(st.integers(1, len(slopes)), min_size=3, max_size=5, unique=True))
    try:
        model = fit([Probe(batch, truth[batch], evidence=SIMULATED) for batch in counts])
    except ls.InputError:
        return
    if model.segments[0].shape is Shape.CONCAVE:
        assert all(model.upper(batch) >= truth[batch] for batch in range(min(counts), max(counts) + 1))


# -- files -----------------------------------------------------------------------------------------------------------


def test_a_file_of_probes():
    text = "micro_batch,Sequence,peak,basis,step,evidence,mood\n1,128,4.5 GB,reserved,3,simulated,good\n2,128,9 GiB,reserved,,simulated,\n"
    assert read_probes(text) == (
        Probe(1, 4_500_000_000, 128, "reserved", SIMULATED, 3, source="probes line 2"),
        Probe(2, 9 * 2**30, 128, "reserved", SIMULATED, source="probes line 3"),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no column 'batch'"),
        ("batch,peka\n1,2 GB\n", "has no column 'peak', did you mean it by 'peka'"),
        ("batch,peak\n", "holds no probe"),
        ("batch,peak\n1,4.5\n", "line 2: size '4.5' has no unit"),
        ("batch,peak\n1,OOM\n", "line 2: 'OOM' is not a size.*leave out rows that ran out of memory"),
        ("batch,peak\nx,4 GB\n", "line 2: batch 'x' is no whole number"),
        ("batch,peak\n,4 GB\n", "line 2: has no batch"),
        ("batch,peak,evidence\n1,4 GB,guessed\n", "evidence 'guessed' is neither"),
        ("batch,peak,series\n1,4 GB,a\n2,5 GB,b\n", "holds 2 series: choose one of a, b"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(text, says):
    with pytest.raises(ls.InputError, match=says):
        read_probes(text, basis="requested")


def test_a_file_must_say_what_its_bytes_count():
    with pytest.raises(ls.InputError, match="line 2: does not say what its bytes count: add the column basis"):
        read_probes("batch,peak\n1,4 GB\n")


def test_a_series_that_is_not_there():
    with pytest.raises(ls.InputError, match="no probe of the series 'c': its series are a, b"):
        read_probes("batch,peak,series\n1,4 GB,a\n2,5 GB,b\n", series="c", basis="requested")


def test_every_published_row_is_read(shared: Path):
    text = (shared / "data/reference/measured_peak_vs_microbatch.csv").read_text()
    names = dict.fromkeys(row["series"] for row in csv.DictReader(io.StringIO(text)))
    assert len(names) == 11
    assert sum(len(published(shared, name)) for name in names) == len(text.splitlines()) - 1 - 3
