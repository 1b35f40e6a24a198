"""Random sequences of operations × settings × releases: what must hold whatever happens."""

from __future__ import annotations

from bisect import bisect_left
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError, SnapshotError
from lifecycle_sim.events import MemoryState
from lifecycle_sim.replay.allocator import Allocator, Device, LowestAddress, NextAddress
from lifecycle_sim.replay.allocator.release import TieBreak
from tests.allocator_checker import check

MIB = 1 << 20
STREAMS = (0, 0x2000, 0x3000)
SIZES = st.one_of(
    st.integers(1, 4096),
    st.sampled_from([512, 1024, MIB, MIB + 1, 3 * MIB, 10 * MIB, 19 * MIB, 20 * MIB, 21 * MIB, 40 * MIB]),
    st.integers(1, 60).map(lambda n: n * 700_001),
)
SETTINGS = [
    "",
    "max_split_size_mb:25",
    "garbage_collection_threshold:0.5",
    "roundup_power2_divisions:4",
    "expandable_segments:True",
    "expandable_segments:True,garbage_collection_threshold:0.5,roundup_power2_divisions:[1:1,2:8]",
    "large_segment_size_mb:25",
    "expandable_segments:True,large_segment_size_mb:32",
]
RELEASES = ["2.0", "2.1", "2.3", "2.4", "2.9", "2.11", "2.12", "2.13", "2.14"]
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["malloc", "malloc", "malloc", "free", "free", "use", "complete", "empty"]), SIZES, st.integers(0, 99)),
    max_size=60,
)


@st.composite
def allocators(draw: st.DrawFn) -> Allocator:
    capacity = draw(st.sampled_from([None, 64 * MIB, 160 * MIB]))
    policy = draw(st.sampled_from([NextAddress, LowestAddress]))()
    release = draw(st.sampled_from(RELEASES))
    try:
        allocator = Allocator(Device(capacity, policy), draw(st.sampled_from(SETTINGS)), release)
    except InputError:
        allocator = Allocator(Device(capacity, policy), "", release)
    if capacity is not None and draw(st.booleans()):
        allocator.set_memory_fraction(0.75)
    return allocator


def act(allocator: Allocator, actions: list[tuple[str, int, int]]) -> list[int | None]:
    """Carry out the actions; return the addresses that malloc gave."""
    live: list[int] = []
    addresses: list[int | None] = []
    for action, size, number in actions:
        stream = STREAMS[number % 3]
        if action == "malloc":
            address = allocator.malloc(size, stream)
            addresses.append(address)
            if address is not None:
                live.append(address)
        elif action == "complete":
            allocator.complete(stream)
        elif action == "empty":
            allocator.empty_cache()
        elif live and action == "free":
            allocator.free(live.pop(number % len(live)))
        elif live:
            allocator.record_stream(live[number % len(live)], stream)
    return addresses


def check_free_sets(allocator: Allocator) -> None:
    """Assert that the sets of free blocks and holes hold exactly the free blocks and holes, in order and under their true keys."""
    linked = {}
    for start in [*allocator._live.values(), *allocator._waiting.values(), *allocator._free_blocks()]:
        block = start
        while block.prev is not None:
            assert block.prev.next is block
            assert block.prev.address + block.prev.size == block.address
            block = block.prev
        while block is not None:
            linked[id(block)] = block
            block = block.next
    in_sets = set()
    for pool in allocator._all_pools():
        for stream, keys in pool.free.items():
            assert keys == sorted(keys)
            for key in keys:
                block = key[3]
                assert block.key is key
                assert key == (block.size, block.counter, block.address, block)
                assert (block.pool, block.stream, block.allocated, block.mapped, block.events) == (pool, stream, False, True, 0)
                assert keys[bisect_left(keys, key)] is key
                in_sets.add(id(block))
        for stream, holes in pool.unmapped.items():
            assert holes == sorted(holes)
            for address, hole in holes:
                assert (hole.address, hole.pool, hole.stream, hole.mapped, hole.key) == (address, pool, stream, False, None)
                assert hole.reservation is not None
                assert (address - hole.reservation.address) % hole.reservation.page == 0
                assert hole.next is None or hole.next.mapped
                if hole.split:
                    in_sets.add(id(hole))
    assert {key for key, block in linked.items() if block.idle} == in_sets
    assert not any(block.idle == (block.allocated or block.events > 0) for block in linked.values())


