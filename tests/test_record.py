"""A recording of real steps holds what torch's profiler saw, what a walk through all live tensors finds, and what arithmetic says."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.events import Basis, Evidence, Kind
from lifecycle_sim.sources.capture.anchoring import anchored_first
from lifecycle_sim.sources.capture.ledger import Ledger, Phase, Where

torch: Any = pytest.importorskip("torch", reason="torch is not installed: recordings need it")
from torch import nn  # noqa: E402

from tests.capture_models import JOBS  # noqa: E402

STEPS = 3
COUNTER = 4


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gc.freeze()  # what is there already is passed over by every collection and every walk
    yield
    gc.unfreeze()
    torch.set_num_threads(before)


def signed(trace: ls.Trace, first: int = 0) -> list[int]:
    events = trace.devices[0].events
    sizes = np.where(events.kind == Kind.ALLOC, events.size, -events.size)
    return sizes[first:].tolist()


def levels(trace: ls.Trace) -> list[int]:
    return np.cumsum(signed(trace)).tolist()


def steps_of(trace: ls.Trace) -> list[Any]:
    return [span for span in trace.devices[0].spans if span.kind == "step"]


def held_at(trace: ls.Trace, event: int | None = None) -> dict[str, int]:
    replayed = ls.replay_device(trace)
    return {share.key: share.size for share in ls.attribute(replayed, at=len(trace) - 1 if event is None else event, by="category").shares}


def record_job(job: str, after_step: Callable[[Any, Any, Any], None] = lambda *_: None) -> Any:
    build, batch, make_optimizer, step = JOBS[job]
    model = build()
    optimizer = make_optimizer(model)
    with ls.record(model, optimizer) as recording:
        for _ in range(STEPS):
            inputs = batch()
            step(model, optimizer, inputs)
            del inputs
            gc.collect()
            recording.step()
            after_step(recording, model, optimizer)
    return recording


# ── the trace as a whole ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("job", JOBS)
def test_a_recording_is_sound_replays_and_is_steady_from_the_second_step_on(job):
    trace = record_job(job).trace
    assert ls.check(trace) == ()
    recorded = trace.devices[0]
    assert (recorded.device, recorded.basis, trace.evidence) == ("cpu", Basis.REQUESTED, Evidence.MEASURED)
    replayed = ls.replay_device(trace)
    assert (replayed.peak.size, replayed.peak.lower, replayed.peak.upper) == (max(levels(trace)),) * 3
    assert [span.name for span in steps_of(trace)] == ["step 1", "step 2", "step 3"]
    steady = ls.steady_state(replayed)
    assert steady.level == levels(trace)[-1]
    for by in ("category", "owner"):
        assert sum(share.size for share in ls.attribute(replayed, by=by, top=None).shares) == replayed.peak.size


@pytest.mark.parametrize("job", ["mlp", "conv", "gpt_checkpointed", "llama_accumulates"])
def test_the_level_after_each_step_is_what_a_walk_through_all_live_tensors_finds(job):
    found = []

    def walk(_recording, _model, optimizer):
        gc.collect()
        counters = {state["step"].untyped_storage()._cdata for state in optimizer.state.values() if "step" in state}
        live = {}
        for tensor in gc.get_objects():
            if issubclass(type(tensor), torch.Tensor) and tensor.untyped_storage()._cdata not in counters:
                live[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        found.append(sum(live.values()))

    trace = record_job(job, walk).trace
    assert [levels(trace)[span.stop - 1] for span in steps_of(trace)] == found


def test_in_inference_every_level_is_what_a_walk_finds():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Softmax(-1))
    x, found = torch.randn(5, 8), []

    def walk(*_):
        live = {}
        for tensor in gc.get_objects():
            if issubclass(type(tensor), torch.Tensor):
                live[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        ledger = recording._follower.ledger
        found.append((len(ledger.events), sum(live.values())))

    for layer in model:
        layer.register_forward_hook(walk)
    with torch.no_grad(), ls.record(model) as recording:
        y = model(x)
        assert y.shape == (5, 4)
        recording.step()
    assert len(found) == 4
    assert [levels(recording.trace)[count - 1] for count, _ in found] == [size for _, size in found]


# ── torch's profiler ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def profiled(job: str) -> list[int]:
    """What the profiler saw allocated and freed on the CPU, in order, of the steps that :func:`record_job` records."""
    build, batch, make_optimizer, step = JOBS[job]
    model = build()
    optimizer = make_optimizer(model)
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as profile:
        for _ in range(STEPS):
            inputs = batch()
            step(model, optimizer, inputs)
            del inputs
            gc.collect()
    events = []
    waiting = list(profile.profiler.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.tag == torch._C._profiler._EventType.Allocation and event.extra_fields.device.type == "cpu":
            events.append((event.start_time_ns, event.extra_fields.total_allocated, event.extra_fields.alloc_size))
    return [change for _, _, change in sorted(events, key=lambda each: each[0])]


def left_over(whole: list[int], part: list[int]) -> list[int]:
    """What *whole* has besides *part*, which must be in it in the same order."""
    rest, at = [], 0
    for each in whole:
        if at < len(part) and part[at] == each:
            at += 1
        else:
            rest.append(each)
    assert at == len(part), f"event {at} of {len(part)}, {part[at : at + 3]}, is not in what the profiler saw, in order"
    return rest


@pytest.mark.parametrize("job", ["mlp", "mlp_keeps_gradients", "gpt", "gpt_checkpointed", "gpt_accumulates", "llama", "llama_accumulates"])
def test_the_profiler_saw_every_event_in_the_same_order_and_besides_it_only_scratch_and_counters(job):
    recording = record_job(job)
    before = steps_of(recording.trace)[0].start
    rest = left_over(profiled(job), signed(recording.trace, before))
    freed = Counter(-change for change in rest if change < 0)
    kept = Counter(change for change in rest if change > 0) - freed
    counters = recording.parameters.counters // COUNTER
    assert freed - Counter(change for change in rest if change > 0) == Counter()
    assert kept == (Counter({COUNTER: counters}) if counters else Counter())
    print(job, "scratch:", sorted(freed.items()))


# ── what was there before ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def small() -> tuple[Any, Any]:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    return model, torch.optim.AdamW(model.parameters())


def train(model, optimizer, x, count=1, recording=None):
    for _ in range(count):
        model(x).sum().backward()
        optimizer.step()
        if recording is not None:
            recording.step()


def test_what_was_there_before_is_live_at_the_start_by_category():
    model, optimizer = small()
    x = torch.randn(8, 16)
    train(model, optimizer, x)
    weights = sum(parameter.numel() * 4 for parameter in model.parameters())
    with ls.record(model, optimizer) as recording:
        train(model, optimizer, x, 2, recording)
    trace = recording.trace
    before = steps_of(trace)[0].start
    everything = {"parameter": weights, "gradient": weights, "optimizer_state": 2 * weights, "input": x.numel() * 4}
    assert held_at(trace, before - 1) == everything == held_at(trace)
    (anchored,) = [each for each in trace.assumptions if each.code == "live_before_recording"]
    assert (anchored.count, anchored.size) == (4 * 4 + 1, sum(everything.values()))
    assert recording.parameters.counters == 4 * COUNTER
    replayed = ls.replay_device(trace)
    assert ls.steady_state(replayed).level == sum(everything.values())


def test_data_from_numpy_and_python_is_made_inside():
    model = nn.Linear(4, 1)
    with torch.no_grad(), ls.record(model) as recording:
        for _ in range(3):
            batches = (
                torch.from_numpy(np.ones((50, 4), np.float32)),
                torch.as_tensor(np.ones((60, 4), np.float32)),
                torch.tensor([[1.0] * 4] * 70),
            )
            for x in batches:
                model(x)
            del x, batches
            recording.step()
    trace = recording.trace
    assert [levels(trace)[span.stop - 1] for span in steps_of(trace)] == [20, 20, 20]
    (anchored,) = trace.assumptions
    assert (anchored.code, anchored.count, anchored.size) == ("live_before_recording", 2, 20)
    assert max(levels(trace)) == 20 + (50 + 60 + 70) * 16 + 70 * 4


def test_sparse_gradients_are_their_indices_and_values():
    model = nn.Embedding(100, 8, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters())
    with ls.record(model, optimizer) as recording:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.tensor([1, 2, 3])).sum().backward()
            recording.step()
    trace = recording.trace
    assert ls.check(trace) == ()
    assert held_at(trace)["gradient"] == 3 * 8 * 4
    assert recording.parameters.gradients == 3 * 8 * 4 + 3 * 8


def test_a_lazy_module_is_refused_until_it_has_sizes():
    for ask in (ls.record, ls.params):
        with pytest.raises(ls.CaptureError, match="weight has no size yet: call the lazy module once before"):
            ask(nn.LazyLinear(4))


def test_what_was_there_before_and_dies_inside_is_freed():
    model = nn.Linear(4, 4)
    x = torch.randn(64, 4)
    with torch.no_grad(), ls.record(model) as recording:
        y = model(x)
        del x
        y = y + 1
    sizes = signed(recording.trace)
    assert sizes[:3] == [16 * 4, 4 * 4, 64 * 4 * 4]
    assert sizes[3:] == [64 * 4 * 4, -64 * 4 * 4, 64 * 4 * 4, -64 * 4 * 4]


@given(st.lists(st.tuples(st.sampled_from(["before", "apart", "inside"]), st.integers(0, 20)), min_size=1, max_size=12), st.integers(0, 5))
def test_moving_allocations_to_the_front_keeps_all_else(storages, began):
    ledger, said = Ledger(), {}
    here = Where(Phase.FORWARD, ("layer",))
    for kind, frees in storages:
        number = ledger.alloc(1, f"op {len(said)}", here)
        said[f"op {number}"] = kind
        live = [n for n, storage in enumerate(ledger.storages) if storage.died is None]
        if frees % 3 == 0:
            ledger.free(live[frees % len(live)], Phase.FORWARD)
    began = min(began, len(ledger.events))
    ledger.steps, ledger.backwards = [(began, len(ledger.events))], [began]
    met, gone = ([int(name[3:]) for name, kind in said.items() if kind == wanted] for wanted in ("before", "apart"))

    def told(of: Ledger) -> list[tuple[str, bool]]:
        return [(of.storages[event if event >= 0 else ~event].operator, event >= 0) for event in of.events]

    def inside(events):
        return [(name, born) for name, born in events if said[name] == "inside" or (said[name] == "before" and not born)]

    moved = anchored_first(ledger, met, gone)
    old, new = told(ledger), told(moved)
    assert new == [(f"op {number}", True) for number in met] + inside(old)
    assert [storage.operator for storage in moved.storages] == [name for name, born in new if born]
    for storage in moved.storages:
        assert new[storage.born] == (storage.operator, True)
        assert storage.died is None or new[storage.died] == (storage.operator, False)
    ((start, stop),), (backward,) = moved.steps, moved.backwards
    assert (start, stop) == (backward, len(new))
    assert new[start:] == inside(old[began:])


# ── steps, phases, modules ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_ends_with_the_optimizers_where_the_program_says_nothing():
    model, optimizer = small()
    other = torch.optim.SGD(model.parameters(), 0.1)
    with ls.record(model, [other, optimizer]) as recording:
        for _ in range(2):
            model(torch.randn(8, 16)).sum().backward()
            other.step()
            optimizer.step()
            optimizer.zero_grad()
    spans = steps_of(recording.trace)
    assert len(spans) == 2
    assert spans[0].stop == spans[1].start
    assert sum(change < 0 for change in signed(recording.trace, spans[1].stop)) == 4


def test_phases_and_owners():
    model, optimizer = small()
    with ls.record(model, optimizer) as recording:
        train(model, optimizer, torch.randn(8, 16), 2, recording)
    phases = [span.name for span in recording.trace.devices[0].spans if span.kind == "phase"]
    assert phases == ["forward", "backward", "optimizer"] * 2
    owners = {share.key for share in ls.attribute(ls.replay_device(recording.trace), top=None).shares}
    assert {"<0> setup", "<2> setup", "<0> backward", "<optimizer AdamW> optimizer"} <= owners


def test_the_trace_is_there_when_the_block_fails_and_nothing_is_left_behind():
    model, optimizer = small()
    recording, fits = ls.record(model, optimizer), torch.randn(8, 16)
    with pytest.raises(RuntimeError, match="shapes"), recording:
        model((model(fits), torch.randn(8, 17))[1])
    assert len(recording.trace) > 4
    assert model._forward_pre_hooks == {}
    assert all(not parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_a_recording_changes_nothing():
    def result(recorded: bool) -> list[Any]:
        torch.manual_seed(1)
        model, optimizer = small()
        x = torch.randn(8, 16)
        with ls.record(model, optimizer) if recorded else nothing():
            train(model, optimizer, x, 3)
        return [parameter.detach() for parameter in model.parameters()]

    @contextmanager
    def nothing():
        yield

    assert all(torch.equal(a, b) for a, b in zip(result(True), result(False), strict=True))


def test_a_recording_is_written_and_read_back(tmp_path):
    trace = record_job("mlp").trace
    ls.write(trace, tmp_path / "steps.jsonl")
    again = ls.read_trace(tmp_path / "steps.jsonl")
    assert ls.replay_device(again).peak == ls.replay_device(trace).peak
    assert again.evidence is Evidence.MEASURED
    assert again.assumptions == trace.assumptions


# ── shared identities ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Plain(nn.Module):
    """A parameter, and what a function does with it."""

    def __init__(self, function):
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.zeros(64)), function

    def forward(self):
        return self.function(self.weight)


SHARING = {
    "view": lambda weight: weight.view(8, 8),
    "slice": lambda weight: weight[3:9],
    "transpose": lambda weight: weight.view(8, 8).t(),
    "detach": lambda weight: weight.detach(),
    "data": lambda weight: weight.data,
    "expand": lambda weight: weight.expand(5, 64),
    "split": lambda weight: weight.split(16),
    "set_": lambda weight: torch.empty(0).set_(weight.data),
    "alias": lambda weight: nn.Parameter(weight.detach()),
}


@pytest.mark.parametrize("name", SHARING)
def test_another_name_for_a_storage_adds_no_bytes(name):
    model = Plain(SHARING[name])
    with ls.record(model) as recording:
        kept = model()
        assert kept is not None
    assert signed(recording.trace) == [64 * 4]


def test_set_and_data_let_the_old_storage_go():
    def replaced(weight):
        weight.data = torch.ones(32)
        other = torch.ones(16)
        other.set_(torch.ones(8))
        return other

    with ls.record(model := Plain(replaced)) as recording:
        assert model().shape == (8,)
    assert signed(recording.trace) == [256, 128, -256, 64, 32, -64, -32]


def test_a_storage_that_is_resized_is_seen():
    def resized(_weight):
        tensor = torch.ones(8)
        tensor.untyped_storage().resize_(400)
        return tensor

    with ls.record(model := Plain(resized)) as recording:
        assert model() is not None
    assert signed(recording.trace) == [256, 32, 400, -32, -400]


def test_tied_weights_and_buffers_of_several_layers_count_once():
    shared = torch.zeros(100)
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model[1].weight = model[0].weight
    for layer in model:
        layer.register_buffer("table", shared)
    optimizer = torch.optim.AdamW(model.parameters())
    with ls.record(model, optimizer) as recording:
        train(model, optimizer, torch.randn(2, 8))
    held = held_at(recording.trace)
    assert (held["parameter"], held["buffer"], held["gradient"], held["optimizer_state"]) == (256, 400, 256, 512)


# ── optimizer state ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

OPTIMIZERS: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "SGD": (lambda p: torch.optim.SGD(p, 0.1), ()),
    "SGD_momentum": (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), ("momentum_buffer",)),
    "Adam": (torch.optim.Adam, ("exp_avg", "exp_avg_sq")),
    "AdamW": (torch.optim.AdamW, ("exp_avg", "exp_avg_sq")),
    "AdamW_amsgrad": (lambda p: torch.optim.AdamW(p, amsgrad=True), ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")),
    "Adagrad": (torch.optim.Adagrad, ("sum",)),
    "RMSprop": (torch.optim.RMSprop, ("square_avg",)),
    "RMSprop_centered_mom": (lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9), ("square_avg", "momentum_buffer", "grad_avg")),
    "Adadelta": (torch.optim.Adadelta, ("square_avg", "acc_delta")),
    "Adamax": (torch.optim.Adamax, ("exp_avg", "exp_inf")),
    "NAdam": (torch.optim.NAdam, ("exp_avg", "exp_avg_sq")),
    "RAdam": (torch.optim.RAdam, ("exp_avg", "exp_avg_sq")),
    "Rprop": (torch.optim.Rprop, ("prev", "step_size")),
    "ASGD": (torch.optim.ASGD, ("ax",)),
}


class TwoMatrices(nn.Module):
    """125,000 parameters in two matrices of one size."""

    def __init__(self, dtype):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.full((250, 250), 0.01, dtype=dtype)) for _ in range(2))

    def forward(self):
        return (self.a * self.b).sum()


def state_of(make: Callable[[Any], Any], dtype: Any) -> tuple[Any, dict[str, int], int]:
    model = TwoMatrices(dtype)
    optimizer = make(model.parameters())
    before = ls.params(model, optimizer)
    with ls.record(model, optimizer) as recording:
        model().backward()
        optimizer.step()
        optimizer.zero_grad()
        recording.step()
    return recording.parameters, held_at(recording.trace), before.state + before.counters


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_state_is_the_closed_form(name, dtype):
    make, keys = OPTIMIZERS[name]
    table, held, _ = state_of(make, dtype)
    weights = 125_000 * dtype.itemsize
    assert table.by_key == dict.fromkeys(keys, weights)
    assert held.get("optimizer_state", 0) == table.state == len(keys) * weights
    assert held["parameter"] == table.size == weights
    assert held.get("gradient", 0) == 0


def test_optimizer_state_is_what_was_measured(shared):
    path = shared / "data" / "reference" / "optimizer_state_bytes_torch213.json"
    if not path.is_file():
        pytest.skip("the measured optimizer states are not on this machine")
    checked = 0
    for row in json.loads(path.read_text(encoding="utf-8")):
        if row["optimizer"] not in OPTIMIZERS:
            continue
        table, held, before = state_of(OPTIMIZERS[row["optimizer"]][0], getattr(torch, row["param_dtype"].removeprefix("torch.")))
        assert before == row["state_bytes_before_step"], row["optimizer"]
        assert table.state + table.counters == row["state_bytes_after_step"], row["optimizer"]
        assert held.get("optimizer_state", 0) == row["state_bytes_after_step"] - table.counters, row["optimizer"]
        checked += 1
    assert checked == 2 * len(OPTIMIZERS)


# ── what cannot be recorded ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_wrong_use_is_told_in_a_line():
    model, optimizer = small()
    with pytest.raises(ls.CaptureError, match="model is a function: give a module of torch"):
        ls.record(lambda x: x)
    with pytest.raises(ls.CaptureError, match="optimizer is a str: give an optimizer of torch, a list of them, or None"):
        ls.record(model, ["AdamW"])
    recording = ls.record(model, optimizer)
    with pytest.raises(ls.CaptureError, match="never began: use it in a with block"):
        _ = recording.trace
    with pytest.raises(ls.CaptureError, match="belongs inside of the with block"):
        recording.step()
    with recording:
        with pytest.raises(ls.CaptureError, match="goes on: read its trace after the with block"):
            _ = recording.trace
        with pytest.raises(ls.CaptureError, match="made once"), recording:
            pass
    with pytest.raises(ls.CaptureError, match="made once"), recording:
        pass
    assert "Recording" in recording._repr_html_()


def test_a_snapshot_is_for_cuda_alone():
    model, _ = small()
    with pytest.raises(
        ls.CaptureError, match="a snapshot is CUDA's, and the model is on cpu: move it to CUDA first, or leave snapshot out"
    ):
        ls.record(model, snapshot=True)
    with ls.record(model) as recording:
        pass
    with pytest.raises(ls.CaptureError, match="the recording has no snapshot: ask for it with"):
        _ = recording.allocator


def test_a_module_without_tensors_and_a_block_without_steps():
    with ls.record(nn.ReLU()) as recording:
        pass
    assert len(recording.trace) == 0
    assert ls.check(recording.trace) == ()
