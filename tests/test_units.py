"""Sizes and durations: exact, never without a unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.errors import UnitError
from lifecycle_sim.units import BYTE_UNITS, format_bytes, format_duration, format_exact, parse_bytes, parse_duration


@pytest.mark.parametrize(
    ("text", "size"),
    [("0 B", 0), ("512B", 512), ("1.5 KiB", 1536), ("4 GB", 4 * 10**9), ("24 GiB", 24 * 2**30), ("1_000 kB", 10**6), ("8 EiB", 2**63)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4G", "did you mean GB or GiB"),
        ("4", "has no unit"),
        ("1.5 B", "not a whole number"),
        ("4 parsecs", "not known"),
        ("", "is not a size"),
        ("1 gib", "did you mean GiB"),
        ("nan B", "is not a size"),
        ("1e3 B", "not known|is not a size"),
    ],
)
def test_sizes_refused(text: str, says: str) -> None:
    with pytest.raises(UnitError, match=says):
        parse_bytes(text)


@given(st.integers(0, 2**62), st.sampled_from(sorted(BYTE_UNITS)))
def test_a_whole_number_of_any_unit_is_exact(count: int, unit: str) -> None:
    assert parse_bytes(f"{count} {unit}") == count * BYTE_UNITS[unit]


def test_durations() -> None:
    assert parse_duration("1.5 ms") == 1_500_000
    with pytest.raises(UnitError, match="no unit"):
        parse_duration("3")
    with pytest.raises(UnitError, match="whole number of nanoseconds"):
        parse_duration("0.5 ns")


def test_formats() -> None:
    assert format_bytes(3_249_143_816) == "3.026 GiB"
    assert format_bytes(-1536) == "-1.5 KiB"
    assert format_exact(3_249_143_816) == "3,249,143,816 B (3.026 GiB)"
    assert format_exact(12) == "12 B"
    assert format_duration(1_500_000) == "1.5 ms"
    assert format_duration(7) == "7 ns"