@given(allocators(), ACTIONS)
def test_whatever_happens_the_blocks_and_levels_hold_together(allocator: Allocator, actions: list[tuple[str, int, int]]) -> None:
    act(allocator, actions)
    check(allocator)
    check_free_sets(allocator)


@given(allocators(), ACTIONS)
def test_after_everything_is_freed_and_flushed_nothing_is_held_but_parts_of_pages(
    allocator: Allocator, actions: list[tuple[str, int, int]]
) -> None:
    act(allocator, actions)
    for address in list(allocator._live):
        allocator.free(address)
    allocator.empty_cache()
    assert allocator.reserved == 0
    assert allocator.device.held == 0
    check(allocator)


@given(st.sampled_from(RELEASES), st.sampled_from(SETTINGS), ACTIONS, ACTIONS)
def test_an_allocator_restored_from_its_own_state_goes_on_as_before(
    release: str, settings: str, before: list[tuple[str, int, int]], after: list[tuple[str, int, int]]
) -> None:
    """Where the state says all: no pending frees, addresses of new segments as in the original, and no ties by age of objects."""
    try:
        original = Allocator(Device(160 * MIB), settings, release)
    except InputError:
        return
    if original._behaviour.tie_break is TieBreak.BLOCK or original.settings.garbage_collection_threshold:
        return
    act(original, [action for action in before if action[0] not in ("use", "complete")])
    state = original.state()
    restored = Allocator.from_state(state, Device(160 * MIB), settings, release)
    assert restored.state() == state
    assert restored.reserved == original.reserved
    check_free_sets(restored)
    levels, was = restored.levels(), original.levels()
    for name in ("requested", "allocated", "active", "reserved"):
        assert getattr(levels, name).tolist() == [getattr(was, name)[-1]]
    for name, stats in restored.statistics().by_pool.items():
        assert {half: stat.current for half, stat in stats.items()} == {
            half: stat.current for half, stat in original.statistics().by_pool[name].items()
        }
    restored.device.policy = deepcopy(original.device.policy)
    start = len(original)
    mallocs = [action for action in after if action[0] in ("malloc", "empty")]
    replayed = act(restored, mallocs)
    assert act(original, mallocs) == replayed
    assert restored.state() == original.state()
    columns = ("kind", "address", "size", "stream", "pool")
    assert all(np.array_equal(getattr(restored.events(), c), getattr(original.events(), c)[start:]) for c in columns)


def test_pending_blocks_and_private_pools_are_restored() -> None:
    original = Allocator()
    pool = original.create_pool()
    original.begin_pool(pool)
    kept = original.malloc(1000)
    original.end_pool(pool)
    late = original.malloc(3 * MIB)
    assert late is not None
    assert kept is not None
    original.defer(late)
    original.free(late)
    with pytest.raises(InputError, match="pool number 1"):
        Allocator.from_state(original.state())
    restored = Allocator.from_state(original.state(), pools=original.pools)
    assert restored.state() == original.state()
    restored.finish(late)
    restored.free(kept)
    restored.release_pool(pool)
    restored.empty_cache()
    assert restored.reserved == 0
    statistics = restored.statistics()
    assert statistics["active_bytes"].peak == 3 * MIB + 1024
    assert statistics.reserved_by_private_pool[pool]["all"].peak == 2 * MIB


def test_ties_of_restored_segments_go_by_the_order_given() -> None:
    original = Allocator(release="2.13")
    for address in [original.malloc(20 * MIB), original.malloc(20 * MIB)]:
        assert address is not None
        original.free(address)
    low, high = original.state().segments.address.tolist()
    assert Allocator.from_state(original.state()).malloc(20 * MIB) == low
    assert Allocator.from_state(original.state(), order=[1, 0]).malloc(20 * MIB) == high


def test_damaged_states_are_refused() -> None:
    original = Allocator()
    for size in (1000, 2000, 3 * MIB):
        original.malloc(size)
    state = original.state()
    moved = MemoryState(state.segments, replace(state.blocks, address=state.blocks.address + 512 * (np.arange(5) == 1)))
    with pytest.raises(SnapshotError, match="do not tile"):
        Allocator.from_state(moved)
    lower = state.segments.address - MIB * (np.arange(2) == 1)
    overlapping = MemoryState(
        replace(state.segments, address=lower), replace(state.blocks, address=state.blocks.address - MIB * (state.blocks.segment == 1))
    )
    with pytest.raises(SnapshotError, match="overlaps"):
        Allocator.from_state(overlapping)
