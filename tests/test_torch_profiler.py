"""torch's profiler as the oracle: what it exports is read as it is in its own memory. A small training loop on the CPU is profiled."""

from __future__ import annotations

import gc
import importlib
import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lifecycle_sim.errors import TraceFormatError
from lifecycle_sim.events import NO_STACK, Basis, Category, Kind, Trace, check
from lifecycle_sim.replay import replay_all
from lifecycle_sim.replay.attribution import attribute, levels_by
from lifecycle_sim.replay.owners import owner_frames
from lifecycle_sim.replay.steady import steady_state
from lifecycle_sim.sources.detect import read_trace
from lifecycle_sim.sources.python_functions import frame_of

torch = pytest.importorskip("torch", reason="torch is not installed: it is the oracle of these tests")

STEPS = 3
_MOVED = "INCREMENT_VERSION"
"""The action in a memory profile that takes bytes from one category and gives them to another."""


@dataclass(frozen=True)
class Allocation:
    """A change of memory as the profiler holds it: bytes (negative for a free), the allocator's total after it, the functions around it."""

    time: int
    address: int
    change: int
    total: int
    functions: tuple[str, ...]


@dataclass(frozen=True)
class Recording:
    """One profiled loop: torch's own records of it, and the folder with what it exported."""

    folder: Path
    allocations: tuple[Allocation, ...]
    timeline: tuple[tuple[int, str, str, str, int], ...]
    steps: tuple[tuple[str, int, int], ...]

    @property
    def trace(self) -> Trace:
        return read_trace(next(self.folder.glob("trace.json*")))


@contextmanager
def _alone() -> Iterator[None]:
    """One thread and no garbage collection: a tensor that an earlier test left in a cycle is not freed while the profile is taken."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        torch.set_num_threads(threads)


def _train(profiler: Callable[[], Any], make_optimizer: Callable[[Any], Any], steps: int) -> Any:
    """Train a small MLP under the profiler, ``zero_grad`` at the beginning of each step, and return the profile.

    A profile with a schedule is told of no allocation in its step of warming up; if one of them is freed later, it is told the size that
    an earlier profile of the process last saw at the address, if any. So the gradients of that step are held until the end.
    """
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = make_optimizer(model.parameters())
    inputs, targets = torch.randn(32, 64), torch.randint(0, 10, (32,))
    held: list[Any] = []
    with _alone(), profiler() as profile:
        for _ in range(steps):
            if profiler is _scheduled and not held:
                held = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            profile.step()
    return profile


def _profiler(schedule: Any = None) -> Any:
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True, schedule=schedule
    )


def _scheduled() -> Any:
    return _profiler(torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1))


def _functions(node: Any) -> tuple[str, ...]:
    """The Python functions that *node* lies in, innermost first."""
    names = []
    while node := node.parent:
        if node.tag.name in ("PyCall", "PyCCall"):
            names.append(node.name)
    return tuple(names)


def _allocations(profile: Any) -> tuple[Allocation, ...]:
    """The allocations in the profiler's tree of events, in the order of their time."""
    found = []
    waiting = list(profile.profiler.kineto_results.experimental_event_tree())
    while waiting:
        node = waiting.pop()
        waiting += node.children
        if node.name == "[memory]":
            fields = node.extra_fields
            found.append(Allocation(node.start_time_ns, fields.ptr, fields.alloc_size, fields.total_allocated, _functions(node)))
    return tuple(sorted(found, key=lambda each: each.time))


def _timeline(profile: Any) -> tuple[tuple[int, str, str, str, int], ...]:
    """torch's own memory profile: time, action, category before and after, bytes."""
    memory = profile._memory_profile()

    def word(key: Any, version: int) -> str:
        category = memory._categories.get(key, version)
        return "unknown" if category is None or category.name == "AUTOGRAD_DETAIL" else category.name.lower()

    return tuple(
        (time, action.name, word(key, version), word(key, version + 1), size) for time, action, (key, version), size in memory.timeline
    )


