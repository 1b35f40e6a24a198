"""The three ways in which free memory goes back to the device: by age, enough for one request, or everything that is whole."""

from __future__ import annotations

from lifecycle_sim.replay.allocator.backing import Backing
from lifecycle_sim.replay.allocator.blocks import Block
from lifecycle_sim.replay.allocator.pools import Pool


def collect_garbage(backing: Backing, pool: Pool, threshold: int) -> None:
    """Give back whole free segments of *pool*, those of at least average age first, until at most *threshold* bytes are held.

    A round does not stop at the target: every segment that was old enough at its start goes.
    """
    target = backing.reserved - threshold
    candidates = [block for block in pool.in_order() if block.reservation is None and not block.split]
    age = sum(pool.calls - block.calls for block in candidates)
    reclaimed = 0
    while reclaimed < target and candidates:
        count, oldest, kept = len(candidates), age, []
        for block in candidates:
            if (pool.calls - block.calls) * count >= oldest:
                reclaimed += block.size
                age -= pool.calls - block.calls
                backing.give_back(block)
            else:
                kept.append(block)
        if len(kept) == count:
            return
        candidates = kept


def release_available(backing: Backing, pool: Pool, stream: int, size: int, split_limit: int) -> bool:
    """Give back unsplittable free blocks of one stream to make room for *size* bytes; whether enough was found.

    One block that is large enough goes alone; otherwise the largest go one after the other. Pieces of split segments stay: settings changed
    while the program ran can leave some of that size, and PyTorch, which does not check, then frees memory that is in use.
    """
    chosen, enough = available(pool, stream, size, split_limit)
    for block in chosen:
        backing.give_back(block)
    return enough


def available(pool: Pool, stream: int, size: int, split_limit: int) -> tuple[list[Block], bool]:
    """Return the blocks that :func:`release_available` would give back, and whether they are enough."""
    want = max(size, split_limit)
    keys = pool.free.get(stream, [])
    fitting = next((key[3] for key in keys if key[0] >= want), None)
    if fitting is not None and fitting.reservation is None and not fitting.split:
        return [fitting], True
    chosen: list[Block] = []
    released = 0
    for block in [key[3] for key in reversed(keys) if split_limit <= key[0] < want]:
        if released >= want:
            break
        if block.reservation is None and not block.split:
            released += block.size
            chosen.append(block)
    return chosen, released >= want


def release_whole(backing: Backing, pool: Pool) -> None:
    """Give back every free block of *pool* that is a whole segment, then the whole pages of its expandable segments."""
    expandable: list[Block] = []
    for block in pool.in_order():
        if block.reservation is not None:
            expandable.append(block)
        elif not block.split:
            backing.give_back(block)
    for block in expandable:
        backing.unmap(block)
