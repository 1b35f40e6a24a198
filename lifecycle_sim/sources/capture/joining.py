"""Joins a recording with the allocator's own snapshot of the same time: which block each storage has. It needs no torch.

Both are in the order of the program, and a storage has the address of its block; but an address is given out again and again, and
kernels take blocks in between that no operator returns. A storage's block is the first of its address and size that is still there when
the storage is seen.

::

    blocks of one address    [--scratch--)   [---a---)[--scratch--)     [-----b-----)
    storages                                  [---a--)                     [---b----)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lifecycle_sim.display import Shown
from lifecycle_sim.events import NO_LABEL, Category, DeviceTrace, Kind, Trace
from lifecycle_sim.sources.capture.ledger import Ledger
from lifecycle_sim.units import format_exact

BEFORE = -1
"""Stands for the allocation of a block that is older than the snapshot's history."""
FREES = (Kind.FREE_REQUESTED, Kind.FREE)


@dataclass(slots=True)
class Block:
    """A block of one address, from its allocation's row to the row in which the program gave it up; None if it never did."""

    size: int
    start: int
    stop: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class Joined(Shown):
    """The allocator's record, in which each block that a storage has is told what the storage is for.

    Attributes:
        trace: the snapshot; its events of storages have the category and the name, or the operator, that the recording knows. Blocks that
            no operator returned are of the category workspace.
        storages: storages of the recording that were allocated in it.
        matched: how many of them have their block.
        matched_bytes: their bytes.
        missing_bytes: bytes of those that have none: their memory is not of this allocator, or was resized out of sight.
        besides: blocks allocated in the recording that no storage has: what kernels take for themselves.
        besides_most: their most bytes at a time.
    """

    trace: Trace
    storages: int
    matched: int
    matched_bytes: int
    missing_bytes: int
    besides: int
    besides_most: int

    def __repr__(self) -> str:
        return f"Joined({self.matched:,} of {self.storages:,} storages, {self.besides:,} blocks besides)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        return [
            ("storages with their block", f"{self.matched:,} of {self.storages:,}, {format_exact(self.matched_bytes)} in all"),
            ("without", format_exact(self.missing_bytes)),
            ("blocks besides", f"{self.besides:,}, at most {format_exact(self.besides_most)} at a time"),
        ]


def join(ledger: Ledger, before: int, snapshot: Trace, device: str) -> Joined:
    """Return *snapshot* with what *ledger* knows of its blocks.

    Args:
        ledger: a recording whose storages have addresses.
        before: how many of its first storages were there before.
        snapshot: the allocator's record of the same time.
        device: whose storages they are.
    """
    recorded = snapshot.device(device)
    blocks = _blocks(recorded)
    found = _match(ledger, before, blocks)
    inside = range(before, len(ledger.storages))
    matched = [number for number in inside if number in found]
    taken = {id(block) for block in found.values()}
    besides = [block for chain in blocks.values() for block in chain if block.start != BEFORE and id(block) not in taken]
    sizes = {number: ledger.storages[number].size for number in inside}
    return Joined(
        _labelled(snapshot, recorded, ledger, found, besides),
        len(inside),
        len(matched),
        sum(sizes[number] for number in matched),
        sum(size for number, size in sizes.items() if number not in found),
        len(besides),
        _most(besides),
    )


def _blocks(recorded: DeviceTrace) -> dict[int, list[Block]]:
    """The blocks of each address, in their order."""
    events = recorded.events
    blocks: dict[int, list[Block]] = defaultdict(list)
    rows = zip(events.kind.tolist(), events.address.tolist(), events.size.tolist(), strict=True)
    for row, (kind, address, size) in enumerate(rows):
        chain = blocks[address]
        if kind == Kind.ALLOC:
            chain.append(Block(size, row))
        elif kind in FREES:
            if not chain or chain[-1].stop is not None:
                chain.append(Block(size, BEFORE))
            chain[-1].stop = chain[-1].last = row
        elif kind == Kind.FREE_COMPLETED and chain and chain[-1].stop is not None:
            chain[-1].last = row
    return blocks


def _match(ledger: Ledger, before: int, blocks: dict[int, list[Block]]) -> dict[int, Block]:
    """The block of each storage that has one, by the storage's number."""
    found: dict[int, Block] = {}
    place: dict[int, int] = defaultdict(int)
    latest = BEFORE  # the allocation of the newest block that has its storage: what is seen now is still there after it
    for event in ledger.events:
        if event < 0:
            continue
        storage = ledger.storages[event]
        chain = blocks.get(storage.pointer, ())
        at = place[storage.pointer]
        if event < before:
            if chain and chain[0].start == BEFORE:
                found[event] = chain[0]
                place[storage.pointer] = max(at, 1)
            continue
        while at < len(chain) and not _may_be(chain[at], storage.size, latest):
            at += 1
        if at < len(chain):
            found[event] = chain[at]
            latest = max(latest, chain[at].start)
            place[storage.pointer] = at + 1
    return found


def _may_be(block: Block, size: int, latest: int) -> bool:
    return block.start != BEFORE and block.size == size and (block.stop is None or block.stop > latest)


def _labelled(snapshot: Trace, recorded: DeviceTrace, ledger: Ledger, found: dict[int, Block], besides: Sequence[Block]) -> Trace:
    """Write categories and labels into the rows of the blocks."""
    labels = {text: number for number, text in enumerate(snapshot.labels)}
    categories = ledger.categories()
    category, label = recorded.events.category.copy(), recorded.events.label.copy()
    for number, block in found.items():
        storage = ledger.storages[number]
        text = labels.setdefault(storage.name or storage.operator, len(labels))
        for row in (block.start, block.stop, block.last):
            if row is not None and row != BEFORE:
                category[row] = int(categories[number])
                label[row] = text if label[row] == NO_LABEL else label[row]
    for block in besides:
        for row in (block.start, block.stop, block.last):
            if row is not None:
                category[row] = int(Category.WORKSPACE)
    joined = replace(recorded, events=replace(recorded.events, category=category, label=label))
    devices = tuple(joined if each is recorded else each for each in snapshot.devices)
    return replace(snapshot, devices=devices, labels=tuple(labels))


def _most(blocks: Sequence[Block]) -> int:
    """The most bytes of *blocks* at a time."""
    changes = [(block.start, block.size) for block in blocks] + [(block.stop, -block.size) for block in blocks if block.stop is not None]
    levels = np.cumsum([size for _, size in sorted(changes)], dtype=np.int64) if changes else np.zeros(1, np.int64)
    return int(levels.max(initial=0))
