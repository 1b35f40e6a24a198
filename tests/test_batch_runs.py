"""Runs that are probes: scenarios and captures, spread over processes in several ways, and what grows in them."""

from __future__ import annotations

import importlib.util
import os
import warnings
from typing import Any

import pytest

import lifecycle_sim as ls
from lifecycle_sim.study.batch.frontier import frontier
from lifecycle_sim.study.batch.growth import growth
from lifecycle_sim.study.batch.helps import what_could_help
from lifecycle_sim.study.batch.measured import StepPeaks, probe_of_trace, step_peaks
from lifecycle_sim.study.batch.runs import CapturePlan, ScenarioPlan, capture_runs, scenario_runs
from lifecycle_sim.study.batch.verified import find_largest
from tests.cli_support import small_trace
from tests.conftest import ROOT

MLP = str(ROOT / "scenarios" / "mlp_step.toml")
PLACES = [(seq, batch) for seq in (64, 256) for batch in (1, 4, 16)]


# -- scenarios and executors -----------------------------------------------------------------------------------------


def test_a_scenario_is_run_for_each_place():
    found = scenario_runs(ScenarioPlan(MLP))(PLACES)
    for peaks, (seq, batch) in zip(found, PLACES, strict=True):
        replayed = ls.replay_device(ls.run_scenario(MLP, {"batch": batch, "seq": seq}))
        assert (peaks.seq, peaks.batch, peaks.peak("payload")) == (seq, batch, replayed.peak.size)
        assert max(peaks.phases.values()) == sum(peaks.held.values()) == peaks.peak("payload")
        assert peaks.states["optimizer_state"] == 2 * peaks.states["parameter"]
    with pytest.raises(ls.InputError, match="reserved bytes are not told here: choose payload"):
        found[0].peak("reserved")


def test_a_sweep_over_spawned_processes_is_the_same():
    assert list(scenario_runs(ScenarioPlan(MLP), workers=2)(PLACES)) == list(scenario_runs(ScenarioPlan(MLP))(PLACES))


def test_a_sweep_on_dask_is_the_same():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed: this test runs a sweep on it")
        with (
            distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
            distributed.Client(cluster) as client,
        ):
            found = find_largest(scenario_runs(ScenarioPlan(MLP), executor=client.get_executor()), 2**30, [64, 256], basis="payload")
    assert found == find_largest(scenario_runs(ScenarioPlan(MLP)), 2**30, [64, 256], basis="payload")
    assert [each.value for each in found] == [2516, 629]


def test_a_frontier_holds_both_sides_of_each_length():
    edge = frontier(find_largest(scenario_runs(ScenarioPlan(MLP)), 2**30, [64, 128, 256], basis="payload"))
    assert (edge.lengths, edge.largest) == ((64, 128, 256), (2516, 1258, 629))
    for row, (length, largest) in enumerate(zip(edge.lengths, edge.largest, strict=True)):
        for batch in (largest, largest + 1):
            column = edge.batches.index(batch)
            truth = ls.replay_device(ls.run_scenario(MLP, {"batch": batch, "seq": length})).peak.size
            assert (edge.peaks[row][column], edge.measured[row][column]) == (truth, True)
            assert (truth <= edge.room) == (batch == largest)
    assert len(frontier(find_largest(scenario_runs(ScenarioPlan(MLP)), 2**30, [64, 256], basis="payload"), 6).batches) == 6
    with pytest.raises(ls.InputError, match="needs the largest batches at two lengths"):
        frontier(find_largest(scenario_runs(ScenarioPlan(MLP)), 2**30, [64], basis="payload"))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"budget": -1}, "budget is -1"),
        ({"limit": 0}, "limit is 0"),
        ({"others": [1, 1]}, "1 is given twice"),
        ({"others": []}, "nothing to search at"),
        ({"others": [None], "axis": "seq"}, "lengths are searched at batches"),
    ],
)
def test_bad_arguments_are_told(more, says):
    with pytest.raises(ls.InputError, match=says):
        find_largest(scenario_runs(ScenarioPlan(MLP)), **{"budget": 1, "basis": "payload", **more})


