"""Steps and the steady state: found as they were written, judged as a plain walk judges them, and not found where there are none."""

import json
from collections import Counter
from dataclasses import replace as changed
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Frame, Kind, Span, StackBuilder, Trace
from lifecycle_sim.replay import Drift, replay_device, steady_state
from lifecycle_sim.replay.recurrence import MIN_ALLOCATIONS, fundamental_period
from tests.programs import Act, programs, record
from tests.recordings import read_events
from tests.training import LEAK, NODE, Recorder, forward, line, train, without_stacks


@pytest.mark.parametrize("annotate", [True, False])
def test_steps_of_a_training_loop_are_found_with_and_without_annotations(annotate: bool) -> None:
    out, ends = train(4, annotate=annotate)
    replayed = replay_device(out.trace(start=0))
    state = steady_state(replayed)
    assert state.boundaries == tuple(ends)
    assert [step.same for step in state.steps] == [None, True, True, True]
    assert (state.since, state.drift, state.drifting) == (1, (0, 0, 0), ())
    assert state.level == replayed.timeline.at(ends[-1] - 1) == 3 * sum(range(1000, 1004))
    levels = replayed.timeline.levels.tolist()
    assert [step.peak.size for step in state.steps] == [max(levels[s.start : s.stop + 1]) for s in state.steps]
    assert state.transient == max(levels[ends[0] :]) - state.level
    assert ("recurrence" in state.how) is not annotate


def test_a_window_that_ends_before_gradients_are_cleared_is_steady_with_its_gradients() -> None:
    """If zero_grad opens each step, none follows the last one: no end is then moved, or the last would seem to have grown."""
    out, _ = train(4, annotate=True)
    cleared = sorted(span.start for span in out.spans if "zero_grad" in span.name)
    out.spans = [span for span in out.spans if span.start < cleared[-1]]
    state = steady_state(replay_device(out.trace(stop=cleared[-1], start=0)))
    assert state.boundaries == tuple(cleared)
    assert (state.since, state.drift, state.drifting) == (1, (0, 0, 0), ())
    assert state.level == 4 * sum(range(1000, 1004))
    assert state.how == "ends of the annotation 'Optimizer.step#AdamW.step'"


@pytest.mark.parametrize("bare", [False, True])
def test_a_leak_drifts_at_its_owner(bare: bool) -> None:
    out, ends = train(5, leaks=[96] * 5)
    trace = out.trace(start=0)
    state = steady_state(replay_device(without_stacks(trace) if bare else trace))
    assert state.boundaries == tuple(ends)
    assert (state.since, state.level, state.transient, state.peak) == (None, None, None, None)
    assert state.drift == (96,) * 4
    assert state.drift_per_step == 96
    assert state.drifting == (Drift("(no stack recorded)" if bare else str(LEAK), 4 * 96, 4),)
    assert "not steady, drift 96.0 B" in repr(state)


def test_steps_are_steady_since_the_last_one_that_left_something_behind() -> None:
    out, ends = train(6, leaks=[0, 10, 0, 30])
    state = steady_state(replay_device(out.trace(start=0)), ends)
    assert [step.same for step in state.steps] == [None, False, True, False, True, True]
    assert (state.since, state.drift, state.drifting) == (4, (10, 0, 30, 0, 0), (Drift(str(LEAK), 40, 2),))
    assert state.level == 3 * sum(range(1000, 1004)) + 40


@given(st.integers(0, 80), st.integers(0, 50), st.booleans())
def test_steps_are_found_in_a_window_that_starts_and_ends_inside_them(first: int, last: int, whole: bool) -> None:
    out, ends = train(8)
    first, stop = 0 if whole else ends[0] + first, len(out.rows) - last
    state = steady_state(replay_device(out.trace(first, stop)))
    true_ends = [end - first for end in ends if first < end <= stop]
    assert set(state.boundaries) <= set(true_ends)
    assert len(state.boundaries) >= len(true_ends) - 1
    assert state.since is not None


