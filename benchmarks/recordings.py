"""Makes CUDA memory snapshots of any size that look like training: parameters, then steps that keep, free at once and free backwards."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

SIZES = (2048, 8192, 65536, 1 << 20, 4 << 20, 16 << 20)
BASE, START_US = 0x7F00_0000_0000, 1_700_000_000_000_000


def write_recording(path: Path, events: int, frames: int, kept: int = 1500, seed: int = 0) -> None:
    """Write a snapshot of about *events* events, each with a stack of *frames* frames, to *path*.

    Args:
        path: where to write.
        events: how many events to stop after.
        frames: depth of every stack.
        kept: storages a step keeps for its backward pass.
        seed: same seed, same file.
    """
    rng = random.Random(seed)
    pool = [
        {"filename": f"/env/lib/python3/site-packages/torch/nn/modules/mod_{i % 97}.py", "line": 100 + i, "name": f"forward_{i % 211}"}
        for i in range(2000)
    ]
    own = [{"filename": f"/project/model_{i % 13}.py", "line": i, "name": f"block_{i % 29}"} for i in range(200)]
    stacks = [[*(rng.choice(pool) for _ in range(frames - 1)), rng.choice(own)] for _ in range(2500)]
    trace: list[dict[str, Any]] = []
    live: dict[int, int] = {}
    spare: dict[int, list[int]] = {size: [] for size in SIZES}
    end, now = BASE, START_US

    def add(action: str, address: int, size: int) -> None:
        nonlocal now
        now += rng.randrange(1, 9)
        trace.append(
            {"action": action, "addr": address, "size": size, "stream": 0, "time_us": now, "compile_context": "N/A", "user_metadata": "",
             "pool_id": (0, 0), "frames": rng.choice(stacks)}
        )  # fmt: skip

    def alloc() -> int:
        nonlocal end
        size = rng.choice(SIZES)
        address = spare[size].pop() if spare[size] else end
        if address == end:
            end += size
        add("alloc", address, size)
        live[address] = size
        return address

    def free(address: int) -> None:
        size = live.pop(address)
        add("free_requested", address, size)
        add("free_completed", address, size)
        spare[size].append(address)

    for _ in range(min(200, events // 10)):
        alloc()
    while len(trace) < events:
        saved = []
        while len(saved) < kept and len(trace) < events:
            saved.append(alloc())
            if rng.random() < 0.5:
                free(alloc())
        while saved and len(trace) < events:
            gradient = alloc()
            free(saved.pop())
            free(gradient)
    with path.open("wb") as stream:
        pickle.dump(
            {"segments": [_segment(live, end)], "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}, stream, 4
        )


def _segment(live: dict[int, int], end: int) -> dict[str, Any]:
    blocks, at = [], BASE
    for address, size in [*sorted(live.items()), (end, 0)]:
        if address > at:
            blocks.append({"address": at, "size": address - at, "requested_size": 0, "state": "inactive", "frames": []})
        if size:
            blocks.append({"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": []})
        at = address + size
    held = sum(live.values())
    return {
        "device": 0,
        "address": BASE,
        "total_size": end - BASE,
        "allocated_size": held,
        "active_size": held,
        "requested_size": held,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }
