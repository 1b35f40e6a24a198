"""JSON lines as people write them: names, units, frames in text; and what they are told when they err."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from lifecycle_sim.errors import InputError, TraceFormatError, TraceInvariantError
from lifecycle_sim.events import Basis, Category, Clock, Evidence, Frame, Kind, Span, Trace
from lifecycle_sim.sources.native import read_jsonl, write_jsonl

HEADER = '{"schema": "lifecycle-sim/trace/1"}\n'


def _read(text: str, header: str = HEADER) -> Trace:
    return read_jsonl((header + textwrap.dedent(text)).encode())


def _problems(text: str, header: str = HEADER) -> list[str]:
    with pytest.raises(InputError) as caught:
        _read(text, header)
    return list(caught.value.problems)


MINIMAL = """\
{"alloc": "weights", "size": "4 MiB"}
{"alloc": "x", "size": 1024, "time": 5, "category": "input"}
{"free": "x", "time": 9}
"""


def test_the_minimal_example() -> None:
    trace = _read(MINIMAL)
    assert (trace.format, trace.evidence, trace.clock) == ("native", Evidence.SIMULATED, Clock.TICKS)
    assert trace.labels == ("weights", "x")
    (device,) = trace
    assert (device.device, device.basis, device.start, device.identified, device.final) == ("device", Basis.PAYLOAD, 0, True, None)
    events = device.events
    assert events.kind.tolist() == [Kind.ALLOC, Kind.ALLOC, Kind.FREE]
    assert events.address.tolist() == [0, 1, 1]
    assert events.size.tolist() == [4 * 2**20, 1024, 1024]
    assert events.time.tolist() == [0, 5, 9]
    assert events.label.tolist() == [0, 1, 1]
    assert events.category.tolist() == [Category.UNKNOWN, Category.INPUT, Category.INPUT]
    assert read_jsonl(write_jsonl(trace)) == trace


def test_blank_lines_comments_and_a_byte_order_mark_are_passed_over() -> None:
    assert read_jsonl(b"\xef\xbb\xbf# a comment\r\n\r\n" + (HEADER + MINIMAL).replace("\n", "\r\n  # more\r\n").encode()) == _read(MINIMAL)


def test_without_times_there_is_no_clock() -> None:
    assert _read('{"alloc": "a", "size": 1}').clock is Clock.NONE
    assert _read("").devices == ()


def test_times_with_units_need_the_clock() -> None:
    text = '{"alloc": "a", "size": 1, "time": "1.5 us"}'
    assert _read(text, '{"schema": "lifecycle-sim/trace/1", "clock": "ns"}\n').devices[0].events.time.tolist() == [1500]
    assert _problems(text) == ['line 2: time \'1.5 us\' has a unit: that needs "clock": "ns" in the header']


def test_frames_in_text_as_objects_and_interned() -> None:
    trace = _read("""\
        {"alloc": "a", "size": 1, "stack": ["model.py:12 forward", "train.py:3"]}
        {"alloc": "b", "size": 1, "stack": [{"name": "forward", "filename": "model.py", "line": 12}, {"filename": "train.py", "line": 3}]}
        {"alloc": "c", "size": 1, "stack": ["layers.0"]}
        {"alloc": "d", "size": 1, "stack": []}
        """)
    assert trace.devices[0].events.stack.tolist() == [0, 0, 1, -1]
    assert trace.stacks.frames_of(0) == (Frame("forward", "model.py", 12), Frame("", "train.py", 3))
    assert trace.stacks.frames_of(1) == (Frame("layers.0", "", 0),)


def test_several_devices_sections_and_single_lines() -> None:
    trace = _read("""\
        {"alloc": "a", "size": 1, "device": "cpu"}
        {"device": "cuda:0", "capacity": "24 GiB", "start": 100, "basis": "requested"}
        {"alloc": "a", "size": 2}
        {"free": "a", "device": "cpu"}
        {"free": "a"}
        """)
    assert [(d.device, d.capacity, d.start, d.events.size.tolist()) for d in trace] == [
        ("cpu", None, 0, [1, 1]),
        ("cuda:0", 24 * 2**30, 100, [2, 2]),
    ]


def test_spans_that_begin_and_end_between_events() -> None:
    trace = _read("""\
        {"begin": "step 1", "kind": "step"}
        {"alloc": "a", "size": 1}
        {"begin": "forward"}
        {"free": "a"}
        {"end": "step 1"}
        {"alloc": "b", "size": 1}
        {"span": "all", "start": 0, "stop": 3}
        """)
    assert trace.devices[0].spans == (
        Span("step", "step 1", 0, 2),
        Span("annotation", "forward", 1, 3, closed=False),
        Span("annotation", "all", 0, 3),
    )


def test_numbers_and_amounts() -> None:
    trace = _read("""\
        {"alloc": 4096, "size": 10}
        {"free": 4096}
        {"free": 8192, "size": 5}
        {"device": "cpu"}
        {"alloc": null, "size": 64, "category": "gradient"}
        {"free": null, "size": 64, "category": "gradient"}
        """)
    known, amounts = trace
    assert known.identified
    assert known.events.size.tolist() == [10, 10, 5]
    assert not amounts.identified
    assert amounts.events.address.tolist() == [-1, -1]


def test_names_are_lifecycles_not_addresses_forever() -> None:
    """A name may come back after it was freed; a share and a release take its size."""
    trace = _read("""\
        {"alloc": "a", "size": 1, "stream": 7, "pool": [1, 2]}
        {"share": "a", "label": "view"}
        {"release": "a"}
        {"free_requested": "a"}
        {"free_completed": "a"}
        {"alloc": "a", "size": 2}
        """)
    events = trace.devices[0].events
    assert events.address.tolist() == [0] * 6
    assert events.size.tolist() == [1, 1, 1, 1, 1, 2]
    assert events.stream.tolist() == [7, 7, 7, 7, 7, 0]
    assert events.pool.tolist() == [1, 1, 1, 1, 1, 0]
    assert trace.pools == ((0, 0), (1, 2))
    assert [trace.label(n) for n in events.label.tolist()] == ["a", "view", "a", "a", "a", "a"]


def test_a_final_state_by_hand() -> None:
    (device,) = _read("""\
        {"alloc": 4096, "size": 500}
        {"segment": 4096, "size": "2 MiB", "small": true}
        {"block": 4096, "size": 512, "requested": 500}
        {"block": 4608, "size": 2096640, "state": "inactive"}
        """)
    assert device.final is not None
    assert device.final.reserved == 2**21
    assert device.final.requested == 500
    assert device.final.blocks.segment.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"alloc": "a"}', "alloc of 'a' has no size: write bytes as an integer, or text with a unit"),
        ('{"alloc": "a", "size": -4}', "size -4 is negative"),
        ('{"alloc": "a", "size": "-4 KiB"}', "size '-4 KiB' is negative"),
        ('{"alloc": "a", "size": "4G"}', "did you mean GB or GiB?"),
        ('{"alloc": "a", "size": 1.5}', "size 1.5 is not a size: write bytes as an integer"),
        ('{"alloc": "a", "size": true}', "size True is not a size"),
        ('{"alloc": "a", "size": 9223372036854775808}', "beyond 2^63 bytes"),
        ('{"fre": "a", "label": "x"}', "its first key is 'fre': did you mean 'free'?"),
        ('{"alloc": "a", "szie": 1}', "key 'szie' is not known in a line with 'alloc': did you mean 'size'?"),
        ('{"aloc": "a", "size": 1}', "its first key is 'aloc': did you mean 'alloc'?"),
        ('{"alloc": "a", "free": "b"}', "'alloc' and 'free' in one line: write one event a line"),
        ('{"alloc": "a", "size": 1, "category": "weights"}', "category 'weights' is not known: known are activation, buffer"),
        ('{"alloc": "a", "size": 1, "stack": 3}', "stack 3 is not in the table above it, which has 0"),
        ('{"alloc": "a", "size": 1, "stack": "f"}', "stack 'f' is not a list of frames"),
        ('{"alloc": "a", "size": 1, "stack": [{"file": "x"}]}', 'neither "file:line name" nor an object'),
        ('{"alloc": "a", "size": 1, "pool": [1]}', "pool [1] is neither [a, b] nor a number"),
        ('{"alloc": "a", "size": 1, "label": 1.5}', "label 1.5 is neither text nor a number"),
        ('{"alloc": "a", "size": 1, "device": 0}', "device 0 is not text"),
        ('{"alloc": "a", "size": 1, "time": 1.5}', "time 1.5 is not a 64-bit integer"),
        ('{"alloc": 1.5, "size": 1}', "alloc 1.5 is not a 64-bit integer"),
        ('{"free": 1, "device": "other"}', "free of 1 has no size"),
        ('{"segment_alloc": "s", "size": 1}', "segment_alloc of 's': give its address as a number"),
        ('{"free": "weight"}', "free of 'weight', which was never allocated: did you mean 'weights'?"),
        ('{"free": "x"}', "free of 'x', which was freed before"),
        ('{"alloc": "weights", "size": 1}', "alloc of 'weights', which is live: free it first, or choose another name"),
        ('{"alloc": 7, "size": 1}', "storages of one device have names or numbers, not both"),
        ('{"end": "step"}', "end of 'step', which no line above begins"),
        ('{"stack": [0]}', "stack [0] refers to a frame that no line above gives"),
        ('{"block": 0, "size": 1}', "the block is in no segment above it"),
        ('{"device": "d", "basis": "bytes"}', "Invalid enum value 'bytes'"),
        ('{"device": "d", "capacity": "24"}', "has no unit"),
        ('{"span": "a", "start": 0}', "missing required field `stop`"),
        ("[1]", "not a JSON object on a line of its own"),
        ('{"alloc": "a"', "not a JSON object on a line of its own"),
        ("{}", "the line says nothing known"),
    ],
)
def test_a_wrong_line_is_told_with_its_number(line: str, says: str) -> None:
    (problem,) = _problems(MINIMAL + line)
    assert problem.startswith("line 5: ")
    assert says in problem


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("", "no header"),
        ('{"alloc": "a", "size": 1}', "line 1: a first line without schema: this release reads"),
        ('{"schema": "lifecycle-sim/trace/2"}', "line 1: schema 'lifecycle-sim/trace/2': this release reads"),
        ('{"schema": "lifecycle-sim/trace/1", "clok": "ns"}', "line 1: key 'clok' is not known in the header: did you mean 'clock'?"),
        ('{"schema": "lifecycle-sim/trace/1", "clock": "hours"}', "line 1: the header: Invalid enum value 'hours'"),
        ("\xff", "line 1: not a JSON object"),
    ],
)
def test_a_wrong_header(header: str, says: str) -> None:
    (problem,) = _problems("", header + "\n" if header else "")
    assert says in problem


def test_all_problems_are_listed_at_once_but_not_what_follows_from_them() -> None:
    problems = _problems("""\
        {"alloc": "a", "size": "4G"}
        {"free": "a"}
        {"free": "b"}
        {"device": "d", "start": "x"}
        """)
    assert [problem.split(":")[0] for problem in problems] == ["line 2", "line 4", "line 5"]


def test_a_long_list_of_problems_ends() -> None:
    problems = _problems('{"free": "a"}\n' * 1000)
    assert len(problems) == 21
    assert problems[-1] == "further problems are not listed: mend these 20 first"


def test_the_kind_of_error() -> None:
    with pytest.raises(TraceInvariantError):
        _read('{"free": "a"}')
    with pytest.raises(TraceFormatError):
        _read('{"alloc": "a"}')
    with pytest.raises(TraceInvariantError, match="a span leaves the device's 1 events"):
        _read('{"alloc": "a", "size": 1}\n{"span": "s", "start": 0, "stop": 2}')


def test_the_examples_of_the_documentation() -> None:
    """Every JSON line that docs/formats.md shows whole is read; the first block is a file."""
    text = (Path(__file__).resolve().parents[1] / "docs" / "formats.md").read_text()
    block = text.split("```json\n")[1].split("```")[0]
    assert read_jsonl(block.encode()) == _read(MINIMAL)
    lines = [line for line in re.findall(r"`(\{\"[^`]*\})`", text) if "…" not in line and line.startswith('{"') and ":" in line]
    assert len(lines) == 8
    order = ("device", "begin", "alloc", "end", "frame", "stack", "label", "span", "segment", "block")
    extra = [f'{{"alloc": "s{n}", "size": 1}}' for n in range(8)] + ['{"segment": 4096, "size": "2 MiB"}']
    extra += ['{"frame": ["f", "g", 1]}'] * 3
    whole = sorted([*lines, *extra], key=lambda line: order.index(line.split('"')[1]))
    assert len(_read("\n".join(whole)).devices[0]) == 8
