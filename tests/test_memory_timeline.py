"""Raw memory timelines: every row one event, levels by category equal to running sums, no peak where only a category changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.errors import TraceFormatError
from lifecycle_sim.events import Basis, Category, Clock, Evidence, Kind, check
from lifecycle_sim.sources.memory_timeline import read_memory_timeline

#        a parameter that exists; an activation is made, becomes a gradient, and goes
ROWS = [
    [-1, 1, 1024, 0],
    [-1, 1, 512, 7],
    [100, 2, 2048, 4],
    [150, 3, -2048, 4],
    [150, 3, 2048, 5],
    [170, 2, 512, 6],
    [200, 4, -2048, 5],
]


def test_a_timeline_by_hand() -> None:
    trace = read_memory_timeline(ROWS)
    assert (trace.format, trace.evidence, trace.clock) == ("memory-timeline", Evidence.MEASURED, Clock.NANOSECONDS)
    (device,) = trace
    assert (device.device, device.start, device.identified) == ("device", 0, False)
    events = device.events
    A, F = Kind.ALLOC, Kind.FREE
    assert events.kind.tolist() == [A, A, A, F, A, A, F]
    assert events.size.tolist() == [1024, 512, 2048, 2048, 2048, 512, 2048]
    assert events.time.tolist() == [100, 100, 100, 150, 150, 170, 200]
    assert [Category(c).word for c in events.category] == [
        "parameter",
        "unknown",
        "activation",
        "activation",
        "gradient",
        "unknown",
        "gradient",
    ]
    assert [trace.label(n) for n in events.label.tolist()] == [None] * 5 + ["autograd_detail", None]
    assert check(trace) == ()


def test_rows_of_no_bytes_are_what_their_action_says() -> None:
    (device,) = read_memory_timeline([[0, 2, 0, 3], [1, 4, 0, 3]])
    assert device.events.kind.tolist() == [Kind.ALLOC, Kind.FREE]


def test_the_basis_is_told_from_the_sizes_and_said() -> None:
    blocks, bytes_ = read_memory_timeline(ROWS), read_memory_timeline([*ROWS, [300, 2, 4, 2]])
    assert (blocks.devices[0].basis, bytes_.devices[0].basis) == (Basis.ALLOCATED, Basis.REQUESTED)
    assert [assumption.code for assumption in (*blocks.assumptions, *bytes_.assumptions)] == ["basis_from_sizes"] * 2
    assert read_memory_timeline([]).devices[0].basis is Basis.REQUESTED


_rows = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from([(2, 1), (4, -1), (3, 1), (3, -1)]), st.integers(0, 4096), st.integers(0, 7)).map(
        lambda row: [row[0], row[1][0], row[1][1] * row[2], row[3]]
    ),
    max_size=30,
)
_NAMES = ["parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "unknown", "unknown"]


@given(_rows)
def test_levels_by_category_are_running_sums_of_the_rows(rows: list[list[int]]) -> None:
    (device,) = read_memory_timeline(rows)
    level: dict[str, int] = {}
    expected: dict[str, int] = {}
    columns = (device.events.kind.tolist(), device.events.size.tolist(), device.events.category.tolist())
    for (_, _, change, category), kind, size, got in zip(rows, *columns, strict=True):
        expected[_NAMES[category]] = expected.get(_NAMES[category], 0) + change
        word = Category(got).word
        level[word] = level.get(word, 0) + (size if kind == Kind.ALLOC else -size)
        assert level == expected


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({}, "a raw memory timeline is a list of"),
        ("rows", "a raw memory timeline is a list of"),
        ([[0, 1], [[0, 0], [1, 2]]], "export it with a name that ends in .raw.json.gz"),
        ([[], []], "export it with a name that ends in .raw.json.gz"),
        ([[1, 2, 3]], "row 0: [1, 2, 3] is not [time, action, bytes, category]"),
        ([[1, 2, 3.5, 1]], "row 0: [1, 2, 3.5, 1] is not"),
        ([[1, 5, 3, 1]], "row 0: action 5 is not known"),
        ([[1, 2, 3, 8]], "row 0: category 8 is not known: 0 to 7"),
        ([[1, 2, 3, -1]], "row 0: category -1 is not known"),
        ([[1, 4, 3, 1]], "row 0: action 4 (destroy) with 3 bytes: the sign is wrong"),
        ([[2**80, 2, 3, 1]], "row 0: a number beyond 2^62"),
    ],
)
def test_malformed_timelines(rows: Any, says: str) -> None:
    with pytest.raises(TraceFormatError) as caught:
        read_memory_timeline(rows)
    assert says in str(caught.value)
