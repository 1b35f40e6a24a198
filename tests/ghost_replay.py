"""Carry out a recorded allocator program with the model, and list every point in which the two differ."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from lifecycle_sim.events import BlockState, Kind
from lifecycle_sim.replay.allocator import Allocator, Device, LowestAddress, NextAddress, Release, Stat, parse_options

STATES = {BlockState.INACTIVE: "inactive", BlockState.ALLOCATED: "active_allocated", BlockState.PENDING_FREE: "active_pending_free"}


def allocator_for(recording: dict[str, Any]) -> Allocator:
    """Return the allocator that a recording's program starts with."""
    policy = LowestAddress() if recording["policy"] == 1 else NextAddress()
    ids = dict(recording["streams"])
    return Allocator(Device(recording["total"], policy), recording["settings"], recording["torch"], stream_ids=ids)


def carry_out(recording: dict[str, Any], allocator: Allocator) -> list[int | None]:
    """Carry out the program; return the address of each malloc."""
    handles = [handle for handle, _ in recording["streams"]]
    pools = {int(pool): tuple(pool_id) for pool, pool_id in recording["pools"].items()}
    live: dict[int, int] = {}
    addresses: list[int | None] = []
    for name, *args in recording["ops"]:
        if name == "malloc":
            slot, size, stream = args
            address = allocator.malloc(size, handles[stream])
            addresses.append(address)
            if address is not None:
                live[slot] = address
        elif name == "free":
            if args[0] in live:
                allocator.free(live.pop(args[0]))
        elif name == "use":
            if args[0] in live:
                allocator.record_stream(live[args[0]], handles[args[1]])
        elif name == "sync":
            allocator.complete(handles[args[0]])
        elif name == "empty":
            allocator.empty_cache()
        elif name == "fraction":
            allocator.set_memory_fraction(args[0])
        elif name == "options":
            allocator.set_options(args[0])
        elif name == "pool":
            allocator.create_pool(pools[args[0]], **args[1])
        elif name == "begin":
            allocator.begin_pool(pools[args[0]])
        elif name == "begin_stream":
            allocator.begin_pool(pools[args[0]], [handles[args[1]]])
        elif name == "end":
            allocator.end_pool(pools[args[0]])
            allocator.release_pool(pools[args[0]])
        elif name == "drop":
            allocator.release_pool(pools[args[0]])
            allocator.empty_cache(pools[args[0]])
        else:
            raise ValueError(f"unknown operation {name}")
    return addresses


def trace_rows(allocator: Allocator) -> list[list[Any]]:
    """Return the model's events in the shape of a recorded trace."""
    events = allocator.events()
    columns = zip(
        events.kind.tolist(), events.address.tolist(), events.size.tolist(), events.stream.tolist(), events.pool.tolist(), strict=True
    )
    return [[Kind(kind).name.lower(), address, size, stream, list(allocator.pools[pool])] for kind, address, size, stream, pool in columns]


def segment_rows(allocator: Allocator) -> list[list[Any]]:
    """Return the model's segments in the shape of a recorded snapshot."""
    state = allocator.state()
    s, b = state.segments, state.blocks
    rows = [
        [
            int(s.address[i]),
            int(s.size[i]),
            int(s.stream[i]),
            "small" if s.small[i] else "large",
            list(allocator.pools[s.pool[i]]),
            bool(s.expandable[i]),
            [],
        ]
        for i in range(len(s))
    ]
    for segment, address, size, requested, block_state in zip(
        b.segment.tolist(), b.address.tolist(), b.size.tolist(), b.requested.tolist(), b.state.tolist(), strict=True
    ):
        rows[segment][6].append([address, size, requested, STATES[BlockState(block_state)]])
    return rows


