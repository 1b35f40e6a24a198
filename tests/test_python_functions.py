"""Stacks from Python functions as ranges of time: as a plain search finds them, and frames from the profiler's names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.events import Frame, StackBuilder
from lifecycle_sim.sources.profiler import read_profiler
from lifecycle_sim.sources.python_functions import Call, frame_of, stacks_at


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("model.py(12): forward", Frame("forward", "model.py", 12)),
        ("/a b/(x)(3).py(0): <module>", Frame("<module>", "/a b/(x)(3).py", 0)),
        ("<built-in function linear>", Frame("<built-in function linear>", "??", 0)),
        ("<built-in method sqrt of Tensor object at 0x7fc1190e5310>", Frame("<built-in method sqrt of Tensor object>", "??", 0)),
        ("nn.Module: Linear_0", Frame("nn.Module: Linear_0", "??", 0)),
        ("", Frame("", "??", 0)),
    ],
)
def test_frames_from_names(name: str, frame: Frame) -> None:
    assert frame_of(name) == frame


def _nested(start: int, stop: int, names: list[str], data: st.DataObject, depth: int = 0) -> list[Call]:
    """Calls that follow each other within ``[start, stop]``, with calls inside them; a call may last no time at all."""
    calls = []
    while start < stop and depth < 4 and data.draw(st.booleans()):
        begin = data.draw(st.integers(start, stop))
        start = data.draw(st.integers(begin, stop))
        names.append(f"f.py({len(names)}): f")
        calls += [Call(begin, start, names[-1]), *_nested(begin, start, names, data, depth + 1)]
    return calls


@given(st.data())
def test_the_stack_of_an_instant_is_the_calls_it_lies_in(data: st.DataObject) -> None:
    calls = _nested(0, 12, [], data)
    times = sorted(data.draw(st.lists(st.integers(-1, 13), max_size=8)))
    stacks = StackBuilder()
    numbers = stacks_at(times, data.draw(st.permutations(calls)), stacks)
    table = stacks.table()
    for time, number in zip(times, numbers, strict=True):
        around = [frame_of(call.name) for call in calls if call.start <= time < call.stop]
        assert sorted(table.frames_of(number)) == sorted(around)
        lines = [frame.line for frame in table.frames_of(number)]
        spans = {frame_of(call.name).line: (call.start, -call.stop) for call in calls}
        assert [spans[line] for line in lines] == sorted((spans[line] for line in lines), reverse=True)


def test_stacks_are_those_of_the_thread() -> None:
    def function(name: str, tid: int, ts: int, dur: int) -> dict[str, object]:
        return {"ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}

    def memory(tid: int, ts: int) -> dict[str, object]:
        return {"name": "[memory]", "pid": 1, "tid": tid, "ts": ts, "args": {"Device Type": 1, "Device Id": 0, "Bytes": 512}}

    trace = read_profiler(
        [memory(1, 4), memory(2, 3), memory(3, 2), function("a.py(1): f", 1, 0, 9), function("b.py(2): g", 2, 0, 9), memory(1, 9)]
    )
    stacks = [trace.stacks.frames_of(number) for number in trace.devices[0].events.stack.tolist()]
    assert stacks == [(), (Frame("g", "b.py", 2),), (Frame("f", "a.py", 1),), ()]