def _record(folder: Path, profile: Any, trace_name: str) -> Recording:
    steps = tuple(
        (event.name(), event.start_ns(), event.end_ns())
        for event in profile.profiler.kineto_results.events()
        if event.name().startswith("ProfilerStep#")
    )
    recording = Recording(folder, _allocations(profile), _timeline(profile), tuple(sorted(steps, key=lambda step: step[1])))
    page = importlib.import_module("torch.cuda._memory_viz").profile_plot(profile)
    (folder / "profile_plot.html").write_text(page)
    if hasattr(profile, "export_memory_timeline"):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`export_memory_timeline` is deprecated", FutureWarning)
            for name in ("memory.raw.json.gz", "memory.json.gz", "memory.json", "memory.raw.json"):
                profile.export_memory_timeline(str(folder / name), device="cpu")
            profile.export_memory_timeline(str(folder / "no_index.raw.json.gz"), device="cuda")
    profile.export_chrome_trace(str(folder / trace_name))  # last: the profile cannot be read after it
    return recording


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters),
}


@pytest.fixture(scope="module", params=list(OPTIMIZERS))
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Steps after a step of warming up, which makes the state of the optimizer."""
    profile = _train(_scheduled, OPTIMIZERS[request.param], STEPS + 1)
    return _record(tmp_path_factory.mktemp(request.param), profile, "trace.json" if request.param == "sgd" else "trace.json.gz")


@pytest.fixture(scope="module")
def from_the_first_step(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A loop recorded from its first step on, without a schedule: torch then records no ``ProfilerStep#``."""
    return _record(tmp_path_factory.mktemp("first"), _train(_profiler, OPTIMIZERS["adam"], STEPS), "trace.json")


@pytest.fixture
def memory_timeline(recording: Recording) -> Path:
    path = recording.folder / "memory.raw.json.gz"
    if not path.exists():
        pytest.skip("this release of torch has no export_memory_timeline")
    return path


def test_a_trace_is_the_allocations_that_the_profiler_holds(recording: Recording) -> None:
    trace, own = recording.trace, recording.allocations
    assert (trace.format, trace.assumptions, check(trace)) == ("profiler", (), ())
    (device,) = trace
    events = device.events
    assert (device.device, device.basis, device.identified) == ("cpu", Basis.REQUESTED, True)
    assert events.address.tolist() == [each.address for each in own]
    assert np.where(events.kind == Kind.ALLOC, events.size, -events.size).tolist() == [each.change for each in own]
    assert np.diff(events.time).tolist() == np.diff([each.time for each in own]).tolist()


def test_levels_and_peak_are_the_allocators_totals(recording: Recording) -> None:
    (replayed,) = replay_all(recording.trace)
    totals = [each.total for each in recording.allocations]
    assert replayed.timeline.levels.tolist() == [totals[0] - recording.allocations[0].change, *totals]
    assert (replayed.peak.size, replayed.peak.event, replayed.peak.exact) == (max(totals), totals.index(max(totals)), True)


def test_storages_live_from_alloc_to_free_of_their_address(recording: Recording) -> None:
    (replayed,) = replay_all(recording.trace)
    live: dict[int, tuple[int, int]] = {}
    intervals = []
    for number, each in enumerate(recording.allocations):
        if each.change > 0:
            live[each.address] = (number, each.change)
        else:
            alloc, size = live.pop(each.address)
            assert size == -each.change
            intervals.append((alloc, number, size))
    intervals += [(alloc, len(recording.allocations), size) for alloc, size in live.values()]
    found = replayed.identified_lifetimes()
    assert list(zip(found.alloc.tolist(), found.free.tolist(), found.size.tolist(), strict=True)) == sorted(intervals)


