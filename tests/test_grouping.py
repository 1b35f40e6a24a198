"""Owners of stacks, and groups of storages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Frame, Kind, Span, StackBuilder, StackTable, Trace
from lifecycle_sim.replay import BY, DeviceReplay, group, replay_device
from lifecycle_sim.replay.grouping import innermost_spans, size_class_names, size_classes
from lifecycle_sim.replay.owners import innermost_python_frames, is_folded, owner_frames

MALLOC = Frame("c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**, signed char)", "", 0)
EMPTY = Frame("at::detail::empty_cuda(c10::ArrayRef<long>, c10::TensorOptions const&)", "??", 0)
BMM = Frame("at::native::structured_bmm_out_cuda::impl(at::Tensor const&, at::Tensor const&)", "Blas.cpp", 0)
NODE = Frame("torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)", "??", 0)
LINEAR = Frame("forward", "/env/lib/python3/site-packages/torch/nn/modules/linear.py", 134)
USER = Frame("forward", "/project/model.py", 58)
MAIN = Frame("<module>", "/project/train.py", 12)
RUNPY = Frame("_run_code", "/env/lib/python3.12/runpy.py", 88)


def owner(*stack: Frame) -> Frame | None:
    builder = StackBuilder()
    builder.add(stack)
    table = builder.table()
    return table.frames[owner_frames(table)[0]]


@pytest.mark.parametrize(
    "filename",
    [
        "/env/lib/python3/site-packages/torch/_tensor.py",
        "/usr/lib/python3/dist-packages/torch/optim/adam.py",
        "C:\\env\\Lib\\site-packages\\torch\\nn\\functional.py",
        "/home/me/pytorch/torch/_dynamo/eval_frame.py",
        "torch/nn/modules/module.py",
        "/opt/conda/lib/python3.11/contextlib.py",
        "C:\\Python311\\Lib\\runpy.py",
        "/tmp/torchinductor_me/ab/cabdef.py",
        "<frozen importlib._bootstrap>",
        "<string>",
        "<eval_with_key>.3",
        "??",
        "",
        "ceval.c",
        "RegisterCUDA_0.cpp",
    ],
)
def test_frames_inside_torch_python_and_the_allocator_are_folded(filename: str) -> None:
    assert is_folded(Frame("f", filename, 1))


@pytest.mark.parametrize(
    "filename",
    [
        "/project/model.py",
        "/home/me/torch/train.py",
        "/home/me/torch_models/nn/block.py",
        "/env/lib/python3/site-packages/transformers/generation/utils.py",
        "/env/lib/python3/site-packages/torchvision/models/resnet.py",
        "/env/lib/python3/site-packages/torch_geometric/nn/conv.py",
        "C:\\work\\lib\\net.py",
        "<ipython-input-3-1f2e>",
        "<stdin>",
        "/tmp/ipykernel_77/1234.py",
    ],
)
def test_frames_of_people_and_of_packages_on_top_of_torch_are_not_folded(filename: str) -> None:
    assert not is_folded(Frame("f", filename, 1))


def test_the_owner_is_the_users_innermost_line() -> None:
    assert owner(MALLOC, EMPTY, BMM, LINEAR, USER, MAIN, RUNPY) == USER


def test_a_stack_of_torch_alone_is_owned_by_its_outermost_python_frame() -> None:
    adam = Frame("step", "/env/lib/python3/site-packages/torch/optim/adam.py", 238)
    assert owner(MALLOC, LINEAR, adam, NODE) == adam


def test_a_stack_of_a_backward_thread_is_owned_by_its_autograd_node() -> None:
    assert owner(MALLOC, EMPTY, BMM, NODE) == NODE
    assert owner(MALLOC, EMPTY, BMM) == BMM
    assert owner(MALLOC, EMPTY) == MALLOC


def test_empty_stacks_have_no_owner() -> None:
    table = StackTable((USER,), ((), (0,)))
    assert owner_frames(table) == [-1, 0]
    assert innermost_python_frames(table) == [-1, 0]


def spread(size: list[int], **columns: object) -> DeviceReplay:
    """A replay of allocations without frees, one for each size."""
    trace_columns = {name: columns.pop(name) for name in ("labels", "stacks") if name in columns}
    spans = columns.pop("spans", ())
    events = Events.of([Kind.ALLOC] * len(size), range(len(size)), size, **columns)
    device = DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0, spans=spans)  # type: ignore[arg-type]
    return replay_device(Trace((device,), "native", Evidence.MEASURED, Clock.NONE, **trace_columns))  # type: ignore[arg-type]


def names(replayed: DeviceReplay, by: str) -> list[str]:
    grouping = group(replayed, by)
    assert len(set(grouping.keys)) == len(grouping.keys)
    assert set(grouping.of.tolist()) == set(range(len(grouping.keys)))
    return [grouping.keys[number] for number in grouping.of.tolist()]


def test_groups_by_stack_tell_no_stack_from_an_old_storage() -> None:
    builder = StackBuilder()
    first, second = builder.add([MALLOC, LINEAR, USER]), builder.add([MALLOC, USER])
    events = Events.of([0, 0, 0, Kind.FREE], [1, 2, 3, 9], [8, 8, 8, 8], stack=[first, second, -1, first])
    device = DeviceTrace("cuda:0", events, Basis.REQUESTED)
    replayed = replay_device(Trace((device,), "native", Evidence.MEASURED, Clock.NONE, stacks=builder.table()))
    assert names(replayed, "owner") == ["(older than the window, no stack)", str(USER), str(USER), "(no stack recorded)"]
    assert names(replayed, "frame") == ["(older than the window, no stack)", str(LINEAR), str(USER), "(no stack recorded)"]
    assert names(replayed, "stack")[1:3] == [f"{MALLOC} ← {LINEAR} ← {USER}", f"{MALLOC} ← {USER}"]


def test_groups_by_label_category_and_stream() -> None:
    replayed = spread([1, 2, 3], label=[1, -1, 0], category=[1, 0, 5], stream=[7, 0, 7], labels=("a", "b"))
    assert names(replayed, "label") == ["b", "(no label)", "a"]
    assert names(replayed, "category") == ["parameter", "unknown", "activation"]
    assert names(replayed, "stream") == ["stream 7", "stream 0", "stream 7"]


def test_size_classes_run_from_a_power_of_two_to_below_the_next() -> None:
    assert names(spread([0, 1, 4 << 20, (8 << 20) - 1, 8 << 20]), "size") == [
        "0 B",
        "1 B – 2 B",
        "4 MiB – 8 MiB",
        "4 MiB – 8 MiB",
        "8 MiB – 16 MiB",
    ]
    sizes = np.array([size for k in range(63) for size in (2**k - 1, 2**k)], np.int64)
    assert size_classes(sizes).tolist() == [size.bit_length() for size in sizes.tolist()]
    assert len(size_class_names()) == 64


def test_groups_by_annotation_take_the_innermost_open_one() -> None:
    """outer   [-----------------)
    step          [-----)
    operator        [-)                only counted among operators
    event    0 1  2 3 4 5 6 7 8
    """
    spans = (Span("annotation", "outer", 1, 8), Span("step", "step 0", 2, 5), Span("operator", "mm", 3, 4))
    replayed = spread([1] * 9, spans=spans)
    step = ["step 0"] * 3
    assert names(replayed, "annotation") == ["(outside)", "outer", *step, "outer", "outer", "outer", "(outside)"]
    assert names(replayed, "step") == ["(outside)"] * 2 + step + ["(outside)"] * 4
    assert names(replayed, "operator") == ["(outside)"] * 3 + ["mm"] + ["(outside)"] * 5
    assert names(replayed, "phase") == ["(outside)"] * 9


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8))
def test_innermost_spans_against_a_look_at_every_event(ends: list[tuple[int, int]]) -> None:
    spans = [Span("step", str(number), min(pair), max(pair)) for number, pair in enumerate(ends)]
    position, answer = innermost_spans(spans)
    for event in range(14):
        holding = [(s.start, -s.stop, number) for number, s in enumerate(spans) if s.start <= event < s.stop]
        expected = max(holding)[2] if holding else -1
        assert answer[np.searchsorted(position, event, side="right") - 1] == expected


def test_unknown_keys_and_anonymous_events_are_refused() -> None:
    with pytest.raises(InputError, match="choose one of owner, frame, stack"):
        group(spread([1]), "colour")
    events = Events.of([0], [-1], [5])
    device = DeviceTrace("cuda:0", events, Basis.ALLOCATED, identified=False)
    with pytest.raises(InputError, match="without identities"):
        group(replay_device(Trace((device,), "profiler", Evidence.MEASURED, Clock.NONE)), "owner")


def test_every_key_works_on_a_trace_without_storages() -> None:
    replayed = spread([])
    assert all(group(replayed, by).keys == () for by in BY)
