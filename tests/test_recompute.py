"""What-ifs about the capture that ships, without torch: levels, what binds, cost, the command, and how it fails."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from lifecycle_sim.events import Category, Kind, Trace, check
from lifecycle_sim.program.graph import Lives
from lifecycle_sim.program.remat import Happens, candidates, chosen_regions, edit, program_of
from lifecycle_sim.program.step_graph import StepOperator
from lifecycle_sim.program.stored_steps import graphs_of
from lifecycle_sim.sources.native import read_jsonl, read_npz, write_jsonl, write_npz
from lifecycle_sim.study.roofline import Rates
from tests.conftest import ROOT

STEP = ROOT / "scenarios" / "capture" / "gpt_step.jsonl.gz"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return ls.read_trace(STEP)


@pytest.fixture(scope="module")
def all_blocks(trace: Trace) -> ls.Recompute:
    return ls.what_if(trace, "blocks.*")


def brute_force_peak(trace: Trace, step: str) -> int:
    span = next(span for span in trace.devices[0].spans if span.name == step)
    live: dict[int, int] = {}
    peak = 0
    events = trace.devices[0].events
    for place, (kind, address, size) in enumerate(zip(events.kind.tolist(), events.address.tolist(), events.size.tolist(), strict=True)):
        if kind == Kind.ALLOC:
            assert address not in live
            live[address] = size
        else:
            assert live.pop(address) == size
        if span.start <= place < span.stop:
            peak = max(peak, sum(live.values()))
    return peak


def test_both_native_formats_keep_the_graph(trace: Trace) -> None:
    assert read_jsonl(write_jsonl(trace)) == trace == read_npz(write_npz(trace))
    first, second = gzip.decompress(STEP.read_bytes()).split(b"\n")[:2]
    assert len(first) < 10_000
    assert second.startswith(b'{"setting":["capture","graph"],')


def test_the_edited_trace_is_sound_and_peaks_where_it_says(all_blocks: ls.Recompute) -> None:
    assert check(all_blocks.trace) == ()
    assert brute_force_peak(all_blocks.base_trace, all_blocks.step) == all_blocks.base.requested
    assert brute_force_peak(all_blocks.trace, all_blocks.step) == all_blocks.edited.requested < all_blocks.base.requested
    replayed = ls.replay_device(all_blocks.trace)
    assert replayed.timeline.levels[all_blocks.binding.event + 1] == all_blocks.edited.requested
    assert sum(share.size for share in all_blocks.binding.holders) == all_blocks.edited.requested
    assert max(all_blocks.curves[1]) == all_blocks.edited.requested
    assert sum(row[2] for row in all_blocks.categories) == all_blocks.edited.requested
    assert str(all_blocks.trace.evidence) == "simulated"


def test_the_unedited_trace_is_the_trace(trace: Trace) -> None:
    for graph in graphs_of(trace):
        edited = [event.value if event.happens is Happens.ALLOC else ~event.value for event in edit(graph).events if event.happens >= 2]
        events = trace.devices[0].events
        recorded = np.where(events.kind == Kind.ALLOC, events.address, ~events.address)[graph.start : graph.stop]
        assert edited == recorded.tolist()


def test_what_stays_and_what_changes(all_blocks: ls.Recompute) -> None:
    rows = {row.what.split(",")[0]: (row.base, row.edited) for row in all_blocks.changes}
    for what in ("parameters", "buffers", "gradients", "optimizer state"):
        assert rows[what][0] == rows[what][1]
    assert rows["activations"][1] < rows["activations"][0]
    graph = graphs_of(all_blocks.base_trace)[-1]
    assert rows["inputs held at the boundary"][1] == 12 * 8 * 512 * 768 * 4
    assert (
        rows["FLOPs run again"][1] == all_blocks.extra.flops == sum(graph.operators[number].flops for number in all_blocks.edits[-1].again)
    )


def test_what_runs_again_is_a_forward_without_its_last_product(all_blocks: ls.Recompute) -> None:
    """Early stop: the last tensor a block saves is the input of its last linear layer, which so does not run again."""
    tokens, width, head = 8 * 512, 768, 64
    linear = 2 * tokens * width * width
    attention = 2 * 2 * 8 * 12 * 512 * 512 * head
    assert all_blocks.extra.flops == 12 * (8 * linear + attention)
    without = ls.what_if(all_blocks.base_trace, ["blocks.*"], early_stop=False)
    assert without.extra.flops == 12 * (12 * linear + attention)


def test_selective_policies_save_what_they_name(trace: Trace, all_blocks: ls.Recompute) -> None:
    found = ls.what_if(trace, "blocks.*", policy=["aten.addmm.default"])
    assert found.saved == ("aten.addmm.default",)
    assert not {found.edits[-1].graph.operators[number].name for number in found.edits[-1].again} & {*found.saved}
    assert all_blocks.edited.requested < found.edited.requested < found.base.requested
    nothing = ls.what_if(trace, "blocks.*", policy={"aten.addmm.default": "must_recompute"})
    assert nothing.edits[-1].events == all_blocks.edits[-1].events


def test_time_is_a_lower_bound_or_as_given(trace: Trace, all_blocks: ls.Recompute) -> None:
    assert all_blocks.bound
    assert all_blocks.cost.seconds is not None
    assert all_blocks.extra.seconds is not None
    assert all_blocks.cost.seconds >= all_blocks.cost.moved / 1_555e9
    given = ls.what_if(trace, "blocks.0", seconds=lambda _: 0.001)
    assert not given.bound
    assert given.extra.seconds == pytest.approx(0.001 * given.extra.operators)
    slow = ls.what_if(trace, "blocks.0", rates=Rates(1e6, 1e6, 1e30))
    assert slow.extra.seconds == pytest.approx(slow.extra.flops / 1e6)
    with pytest.raises(ls.InputError, match="seconds are given for operators by name, and aten"):
        ls.what_if(trace, "blocks.0", seconds={"aten.mm.default": 1.0})


def test_rates_take_the_longer_of_arithmetic_and_memory() -> None:
    rates = Rates(200.0, 100.0, 10.0)
    assert rates.seconds(StepOperator("a", flops=400, moved=10, dtype="bfloat16")) == 2.0
    assert rates.seconds(StepOperator("a", flops=400, moved=10, dtype="float32")) == 4.0
    assert rates.seconds(StepOperator("a", flops=400, moved=90, dtype="float32")) == 9.0


def test_candidates_are_calls_with_what_they_save_hold_and_cost(trace: Trace) -> None:
    graph = graphs_of(trace)[-1]
    regions = {region.module: region for region in candidates(graph)}
    block = regions["blocks.3"]
    assert [graph.sizes[storage] for storage in block.inputs] == [8 * 512 * 768 * 4]
    assert block.flops == sum(graph.operators[number].flops for number in block.again)
    assert block.again.start == block.operators.start
    assert block.again.stop <= block.operators.stop
    assert regions["blocks.3.layers"].operators.start in block.operators


def test_the_binding_sentence_tells_a_peak_that_does_not_go_down(trace: Trace) -> None:
    found = ls.what_if(trace, "tokens")
    assert found.saves <= 0
    assert found.why.startswith("the peak does not go down: it is at ")


def test_activations_that_go_before_backward_are_temporary(all_blocks: ls.Recompute) -> None:
    recorded = all_blocks.trace.devices[0]
    step = next(span for span in recorded.spans if span.name == all_blocks.step)
    backward = next(span.start for span in recorded.spans if span.name == "backward" and span.start >= step.start)
    forward = slice(step.start, backward)
    assert Category.TEMPORARY in recorded.events.category[forward]
    names = {frame.name for stack in recorded.events.stack.tolist() for frame in all_blocks.trace.stacks.frames_of(stack)}
    assert "recompute" in names


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def run(*arguments: object) -> Any:
    return CliRunner(catch_exceptions=False).invoke(main, ["whatif", *map(str, arguments)])


def test_the_command_answers_as_the_library_does(all_blocks: ls.Recompute, tmp_path: Path) -> None:
    path = tmp_path / "edited.npz"
    result = run(STEP, "--checkpoint", "blocks.*", "--json", "-o", path)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    (device,) = document["devices"]
    assert document["fits"] is True
    assert [row["edited"]["peak"] for row in device["levels"]] == [
        all_blocks.edited.requested,
        all_blocks.edited.allocated,
        all_blocks.edited.reserved,
    ]
    assert ls.read_trace(path) == all_blocks.trace
    assert run(STEP, "--checkpoint", "blocks.*", "-o", path).exit_code == 2
    peak = CliRunner().invoke(main, ["peak", str(path), "--json"])
    assert json.loads(peak.stdout)["devices"][0]["peak"]["bytes"] >= all_blocks.edited.requested


def test_memory_that_runs_out_is_an_answer() -> None:
    result = run(STEP, "--checkpoint", "blocks.*", "--capacity", "3 GiB")
    assert result.exit_code == 1
    assert "It does not fit: memory ran out" in result.stdout
    assert run(STEP, "--checkpoint", "blocks.*", "--capacity", "5 GiB").exit_code == 0


def _no_graph(settings: dict[str, Any]) -> None:
    del settings["graph"]


def _other_schema(settings: dict[str, Any]) -> None:
    settings["graph"]["schema"] = "lifecycle-sim/step-graph/99"


def _cut(settings: dict[str, Any]) -> None:
    settings["graph"]["steps"][0]["values"] = settings["graph"]["steps"][0]["values"][:-40]


def _others(settings: dict[str, Any]) -> None:
    settings["graph"]["steps"][0]["start"] += 1


def _lacking(settings: dict[str, Any]) -> None:
    del settings["graph"]["steps"][0]["holds"]


def _letters(settings: dict[str, Any]) -> None:
    settings["graph"]["steps"][0]["marks"] = "z" + settings["graph"]["steps"][0]["marks"]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_no_graph, "the trace holds no operators and holds"),
        (_other_schema, "has schema 'lifecycle-sim/step-graph/99'"),
        (_cut, "is not whole|does not belong"),
        (_others, "does not belong to the trace"),
        (_lacking, "is not whole"),
        (_letters, "is not whole"),
    ],
)
def test_a_damaged_graph_is_told(damage: Callable[[dict[str, Any]], None], problem: str, trace: Trace, tmp_path: Path) -> None:
    settings = json.loads(json.dumps(trace.settings["capture"]))
    damage(settings)
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(write_jsonl(replace(trace, settings={"capture": settings})))
    result = run(path, "--checkpoint", "blocks.*")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert problem.split("|")[0] in result.stderr or problem.split("|")[-1] in result.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--checkpoint", "blocks.12"], "error: checkpoint 'blocks.12' chooses no module that was called: did you mean 'blocks."),
        (["--checkpoint", "blocks.0", "--reentrant"], "error: reentrant checkpointing (use_reentrant=True) runs the whole call again"),
        (["--checkpoint", "blocks.0", "--save", "aten.mm"], "an overload that is meant, such as 'aten.mm.default'"),
        (["--checkpoint", "blocks.0", "--batch", 2], "is captured already: batch can be chosen for a FILE.py alone"),
    ],
)
def test_wrong_questions_get_one_line(arguments: list[Any], problem: str) -> None:
    result = run(STEP, *arguments)
    assert (result.exit_code, result.stdout) == (3, "")
    assert problem in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_recording_is_no_capture() -> None:
    result = run(ROOT / "scenarios" / "torch214_stub_small.pickle", "--checkpoint", "blocks.0")
    assert result.exit_code == 3
    assert "needs a capture of a training step" in result.stderr


def test_a_capture_as_it_is_read_elsewhere_does_not_name_modules_twice(trace: Trace) -> None:
    with pytest.raises(ls.InputError, match="no module is named"):
        ls.what_if(trace, [])


@pytest.mark.parametrize("patterns", [[], ["blocks.*"], ["blocks.[0-5].layers", "blocks.7"]], ids=["as it was", "all blocks", "some"])
def test_the_engine_runs_a_step_as_a_program_to_the_same_levels(patterns: list[str], trace: Trace) -> None:
    for graph in graphs_of(trace):
        edited = edit(graph, chosen_regions(graph, patterns) if patterns else ())
        program = program_of(edited)
        given = sum(storage.size for storage in program.storages if storage.lives is Lives.GIVEN)
        replayed = ls.replay_device(ls.run(program))
        rows = edited.rows()
        assert replayed.peak.size - given == max(high for _, high, _ in rows)
        assert replayed.timeline.end - given == rows[-1][2]


def with_graph(trace: ls.Trace, change: Callable[[dict[str, Any]], object]) -> ls.Trace:
    """*trace*, with *change* done to its stored graph."""
    told = trace.settings["capture"]
    assert isinstance(told, dict)
    graph = json.loads(json.dumps(told["graph"]))
    change(graph)
    return replace(trace, settings={**trace.settings, "capture": {**told, "graph": graph}})


def test_a_damaged_capture_is_refused_and_not_followed(trace: ls.Trace) -> None:
    def other_kind(key: str, place: int, value: object) -> Callable[[dict[str, Any]], object]:
        return lambda graph: graph["steps"][0][key].__setitem__(place, value)

    damages: list[Callable[[dict[str, Any]], object]] = [
        lambda graph: graph["steps"].clear(),
        lambda graph: graph["names"].__setitem__(4, None),
        other_kind("holds", 3, []),
        lambda graph: graph["steps"][0]["operators"][2].__setitem__(10, {}),
        lambda graph: graph["steps"][0]["calls"][1].__setitem__(3, "x"),
    ]
    for damage in damages:
        with pytest.raises(ls.TraceFormatError, match="apture the step again"):
            ls.what_if(with_graph(trace, damage), "blocks.*")
    recorded = trace.devices[0]
    for cut in (replace(trace, devices=()), replace(trace, devices=(replace(recorded, spans=recorded.spans[:1]),))):
        with pytest.raises(ls.TraceFormatError, match="apture the step again"):
            ls.what_if(cut, "blocks.*")
