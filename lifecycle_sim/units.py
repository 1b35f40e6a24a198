"""The one place that reads and writes sizes and durations with units, and counts without.

A size needs a unit: ``KB``, ``MB``, … are powers of 1000, ``KiB``, ``MiB``, … powers of 1024, ``B`` is a byte. A bare suffix (``4G``)
is ambiguous and therefore an error. Parsing is exact: a value that is not a whole number of bytes or nanoseconds is refused.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import floor

from lifecycle_sim.errors import UnitError

BYTE_UNITS: dict[str, int] = {"B": 1}
BYTE_UNITS.update({prefix + "B": 1000**power for power, prefix in enumerate("KMGTPE", start=1)})
BYTE_UNITS.update({prefix + "iB": 1024**power for power, prefix in enumerate("KMGTPE", start=1)})
BYTE_UNITS["kB"] = 1000

TIME_UNITS: dict[str, int] = {"ns": 1, "us": 1000, "µs": 1000, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}

_QUANTITY = re.compile(r"\s*([+-]?[0-9](?:[0-9_]*[0-9])?(?:\.[0-9]+)?)\s*([A-Za-zµ]*)\s*")


def parse_bytes(text: str, round_down: bool = False) -> int:
    """Return the number of bytes that *text*, such as ``"24 GiB"`` or ``"1.5 MB"``, stands for.

    Args:
        text: the size.
        round_down: whether a part of a byte is dropped, as is right for a limit: ``"11.6 GiB"`` are 12,455,405,158.4 bytes.

    Raises:
        UnitError: no number, no unit, an unknown or bare unit, or a value that is not a whole number of bytes and not *round_down*.
    """
    return _parse(text, BYTE_UNITS, "size", "B", 'write for example "512 MiB" (1024²) or "512 MB" (1000²)', round_down)


def parse_duration(text: str) -> int:
    """Return the nanoseconds that *text*, such as ``"1.5 ms"``, stands for.

    Raises:
        UnitError: no number, no unit, an unknown unit, or a value that is not a whole number of nanoseconds.
    """
    return _parse(text, TIME_UNITS, "duration", "ns", 'write for example "3 us" or "1.5 ms"')


def _parse(text: str, units: dict[str, int], what: str, least: str, mend: str, round_down: bool = False) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(f"{text!r} is not a {what}: {mend}")
    number, unit = match.groups()
    if not unit:
        raise UnitError(f"{what} {text!r} has no unit: {mend}")
    if unit not in units:
        close = [name for name in units if name.lower() in {unit.lower() + ending for ending in ("", "b", "ib")}]
        hint = f"did you mean {' or '.join(close)}?" if close else mend
        raise UnitError(f"{what} {text!r} has the unit {unit!r}, which is not known: {hint}")
    value = Fraction(number.replace("_", "")) * units[unit]
    if value.denominator != 1 and not round_down:
        whole = {"B": "bytes", "ns": "nanoseconds"}[least]
        raise UnitError(f"{what} {text!r} is not a whole number of {whole}: write '{floor(value)} {least}', which is it rounded down")
    return floor(value)


_COUNT = re.compile(r"\s*([+-]?[0-9](?:[0-9_,]*[0-9])?(?:\.[0-9]+)?)(?:[eE]\+?([0-9]{1,3}))?\s*")


MOST_COUNTED = 10**36
"""No count of anything is larger."""


def parse_count(text: str) -> int:
    """Return the whole number that *text*, such as ``"7_000_000"``, ``"1e9"`` or ``"1.5e9"``, stands for, exactly.

    Raises:
        UnitError: no number, a suffix (``7B`` may be a count or bytes), no whole number, or one beyond 10^36.
    """
    match = _COUNT.fullmatch(text) if len(text) <= 60 else None
    if match is None:
        raise UnitError(f"{text!r} is not a count: write for example '7_000_000_000' or '7e9'")
    value = Fraction(match[1].replace("_", "").replace(",", "")) * 10 ** int(match[2] or 0)
    if value.denominator != 1:
        raise UnitError(f"{text!r} is not a whole number: {floor(value):,} is it rounded down")
    if abs(value) > MOST_COUNTED:
        raise UnitError(f"{text!r} is beyond 10^36, which no count is")
    return int(value)


def format_bytes(count: int) -> str:
    """Return *count* bytes in binary units with three decimals at most, the exact count when below 1 KiB: ``"3.026 GiB"``."""
    size = abs(count)
    for power, unit in ((6, "EiB"), (5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            digits = f"{count / 1024**power:.3f}".rstrip("0").rstrip(".")
            return f"{digits} {unit}"
    return f"{count} B"


def format_exact(count: int) -> str:
    """Return *count* bytes in both ways: ``"3,249,143,816 B (3.026 GiB)"``; below 1 KiB the count alone."""
    return f"{count:,} B ({format_bytes(count)})" if abs(count) >= 1024 else f"{count:,} B"


def format_duration(nanoseconds: int) -> str:
    """Return *nanoseconds* in the largest unit not above it: ``"1.5 ms"``."""
    size = abs(nanoseconds)
    for scale, unit in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if size >= scale:
            digits = f"{nanoseconds / scale:.3f}".rstrip("0").rstrip(".")
            return f"{digits} {unit}"
    return f"{nanoseconds} ns"


def format_gb(count: int) -> str:
    """Return *count* bytes in decimal units with three decimals at most: ``"3.249 GB"``, for comparison with what is sold and published."""
    size = abs(count)
    for power, unit in ((5, "PB"), (4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if size >= 1000**power:
            digits = f"{count / 1000**power:.3f}".rstrip("0").rstrip(".")
            return f"{digits} {unit}"
    return f"{count} B"


def format_long(nanoseconds: int) -> str:
    """Return *nanoseconds* in minutes, hours or days where :func:`format_duration` would have thousands of seconds: ``"4.17 days"``."""
    size = abs(nanoseconds)
    for scale, unit in ((86_400 * 10**9, "days"), (3600 * 10**9, "h"), (60 * 10**9, "min")):
        if size >= 2 * scale:
            return f"{nanoseconds / scale:,.2f} {unit}"
    return format_duration(nanoseconds)