def test_stacks_are_the_functions_around_each_allocation(recording: Recording) -> None:
    trace = recording.trace
    stacks = trace.devices[0].events.stack.tolist()
    assert stacks.count(NO_STACK) == 0
    for stack, each in zip(stacks, recording.allocations, strict=True):
        assert trace.stacks.frames_of(stack) == tuple(map(frame_of, each.functions))
    (replayed,) = replay_all(trace)
    (owner,) = {share.key.rpartition("/")[2] for share in attribute(replayed, "owner", top=None).shares if share.count}
    assert re.fullmatch(rf"{re.escape(Path(__file__).name)}:\d+ _train", owner)


def test_steps_are_those_of_the_profiler(recording: Recording) -> None:
    (replayed,) = replay_all(recording.trace)
    spans = [span for span in replayed.recorded.spans if span.kind == "step"]
    assert [span.name for span in spans] == [name for name, _, _ in recording.steps]
    assert len(spans) == STEPS
    for span, (_, start, stop) in zip(spans, recording.steps, strict=True):
        inside = [number for number, each in enumerate(recording.allocations) if start <= each.time < stop]
        assert (span.start, span.stop) == (inside[0], inside[-1] + 1)
        before = recording.allocations[inside[0]].total - recording.allocations[inside[0]].change
        assert replayed.span_peak(span).size == max(before, *(recording.allocations[number].total for number in inside))
    judged = steady_state(replayed)
    assert judged.how == "spans of kind step"
    assert [step.level for step in judged.steps] == [recording.allocations[span.stop - 1].total for span in spans]
    assert judged.level == judged.steps[-1].level == judged.steps[-2].level


def test_a_loop_that_clears_gradients_first_is_steady_to_its_last_step(from_the_first_step: Recording) -> None:
    """No ``zero_grad`` follows the last step, so its gradients are still there, as they were at the end of every other step."""
    (replayed,) = replay_all(from_the_first_step.trace)
    judged = steady_state(replayed)
    assert judged.how == "ends of the annotation 'Optimizer.step#Adam.step'"
    assert (len(judged.steps), judged.since, judged.drift) == (STEPS, 1, (0,) * (STEPS - 1))
    parameters = 64 * 128 + 128 + 128 * 10 + 10
    step_counters = 4 * 4
    older = replayed.timeline.at(-1)  # what earlier profiles in this process left; the parameters are not in it, as none recorded them
    assert judged.level == older + 3 * parameters * 4 + step_counters  # a gradient and two moments for each parameter


def test_a_memory_timeline_is_the_profilers_own(recording: Recording, memory_timeline: Path) -> None:
    trace = read_trace(memory_timeline)
    assert (trace.format, check(trace)) == ("memory-timeline", ())
    (replayed,) = replay_all(trace)
    level: dict[str, int] = {}
    expected = [dict(level)]
    for _, action, old, new, size in recording.timeline:
        if action in ("DESTROY", _MOVED):
            level[old] = level.get(old, 0) - size
            expected.append(dict(level))
        if action != "DESTROY":
            category = new if action == _MOVED else old
            level[category] = level.get(category, 0) + size
            expected.append(dict(level))
    keys, levels = levels_by(replayed, "category", top=None)
    assert set(keys) == set(level)
    assert {"parameter", "gradient", "optimizer_state", "activation", "input"} <= set(keys)
    for key, row in zip(keys, levels.tolist(), strict=True):
        assert row == [at.get(key, 0) for at in expected]
    assert replayed.timeline.levels.tolist() == [sum(at.values()) for at in expected]
    assert replayed.peak.size == max(sum(at.values()) for at in expected)
    shares = {share.key: share.size for share in attribute(replayed, "category", top=None).shares}
    assert shares == {key: size for key, size in expected[replayed.peak.event + 1].items() if size}


