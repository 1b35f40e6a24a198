"""Events a second of the allocator's model, on the requests of a recording that ships with the project and on synthetic ones."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from lifecycle_sim import read_trace
from lifecycle_sim.events import Kind
from lifecycle_sim.replay.allocator import Allocator
from lifecycle_sim.replay.allocator.recording import open_loop

RECORDING = Path(__file__).resolve().parents[1] / "scenarios" / "torch214_stub_train.pickle"
LEAST = 300_000

Request = tuple[int, int]
"""(size, stream) of a malloc; (-1, n) is the free of what the n-th request got."""


def recorded_requests(path: Path) -> list[Request]:
    """Return the requests of a recording; frees of what was live before it are left out."""
    events = read_trace(path).devices[0].events
    requests: list[Request] = []
    given: dict[int, int] = {}
    columns = (events.kind.tolist(), events.address.tolist(), events.size.tolist(), events.stream.tolist())
    for kind, address, size, stream in zip(*columns, strict=True):
        if kind == Kind.ALLOC:
            given[address] = len(requests)
            requests.append((size, stream))
        elif kind == Kind.FREE_REQUESTED and address in given:
            requests.append((-1, given.pop(address)))
    return requests


def synthetic_requests(count: int, live: int = 3000, seed: int = 0) -> list[Request]:
    """Return *count* requests of 512 B to 64 MiB; at most *live* blocks are live at once and die in no order."""
    rng = random.Random(seed)
    requests: list[Request] = []
    held: list[int] = []
    while len(requests) < count:
        if held and (rng.random() < 0.5 or len(held) > live):
            requests.append((-1, held.pop(rng.randrange(len(held)))))
        else:
            held.append(len(requests))
            requests.append((int(2 ** rng.uniform(9, 26)), 0))
    return requests


def replay(requests: list[Request], settings: str) -> Allocator:
    """Carry out the requests on a device that never refuses."""
    allocator = Allocator(settings=settings)
    malloc, free = allocator.malloc, allocator.free
    given: list[int] = []
    for size, other in requests:
        if size < 0:
            free(given[other])
            given.append(0)
        else:
            given.append(malloc(size, other) or 0)
    return allocator


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "max_split_size_mb:32"])
@pytest.mark.parametrize("what", ["recording", "100,000", "1,000,000"])
def test_events_a_second(benchmark: Any, what: str, settings: str) -> None:
    requests = recorded_requests(RECORDING) if what == "recording" else synthetic_requests(int(what.replace(",", "")) * 2 // 3)
    events = len(replay(requests, settings))
    benchmark.pedantic(replay, (requests, settings), rounds=10 if events < 10_000 else 3)
    start = time.perf_counter()
    replay(requests, settings)
    rate = events / (time.perf_counter() - start)
    benchmark.extra_info.update(events=events, rate=rate)
    print(f"\n{what} {settings or 'default'}: {events:,} events, {rate:,.0f} a second")
    assert rate > LEAST


def test_open_loop_events_a_second(benchmark: Any) -> None:
    trace = read_trace(RECORDING)
    told = open_loop(trace)
    benchmark.pedantic(open_loop, (trace,), rounds=10)
    start = time.perf_counter()
    open_loop(trace)
    rate = told.events / (time.perf_counter() - start)
    benchmark.extra_info.update(events=told.events, rate=rate)
    print(f"\nopen loop, with the state at its start: {told.events:,} events, {rate:,.0f} a second")
    assert told.exact