def test_reserved_bytes_are_at_their_most_at_another_time_than_requested_ones():
    """Three blocks of 15 MiB, then one of 40 in their place: 45 are asked for at most, and 3 · 16 + 40 held, when that one comes."""
    from dataclasses import replace

    from lifecycle_sim.events import Span

    events = [f'{{ at = {at}, alloc = "a{at}", size = "15 MiB", category = "activation" }},' for at in range(3)]
    events += [f'{{ at = {at + 3}, free = "a{at}" }},' for at in range(3)]
    events += ['{ at = 6, alloc = "g", size = "40 MiB", category = "gradient" },', '{ at = 7, free = "g" },']
    trace = ls.run_scenario("event = [\n" + "\n".join(events) + "\n]\n")
    (device,) = trace.devices
    spans = (Span("step", "step 1", 0, 8), Span("phase", "forward", 0, 6), Span("phase", "backward", 6, 8))
    trace = replace(trace, devices=(replace(device, spans=spans),))
    prediction = ls.predict(trace)
    assert (prediction.reached("requested"), prediction.reached("reserved")) == (2, 6)
    peaks = step_peaks(ls.replay_device(trace), 1, prediction=prediction)
    assert (peaks.peak("payload"), peaks.phase, peaks.held) == (45 << 20, "forward", {"activation": 45 << 20})
    assert (peaks.peak("reserved"), peaks.phase_of("reserved"), peaks.category_of("reserved")) == (88 << 20, "backward", "gradient")
    assert peaks.probe("reserved").phase == "backward"
    (found,) = find_largest(lambda places: [peaks for _ in places], 90 << 20, limit=1)
    assert (found.phase, found.category, found.requested_phase, found.requested_category) == (
        "backward",
        "gradient",
        "forward",
        "activation",
    )


# -- recordings ------------------------------------------------------------------------------------------------------


def test_a_recording_is_a_probe_in_the_basis_that_it_tells():
    trace = ls.read_trace(ROOT / "scenarios" / "torch214_stub_train.pickle")
    found = {basis: probe_of_trace(trace, 8, 128, basis).peak for basis in ("requested", "allocated", "reserved")}
    assert found == {"requested": 768_772_392, "allocated": 776_410_624, "reserved": 908_066_816}
    with pytest.raises(ls.InputError, match="tells requested bytes and not payload ones"):
        probe_of_trace(trace, 8, basis="payload")
    with pytest.raises(ls.InputError, match="tells requested bytes and not reserved ones"):
        probe_of_trace(small_trace(), 8, basis="reserved", source="a.jsonl")


def test_a_recording_of_the_first_step_alone_is_no_probe():
    from dataclasses import replace

    from lifecycle_sim.events import Span

    trace = small_trace()
    (device,) = trace.devices
    stepped = replace(trace, devices=(replace(device, spans=(Span("step", "step 1", 0, len(device)),)),))
    with pytest.raises(ls.InputError, match="holds the first step alone, before optimizer state is there"):
        probe_of_trace(stepped, 4)


def test_a_capture_without_warm_up_is_no_probe():
    with pytest.raises(ls.InputError, match="the first step is no probe"):
        CapturePlan("x.py", warmup=0)


def test_what_helps_is_in_bytes_and_says_whether_it_is_enough():
    peaks = StepPeaks(1, None, {"requested": 100}, {}, {"activation": 7}, {"parameter": 10, "gradient": 10, "optimizer_state": 21}, 41, 10)
    found = {(each.means, each.saves): each.enough for each in what_could_help(peaks, 20)}
    assert found == {
        ("freeze", 31): True,
        ("optimizer", 11): False,
        ("optimizer", 21): True,
        ("shard", 41 - 21): True,
        ("shard", 41 - 11): True,
        ("shard", 41 - 6): True,
        ("recompute", 7): False,
    }
    assert what_could_help(StepPeaks(1, None, {"requested": 1}), 1) == ()