def test_a_memory_timeline_is_the_plot_that_torch_makes_of_it(recording: Recording, memory_timeline: Path) -> None:
    """torch's other export holds the level of each category at the end of each microsecond."""
    (replayed,) = replay_all(read_trace(memory_timeline))
    times, sizes = json.loads((recording.folder / "memory.json").read_text())
    moments = [-1 if time == -1 else int(time / 1000) for time, action, *_ in recording.timeline for _ in range(1 + (action == _MOVED))]
    ends = [row for row, (moment, later) in enumerate(zip(moments, [*moments[1:], None], strict=True)) if moment != later]
    assert len(ends) == len(times)
    assert replayed.timeline.levels[np.array(ends) + 1].tolist() == [sum(row) for row in sizes]
    keys, levels = levels_by(replayed, "category", top=None)
    for column, key in enumerate(("parameter", "optimizer_state", "input", "temporary", "activation", "gradient"), 1):
        row = levels[keys.index(key)][np.array(ends) + 1].tolist() if key in keys else [0] * len(ends)
        assert row == [levels_of_moment[column] for levels_of_moment in sizes]
    before = replayed.recorded.events.time[: moments.count(-1)]
    assert {int(time / 1000) for time in before.tolist()} == {
        times[0]
    }  # what existed before is put where torch puts it: at the first time there is


@pytest.mark.parametrize("name", ["memory.json", "memory.json.gz", "memory.raw.json"])
def test_a_memory_timeline_for_a_plot_is_refused(recording: Recording, memory_timeline: Path, name: str) -> None:
    with pytest.raises(TraceFormatError) as caught:
        read_trace(recording.folder / name)
    (problem,) = caught.value.problems
    assert problem.endswith(f"{name}: this memory timeline holds totals for a plot: export it with a name that ends in .raw.json.gz")


def test_a_memory_timeline_of_a_device_without_an_index_is_refused(recording: Recording, memory_timeline: Path) -> None:
    """``device="cuda"`` is no device that has memory: torch then writes an empty list."""
    with pytest.raises(TraceFormatError, match=r"is an empty list.* 'cuda:0'"):
        read_trace(recording.folder / "no_index.raw.json.gz")


def test_a_page_of_profile_plot_is_the_profilers_own_memory_profile(recording: Recording) -> None:
    trace = read_trace(recording.folder / "profile_plot.html")
    assert (trace.format, trace.release) == ("profile-plot", None)
    assert {finding.code for finding in check(trace)} <= {"free_of_unknown"}  # of what existed before the profile
    (replayed,) = replay_all(trace)
    assert (replayed.device, replayed.reserved, replayed.timeline.basis) == ("cpu", None, Basis.REQUESTED)
    before = sum(size for time, *_, size in recording.timeline if time == -1)
    changes: list[tuple[str | None, int]] = []
    for time, action, old, new, size in recording.timeline:
        if time != -1:
            changes += [(None, -size)] * (action in ("DESTROY", _MOVED))
            changes += [(new if action == _MOVED else old, size)] * (action != "DESTROY")
    events = replayed.recorded.events
    signed = np.where(events.kind == Kind.ALLOC, events.size, -events.size).tolist()
    words = [Category(number).word if size > 0 else None for number, size in zip(events.category.tolist(), signed, strict=True)]
    assert list(zip(words, signed, strict=True)) == changes
    assert replayed.timeline.levels.tolist() == np.cumsum([before, *signed]).tolist()
    assert replayed.assumptions[0].code == "no_time"


def test_owners_in_a_page_of_profile_plot_are_functions_of_this_file(recording: Recording) -> None:
    """The profiler knows of a Python function where it began, or, if it ran already, where it then was."""
    trace = read_trace(recording.folder / "profile_plot.html")
    (replayed,) = replay_all(trace)
    owners = {trace.stacks.frames[frame] for frame in owner_frames(trace.stacks)}
    assert {(Path(owner.filename).name, owner.name) for owner in owners} == {(Path(__file__).name, "_train")}
    assert all(owner.line > 0 for owner in owners)
    found = replayed.identified_lifetimes()
    made = found.category == Category.ACTIVATION
    assert made.any()
    assert (found.stack[made] != NO_STACK).all()
