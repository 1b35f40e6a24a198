"""PyTorch releases, and what the allocator does differently from one to the next."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from lifecycle_sim.errors import InputError

_RELEASE = re.compile(r"\s*v?(\d+)\.(\d+)(?![\d])\S*\s*")


class TieBreak(Enum):
    """What decides between free blocks of equal size on one stream; the address decides last."""

    ADDRESS = "lowest address"
    BLOCK = "block object created first"
    SEGMENT = "segment obtained first, then lowest address"


@dataclass(frozen=True, order=True)
class Release:
    """A PyTorch release, down to the minor number: patch releases have not changed the allocator's decisions."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str | Release) -> Release:
        """Return the release that *text* names: ``"2.13"``, ``"2.14.1+cu130"``. Of a range, ``"2.14+"`` or ``"2.5-2.7"``, the first.

        Raises:
            InputError: *text* names no release, or one before 2.0.
        """
        if isinstance(text, Release):
            return text
        match = _RELEASE.fullmatch(text)
        if match is None:
            raise InputError(f"{text!r} is not a PyTorch release: write it like 2.13")
        release = cls(int(match[1]), int(match[2]))
        if release < OLDEST:
            raise InputError(f"PyTorch {release} is not modelled: the allocator's rules are known from {OLDEST} on")
        return release

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST, NEWEST = Release(2, 0), Release(2, 14)
"""The releases whose behaviour is known; later ones are taken to behave like ``NEWEST``."""


@dataclass(frozen=True)
class Behaviour:
    """The decisions that hang on the release.

    Attributes:
        tie_break: the order among free blocks of equal size.
        one_division_keeps_size: with one power-of-two division a request above 512 bytes is not rounded at all.
        fill_overwrites_last: ``>`` in ``roundup_power2_divisions`` begins at the last named entry instead of one above it.
        zero_divisions: 0 is accepted as a number of divisions.
        expandable_private_pools: private pools may have expandable segments.
        split_bound_is_open: ``max_split_size_mb`` must be above its bound, not at it.
        resets_non_split_rounding: a settings call at run time also resets ``max_non_split_rounding``.
        whole_device_is_a_limit: a memory fraction of 1.0 sets a limit of the whole device instead of removing the limit.
        diversion_is_capture: while any pool diversion is active, events are not processed and the cache is not flushed.
        drops_capture_streams: streams recorded only during a capture are dropped when it ends.
    """

    tie_break: TieBreak
    one_division_keeps_size: bool
    fill_overwrites_last: bool
    zero_divisions: bool
    expandable_private_pools: bool
    split_bound_is_open: bool
    resets_non_split_rounding: bool
    whole_device_is_a_limit: bool
    diversion_is_capture: bool
    drops_capture_streams: bool

    @staticmethod
    @lru_cache(maxsize=64)
    def of(release: Release) -> Behaviour:
        """Return the behaviour of *release*."""
        if release < Release(2, 12):
            tie_break = TieBreak.ADDRESS
        else:
            tie_break = TieBreak.BLOCK if release == Release(2, 12) else TieBreak.SEGMENT
        return Behaviour(
            tie_break=tie_break,
            one_division_keeps_size=release < Release(2, 4),
            fill_overwrites_last=release < Release(2, 10),
            zero_divisions=release >= Release(2, 4),
            expandable_private_pools=release >= Release(2, 5),
            split_bound_is_open=release < Release(2, 10),
            resets_non_split_rounding=release >= Release(2, 10),
            whole_device_is_a_limit=release < Release(2, 10),
            diversion_is_capture=release < Release(2, 13),
            drops_capture_streams=release >= Release(2, 4),
        )
