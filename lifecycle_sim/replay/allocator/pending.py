"""Frees that wait: one event for each stream that was recorded on the block, first in first out on every stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from lifecycle_sim.replay.allocator.blocks import Block
from lifecycle_sim.replay.allocator.hashorder import SlotTable

_CUDA = 1 << 56
_ID_MASK = (1 << 48) - 1


class PendingFrees:
    """The queues of events, one a stream, and how far each stream has come.

    Args:
        stream_ids: torch's id of each stream handle. They decide the order in which several streams are looked at, which decides the
            order of frees that complete together; a handle that is not named stands for itself.
        device: number of the device; it is part of that order too.
    """

    def __init__(self, stream_ids: Mapping[int, int] | None = None, device: int = 0) -> None:
        ids, base = dict(stream_ids or {}), _CUDA | device << 48
        self._hashed: Callable[[int], int] = lambda stream: base | (ids.get(stream, stream) & _ID_MASK)
        self._queues: SlotTable[deque[tuple[int, Block]]] = SlotTable(self._hashed)
        self._recorded: dict[int, int] = {}
        self._unknown = 0
        self._completed: dict[int, int] = {}

    def __bool__(self) -> bool:
        return len(self._queues) > 0

    def streams(self) -> SlotTable[None]:
        """Return an empty set of streams, in the order of the queues."""
        return SlotTable(self._hashed)

    def unknown_stream(self) -> SlotTable[None]:
        """Return a set that holds one stream, which is not known and is nobody else's."""
        self._unknown -= 1
        streams = self.streams()
        streams.add(self._unknown, None)
        return streams

    def insert(self, block: Block) -> None:
        """Record an event on each stream that was recorded on *block*."""
        for stream, _ in block.uses or ():
            serial = self._recorded[stream] = self._recorded.get(stream, 0) + 1
            self._queues.add(stream, deque()).append((serial, block))
            block.events += 1
        block.uses = None

    def complete(self, stream: int) -> None:
        """Let every event recorded on *stream* so far have completed."""
        self._completed[stream] = self._recorded.get(stream, 0)

    def process(self, free: Callable[[Block], None]) -> None:
        """Take the completed events off the queues; call *free* on each block that has none left."""

        def drained(stream: int, queue: deque[tuple[int, Block]]) -> bool:
            done = self._completed.get(stream, 0)
            while queue and queue[0][0] <= done:
                self._settle(queue.popleft()[1], free)
            return not queue

        self._queues.drain(drained)

    def synchronize(self, free: Callable[[Block], None], concerns: Callable[[Block], bool] | None = None) -> None:
        """Wait for every event; call *free* on each block that has none left. With *concerns*, only for the blocks it is true of."""

        def drained(stream: int, queue: deque[tuple[int, Block]]) -> bool:
            kept = []
            for serial, block in queue:
                if concerns is None or concerns(block):
                    self._completed[stream] = max(self._completed.get(stream, 0), serial)
                    self._settle(block, free)
                else:
                    kept.append((serial, block))
            queue.clear()
            queue.extend(kept)
            return not queue

        self._queues.drain(drained)

    def finish(self, block: Block) -> None:
        """Take every event of *block* off the queues."""

        def drained(_: int, queue: deque[tuple[int, Block]]) -> bool:
            kept = [entry for entry in queue if entry[1] is not block]
            queue.clear()
            queue.extend(kept)
            return not queue

        self._queues.drain(drained)
        block.events, block.uses = 0, None

    @staticmethod
    def _settle(block: Block, free: Callable[[Block], None]) -> None:
        block.events -= 1
        if block.events == 0:
            free(block)