# -- captures --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def decoder() -> Any:
    """The shipped decoder, made small."""
    pytest.importorskip("torch", reason="torch is not installed: captures need it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch._dynamo")  # once here, and not in every capture
    spec = importlib.util.spec_from_file_location("attention", ROOT / "scenarios" / "capture" / "attention.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.VOCABULARY, module.WIDTH, module.HEADS, module.LAYERS = 64, 32, 2, 1
    return module


def captured(program: Any) -> ls.Capture:
    return ls.capture(
        program["build_model"],
        program["make_batch"],
        program["make_optimizer"],
        device="a10g",
        dtype=program["dtype"],
        warmup=1,
        workspace=0,
    )


def test_scores_quadruple_and_fused_attention_has_none(decoder):
    eager = growth(*(captured(decoder.eager(2, seq)) for seq in (64, 128)))
    scores = 2 * 2 * 128 * 128 * 2  # batch, heads, queries, keys, bytes of bfloat16
    assert eager.quadratic.pop("aten.triu.default") == 128 * 128
    assert eager.quadratic["aten._softmax.default"] == scores
    assert set(eager.quadratic.values()) == {scores}  # the peak lies where the softmax goes back
    assert sum(sum(owner.terms.values()) for owner in eager.owners) == sum(owner.after for owner in eager.owners) == eager.after
    assert eager.unmatched == (0, 0)
    attention = next(owner for owner in eager.owners if "blocks.0.attention" in owner.owner)
    assert attention.terms["quadratic"] >= scores
    assert attention.factor is not None
    assert attention.factor > 3
    fused = growth(*(captured(decoder.fused(2, seq)) for seq in (64, 128)))
    assert fused.quadratic == {}
    assert fused.after < eager.after


def test_the_largest_batch_of_captures_is_that_of_brute_force(decoder):
    made: list[int] = []

    def measure(places):
        made.extend(batch for _, batch in places)
        found = []
        for seq, batch in places:
            capture = captured(decoder.eager(batch, seq))
            found.append(step_peaks(ls.replay_device(capture.trace), batch, seq, prediction=ls.predict(capture.trace)))
        return found

    budget = ls.replay_device(captured(decoder.eager(3, 32)).trace).peak.size
    (found,) = find_largest(measure, budget, [32], basis="requested", limit=512)
    assert (found.value, found.left) == (3, 0)
    assert set(made) == {1, 2, 3, 4}
    assert found.phase in ("forward", "backward")
    assert found.growing == "activation"
    assert found.fitted is not None
    assert found.fitted.upper(3) >= budget


@pytest.mark.skipif(not hasattr(os, "fork"), reason="captures of functions are forked")
def test_the_longest_sequence_of_captures_is_run_on_both_sides(decoder):
    made: list[int] = []

    def measure(places):
        made.extend(seq for seq, _ in places)
        return [step_peaks(ls.replay_device(captured(decoder.eager(batch, seq)).trace), batch, seq) for seq, batch in places]

    (budget,) = (run.peak("requested") for run in measure([(3, 2)]))
    made.clear()
    (found,) = find_largest(measure, budget, [2], axis="seq", basis="requested", limit=64)
    assert (found.value, found.batch, found.seq, found.left) == (3, 2, 3, 0)
    assert found.deficit is not None
    assert found.deficit > 0
    assert sorted(made) == [1, 2, 3, 4]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="captures of functions are forked")
def test_from_the_second_micro_batch_on_gradients_are_there(decoder):
    program = decoder.fused(2, 64)

    def peaks(count):
        functions = (program["build_model"], program["make_batch"], program["make_optimizer"])
        found = ls.capture(*functions, dtype=program["dtype"], device="a10g", warmup=1, workspace=0, variant=ls.Variant(accumulate=count))
        return step_peaks(ls.replay_device(found.trace), 2, 64)

    one, two, three = (peaks(count) for count in (1, 2, 3))
    assert one.held.get("gradient", 0) < one.states["gradient"]
    assert two.phases["forward"] == one.phases["forward"] + one.states["gradient"]
    assert three == two


def test_captures_are_the_same_in_processes_and_on_dask():
    pytest.importorskip("torch", reason="torch is not installed: captures need it")
    plan = CapturePlan(str(ROOT / "scenarios" / "capture" / "mlp.py"), device="t4", warmup=1)
    places = [(None, 1), (None, 2)]
    spread = capture_runs(plan, workers=2)(places)
    assert [peaks.batch for peaks in spread] == [1, 2]
    assert spread[0].levels != spread[1].levels
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed: this test runs captures on it")
        with (
            distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
            distributed.Client(cluster) as client,
        ):
            assert capture_runs(plan, executor=client.get_executor())(places[1:]) == spread[1:]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="captures of functions are forked")
def test_the_phases_of_a_capture_hold_its_peak(decoder):
    capture = captured(decoder.fused(2, 64))
    peaks = step_peaks(ls.replay_device(capture.trace), 2, 64)
    assert set(peaks.phases) >= {"forward", "backward", "optimizer"}
    assert max(peaks.phases.values()) == peaks.peak("requested") == sum(peaks.held.values())
    parameters = sum(row.size for row in capture.parameters)
    assert peaks.states["parameter"] == peaks.states["gradient"] == parameters
    assert peaks.states_together == 4 * parameters  # two moments


def test_the_frontier_is_drawn_between_what_fits_and_what_does_not():
    edge = frontier(find_largest(scenario_runs(ScenarioPlan(MLP)), 2**30, [64, 128, 256], basis="payload"))
    ax = ls.figures.batch_frontier(edge, title="mlp_step.toml")
    (line,) = [each for each in ax.lines if each.get_gid() == "frontier"]
    across = line.get_xdata().tolist()
    for row, largest in enumerate(edge.largest):
        place = across[2 * row]
        assert place == across[2 * row + 1] == edge.batches.index(largest) + 1
    texts = [text.get_text() for text in ax.texts]
    assert len([text for text in texts if text.endswith("iB")]) == 3 * len(edge.batches)
    bold = [text for text in ax.texts if text.get_fontweight() == "bold"]
    assert len(bold) == sum(sum(row) for row in edge.measured)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["64", "128", "256"]
