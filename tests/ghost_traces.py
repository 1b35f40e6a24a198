"""Programs recorded with PyTorch's compiled allocator as traces: their events and final segments, as a snapshot would hold them."""

from typing import Any

import numpy as np

from lifecycle_sim.events import (
    NO_STACK,
    Basis,
    Blocks,
    BlockState,
    Clock,
    DeviceTrace,
    Events,
    Evidence,
    Kind,
    MemoryState,
    Segments,
    Trace,
)

STATES = {"inactive": BlockState.INACTIVE, "active_allocated": BlockState.ALLOCATED, "active_pending_free": BlockState.PENDING_FREE}


def trace_of(recording: dict[str, Any]) -> Trace:
    """Return the recorded program as a trace; up to 2.11 its entries do not say their pool."""
    pools = {(0, 0): 0}
    rows = recording["trace"]

    def number(pool: list[int] | None) -> int:
        return 0 if pool is None else pools.setdefault((pool[0], pool[1]), len(pools))

    segments = recording["segments"]
    columns = {
        "kind": [Kind[row[0].upper()] for row in rows],
        "address": [row[1] for row in rows],
        "size": [row[2] for row in rows],
        "stream": [row[3] for row in rows],
        "pool": [number(row[4]) for row in rows],
    }
    count = len(segments)
    unrecorded = np.full(count, -1)
    blocks = [(i, *block) for i, segment in enumerate(segments) for block in segment[6]]
    final = MemoryState(
        Segments(
            address=np.array([segment[0] for segment in segments], np.int64),
            size=np.array([segment[1] for segment in segments], np.int64),
            stream=np.array([segment[2] for segment in segments], np.int64),
            pool=np.array([number(segment[4]) for segment in segments], np.int32),
            small=np.array([segment[3] == "small" for segment in segments], bool),
            expandable=np.array([segment[5] for segment in segments], bool),
            allocated=unrecorded,
            active=unrecorded,
            requested=unrecorded,
            stack=np.full(count, NO_STACK, np.int32),
        ),
        Blocks(
            segment=np.array([block[0] for block in blocks], np.int32),
            address=np.array([block[1] for block in blocks], np.int64),
            size=np.array([block[2] for block in blocks], np.int64),
            requested=np.array([block[3] for block in blocks], np.int64),
            state=np.array([STATES[block[4]] for block in blocks], np.uint8),
            stack=np.full(len(blocks), NO_STACK, np.int32),
            category=np.zeros(len(blocks), np.uint8),
        ),
    )
    device = DeviceTrace("cuda:0", Events.of(**columns), Basis.REQUESTED, final=final)
    settings = {"PYTORCH_CUDA_ALLOC_CONF": recording["settings"]}
    return Trace(
        (device,), "cuda-snapshot", Evidence.MEASURED, Clock.NONE, pools=tuple(pools), release=recording["torch"], settings=settings
    )
