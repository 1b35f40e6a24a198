"""minimalloc instances: half-open intervals, published peaks, and every bad row told with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.errors import TraceFormatError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Evidence, Kind, check
from lifecycle_sim.sources.minimalloc import read_minimalloc

TIGHT = 1_048_576
PEAKS = dict.fromkeys("ABEFGHIK", TIGHT) | {"C": 1_039_360, "D": 986_112, "J": 989_184}
BUFFERS = dict(zip("ABCDEFGHIJK", (154, 170, 203, 213, 215, 296, 308, 316, 374, 409, 454), strict=True))


def _peak(device: DeviceTrace) -> int:
    events = device.events
    return int(np.cumsum(np.where(events.kind == Kind.ALLOC, events.size, -events.size)).max(initial=0))


@pytest.mark.parametrize("name", sorted(PEAKS))
def test_published_instances(shared: Path, name: str) -> None:
    trace = read_minimalloc((shared / f"data/minimalloc/{name}.{TIGHT}.csv").read_text(), TIGHT)
    (device,) = trace
    assert (_peak(device), len(device), device.capacity) == (PEAKS[name], 2 * BUFFERS[name], TIGHT)
    assert (trace.format, trace.evidence, trace.clock, device.basis, device.start) == (
        "minimalloc", Evidence.SIMULATED, Clock.TICKS, Basis.PAYLOAD, 0,
    )  # fmt: skip
    assert check(trace) == ()


def test_frees_at_a_tick_come_before_allocs_and_rows_keep_their_order() -> None:
    trace = read_minimalloc("id,lower,upper,size\nb,3,5,4\na,0,3,4\nc,3,9,1\n")
    (device,) = trace
    events = device.events
    rows = zip(map(trace.label, events.label), map(Kind, events.kind), events.time.tolist(), strict=True)
    assert [(label, kind.name, time) for label, kind, time in rows] == [
        ("a", "ALLOC", 0), ("a", "FREE", 3), ("b", "ALLOC", 3), ("c", "ALLOC", 3), ("b", "FREE", 5), ("c", "FREE", 9),
    ]  # fmt: skip
    assert device.events.address.tolist() == [1, 1, 0, 2, 0, 2]
    assert _peak(device) == 5


def test_other_names_of_the_columns() -> None:
    plain = read_minimalloc("id,lower,upper,size\nx,1,4,8\n")
    assert read_minimalloc("\ufeffsize,buffer_id,begin,upper,alignment,offset\r\n8,x,1,4,2,0\r\n\r\n") == plain
    assert read_minimalloc("buffer,start,end,size\nx,1,3,8\n") == plain, "an end is the last tick, inclusive"
    assert read_minimalloc("id,lower,upper,size,gaps\nx,1,4,8,\n") == plain
    assert len(read_minimalloc("id,lower,upper,size\n")) == 0


_buffers = st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 9), st.integers(0, 99)), max_size=12)


@given(_buffers)
def test_the_peak_is_the_largest_sum_over_instants(buffers: list[tuple[int, int, int]]) -> None:
    rows = [(lower, lower + length, size) for lower, length, size in buffers]
    (device,) = read_minimalloc("id,lower,upper,size\n" + "".join(f"b{n},{a},{b},{s}\n" for n, (a, b, s) in enumerate(rows)))
    assert _peak(device) == max((sum(size for a, b, size in rows if a <= t < b) for t in range(-20, 30)), default=0)
    assert device.events.time.tolist() == sorted(device.events.time.tolist())


def test_every_bad_row_is_listed() -> None:
    text = "id,lower,upper,size\na,0,3,4\na,0,3,4\nb,3,3,4\nc,0,1,-4\nd,0,1\ne,0,1,4 KiB\nf,x,1,4\ng,0,99999999999999999999,4\n"
    with pytest.raises(TraceFormatError) as caught:
        read_minimalloc(text)
    assert list(caught.value.problems) == [
        "line 3: the id 'a' occurs a second time: ids are unique",
        "line 4: the interval [3, 3) of 'b' is empty: upper must be above lower",
        "line 5: the size -4 of 'c' is negative: give bytes, 0 or more",
        "line 6: 3 fields where the header has 4",
        "line 7: '4 KiB' is not a whole number: bytes and ticks are written without a unit",
        "line 8: 'x' is not a whole number: bytes and ticks are written without a unit",
        "line 9: 99999999999999999999 is beyond 2^62",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: no header"),
        ("id,lower,upper\n", "no column 'size'"),
        ("id,lower,uper,size\n", "column 'uper' is not known: did you mean 'upper'?"),
        ("id,lower,begin,upper,size\n", "two columns mean the same"),
        ("id,lower,upper,end,size\n", "two columns mean the same"),
        ("id,lower,upper,size,gaps\nx,1,4,8,2-3\n", "line 2: gaps in an interval are not supported"),
        ("id,lower,upper,size\n" + "9" * 10_000 + ",1,2," + "9" * 5000, "is not a whole number|is beyond"),
    ],
)
def test_malformed_headers(text: str, says: str) -> None:
    with pytest.raises(TraceFormatError, match=says.replace("?", r"\?")):
        read_minimalloc(text)
