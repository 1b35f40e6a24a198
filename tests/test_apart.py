"""Rows named for people: the user's own lines, nothing that every allocation has, and never two rows alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.output.apart import MOST_FRAMES, frame_of, tell_apart
from lifecycle_sim.output.printable import short_cpp
from lifecycle_sim.replay import attribute, replay_all
from lifecycle_sim.sources.detect import read_trace

UNWIND = ["?? torch::unwind::unwind()", "?? torch::CapturedTraceback::gather(bool, bool, bool)"]
MALLOC = " c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**, signed char, unsigned long, CUstream_st*)"
MODULE = "/env/lib/python3/site-packages/torch/nn/modules/module.py:1794 _call_impl"
MINE, MAIN = "/project/model.py:12 forward", "/project/train.py:3 <module>"


def joined(*frames):
    return " ← ".join(frames)


def test_a_stack_shows_the_users_lines_and_the_innermost_one_of_python():
    linear = "/env/lib/python3/site-packages/torch/nn/modules/linear.py:134 forward"
    assert tell_apart([joined(*UNWIND, MALLOC, linear, MODULE, MINE, MODULE, MAIN)]) == [
        "…/modules/linear.py:134 forward ← /project/model.py:12 forward ← /project/train.py:3 <module>"
    ]


def test_a_backward_thread_is_its_autograd_node():
    node = "?? torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)"
    assert tell_apart([joined(*UNWIND, MALLOC, node, "?? __clone")]) == ["torch::autograd::AccumulateGrad::apply(…)"]


def test_stacks_that_differ_below_python_show_the_frame_that_differs():
    rows = [joined(*UNWIND, f"?? at::_ops::{op}::call(at::Tensor const&)", "?? PyEval_EvalCode", MINE) for op in ("mul", "add")]
    assert tell_apart(rows) == [f"at::_ops::{op}::call(…) ← /project/model.py:12 forward" for op in ("mul", "add")]


def test_stacks_that_differ_between_the_users_lines_show_that_frame():
    one, other = ("/env/lib/python3/site-packages/torch/nn/modules/a.py:1 x", "/env/lib/python3/site-packages/torch/nn/modules/b.py:1 x")
    assert tell_apart([joined(MINE, one, MAIN), joined(MINE, other, MAIN)]) == [
        "/project/model.py:12 forward ← …/modules/a.py:1 x ← /project/train.py:3 <module>",
        "/project/model.py:12 forward ← …/modules/b.py:1 x ← /project/train.py:3 <module>",
    ]


def test_deep_stacks_are_cut_where_nothing_differs():
    deep = [f"/project/m{number}.py:1 f" for number in range(20)]
    (text,) = tell_apart([joined(*deep)])
    assert text.count(".py") == MOST_FRAMES
    assert text.endswith("… ← /project/m19.py:1 f")
    other = [*deep[:10], "/project/x.py:1 f", *deep[11:]]
    one, two = tell_apart([joined(*deep), joined(*other)])
    assert "m10.py" in one
    assert "x.py" in two


def test_files_of_one_name_in_folders_of_one_name_are_told_by_their_whole_path():
    rows = ["/a/x/model.py:1 f", "/b/x/model.py:1 f", "/c/y/model.py:1 f"]
    assert tell_apart(rows) == [*rows[:2], "…/y/model.py:1 f"]


def test_long_names_are_cut_unless_they_would_look_alike():
    one, two = "a" * 100 + "b" + "c" * 200, "a" * 100 + "x" + "c" * 200
    assert len(tell_apart([one])[0]) == 160
    assert tell_apart([one, two]) == [one, two]


def test_recursion_is_told_by_the_number_of_frames():
    texts = tell_apart([joined(*[MINE] * 40, MAIN), joined(*[MINE] * 41, MAIN)])
    assert texts[0].endswith("(41 frames)")
    assert texts[1].endswith("(42 frames)")


frames = st.sampled_from(
    [*UNWIND, MALLOC, MODULE, MINE, MAIN, "/other/project/model.py:12 forward", "?? at::_ops::mul::call(int)", "?? f<a>::g()"]
)
names = st.one_of(st.text(max_size=30), st.lists(frames, min_size=1, max_size=12).map(" ← ".join))


@given(st.lists(names, unique=True, max_size=8))
def test_no_two_rows_look_alike(keys):
    texts = tell_apart(keys)
    assert len(texts) == len(keys) == len(set(texts))
    assert all(text.isprintable() for text in texts)


@pytest.mark.parametrize("by", ["stack", "owner", "frame"])
def test_rows_of_a_recording_differ_and_show_no_plumbing(shared, by):
    trace = read_trace(shared / "data/snapshots/lm_medium_ctx128_train.pickle")
    for replayed in replay_all(trace):
        keys = [share.key for share in attribute(replayed, by, top=None).shares]
        texts = tell_apart(keys)
        assert len(set(texts)) == len(texts)
        assert not any(word in text for text in texts for word in ("unwind", "CapturedTraceback", "NativeCachingAllocator"))


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("/a/b.py:12 f", ("f", "/a/b.py", 12)),
        ("<string>:3 g", ("g", "<string>", 3)),
        ("/a/b.py f", ("f", "/a/b.py", 0)),
        ("?? torch::unwind::unwind()", ("torch::unwind::unwind()", "??", 0)),
        ("a.cpp c10::f(int, int)", ("c10::f(int, int)", "a.cpp", 0)),
    ],
)
def test_frames_are_read_back(text, frame):
    assert tuple(frame_of(text)) == frame


def test_template_arguments_are_left_out():
    name = "void torch::autograd::AccumulateGrad::accumulateGrad<std::function<void (at::Tensor&&)> >(at::Tensor const&)"
    assert short_cpp(name) == "void torch::autograd::AccumulateGrad::accumulateGrad<…>(…)"