def statistics_tree(recording: dict[str, Any], allocator: Allocator) -> dict[str, Any]:
    """Return the model's statistics in the shape of PyTorch's nested dictionary."""

    def row(stat: Stat) -> dict[str, int]:
        return {"current": stat.current, "peak": stat.peak, "allocated": stat.allocated, "freed": stat.freed}

    statistics = allocator.statistics()
    counters = statistics.counters
    limit = parse_options(recording["settings"], recording["torch"]).max_split_size  # PyTorch shows the one that the process began with
    return {
        "num_alloc_retries": counters.alloc_retries,
        "num_ooms": counters.ooms,
        "num_sync_all_streams": counters.sync_all_streams,
        "num_oom_rejections": counters.oom_rejections,
        "num_device_alloc": statistics.num_device_alloc,
        "num_device_free": statistics.num_device_free,
        "max_split_size": -1 if limit is None else limit,
        "oversize_allocations": row(statistics.oversize_allocations),
        "oversize_segments": row(statistics.oversize_segments),
        "reserved_bytes_by_private_pools": {
            pool: {name: row(stat) for name, stat in stats.items()} for pool, stats in statistics.reserved_by_private_pool.items()
        },
    } | {name: {pool: row(stat) for pool, stat in stats.items()} for name, stats in statistics.by_pool.items()}


def differences(recording: dict[str, Any]) -> list[str]:
    """Return one line for the first difference of each kind: placement, trace, final blocks, statistics."""
    allocator = allocator_for(recording)
    addresses = carry_out(recording, allocator)
    found = []
    trace = trace_rows(allocator)
    if any(row[4] is None for row in recording["trace"]):  # up to 2.11 trace entries do not say their pool
        trace = [[*row[:4], None] for row in trace]
    for what, model, real in (
        ("address of malloc", addresses, recording["addresses"]),
        ("trace entry", trace, recording["trace"]),
        ("segment", segment_rows(allocator), recording["segments"]),
    ):
        if model != real:
            at = next((i for i, (a, b) in enumerate(zip(model, real, strict=False)) if a != b), min(len(model), len(real)))
            found.append(f"{what} {at}: model {model[at : at + 1]}, real {real[at : at + 1]} ({len(model)} against {len(real)})")
    tree = statistics_tree(recording, allocator)
    real_tree = dict(recording["statistics"])
    real_tree["reserved_bytes_by_private_pools"] = {
        tuple(pool): stats for pool, stats in real_tree["reserved_bytes_by_private_pools"] if stats["all"]["peak"]
    }
    private = tree["reserved_bytes_by_private_pools"]
    for pool, stats in real_tree["reserved_bytes_by_private_pools"].items():
        if private.get(pool) != stats:
            found.append(f"statistic of private pool {pool}: model {private.get(pool)}, real {stats}")
    for name in sorted(real_tree.keys() - {"reserved_bytes_by_private_pools"}):
        if tree.get(name) != real_tree[name]:
            found.append(f"statistic {name}: model {tree.get(name)}, real {real_tree.get(name)}")
    return found


def deferred_frees_apart(recording: dict[str, Any]) -> bool:
    """Whether the only difference is the order of frees that a diversion deferred: releases 2.9 to 2.12 keep them by block pointer.

    Those releases walk a hash map of pointers there, so that their own order differs from run to run. Runs of ``free_completed`` are
    compared without their order; what the order leaves behind in the state (stale requested sizes) and in peaks is not compared.
    """
    if Release.parse(recording["torch"]) >= Release(2, 13) or not any(op[0] in ("begin", "begin_stream") for op in recording["ops"]):
        return False
    allocator = allocator_for(recording)
    addresses = carry_out(recording, allocator)
    return addresses == recording["addresses"] and _without_order(trace_rows(allocator)) == _without_order(recording["trace"])


def _without_order(trace: list[list[Any]]) -> list[Any]:
    runs = groupby((row[:4] for row in trace), key=lambda row: row[0] == "free_completed")
    return [sorted(run, key=str) if completes else list(run) for completes, run in runs]
