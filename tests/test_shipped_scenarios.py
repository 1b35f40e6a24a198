"""The scenarios that ship: the figures that their comments and the index give, worked out here by other means."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from lifecycle_sim import line_trace, load_line, measure_line, run_line
from lifecycle_sim.events import Category, Kind, Trace
from lifecycle_sim.events.check import check
from lifecycle_sim.program import load_scenario, problems, run, run_scenario, static_table
from lifecycle_sim.replay import attribute, average, replay_device, steady_state
from lifecycle_sim.units import format_exact
from tests.test_engine import levels, story

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
MIB, GIB = 2**20, 2**30


def peak(trace: Trace) -> tuple[int, int]:
    """Level and event index of the first peak."""
    level = levels(trace)
    return max(level), level.index(max(level))


def inside(trace: Trace, event: int) -> set[tuple[str, str]]:
    return {(span.kind, span.name) for span in trace.devices[0].spans if span.start <= event < span.stop}


def live_at(trace: Trace, event: int) -> Counter[Category]:
    """Bytes by category of what is live after event number *event*."""
    events = trace.devices[0].events
    found: dict[int, tuple[Category, int]] = {}
    for index in range(event + 1):
        if events.kind[index] == Kind.ALLOC:
            found[int(events.address[index])] = (Category(events.category[index]), int(events.size[index]))
        elif events.kind[index] == Kind.FREE:
            del found[int(events.address[index])]
    total: Counter[Category] = Counter()
    for category, size in found.values():
        total[category] += size
    return total


LINES = sorted(SCENARIOS.glob("line_*.toml"))
PROGRAMS = sorted({*SCENARIOS.glob("*.toml")} - {*LINES})


@pytest.mark.parametrize("path", LINES, ids=lambda path: path.stem)
def test_each_line_opens_with_what_it_shows_and_what_to_look_for_and_is_a_sound_trace(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    opening = text[: text.index("\n\n")]
    assert all(line.startswith("#") for line in opening.splitlines())
    assert "It shows" in opening
    assert "Look for:" in opening
    line = load_line(path)
    assert line.title
    lived = run_line(line)
    trace = line_trace(lived)
    assert check(trace) == ()
    replayed, figures = replay_device(trace), measure_line(lived)
    assert replayed.peak.size == figures.total.peak
    assert replayed.peak.time == figures.total.peak_time
    assert average(replayed, 0, lived.end).area == figures.total.area
    shares = attribute(replayed, by="owner", top=None).shares
    assert sum(share.size for share in shares) == replayed.peak.size


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_each_opens_with_what_it_shows_and_what_to_look_for_and_runs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    opening = text[: text.index("\n\n")]
    assert all(line.startswith("#") for line in opening.splitlines())
    assert "It shows" in opening
    assert "Look for:" in opening
    program = load_scenario(path)
    assert problems(program) == []
    assert program.title
    trace = run(program)
    assert check(trace) == ()
    replayed = replay_device(trace)
    assert (replayed.peak.size, replayed.peak.event) == peak(trace)
    assert replayed.timeline.levels.tolist() == [0, *levels(trace)]
    assert sum(share.size for share in attribute(replayed, top=None).shares) == replayed.peak.size


def test_the_index_names_every_scenario_and_its_figures() -> None:
    index = (SCENARIOS / "README.md").read_text(encoding="utf-8")
    entries = re.findall(r"```console\n\$ lifecycle-sim \w+ scenarios/(\S+)([^\n]*)\n.*?```\n\n(.+?)(?=\n```|\n## |\Z)", index, re.DOTALL)
    assert {name for name, _, _ in entries} == {path.name for path in SCENARIOS.glob("*.toml")}
    for name, options, prose in entries:
        parameters = {key: int(value) for key, value in re.findall(r"--param (\w+)=(\d+)", options)}
        if name.startswith("line_"):
            continue  # what a line's command answers stands below it, see test_scenario_index
        level, _ = peak(run_scenario(SCENARIOS / name, parameters))
        assert format_exact(level) in prose, (name, parameters)


def test_the_ledger_by_both_rules() -> None:
    text = (SCENARIOS / "ledger.toml").read_text(encoding="utf-8")
    trace = run_scenario(text)
    assert len(set(trace.devices[0].events.address.tolist())) == 10
    level, event = peak(trace)
    assert (level, story(trace)[event]) == (26 * MIB, (9, "ALLOC", "grad_hidden"))
    kinds = [kind for _, kind, label in story(trace) if label in {"weights", "tied", "output", "logits"}]
    assert kinds == ["ALLOC", "SHARE", "ALLOC", "SHARE", "RELEASE", "FREE", "RELEASE", "FREE"]
    assert levels(trace)[-1] == 0
    other = run_scenario(text.replace('same_instant = "frees-first"', 'same_instant = "allocs-first"'))
    level, event = peak(other)
    assert (level, story(other)[event]) == (34 * MIB, (10, "ALLOC", "grad_weights"))


@pytest.mark.parametrize(("batch", "seq", "hidden"), [(32, 64, 128), (1, 1, 128), (7, 3, 10), (512, 128, 64)])
def test_the_mlp_step_by_arithmetic(batch: int, seq: int, hidden: int) -> None:
    rows, ffn, fp32 = batch * seq, 4 * hidden, 4
    sizes = {"w1": ffn * hidden * fp32, "b1": ffn * fp32, "w2": hidden * ffn * fp32, "b2": hidden * fp32}
    weights = sum(sizes.values())
    assert weights == (8 * hidden**2 + 5 * hidden) * fp32
    narrow, wide = rows * hidden * fp32, rows * ffn * fp32
    program = load_scenario(SCENARIOS / "mlp_step.toml", {"batch": batch, "seq": seq, "hidden": hidden})
    table = static_table(program)
    assert table == {Category.PARAMETER: weights, Category.BUFFER: 0, Category.GRADIENT: weights, Category.OPTIMIZER_STATE: 2 * weights}

    trace = run(program)
    level = levels(trace)
    by_step = {}
    for step in (1, 2, 3):
        first = step == 1
        state = 0 if first else 2 * weights
        base = weights + state
        later = {
            "fc1": base + 2 * narrow + wide,
            "relu": base + 2 * narrow + 2 * wide,
            "fc2": base + 2 * narrow + wide + narrow,
            "mse": base + 3 * narrow + wide + fp32 + narrow,
            "mse.backward": base + 3 * narrow + wide + fp32 + narrow,
            "fc2.backward": base + narrow + wide + narrow + sizes["w2"] + sizes["b2"] + wide,
            "relu.backward": base + narrow + 2 * wide + sizes["w2"] + sizes["b2"] + wide,
            "fc1.backward": base + narrow + wide + weights,
        }
        grown = 0
        for parameter, name in (("w1", "fc1.weight"), ("b1", "fc1.bias"), ("w2", "fc2.weight"), ("b2", "fc2.bias")):
            grown += 2 * sizes[parameter] if first else 0
            later[f"adam.{name}"] = base + weights + grown + 2 * sizes[parameter]
        spans = [span for span in trace.devices[0].spans if span.kind == "operator"]
        begin = [span for span in trace.devices[0].spans if span.kind == "step"][step - 1]
        for span in spans:
            if begin.start <= span.start < begin.stop and span.name in later:
                assert max(level[span.start : span.stop]) == later[span.name], (step, span.name)
        by_step[step] = max(level[begin.start : begin.stop])
        assert by_step[step] == max(*later.values(), (weights if first else 2 * weights) + state)
        assert level[begin.stop - 1] == 4 * weights, "what is left is the static table"
    assert by_step[1] < by_step[2] == by_step[3]


def test_what_the_static_table_lacks_at_the_peak_of_the_mlp_step_and_when() -> None:
    program = load_scenario(SCENARIOS / "mlp_step.toml")
    trace = run(program)
    level, event = peak(trace)
    assert {("step", "step 2"), ("phase", "backward"), ("operator", "relu.backward")} <= inside(trace, event)
    live, table = live_at(trace, event), static_table(program)
    lacks = {category: size for category, size in live.items() if category not in table}
    assert lacks == {Category.INPUT: 1_048_576, Category.ACTIVATION: 4_194_304, Category.TEMPORARY: 8_388_608}
    absent = sum(size - live[category] for category, size in table.items())
    assert absent == 264_192
    assert level == sum(table.values()) + sum(lacks.values()) - absent == 15_474_688
    steady = steady_state(replay_device(trace))
    assert (steady.level, steady.since) == (sum(table.values()), 1), "counted from 0: the first step creates the states"
    tiny = run_scenario(SCENARIOS / "mlp_step.toml", {"batch": 1, "seq": 1})
    assert ("phase", "optimizer") in inside(tiny, peak(tiny)[1])


def test_a_shared_weight_is_counted_once() -> None:
    program = load_scenario(SCENARIOS / "shared_linear.toml")
    trace = run(program)
    assert static_table(program)[Category.PARAMETER] == 128 * 64 * 4
    allocated = [label for _, kind, label in story(trace) if kind == "ALLOC"]
    assert "query.weight" in allocated
    assert not {"key.weight", "key.weight.grad"} & set(allocated)
    level, event = peak(trace)
    assert level == 3 * 128 * 64 * 4 + 32 * 64 * 4 + 32 * 128 * 4
    assert ("operator", "key.backward") in inside(trace, event)


def test_a_line_and_room_to_wait_for() -> None:
    line, wait = run_scenario(SCENARIOS / "burst_line.toml"), run_scenario(SCENARIOS / "burst_wait.toml")
    assert (peak(line)[0], line.settings["makespan"]) == (32 * GIB, 10**9)
    assert (peak(wait)[0], wait.settings["makespan"], len(wait.settings["waited"])) == (16 * GIB, 2 * 10**9, 4)
    assert line.devices[0].capacity == wait.devices[0].capacity == 16 * GIB


@pytest.mark.parametrize(("gap", "expected"), [(0, 32), (500, 8), (1000, 4)])
def test_one_average_three_peaks(gap: int, expected: int) -> None:
    trace = run_scenario(SCENARIOS / "production_line.toml", {"gap": gap})
    level, time = levels(trace), trace.devices[0].events.time.tolist()
    assert max(level) == expected * GIB
    held = sum(level[i] * (time[i + 1] - time[i]) for i in range(len(time) - 1))
    assert Fraction(held, 100 * 10**9) == Fraction(32, 100) * GIB
    told = average(replay_device(trace), 0, trace.settings["horizon"])
    assert (told.area, told.mean) == (held, Fraction(32, 100) * GIB)
