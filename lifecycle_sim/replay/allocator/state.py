"""The allocator's blocks as a snapshot shows them, and the other way: links between blocks from a snapshot's segments."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lifecycle_sim.events import NO_STACK, Blocks, BlockState, MemoryState, Segments
from lifecycle_sim.replay.allocator.blocks import Block


def memory_state(blocks: Iterable[Block]) -> MemoryState:
    """Return the mapped *blocks*, in any order, as segments and the blocks that tile them, both by address."""
    ordered = sorted(blocks, key=lambda block: block.address)
    runs: list[list[Block]] = []
    for block in ordered:
        if block.prev is None or not block.prev.mapped:
            runs.append([])
        runs[-1].append(block)

    def total(name: str, *states: BlockState) -> list[int]:
        return [sum(getattr(block, name) for block in run if not states or _state(block) in states) for run in runs]

    heads, active = [run[0] for run in runs], (BlockState.ALLOCATED, BlockState.PENDING_FREE)
    pool = [head.pool.number >> 1 for head in heads]
    segments = Segments(
        address=_int64(head.address for head in heads),
        size=_int64(total("size")),
        stream=_int64(head.stream for head in heads),
        pool=np.array(pool, np.int32),
        small=np.array([head.pool.small for head in heads], np.bool_),
        expandable=np.array([head.reservation is not None for head in heads], np.bool_),
        allocated=_int64(total("size", BlockState.ALLOCATED)),
        active=_int64(total("size", *active)),
        requested=_int64(total("requested", *active)),
        stack=np.full(len(runs), NO_STACK, np.int32),
    )
    return MemoryState(
        segments,
        Blocks(
            segment=np.repeat(np.arange(len(runs), dtype=np.int32), [len(run) for run in runs]),
            address=_int64(block.address for block in ordered),
            size=_int64(block.size for block in ordered),
            requested=_int64(block.requested for block in ordered),
            state=np.array([_state(block) for block in ordered], np.uint8),
            stack=np.full(len(ordered), NO_STACK, np.int32),
            category=np.zeros(len(ordered), np.uint8),
        ),
    )


def _state(block: Block) -> BlockState:
    if block.allocated:
        return BlockState.ALLOCATED
    return BlockState.INACTIVE if block.key is not None else BlockState.PENDING_FREE


def _int64(values: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.fromiter(values, np.int64)