def test_what_is_older_than_the_window_is_replaced_by_any_storage_of_its_size() -> None:
    """The first gradient is older than the window; each step frees one and allocates the next; beside it an old storage goes away."""
    out = Recorder()
    gradient, old, ends = out.alloc(500, NODE), out.alloc(30), []
    for step in range(4):
        out.free(gradient)
        gradient = out.alloc(500, NODE)
        if step == 2:
            out.free(old)
        ends.append(len(out.rows) - 2)
    state = steady_state(replay_device(out.trace(2)), ends)
    assert [step.same for step in state.steps] == [None, True, False, True]
    assert state.drifting == (Drift("(older than the window, no stack)", -30, -1),)
    out = Recorder()
    gradient = out.alloc(500, NODE)
    out.free(out.alloc(1))
    out.free(gradient)
    out.alloc(500, NODE)
    state = steady_state(replay_device(out.trace(1)), [2, 4])
    assert (state.since, state.drifting) == (1, ())


@pytest.mark.parametrize("ends_that_differ", [True, False])
def test_a_loop_over_layers_is_not_a_loop_of_steps(ends_that_differ: bool) -> None:
    trace = forward(24, ends_that_differ).trace(start=0)
    state = steady_state(replay_device(trace))
    assert (state.steps, state.since, state.drift) == ((), None, ())
    assert state.how.startswith("no steps found")
    if ends_that_differ:
        assert not steady_state(replay_device(without_stacks(trace))).steps
        cut_off = without_stacks(forward(24).trace(stop=-1, start=0))
        assert not steady_state(replay_device(cut_off)).steps


def test_a_loop_that_was_interrupted_is_not_taken_for_steps_after_a_first_one() -> None:
    """Ten equal layers, something else, four equal layers: what comes before the run does its period ten times over."""
    out = Recorder()
    for layer in range(14):
        inner = [out.alloc(100 * number) for number in range(1, 11)]
        out.free(*inner)
        if layer == 9:
            out.free(out.alloc(77))
    assert not steady_state(replay_device(out.trace(start=0))).steps


@pytest.mark.parametrize("seed", range(20))
def test_random_allocations_have_no_steps(seed: int) -> None:
    random = np.random.default_rng(seed)
    out, live = Recorder(), []
    for _ in range(400):
        if live and random.random() < 0.5:
            out.free(live.pop(int(random.integers(len(live)))))
        else:
            live.append(out.alloc(int(random.integers(1, 4)), line(int(random.integers(1, 3)))))
    assert not steady_state(replay_device(out.trace(start=0))).steps


@pytest.mark.parametrize("count", [0, 1, 15, 16, 200])
def test_one_allocation_over_and_over_has_no_steps(count: int) -> None:
    out = Recorder()
    for _ in range(count):
        out.free(out.alloc(8, line(1)))
    assert not steady_state(replay_device(out.trace(start=0))).steps


def naive_period(token: list[int]) -> tuple[int, int]:
    best = (0, 0)
    for period in range(1, len(token)):
        run = period
        while run < len(token) and token[-1 - run] == token[-1 - run + period]:
            run += 1
        if run >= 2 * period and run > best[1]:
            best = (period, run)
    return best


@given(
    st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 11)
)
@example([], [1] + [0] * 20, 3, 0)  # an inner loop of one at the end of an outer one
def test_the_fundamental_period_against_a_look_at_every_one(head: list[int], body: list[int], times: int, cut: int) -> None:
    token = head + body * times + body[:cut]
    expected = naive_period(token)
    if expected[1] >= 2 * MIN_ALLOCATIONS:
        assert fundamental_period(np.array(token, np.int64)) == expected


