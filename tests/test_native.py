"""The native formats: writing and reading back is the identity, the same trace gives the same bytes, damage is told in one line."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zipfile
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError, TraceFormatError, TraceInvariantError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Frame, Kind, StackTable, Trace, check
from lifecycle_sim.sources.native import read_jsonl, read_npz, write_jsonl, write_npz
from tests.strategies import traces

WAYS = pytest.mark.parametrize(("write", "read"), [(write_jsonl, read_jsonl), (write_npz, read_npz)], ids=["jsonl", "npz"])


def _types(trace: Trace) -> list[Any]:
    """The types of all columns, which equality of arrays does not compare."""
    tables: list[Any] = [device.events for device in trace]
    tables += [table for device in trace if device.final for table in (device.final.segments, device.final.blocks)]
    return [getattr(table, field.name).dtype for table in tables for field in fields(table)]


@WAYS
@settings(max_examples=120)
@given(trace=traces() | traces(sound=False))
def test_writing_and_reading_back_is_the_identity(write: Any, read: Any, trace: Trace) -> None:
    data = write(trace)
    again = read(data)
    assert again == trace
    assert _types(again) == _types(trace)
    assert write(again) == data


EDGES = [edge for power in (8, 16, 32) for edge in (2**power, 2**power - 1, -(2 ** (power - 1)), 2 ** (power - 1), -(2 ** (power - 1)) - 1)]


@WAYS
@pytest.mark.parametrize("edge", [*EDGES, 2**63 - 1, -(2**63)])
def test_the_edges_of_narrow_integers(write: Any, read: Any, edge: int) -> None:
    device = DeviceTrace("cpu", Events.of([0, 0, 3], [edge, 7, -3], [abs(edge) % 2**63, 1, 1], time=[0, edge, 1]), Basis.PAYLOAD)
    trace = Trace((device,), "native", Evidence.SIMULATED, Clock.TICKS)
    assert read(write(trace)) == trace


@WAYS
def test_entries_of_tables_keep_their_numbers_even_if_two_are_equal(write: Any, read: Any) -> None:
    frame = Frame("f", "a.py", 1)
    events = Events.of([0, 0], [1, 2], [1, 1], label=[1, 2], stack=[2, 1])
    stacks = StackTable((frame, frame), ((0,), (1,), (0,)))
    device = DeviceTrace("cpu", events, Basis.PAYLOAD)
    trace = Trace((device,), "native", Evidence.SIMULATED, Clock.NONE, stacks, labels=("a", "a", "b"), pools=((0, 0), (0, 0)))
    assert read(write(trace)) == trace


@given(traces(min_devices=1))
def test_the_sound_traces_of_the_strategy_are_sound(trace: Trace) -> None:
    assert [finding for finding in check(trace) if finding.code != "free_of_unknown"] == []


MAKE = """
import hashlib
from lifecycle_sim.events import *
from lifecycle_sim.sources.native import write_jsonl, write_npz
events = Events.of([0, 0, 3], [1, 2, 1], [10, 300, 10], time=[0, 1, 70000], label=[0, 1, 0])
device = DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0)
trace = Trace((device,), "native", Evidence.MEASURED, Clock.TICKS, labels=("a", "b"), settings={"b": 1, "a": [2]})
print(hashlib.sha256(write_jsonl(trace) + write_npz(trace)).hexdigest())
"""


def test_the_same_trace_gives_the_same_bytes_in_every_process() -> None:
    events = Events.of([0, 0, 3], [1, 2, 1], [10, 300, 10], time=[0, 1, 70000], label=[0, 1, 0])
    device = DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0)
    trace = Trace((device,), "native", Evidence.MEASURED, Clock.TICKS, labels=("a", "b"), settings={"b": 1, "a": [2]})
    here = hashlib.sha256(write_jsonl(trace) + write_npz(trace)).hexdigest()
    for seed in ("0", "1"):
        run = subprocess.run(
            [sys.executable, "-c", MAKE],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip() == here


def test_what_a_written_line_looks_like() -> None:
    stacks = StackTable((Frame("forward", "m.py", 3), Frame("main", "t.py", 9)), ((0, 1),))
    events = Events.of([Kind.ALLOC, Kind.ALLOC, Kind.FREE], [4096, 8192, 4096], [100, 7, 100], time=[5, 5, 6], stack=[0, -1, -1])
    trace = Trace((DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0),), "native", Evidence.MEASURED, Clock.NANOSECONDS, stacks)
    assert write_jsonl(trace).decode().splitlines() == [
        '{"schema":"lifecycle-sim/trace/1","evidence":"measured","clock":"ns"}',
        '{"frame":["forward","m.py",3]}',
        '{"frame":["main","t.py",9]}',
        '{"stack":[0,1]}',
        '{"device":"cuda:0","basis":"requested","start":0,"identified":true}',
        '{"alloc":4096,"size":100,"time":5,"stack":0}',
        '{"alloc":8192,"size":7}',
        '{"free":4096,"size":100,"time":6}',
    ]


def test_numpy_reads_the_columns_without_pickles() -> None:
    events = Events.of([0, 3], [1, 1], [300, 300])
    trace = Trace((DeviceTrace("cpu", events, Basis.PAYLOAD, start=0),), "native", Evidence.SIMULATED, Clock.NONE)
    with np.load(io.BytesIO(write_npz(trace)), allow_pickle=False) as columns:
        assert sorted(columns) == ["0.address", "0.kind", "0.size", "header", "stack_frames", "stack_stops"]
        assert columns["0.size"].tolist() == [300, 300]
        assert columns["0.size"].dtype == np.uint16


@WAYS
def test_a_trace_that_refers_to_nothing_is_not_written(write: Any, read: Any) -> None:
    events = Events.of([0, 3], [1, 1], [300, 300], stack=[4, -1])
    device = DeviceTrace("cpu", events, Basis.PAYLOAD, start=0)
    trace = Trace((device,), "native", Evidence.SIMULATED, Clock.NONE)
    with pytest.raises(TraceInvariantError, match="cannot write cpu: an event's stack is outside the trace's table of 0"):
        write(trace)
    sound = replace(trace, devices=(replace(device, events=Events.of([0], [1], [3])),))
    with pytest.raises(TraceFormatError, match="surrogates not allowed"):
        write(replace(sound, release="\ud800"))
    with pytest.raises(TraceFormatError, match="cannot be written"):
        write(replace(sound, settings={"a": object()}))
    with pytest.raises(TraceInvariantError, match="more than one record for cpu"):
        write(replace(sound, devices=sound.devices * 2))


# Damage ----------------------------------------------------------------------------------------------------------------------------


@WAYS
@settings(max_examples=80)
@given(trace=traces(min_devices=1), data=st.data())
def test_damaged_bytes_raise_input_errors_only(write: Any, read: Any, trace: Trace, data: st.DataObject) -> None:
    content = bytearray(write(trace))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    try:
        problems: tuple[str, ...] = () if isinstance(read(bytes(content)), Trace) else ("no trace",)
    except InputError as error:
        problems = error.problems
    assert not any("\n" in problem or problem == "no trace" for problem in problems)


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x03\x04" + bytes(40), b"{}", b"\x93NUMPY"])
def test_what_is_no_npz(content: bytes) -> None:
    with pytest.raises(TraceFormatError, match=r"not an .npz file"):
        read_npz(content)


def _npz(**members: Any) -> bytes:
    target = io.BytesIO()
    np.savez_compressed(target, **members)
    return target.getvalue()


def test_a_zip_bomb_is_not_unpacked() -> None:
    with pytest.raises(TraceFormatError, match=r"unpacks to .* over 200 times its size"):
        read_npz(_npz(header=np.zeros(2**25, np.uint8)))


def test_a_column_that_says_it_is_longer_than_it_is() -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (2**50,)})
        archive.writestr("header.npy", header.getvalue() + bytes(8))
    with pytest.raises(TraceFormatError, match=r"header.npy is not one column of integers of the length it says"):
        read_npz(target.getvalue())


def test_pickled_objects_are_not_read() -> None:
    with pytest.raises(TraceFormatError, match=r"header.npy is not one column of integers"):
        read_npz(_npz(header=np.array([{}], dtype=object)))


def test_npz_of_something_else_and_missing_columns() -> None:
    with pytest.raises(TraceFormatError, match=r"holds no header.npy"):
        read_npz(_npz(weights=np.zeros(3)))
    with pytest.raises(TraceFormatError, match="schema 'other/1'"):
        read_npz(_npz(header=np.frombuffer(b'{"schema": "other/1"}', np.uint8)))
    trace = Trace((DeviceTrace("cpu", Events.of([0], [1], [300]), Basis.PAYLOAD),), "native", Evidence.SIMULATED, Clock.NONE)
    with np.load(io.BytesIO(write_npz(trace))) as loaded:
        columns = dict(loaded)
    del columns["0.size"]
    with pytest.raises(TraceFormatError, match=r"0\.size\.npy is missing"):
        read_npz(_npz(**columns))
    with pytest.raises(TraceFormatError, match="columns of Events differ in length"):
        read_npz(_npz(**columns, **{"0.size": np.zeros(2, int)}))
    with pytest.raises(TraceFormatError, match=r"0\.label\.npy holds values beyond int32"):
        read_npz(_npz(**columns, **{"0.size": np.zeros(1, int), "0.label": np.array([2**40])}))
    assert read_npz(_npz(**columns, **{"0.size": np.array([300])})) == trace
