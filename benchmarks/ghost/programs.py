"""Random allocator programs: lists of plain operations that the compiled allocator and the model both carry out.

An operation is a list: ["malloc", slot, size, stream] · ["free", slot] · ["use", slot, stream] (record_stream) · ["sync", stream] ·
["empty"] · ["fraction", f] · ["options", text] · ["pool", p, {flags}] · ["begin", p] · ["begin_stream", p, stream] · ["end", p] ·
["drop", p]. Streams are numbered; 0 is the default stream. A free of a slot whose malloc failed does nothing.
"""

from __future__ import annotations

import random
from typing import Any

MIB = 1 << 20
EDGES = [1, 511, 512, 513, 1024, MIB - 512, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 1, 10 * MIB - 1, 10 * MIB, 10 * MIB + 1]
EDGES += [19 * MIB - 512, 19 * MIB, 19 * MIB + 1, 20 * MIB, 20 * MIB + 1, 21 * MIB, 22 * MIB, 32 * MIB, 40 * MIB, 64 * MIB]

SETTINGS = {
    "default": "",
    "expandable": "expandable_segments:True",
    "toggling": "",
    "split": "max_split_size_mb:32",
    "garbage": "garbage_collection_threshold:0.6",
    "divisions": "roundup_power2_divisions:4",
    "division_list": "roundup_power2_divisions:[1:2,4:8,32:1,>:4]",
    "large_segment": "large_segment_size_mb:25",
    "expandable_large": "expandable_segments:True,large_segment_size_mb:32",
    "split_garbage": "max_split_size_mb:20,max_non_split_rounding_mb:24,garbage_collection_threshold:0.5",
    "expandable_all": "expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:8,garbage_collection_threshold:0.7",
    "refusing": "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5",
    "refusing_expandable": "expandable_segments:True,throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.6",
    "fraction": "per_process_memory_fraction:0.4,garbage_collection_threshold:0.8,max_split_size_mb:24",
}
"""What each group of programs runs under."""

RUN_TIME = ["max_split_size_mb:40", "garbage_collection_threshold:0.3", "roundup_power2_divisions:2", "max_non_split_rounding_mb:26"]


def program(group: str, seed: int, length: int = 260, holds_pools: bool = False) -> dict[str, Any]:
    """Return program number *seed* of a group: where it runs (device bytes, address policy) and its operations.

    With *holds_pools* no pool is dropped while requests are diverted to another: PyTorch up to 2.12 aborts on that.
    """
    rng = random.Random(f"{group}/{seed}")
    settings = SETTINGS[group]
    total = rng.choice([80 << 30, 512 * MIB, 256 * MIB, 160 * MIB, 96 * MIB])
    streams = rng.choice([1, 2, 3, 6])
    side_streams_used = rng.choice([0, 2, streams])
    pools = rng.random() < 0.4
    ops: list[list[Any]] = []
    if "garbage" in settings and rng.random() < 0.8 and "fraction" not in settings:
        ops.append(["fraction", rng.choice([0.3, 0.5, 0.75])])
    keeps_pools = "expandable" in settings or group == "toggling"
    walk = _Walk(rng, streams, side_streams_used, pools, keeps_pools, holds_pools)
    walk.big = min(total // 3, 96 * MIB)
    while len(ops) < length:
        ops.append(walk.step())
        if rng.random() < 0.004:
            ops.append(["fraction", rng.choice([0.4, 0.6, 0.9, 1.0])])
        if group == "toggling" and rng.random() < 0.03:
            ops.append(["options", f"expandable_segments:{rng.choice([True, False])}"])
        elif rng.random() < 0.006 and group != "toggling" and "expandable" not in settings:
            ops.append(["options", rng.choice(RUN_TIME)])
    ops += [["end", pool] for pool in walk.diverted]
    return {"name": f"{group}/{seed}", "settings": settings, "total": total, "policy": rng.choice([0, 1, 1]), "ops": ops}


class _Walk:
    """Draws one operation after the other and keeps track of what is live."""

    def __init__(self, rng: random.Random, streams: int, used: int, pools: bool, keeps_pools: bool, holds_pools: bool) -> None:
        self.rng, self.streams, self.used, self.pools, self.keeps_pools = rng, streams, used, pools, keeps_pools
        self.holds_pools = holds_pools
        self.big = 96 * MIB
        self.live: list[int] = []
        self.slots = 0
        self.made: list[int] = []
        self.pool_count = 0
        self.lenders: list[int] = []
        self.diverted: list[int] = []
        self.lean = rng.choice([0.45, 0.5, 0.55])

    def size(self) -> int:
        rng = self.rng
        draw = rng.random()
        if draw < 0.2:
            return rng.choice([edge for edge in EDGES if edge <= self.big])
        if draw < 0.3:
            return rng.choice([4096, 65536, 3 * MIB, 12 * MIB])
        if draw < 0.65:
            return int(2 ** rng.uniform(0, 20.5))
        return int(2 ** rng.uniform(20, self.big.bit_length() - 0.99))

    def step(self) -> list[Any]:
        rng = self.rng
        draw = rng.random()
        if self.pools and draw < 0.05:
            return self.pool_step()
        if draw < 0.06:
            return ["empty"]
        if draw < 0.12 and self.used:
            return ["sync", rng.randrange(self.used + 1) if self.used < self.streams else rng.randrange(self.streams)]
        if self.live and draw < 0.22 and self.used:
            return ["use", rng.choice(self.live), rng.randrange(min(self.used + 1, self.streams))]
        if self.live and rng.random() < self.lean:
            return ["free", self.live.pop(rng.randrange(len(self.live)))]
        self.slots += 1
        self.live.append(self.slots)
        return ["malloc", self.slots, self.size(), rng.choice([0, 0, rng.randrange(self.streams)])]

    def pool_step(self) -> list[Any]:
        rng = self.rng
        if self.diverted and rng.random() < 0.6:
            return ["end", self.diverted.pop(rng.randrange(len(self.diverted)))]
        idle = [pool for pool in self.made if pool not in self.diverted]
        if idle and rng.random() < 0.25 and not self.keeps_pools and not (self.holds_pools and self.diverted):
            self.made.remove(pool := rng.choice(idle))
            return ["drop", pool]
        if idle and rng.random() < 0.7:
            self.diverted.append(pool := rng.choice(idle))
            if self.streams == 1 or pool in self.lenders or rng.random() < 0.7:
                return ["begin", pool]
            return ["begin_stream", pool, rng.randrange(1, self.streams)]
        self.pool_count += 1
        self.made.append(self.pool_count)
        flags = {"use_on_oom": self.pool_count == 1 and rng.random() < 0.4, "no_split": rng.random() < 0.3}
        if flags["use_on_oom"]:  # PyTorch refuses to lend from a pool that is diverted to for another stream
            self.lenders.append(self.pool_count)
        return ["pool", self.pool_count, flags]
