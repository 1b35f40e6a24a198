"""Profiler traces: order by time, exact times, levels that follow the recorded totals, spans, and what malformed files are told."""

from __future__ import annotations

import contextlib
import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.errors import TraceFormatError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Evidence, Kind, Span, Trace, check
from lifecycle_sim.replay import replay_all
from lifecycle_sim.sources.profiler import _nanoseconds, read_profiler


def _memory(ts: Any, size: Any, device: tuple[int, int] = (1, 0), **more: Any) -> dict[str, Any]:
    return {"ph": "i", "name": "[memory]", "ts": ts, "args": {"Device Type": device[0], "Device Id": device[1], "Bytes": size} | more}


def _levels(device: DeviceTrace) -> list[int]:
    events = device.events
    return ((device.start or 0) + np.cumsum(np.where(events.kind == Kind.ALLOC, events.size, -events.size))).tolist()


def _load(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def test_a_recording_with_addresses_and_totals(shared: Path) -> None:
    document = _load(shared / "data/profiler/hta_df_index_resolver.json.gz")
    trace = read_profiler(document)
    assert (trace.format, trace.evidence, trace.clock, trace.assumptions) == ("profiler", Evidence.MEASURED, Clock.NANOSECONDS, ())
    cuda, cpu = trace
    assert (cuda.device, len(cuda), cuda.basis, cuda.identified) == ("cuda:1", 26_770, Basis.ALLOCATED, True)
    assert (cpu.device, len(cpu), cpu.basis, cpu.start) == ("cpu", 1_240, Basis.REQUESTED, 0)
    assert cuda.capacity == 34_089_730_048
    assert max(_levels(cuda)) == 6_629_508_096

    # The totals of the file itself, sorted here in another way, are the levels.
    recorded = [event for event in document["traceEvents"] if event["name"] == "[memory]" and event["args"]["Device Type"] == 1]
    recorded = [recorded[i] for i in np.argsort([event["ts"] for event in recorded], kind="stable")]
    assert _levels(cuda) == [event["args"]["Total Allocated"] for event in recorded]
    assert cuda.events.time.tolist() == [event["ts"] * 1000 for event in recorded]
    assert check(trace) == ()

    steps = [span for span in cuda.spans if span.kind == "step"]
    assert [(step.name, step.start, step.stop) for step in steps] == [
        (f"ProfilerStep#{number + 2}", number * 5354, (number + 1) * 5354) for number in range(5)
    ]
    assert sum(span.kind == "annotation" for span in cuda.spans) == 2035 - 5


def test_a_recording_without_addresses_and_totals(shared: Path) -> None:
    trace = read_profiler(_load(shared / "data/profiler/kineto_resnet50.pt.trace.json.gz"))
    cuda = trace.device(0)
    assert (cuda.start, cuda.identified, cuda.events.address.tolist()) == (None, False, [-1] * 8220)
    assert max(_levels(cuda)) == 2_791_636_480
    assert _levels(cuda)[-1] == 0
    assert trace.assumptions == ()
    for replayed in replay_all(trace):
        assert [assumption.code for assumption in replayed.assumptions] == ["relative_level"]
        assert replayed.relative
        assert not replayed.peak.exact
        assert replayed.peak.upper is None
    assert [span.name for span in cuda.spans] == [f"ProfilerStep#{number}" for number in range(5, 11)]
    assert check(trace) == ()


def test_order_is_by_time_and_ties_keep_the_order_of_the_file() -> None:
    trace = read_profiler(
        [_memory(9, -4), _memory(5.5, 4), _memory(5.5, 8), _memory(5, 1, (0, -1)), _memory(1, 2, (12, 3)), _memory(1, 2, (99, 0))]
    )
    assert [device.device for device in trace] == ["cuda:0", "device-type-99:0", "xpu:3", "cpu"]
    events = trace.device(0).events
    assert events.time.tolist() == [5500, 5500, 9000]
    assert events.size.tolist() == [4, 8, 4]
    assert events.kind.tolist() == [Kind.ALLOC, Kind.ALLOC, Kind.FREE]


def test_an_address_missing_once_leaves_a_device_unidentified() -> None:
    (device,) = read_profiler([_memory(1, 4, Addr=64), _memory(2, 4)])
    assert not device.identified
    assert device.events.address.tolist() == [-1, -1]
    (device,) = read_profiler([_memory(1, 4, Addr=64), _memory(2, -4, Addr=64)])
    assert device.identified
    assert device.start is None


def test_totals_that_do_not_follow_are_counted_not_refused() -> None:
    rows = [(1, 4, 104), (2, 4, 108), (3, -8, 101), (4, 1, 102)]
    trace = read_profiler([_memory(ts, size, **{"Total Allocated": total}) for ts, size, total in rows])
    assert trace.devices[0].start == 100
    assert [(assumption.code, assumption.count) for assumption in trace.assumptions] == [("total_mismatch", 1)]


def test_spans_are_half_open_in_time() -> None:
    def ranged(name: str, ts: int, dur: int, cat: str = "user_annotation") -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur}

    spans = [
        ranged("ProfilerStep#2", 20, 10),
        ranged("ProfilerStep#1", 10, 10, "Operator"),
        ranged("inner", 12, 3),
        ranged("aten::add", 10, 9, "cpu_op"),
    ]
    (device,) = read_profiler(
        {"traceEvents": [*spans, ranged("inner", 12, 3, "gpu_user_annotation"), *(_memory(ts, 4) for ts in (9, 10, 12, 15, 19, 20, 30))]}
    )
    assert device.spans == (Span("step", "ProfilerStep#1", 1, 5), Span("annotation", "inner", 2, 3), Span("step", "ProfilerStep#2", 5, 6))


