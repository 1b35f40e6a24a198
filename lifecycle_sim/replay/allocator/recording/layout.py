"""Two states of a device compared, segment by segment and block by block."""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle_sim.events import BlockState, MemoryState


@dataclass(frozen=True)
class Layout:
    """How many segments and blocks of a recorded state another one has exactly.

    Attributes:
        segments_exact: segments that agree in all they hold: address, size, stream, pool, and every block.
        segments: those recorded.
        segments_extra: those that were not recorded.
        blocks_exact: blocks that agree in address, size and state, and, unless free, in the bytes asked for.
        blocks: those recorded.
        blocks_extra: those that were not recorded.
        first: address of the first recorded block that is not there; None if all are.
    """

    segments_exact: int
    segments: int
    segments_extra: int
    blocks_exact: int
    blocks: int
    blocks_extra: int
    first: int | None

    @property
    def equal(self) -> bool:
        """Whether the states are the same."""
        return self.segments_exact == self.segments and self.blocks_exact == self.blocks and not self.segments_extra + self.blocks_extra


def compare_layouts(found: MemoryState, recorded: MemoryState) -> Layout:
    """Return how much of the state *recorded* the state *found* has."""
    ours, theirs = _blocks(found), _blocks(recorded)
    our_segments, their_segments = _segments(found, ours), _segments(recorded, theirs)
    missing = sorted(theirs.items() - ours.items())
    return Layout(
        segments_exact=len(our_segments.items() & their_segments.items()),
        segments=len(their_segments),
        segments_extra=len(our_segments.keys() - their_segments.keys()),
        blocks_exact=len(theirs) - len(missing),
        blocks=len(theirs),
        blocks_extra=len(ours.keys() - theirs.keys()),
        first=missing[0][0] if missing else None,
    )


def _blocks(state: MemoryState) -> dict[int, tuple[int, ...]]:
    """For each block's address the row of its segment's address, its size, state and requested bytes (0 where it is free)."""
    b = state.blocks
    columns = (b.address, state.segments.address[b.segment], b.size, b.state, b.requested)
    return {
        address: (segment, size, status, 0 if status == BlockState.INACTIVE else requested)
        for address, segment, size, status, requested in zip(*(column.tolist() for column in columns), strict=True)
    }


def _segments(state: MemoryState, blocks: dict[int, tuple[int, ...]]) -> dict[int, tuple[object, ...]]:
    inside: dict[int, list[tuple[int, ...]]] = {}
    for address, block in sorted(blocks.items()):
        inside.setdefault(block[0], []).append((address, *block))
    s = state.segments
    columns = (s.address, s.size, s.stream, s.pool, s.small, s.expandable)
    return {row[0]: (*row, tuple(inside.get(row[0], ()))) for row in zip(*(column.tolist() for column in columns), strict=True)}
