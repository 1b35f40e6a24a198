"""The allocator against recordings: whole runs replayed from nothing, and states at the end of windows restored."""

from pathlib import Path

import numpy as np
import pytest

from lifecycle_sim import read_trace
from lifecycle_sim.events import DeviceTrace, Kind, MemoryState
from lifecycle_sim.replay.allocator import Allocator, Device, settings_from_snapshot
from lifecycle_sim.replay.allocator.recording import open_loop
from tests.allocator_checker import check, check_tiles

SHIPPED = Path(__file__).resolve().parents[1] / "scenarios"
CAPACITY = 80 << 30
STATES = [
    "complete_small",
    "lm_medium_ctx128_train",
    "lm_medium_ctx512_train",
    "lm_small_forward_fp32",
    "lm_train_midrun",
    "rl_pools_state_only",
    "torch20_after_oom",
]


def same_state(found: MemoryState, recorded: MemoryState) -> bool:
    """Whether two states agree in everything but stacks and categories, stale requested sizes of free blocks included."""
    by_address = np.argsort(recorded.segments.address, kind="stable")
    row = np.argsort(by_address)
    blocks = np.argsort(recorded.blocks.address, kind="stable")
    return all(
        np.array_equal(getattr(found.segments, name), getattr(recorded.segments, name)[by_address])
        for name in ("address", "size", "stream", "pool", "small", "expandable")
    ) and all(
        np.array_equal(getattr(found.blocks, name), column[blocks])
        for name, column in {
            "segment": row[recorded.blocks.segment],
            "address": recorded.blocks.address,
            "size": recorded.blocks.size,
            "requested": recorded.blocks.requested,
            "state": recorded.blocks.state,
        }.items()
    )


def replay_requests(device: DeviceTrace, allocator: Allocator) -> None:
    """Ask for what the recording asked for and free what it freed; the rest is the allocator's own doing."""
    events = device.events
    given: dict[int, int] = {}
    for kind, address, size, stream in zip(
        events.kind.tolist(), events.address.tolist(), events.size.tolist(), events.stream.tolist(), strict=True
    ):
        if kind == Kind.ALLOC:
            given[address] = allocator.malloc(size, stream) or 0
        elif kind == Kind.FREE_REQUESTED:
            allocator.free(given[address])


@pytest.mark.parametrize("name", ["torch214_stub_train", "torch214_stub_train_expandable"])
def test_a_whole_run_is_replayed_event_by_event(name: str) -> None:
    trace = read_trace(SHIPPED / f"{name}.pickle")
    recorded = trace.devices[0]
    allocator = Allocator(Device(CAPACITY), settings_from_snapshot(trace.settings), trace.release or "2.14")
    replay_requests(recorded, allocator)
    events = allocator.events()
    for column in ("kind", "address", "size", "stream"):
        assert np.array_equal(getattr(events, column), getattr(recorded.events, column)), column
    assert recorded.final is not None
    assert same_state(allocator.state(), recorded.final)
    check(allocator)


@pytest.mark.parametrize("name", ["complete_small", "lm_medium_ctx128_train", "lm_medium_ctx512_train", "lm_train_midrun"])
def test_blocks_tile_their_segments_at_any_event(name: str, shared: Path) -> None:
    trace = read_trace(shared / "data" / "snapshots" / f"{name}.pickle")
    told = open_loop(trace)
    levels = told.levels
    assert (levels.requested <= levels.active).all()
    assert (levels.allocated <= levels.active).all()
    assert (levels.active <= levels.reserved).all()
    assert (levels.requested + levels.internal_waste + levels.external_waste == levels.reserved).all()
    for event in np.linspace(0, told.events, 6, dtype=int).tolist():
        state = open_loop(trace, stop=event).final
        check_tiles(state)
        assert (state.requested, state.allocated) == (levels.requested[event], levels.allocated[event])
        assert (state.active, state.reserved) == (levels.active[event], levels.reserved[event])


@pytest.mark.parametrize("name", STATES)
def test_a_recorded_state_is_restored_block_by_block(name: str, shared: Path) -> None:
    trace = read_trace(shared / "data" / "snapshots" / f"{name}.pickle")
    recorded = trace.devices[0].final
    assert recorded is not None
    restored = Allocator.from_state(recorded, settings=settings_from_snapshot(trace.settings), pools=trace.pools)
    assert same_state(restored.state(), recorded)
    assert restored.reserved == recorded.reserved
    levels = restored.levels()
    assert (levels.allocated[0], levels.active[0], levels.reserved[0]) == (recorded.allocated, recorded.active, recorded.reserved)
