"""The engine of steps whose tensors go to the host and come back: a compute stream and two copy streams that wait for each other.

SimPy runs the three. Compute goes through its items in order; a copy to the host waits for what it copies, a copy back for the copy to the
host, and compute for what it needs. What compute waits is time that the link does not hide. Times are whole nanoseconds.

    compute   ├ op 1 ┼ op 2 ┼ op 3 ┤ … ├ op 7 ┤ waits ├ op 8 ┤
    out              ├─ a ─┼─ b ─┤
    in                               ├──── b ────┼─ a ─┤
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from lifecycle_sim.errors import InputError


class Do(IntEnum):
    """What compute does at an item."""

    RUN = 0
    """An operator runs, for as long as it takes."""
    TELL = 1
    """Something of the step happens: an allocation or a free that no copy delays."""
    SEND = 2
    """A tensor is ready to be copied to the host."""
    LEAVE = 3
    """The program lets the tensor on the device go: it is freed once it is copied."""
    FETCH = 4
    """From here on, tensors are fetched ahead."""
    NEED = 5
    """The tensor has to be back on the device."""
    DROP = 6
    """Nobody needs what came back any more."""


class Item(NamedTuple):
    """One item of compute: what it does, with which tensor (or operator, or event), and how long that takes."""

    do: Do
    value: int
    duration: int = 0


@dataclass(frozen=True)
class Link:
    """The way to the host and back.

    Attributes:
        rate: bytes a second, each way.
        ahead: how many tensors are fetched ahead of the one that is needed.
        behind: how many tensors may wait for their copy to the host; with more, compute waits for the oldest.
        overlap: whether copies run beside compute; else compute waits for each.
    """

    rate: int
    ahead: int = 2
    behind: int = 4
    overlap: bool = True

    def __post_init__(self) -> None:
        wrong = [f"{name} is {getattr(self, name)!r}" for name in ("ahead", "behind") if getattr(self, name) < 0]
        if self.rate <= 0 or wrong:
            raise InputError(f"link: {', '.join([f'rate is {self.rate!r}', *wrong])}: give a rate above 0, and counts of 0 or more")

    def time(self, size: int) -> int:
        """Return the nanoseconds that *size* bytes take, rounded up."""
        return -(-size * 10**9 // self.rate)


@dataclass(frozen=True)
class Course:
    """What happened.

    Attributes:
        order: in the order of their times, the item at which compute was, what happened (``RUN``, ``TELL``, ``LEAVE`` for a free of the
            device's first copy, ``NEED`` for the allocation of one that comes back, ``DROP`` for its free), and the value.
        makespan: nanoseconds until compute ended and every copy had.
        waited: nanoseconds that compute waited for copies.
        sent, fetched: bytes to the host and back.
        host_peak: the most bytes on the host.
    """

    order: tuple[tuple[int, Do, int], ...]
    makespan: int
    waited: int
    sent: int
    fetched: int
    host_peak: int


def run_with_copies(items: Sequence[Item], sizes: Callable[[int], int], link: Link, away: Sequence[int] = ()) -> Course:
    """Run *items* with copies over *link*.

    Args:
        items: what compute does, in order.
        sizes: the bytes of a tensor.
        link: the way to the host.
        away: tensors that lie on the host when it begins.
    """
    course = _Course(items, sizes, link, away)
    course.play()
    return Course(tuple(course.order), int(course.clock.now), course.waited, course.sent, course.fetched, course.host_peak)


class _Course:
    def __init__(self, items: Sequence[Item], sizes: Callable[[int], int], link: Link, away: Sequence[int]) -> None:
        import simpy

        self.clock = simpy.Environment()
        self.order: list[tuple[int, Do, int]] = []
        self.waited = self.sent = self.fetched = 0
        self._items, self._sizes, self._link = items, sizes, link
        self._host = self.host_peak = sum(sizes(tensor) for tensor in away)
        self._out, self._in = simpy.Store(self.clock), simpy.Store(self.clock)
        self._arrived: dict[int, Any] = {}
        self._order_sent: list[int] = []
        self._left: set[int] = set()
        self._back: dict[int, Any] = {}
        self._needs = [item.value for item in items if item.do is Do.NEED]
        self._fetched = 0
        self._at = 0

    def play(self) -> None:
        self.clock.process(self._sender())
        self.clock.process(self._fetcher())
        self.clock.process(self._compute())
        self.clock.run()

    def _happened(self, do: Do, value: int) -> None:
        self.order.append((self._at, do, value))

    def _compute(self) -> Generator[Any, None, None]:
        needed = 0
        for place, item in enumerate(self._items):
            self._at, do, value = place, item.do, item.value
            if do is Do.SEND:
                self._send(value)
                behind = self._link.behind if self._link.overlap else 0
                if len(self._order_sent) > behind:
                    yield from self._wait(self._arrived[self._order_sent[-1 - behind]])
            elif do is Do.LEAVE:
                self._left.add(value)
                if value not in self._arrived or self._arrived[value].processed:
                    self._happened(Do.LEAVE, value)
            elif do is Do.FETCH:
                if self._link.overlap:
                    self._fetch(self._link.ahead)
            elif do is Do.NEED:
                needed += 1
                self._fetch(needed + (self._link.ahead if self._link.overlap else 0))
                yield from self._wait(self._back[value])
            else:
                self._happened(do, value)
                if item.duration:
                    yield self.clock.timeout(item.duration)

    def _wait(self, event: Any) -> Generator[Any, None, None]:
        since = int(self.clock.now)
        if not event.processed:
            yield event
        self.waited += int(self.clock.now) - since

    def _send(self, tensor: int) -> None:
        self._arrived[tensor] = self.clock.event()
        self._order_sent.append(tensor)
        self._host += self._sizes(tensor)
        self.host_peak = max(self.host_peak, self._host)
        self._out.put(tensor)

    def _fetch(self, until: int) -> None:
        """Let the first *until* tensors that are needed come, as far as they are not on their way."""
        for tensor in self._needs[self._fetched : until]:
            self._back[tensor] = self.clock.event()
            self._happened(Do.NEED, tensor)
            self._in.put(tensor)
        self._fetched = max(self._fetched, min(until, len(self._needs)))

    def _sender(self) -> Generator[Any, Any, None]:
        while True:
            tensor: int = yield self._out.get()
            yield self.clock.timeout(self._link.time(self._sizes(tensor)))
            self.sent += self._sizes(tensor)
            self._arrived[tensor].succeed()
            if tensor in self._left:
                self._happened(Do.LEAVE, tensor)

    def _fetcher(self) -> Generator[Any, Any, None]:
        while True:
            tensor: int = yield self._in.get()
            if tensor in self._arrived and not self._arrived[tensor].processed:
                yield self._arrived[tensor]
            yield self.clock.timeout(self._link.time(self._sizes(tensor)))
            self.fetched += self._sizes(tensor)
            self._host -= self._sizes(tensor)
            self._back[tensor].succeed()