@given(programs(), st.lists(st.integers(0, 2), min_size=1, max_size=5), st.sets(st.integers(1, 40), max_size=6))
def test_judgement_and_drift_are_those_of_a_plain_walk(acts: list[Act], numbers: list[int], wanted: set[int]) -> None:
    acts = [Act(act.kind, act.address, act.size % 3 + 1) for act in acts]
    builder = StackBuilder()
    lines = [Frame("f", f"/project/{name}.py", 1) for name in "abc"]
    stacks = [builder.add([own]) for own in lines]
    trace = record(acts, None, start=0)
    (device,) = trace.devices
    column = np.array([stacks[numbers[i % len(numbers)]] for i in range(len(acts))], np.int32)
    trace = changed(trace, devices=(changed(device, events=changed(device.events, stack=column)),), stacks=builder.table())
    ends = sorted(end for end in wanted if end <= len(acts))

    live: dict[int, tuple[int, str]] = {}
    sets = []
    for event, act in enumerate(acts):
        if act.kind is Kind.ALLOC:
            live[act.address] = (act.size, str(lines[numbers[event % len(numbers)]]))
        else:
            del live[act.address]
        if event + 1 in ends:
            sets.append(Counter(live.values()))
    state = steady_state(replay_device(trace), ends)
    same = [now == before for before, now in pairwise(sets)]
    assert [step.same for step in state.steps] == ([None, *same] if sets else [])
    assert [step.level for step in state.steps] == [sum(size * n for (size, _), n in held.items()) for held in sets]
    assert sum(state.drift) == sum(drift.size for drift in state.drifting)
    if sets:
        for drift in state.drifting:
            grown = [sum(size * n for (size, own), n in held.items() if own == drift.key) for held in (sets[0], sets[-1])]
            assert drift.size == grown[1] - grown[0]
    expected_since = next((i for i in range(1, len(sets)) if all(same[i - 1 :])), None)
    assert state.since == expected_since


def test_more_drifting_owners_than_asked_for_are_put_together() -> None:
    out, ends = Recorder(), []
    for _ in range(3):
        for number in (5, 3, 9, 3):
            out.alloc(number, line(number))
        ends.append(len(out.rows))
    state = steady_state(replay_device(out.trace(start=0)), ends, top=2)
    assert state.drifting == (Drift(str(line(9)), 18, 2), Drift(str(line(3)), 12, 4), Drift("(1 other owner)", 10, 2))
    assert sum(state.drift) == 40


def test_events_without_identity_are_judged_by_sizes_and_drift_by_category() -> None:
    out, ends = train(4, leaks=[7] * 4)
    (device,) = out.trace().devices
    events = Events.of(device.events.kind, [-1] * len(device), device.events.size)
    anonymous = DeviceTrace("cuda:0", events, Basis.ALLOCATED, start=0, identified=False)
    state = steady_state(replay_device(Trace((anonymous,), "profiler", Evidence.MEASURED, Clock.NONE)))
    assert state.boundaries == tuple(ends)
    assert [step.same for step in state.steps] == [None, False, False, False]
    assert state.drifting == (Drift("unknown", 21, 3),)


def spanned(*spans: Span, events: int = 12) -> DeviceTrace:
    return DeviceTrace("cuda:0", Events.of([0] * events, range(events), [1] * events), Basis.REQUESTED, start=0, spans=spans)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("step", ["a", "b"]),
        ("annotation", ["ProfilerStep#1", "ProfilerStep#2"]),
        ("annotation", ["## step ##", "## step ##"]),
        ("annotation", ["train_step 8", "train_step 9"]),
        ("annotation", ["Iteration: 8", "Iteration: 9"]),
    ],
)
def test_spans_that_are_steps(kind: str, names: list[str]) -> None:
    inner, cut_off = Span("annotation", "step", 4, 5), Span(kind, names[0], 10, 12, closed=False)
    device = spanned(Span(kind, names[0], 1, 4), *([inner] if kind == "step" else []), Span(kind, names[1], 6, 9), cut_off)
    state = steady_state(replay_device(Trace((device,), "native", Evidence.MEASURED, Clock.NONE)))
    assert [(step.start, step.stop) for step in state.steps] == [(1, 4), (6, 9)]
    assert state.drift == (5,)


def test_annotations_that_are_no_steps_and_steps_by_name() -> None:
    names = ["aten::step_fn", "Optimizer.zero_grad#SGD.zero_grad", "backward", "backward"]
    device = spanned(*(Span("annotation", name, i, i + 1) for i, name in enumerate(names)))
    replayed = replay_device(Trace((device,), "native", Evidence.MEASURED, Clock.NONE))
    assert not steady_state(replayed).steps
    assert [(step.start, step.stop) for step in steady_state(replayed, "backward").steps] == [(2, 3), (3, 4)]
    with pytest.raises(InputError, match="no annotation is named 'forward': the recording has 'aten::step_fn', "):
        steady_state(replayed, "forward")