@given(st.integers(-(2**50), 2**50) | st.floats(-(2.0**50), 2.0**50))
def test_times_are_exact(microseconds: float) -> None:
    exact = Fraction(microseconds) * 1000
    assert abs(_nanoseconds(microseconds, "ts") - exact) <= Fraction(1, 2)


@given(st.integers(0, 2**43))
def test_a_time_written_with_three_decimals_is_the_nanosecond_it_says(nanoseconds: int) -> None:
    assert _nanoseconds(float(f"{nanoseconds // 1000}.{nanoseconds % 1000:03}"), "ts") == nanoseconds


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({}, "'traceEvents' is not a list"),
        ({"traceEvents": {}}, "'traceEvents' is not a list"),
        ([], "record it with profile_memory=True"),
        ([3], "traceEvents[0]: '3' is not an event object"),
        ([{"name": "[memory]"}], "traceEvents[0]: a [memory] event without args"),
        ([_memory(None, 4)], "ts = None: a time in microseconds is needed"),
        ([_memory(float("nan"), 4)], "ts = nan"),
        ([_memory(True, 4)], "ts = True"),
        ([_memory(1, 4.5)], "[memory] with Bytes = 4.5: a whole number is needed"),
        ([_memory(1, 2**70)], "beyond 2^62"),
        ([_memory(1, 4, ("cuda", 0))], "[memory] with Device Type = 'cuda'"),
        ([_memory(1, 4, Addr="0x1")], "[memory] with Addr = '0x1'"),
        ([{"ph": "X", "name": "ProfilerStep#1", "ts": "now"}], "ts = now"),
    ],
)
def test_malformed_documents(document: Any, says: str) -> None:
    with pytest.raises(TraceFormatError) as caught:
        read_profiler(document)
    assert says in str(caught.value)


def test_every_bad_event_is_listed_up_to_a_limit() -> None:
    with pytest.raises(TraceFormatError) as caught:
        read_profiler([_memory(1, None)] * 1000)
    assert len(caught.value.problems) == 21


_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2), max_leaves=3
)


@given(st.data())
def test_wrong_types_anywhere_give_input_errors_only(data: st.DataObject) -> None:
    event = _memory(1, 4, Addr=64, **{"Total Allocated": 4, "Total Reserved": 9})
    step = {"ph": "X", "name": "ProfilerStep#1", "ts": 0, "dur": 2, "cat": "user_annotation"}
    target = data.draw(st.sampled_from([event, event["args"], step]))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(_junk)
    properties = data.draw(_junk)
    with contextlib.suppress(TraceFormatError):
        assert isinstance(read_profiler({"traceEvents": [event, step], "deviceProperties": properties}), Trace)
