"""The recorded segments and their blocks: what each device held when the snapshot was taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lifecycle_sim.events import NO_STACK, Blocks, BlockState, MemoryState, Segments
from lifecycle_sim.sources.document_problems import Where
from lifecycle_sim.sources.snapshot.context import INT64_MAX, MOST_BYTES, Context

STATES = {
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING_FREE,
    "active_awaiting_free": BlockState.PENDING_FREE,
    "inactive": BlockState.INACTIVE,
}
LAST_DEVICE = 1023


@dataclass
class _Rows:
    """The rows of one device's segments and blocks, as they are read, with where each segment stands."""

    segments: list[tuple[int, ...]] = field(default_factory=list)
    blocks: list[tuple[int, ...]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


def read_segments(segments: Any, where: Where, context: Context) -> dict[int, MemoryState]:
    """Return what each device held, by device index, in ascending order.

    In the 2.0 format blocks have no address: it is the running sum of sizes from the segment's address.
    """
    devices: dict[int, _Rows] = {}
    for s, segment in enumerate(context.listing(segments, where, "segments")):
        place: Where = (*where, s)
        if not isinstance(segment, dict):
            context.problems.wrong(place, segment, "a segment: a dict with device, address, total_size, blocks and more")
            continue
        before = context.problems.count
        device = context.integer(segment, "device", place, low=-1, high=LAST_DEVICE, default=0)
        if context.problems.count > before:
            continue
        rows = devices.setdefault(device, _Rows())
        rows.places.append(s)
        _read_segment(segment, place, rows, context)
    return {device: _state(devices[device], where, context) for device in sorted(devices)}


def empty_state() -> MemoryState:
    """Return the state of a device that held nothing."""
    return _columns(_Rows())


def _read_segment(segment: dict[Any, Any], where: Where, rows: _Rows, context: Context) -> None:
    problems = context.problems
    before = problems.count
    address = context.integer(segment, "address", where)
    size = context.integer(segment, "total_size", where)
    if address > INT64_MAX - size:
        problems.wrong((*where, "total_size"), size, "small enough for the end of the segment to fit 64 bits")
    kind = context.text(segment, "segment_type", where, default="large")
    if kind not in ("small", "large"):
        problems.wrong((*where, "segment_type"), kind, "'small' or 'large'")
    expandable = segment.get("is_expandable", False)
    if type(expandable) is not bool:
        problems.wrong((*where, "is_expandable"), expandable, "True or False")
    row = (
        address,
        size,
        context.integer(segment, "stream", where, low=-INT64_MAX, default=0),
        context.pool(segment.get("segment_pool_id", (0, 0)), (*where, "segment_pool_id")),
        kind == "small",
        expandable is True,
        *(context.integer(segment, key, where, default=-1) for key in ("allocated_size", "active_size", "requested_size")),
        context.stack(segment.get("frames", ()), (*where, "frames")),
    )
    number = len(rows.segments)
    rows.segments.append(row)
    if "blocks" not in segment:
        problems.missing((*where, "blocks"), "a list of blocks")
        return
    end = address
    for b, block in enumerate(context.listing(segment["blocks"], (*where, "blocks"), "blocks")):
        end = _read_block(block, (*where, "blocks", b), number, end, rows, context, in_order=problems.count == before)
    if end != address + size and problems.count == before:
        problems.add((*where, "blocks"), f"add up to {end - address} bytes, should fill the {size} bytes of their segment (total_size)")


def _read_block(block: Any, where: Where, segment: int, expected: int, rows: _Rows, context: Context, *, in_order: bool) -> int:
    """Read a block that should begin at *expected*, which is checked if all before it was *in_order*, and return where it ends."""
    problems = context.problems
    if not isinstance(block, dict):
        problems.wrong(where, block, "a block: a dict with address, size, requested_size and state")
        return expected
    before = problems.count
    size = context.integer(block, "size", where, low=1)
    word = block.get("state")
    state = STATES.get(word) if type(word) is str else None
    if state is None:
        problems.wrong((*where, "state"), word, "one of " + ", ".join(STATES))
        state = BlockState.INACTIVE
    newest = _newest_history(block, where, context)
    if "address" in block:
        address = context.integer(block, "address", where)
        if address != expected and in_order and problems.count == before:
            problems.add(
                (*where, "address"), f"is {address}, should be {expected}: blocks follow each other without gaps from the segment's address"
            )
    else:
        address = expected
        context.assume(
            "addresses_derived", 1, "blocks without an address (PyTorch 2.0) are placed one after the other from their segment's address"
        )
    requested = size
    if "requested_size" in block:
        requested = context.integer(block, "requested_size", where)
    elif state:
        if newest is not None and "real_size" in newest:
            requested = context.integer(newest, "real_size", (*where, "history", 0))
        context.assume(
            "requested_unknown", 1, "active blocks without requested_size count with the size in their history, or their whole size"
        )
    if state and requested > size:
        context.assume("requested_above_size", 1, "active blocks ask for more bytes than they have: the recording contradicts itself")
    stack = context.stack(block.get("frames", ()), (*where, "frames"))
    if stack == NO_STACK and newest is not None and state and "frames" in newest:
        stack = context.stack(newest["frames"], (*where, "history", 0, "frames"))
    rows.blocks.append((segment, address, size, requested, state, stack))
    return address + size


def _newest_history(block: dict[Any, Any], where: Where, context: Context) -> dict[Any, Any] | None:
    """Return the newest entry of a 2.0 block's history, which tells of the allocation that the block holds."""
    history = block.get("history", ())
    if not isinstance(history, (list, tuple)):
        context.problems.wrong((*where, "history"), history, "a list of past allocations")
        return None
    if not history:
        return None
    if not isinstance(history[0], dict):
        context.problems.wrong((*where, "history", 0), history[0], "a dict with addr, real_size and frames")
        return None
    return history[0]


def _state(rows: _Rows, where: Where, context: Context) -> MemoryState:
    """Return the rows as columns, having checked that no segment overlaps another and that sums fit."""
    if context.problems.count:
        return empty_state()
    state = _columns(rows)
    order = np.argsort(state.segments.address, kind="stable")
    address, size = state.segments.address[order], state.segments.size[order]
    for i in np.flatnonzero(address[1:] - address[:-1] < size[:-1]):
        first, second = rows.places[order[i]], rows.places[order[i + 1]]
        context.problems.add((*where, second), f"overlaps segment {first}, should begin at its end or later")
    active = state.blocks.state > 0
    total = float(state.blocks.requested[active].sum(dtype=np.float64))
    if total > MOST_BYTES or float(size.sum(dtype=np.float64)) > MOST_BYTES:
        context.problems.add(where, "holds sizes that add up to 2^62 bytes or more, should stay below")
    return state


def _columns(rows: _Rows) -> MemoryState:
    segments = np.array(rows.segments, np.int64).reshape(-1, 10).T
    blocks = np.array(rows.blocks, np.int64).reshape(-1, 6).T
    return MemoryState(
        Segments(
            address=segments[0].copy(),
            size=segments[1].copy(),
            stream=segments[2].copy(),
            pool=segments[3].astype(np.int32),
            small=segments[4].astype(np.bool_),
            expandable=segments[5].astype(np.bool_),
            allocated=segments[6].copy(),
            active=segments[7].copy(),
            requested=segments[8].copy(),
            stack=segments[9].astype(np.int32),
        ),
        Blocks(
            segment=blocks[0].astype(np.int32),
            address=blocks[1].copy(),
            size=blocks[2].copy(),
            requested=blocks[3].copy(),
            state=blocks[4].astype(np.uint8),
            stack=blocks[5].astype(np.int32),
            category=np.zeros(blocks.shape[1], np.uint8),
        ),
    )