def test_one_recorded_step_is_shown_but_not_judged() -> None:
    device = spanned(Span("annotation", "Optimizer.step#SGD.step", 3, 5))
    state = steady_state(replay_device(Trace((device,), "native", Evidence.MEASURED, Clock.NONE)))
    assert [(step.start, step.stop, step.same) for step in state.steps] == [(0, 5, None)]
    assert (state.since, state.drift, state.drift_per_step) == (None, (), None)
    assert "not enough steps" in repr(state)


def test_boundaries_that_do_not_fit_are_refused_all_at_once() -> None:
    replayed = replay_device(Trace((spanned(),), "native", Evidence.MEASURED, Clock.NONE))
    with pytest.raises(InputError) as caught:
        steady_state(replayed, [3, 3, 40])
    assert len(caught.value.problems) == 2
    assert "outside the window: choose 0 to 12" in caught.value.problems[0]
    assert [(s.start, s.stop) for s in steady_state(replayed, [0, 4, 12]).steps] == [(0, 4), (4, 12)]


@pytest.mark.parametrize(
    ("name", "ends"), [("torch214_stub_train", (1125, 2058, 2988)), ("torch214_stub_train_expandable", (1122, 2055, 2985))]
)
@pytest.mark.parametrize("annotations", [True, False])
def test_three_recorded_steps_are_found_either_way(shared: Path, name: str, ends: tuple[int, ...], annotations: bool) -> None:
    replayed = replay_device(read_events(shared / f"data/snapshots/{name}.pickle", start=0, annotations=annotations))
    state = steady_state(replayed)
    assert state.boundaries == ends
    assert (state.since, state.level, state.drift) == (1, 287_357_540, (0, 0))
    assert [step.peak.size for step in state.steps] == [626_887_912, 768_772_392, 768_772_392]
    assert state.transient == 768_772_392 - 287_357_540


@pytest.mark.parametrize("name", ["lm_medium_ctx128_inference", "lm_medium_ctx1024_inference", "lm_small_forward_fp32"])
def test_no_steps_are_found_in_recorded_forward_passes(shared: Path, name: str) -> None:
    trace = read_events(shared / f"data/snapshots/{name}.pickle", annotations=False)
    assert not steady_state(replay_device(trace)).steps
    assert not steady_state(replay_device(without_stacks(trace))).steps


@pytest.mark.parametrize("name", ["lm_medium_ctx128_train", "lm_medium_ctx512_train", "lm_train_midrun"])
def test_no_steps_are_found_in_the_optimizer_of_one_recorded_step(shared: Path, name: str) -> None:
    trace = read_events(shared / f"data/snapshots/{name}.pickle", annotations=False)
    assert not steady_state(replay_device(trace)).steps


def test_peaks_and_levels_of_measured_jobs(shared: Path) -> None:
    """Jobs with the measured peaks of three steps and levels after them: the second step, not the first, is the steady one."""
    jobs = json.loads((shared / "data/stub_jobs.json").read_text())
    assert len(jobs) == 5
    for job in jobs.values():
        told = [step["requested_bytes"] for step in job["steps"]]
        out, ends = Recorder(), []
        out.alloc(job["parameter_bytes"], line(1))
        level = job["parameter_bytes"]
        for step in told:
            out.free(out.alloc(step["peak"] - level, line(2)))
            if step["after"] > level:
                out.alloc(step["after"] - level, line(3))
            level = step["after"]
            ends.append(len(out.rows))
        state = steady_state(replay_device(out.trace(start=0)), ends)
        assert [(step.peak.size, step.level) for step in state.steps] == [(step["peak"], step["after"]) for step in told]
        assert (state.since, state.level) == (1, told[1]["after"])
        assert state.transient == told[2]["peak"] - told[2]["after"]
