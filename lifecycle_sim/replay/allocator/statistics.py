"""Statistics and levels: pure functions of the log, in the names of ``torch.cuda.memory_stats()``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.allocator import log
from lifecycle_sim.replay.allocator.pools import PoolId

NO_SPLIT_LIMIT = 1 << 62
"""Stands for an unlimited ``max_split_size``."""


@dataclass(frozen=True)
class Stat:
    """One statistic: its value, its highest value, and the sums of all that came and went."""

    current: int
    peak: int
    allocated: int
    freed: int

    @classmethod
    def of(cls, deltas: Int64, start: int = 0) -> Stat:
        """Return the statistic that starts at *start* and changes by *deltas*, one after the other."""
        current = start + int(deltas.sum())
        peak = max(start, start + int(np.cumsum(deltas).max(initial=0)))
        came = start + int(deltas[deltas > 0].sum())
        return cls(current, peak, came, came - current)


@dataclass
class Counters:
    """What the log does not show.

    Attributes:
        alloc_retries: second attempts after a flush, successful or not.
        ooms: requests that failed in the end.
        sync_all_streams: how often every event was waited for.
        oom_rejections: requests refused without an attempt.
    """

    alloc_retries: int = 0
    ooms: int = 0
    sync_all_streams: int = 0
    oom_rejections: int = 0


@dataclass(frozen=True)
class Statistics:
    """Statistics by name and pool.

    Attributes:
        by_pool: for each name, the statistic of ``"all"``, ``"small_pool"`` and ``"large_pool"``.
        reserved_by_private_pool: reserved bytes of each private pool that ever held any, likewise.
        oversize_allocations: blocks handed out that were not smaller than ``max_split_size``.
        oversize_segments: likewise segments.
        counters: retries, failures and synchronisations.
        num_device_alloc: segments obtained and ranges mapped.
        num_device_free: segments given back and ranges unmapped.
    """

    by_pool: dict[str, dict[str, Stat]]
    reserved_by_private_pool: dict[PoolId, dict[str, Stat]]
    oversize_allocations: Stat
    oversize_segments: Stat
    counters: Counters
    num_device_alloc: int
    num_device_free: int

    def __getitem__(self, name: str) -> Stat:
        """Return the statistic called *name* over both pools, such as ``"reserved_bytes"``."""
        return self.by_pool[name]["all"]


@dataclass(frozen=True)
class Levels:
    """Bytes after each event, and before the first (element 0): arrays of one element more than there are events."""

    requested: Int64
    allocated: Int64
    active: Int64
    reserved: Int64

    @property
    def internal_waste(self) -> Int64:
        """Bytes of active blocks that nobody asked for: rounding and unsplit tails."""
        return self.active - self.requested

    @property
    def external_waste(self) -> Int64:
        """Bytes held from the device in no active block."""
        return self.reserved - self.active


def levels(rows: Int64, base: Int64) -> Levels:
    """Return the four levels over the events of *rows*, starting from the state that the rows *base* build."""

    def level(name: str) -> Int64:
        start = sum(int(delta.sum()) for stat, delta in _deltas(base) if stat == name)
        changes = next(delta for stat, delta in _deltas(rows) if stat == name)
        return start + np.concatenate([np.zeros(1, np.int64), np.cumsum(changes)])

    return Levels(level("requested_bytes"), level("allocated_bytes"), level("active_bytes"), level("reserved_bytes"))


def statistics(
    rows: Int64, base: Int64, split_limits: Sequence[tuple[int, int]], counters: Counters, pools: Sequence[PoolId]
) -> Statistics:
    """Return the statistics of the events in *rows*.

    Args:
        rows: the log.
        base: rows that build the state before the first event.
        split_limits: (index of an event, ``max_split_size`` from that event on), ascending.
        counters: what the log does not show.
        pools: the ids of the pools; entry 0 is the default pool.
    """
    large, large_base = rows[:, log.POOL] & 1 == 1, base[:, log.POOL] & 1 == 1
    before = dict(_deltas(base))

    def by_pool(name: str, delta: Int64, here: Any = True, there: Any = True) -> dict[str, Stat]:
        first = before[name]
        return {
            "all": Stat.of(delta[here & (large | ~large)], int(first[there & (large_base | ~large_base)].sum())),
            "small_pool": Stat.of(delta[here & ~large], int(first[there & ~large_base].sum())),
            "large_pool": Stat.of(delta[here & large], int(first[there & large_base].sum())),
        }

    changes = dict(_deltas(rows))
    private = {
        pools[number]: by_pool(
            "reserved_bytes", changes["reserved_bytes"], rows[:, log.POOL] >> 1 == number, base[:, log.POOL] >> 1 == number
        )
        for number in range(1, len(pools))
    }
    kind = rows[:, log.KIND]
    limit = _limit_at(len(rows), split_limits)
    first_limit = split_limits[0][1] if split_limits else NO_SPLIT_LIMIT

    def oversize(name: str, size: int) -> Stat:
        start = int(before[name][base[:, size] >= first_limit].sum())
        return Stat.of(np.where(rows[:, size] >= limit, changes[name], 0), start)

    return Statistics(
        by_pool={name: by_pool(name, delta) for name, delta in changes.items()},
        reserved_by_private_pool={pool: stats for pool, stats in private.items() if stats["all"].peak},
        oversize_allocations=oversize("allocation", log.BLOCK),
        oversize_segments=oversize("segment", log.SIZE),
        counters=counters,
        num_device_alloc=int(np.isin(kind, (log.SEGMENT_ALLOC, log.SEGMENT_MAP)).sum()),
        num_device_free=int(np.isin(kind, (log.SEGMENT_FREE, log.SEGMENT_UNMAP)).sum()),
    )


def _deltas(rows: Int64) -> Iterator[tuple[str, Int64]]:
    """Yield the name of each statistic with its change at each row."""
    kind, size, block = rows[:, log.KIND], rows[:, log.SIZE], rows[:, log.BLOCK]

    def difference(up: Sequence[int], down: Sequence[int]) -> Int64:
        return np.isin(kind, up).astype(np.int64) - np.isin(kind, down)

    handed_out, active = difference([log.ALLOC], [log.FREE_REQUESTED]), difference([log.ALLOC], [log.FREE_COMPLETED])
    yield "allocation", handed_out
    yield "allocated_bytes", handed_out * block
    yield "active", active
    yield "active_bytes", active * block
    yield "requested_bytes", active * size
    yield "segment", difference([log.SEGMENT_ALLOC], [log.SEGMENT_FREE])
    yield "reserved_bytes", size * difference([log.SEGMENT_ALLOC, log.SEGMENT_MAP], [log.SEGMENT_FREE, log.SEGMENT_UNMAP])
    yield "inactive_split", rows[:, log.SPLITS]
    yield "inactive_split_bytes", rows[:, log.SPLIT_BYTES]


def _limit_at(length: int, split_limits: Sequence[tuple[int, int]]) -> Int64:
    """Return the split limit in force at each of *length* events."""
    limit = np.full(length, NO_SPLIT_LIMIT, np.int64)
    for start, value in split_limits:
        limit[start:] = value
    return limit
