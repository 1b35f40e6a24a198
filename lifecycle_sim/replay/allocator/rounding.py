"""How a request becomes a block size, a pool, and the size of the segment to obtain when no free block fits."""

from __future__ import annotations

MIN_BLOCK = 512
"""Every block size is a multiple of this."""
SMALL_REQUEST = 1 << 20
"""Requests that round to at most this go to the small pool."""
SMALL_SEGMENT = 2 << 20
"""The segments of the small pool, and the pages of its expandable segments."""
LARGE_SEGMENT = 20 << 20
"""The default of ``large_segment_size``."""
MIN_LARGE_REQUEST = 10 << 20
"""Requests from this on get a segment of their own size, rounded up to ``LARGE_ROUNDING``."""
LARGE_ROUNDING = 2 << 20
LARGEST_REQUEST = 1 << 60
"""Requests from this on are refused outright."""

DIVISION_ENTRIES = 16
NO_DIVISIONS = (0,) * DIVISION_ENTRIES


def round_up(size: int, step: int) -> int:
    """Return the smallest multiple of *step* that is at least *size*."""
    return -(-size // step) * step


def divisions_for(size: int, divisions: tuple[int, ...]) -> int:
    """Return the entry of the 16 *divisions* that holds for a request of *size* bytes: entry i covers [2^i, 2^(i+1)) MiB."""
    return divisions[min(max(size.bit_length() - 21, 0), DIVISION_ENTRIES - 1)]


def round_to_division(size: int, divisions: int) -> int:
    """Return *size* rounded up to the next of *divisions* equal steps between two powers of two.

    512      640      768      896      1024         divisions = 4, size = 700
     ├────────┼────────┼────────┼────────┤
                   700 ──▶ 768
    """
    if divisions <= 1 or size & (size - 1) == 0:
        return size
    floor = 1 << (size.bit_length() - 1)
    step = floor // divisions
    return round_up(size, step) if step else 2 * floor


def round_size(size: int, divisions: tuple[int, ...] = NO_DIVISIONS, one_division_keeps_size: bool = False) -> int:
    """Return the block size for a request of *size* bytes.

    With *one_division_keeps_size* (PyTorch up to 2.3) a single division leaves requests above 512 bytes as they are, so that block
    sizes need not be multiples of 512.
    """
    if size < MIN_BLOCK:
        return MIN_BLOCK
    count = divisions_for(size, divisions)
    if count > (0 if one_division_keeps_size else 1) and size > MIN_BLOCK * count:
        return round_to_division(size, count)
    return round_up(size, MIN_BLOCK)


def segment_size(rounded: int, large_segment: int = LARGE_SEGMENT) -> int:
    """Return the size of the segment to obtain for a block of *rounded* bytes."""
    if rounded <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if rounded < MIN_LARGE_REQUEST:
        return large_segment
    return round_up(rounded, LARGE_ROUNDING)
