"""Where reserved bytes go that nobody asked for.

    a segment    ├─ requested ─┤ rounding │ tail ├────── free piece ──────┤─ requested ─┤…
    another      ├──────────────────── free, whole ─────────────────────────────────────┤

Requested bytes and the four kinds of waste add up to reserved bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lifecycle_sim.events import BlockState, MemoryState
from lifecycle_sim.replay.allocator.release import Behaviour, Release
from lifecycle_sim.replay.allocator.rounding import SMALL_SEGMENT, round_size
from lifecycle_sim.replay.allocator.settings import AllocatorSettings


@dataclass(frozen=True)
class Waste:
    """The reserved bytes of a state, shared out.

    Attributes:
        requested: bytes asked for, of active blocks.
        rounding: bytes by which requests were rounded up.
        tails: bytes of active blocks behind the rounded request, too small to split off.
        pieces: free bytes that only a new request can take: beside active blocks in a segment, or in pages that are in part active.
        whole: free bytes that could be given back: whole segments, and whole pages of expandable ones.
        pending: of the active bytes (requested, rounding and tails), those of blocks that await their free.
        largest_piece: the largest free block among ``pieces`` and ``whole``.
    """

    requested: int
    rounding: int
    tails: int
    pieces: int
    whole: int
    pending: int
    largest_piece: int

    @property
    def internal(self) -> int:
        """Active bytes that nobody asked for."""
        return self.rounding + self.tails

    @property
    def external(self) -> int:
        """Reserved bytes that are not active."""
        return self.pieces + self.whole

    @property
    def reserved(self) -> int:
        """All bytes held from the device."""
        return self.requested + self.internal + self.external


def waste(state: MemoryState, settings: AllocatorSettings, release: Release) -> Waste:
    """Share out the reserved bytes of *state*, given how requests are rounded."""
    segments, blocks = state.segments, state.blocks
    active = blocks.state != BlockState.INACTIVE
    keeps_size = Behaviour.of(release).one_division_keeps_size
    asked = blocks.requested[active]
    rounded = sum(round_size(size, settings.roundup_power2_divisions, keeps_size) for size in asked.tolist())
    active_bytes, requested = int(blocks.size[active].sum()), int(asked.sum())
    free, owner = blocks.size[~active], blocks.segment[~active]
    start = blocks.address[~active] - segments.address[owner]
    page = np.where(segments.small[owner], SMALL_SEGMENT, settings.large_segment_size)
    pages = np.maximum((start + free) // page * page - -(-start // page) * page, 0)
    entire = np.where(free == segments.size[owner], free, 0)
    whole = int(np.where(segments.expandable[owner], pages, entire).sum())
    return Waste(
        requested=requested,
        rounding=rounded - requested,
        tails=active_bytes - rounded,
        pieces=int(free.sum()) - whole,
        whole=whole,
        pending=int(blocks.size[blocks.state == BlockState.PENDING_FREE].sum()),
        largest_piece=int(free.max(initial=0)),
    )
