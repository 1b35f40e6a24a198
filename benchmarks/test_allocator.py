"""Events a second of the allocator's model, on the requests of a recording that ships with the project and on synthetic ones."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lifecycle_sim import read_trace
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Evidence, Kind, Trace
from lifecycle_sim.replay import replay_device
from lifecycle_sim.replay.allocator import Allocator
from lifecycle_sim.replay.allocator.recording import open_loop
from lifecycle_sim.study.what_if import what_if_allocator
from lifecycle_sim.study.why import Why, why_out_of_memory

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("LIFECYCLE_SIM_SHARED", ROOT.parent / "shared"))
RECORDINGS = {
    "torch214_stub_train": ROOT / "scenarios" / "torch214_stub_train.pickle",
    "lm_medium_ctx512_train": SHARED / "data" / "snapshots" / "lm_medium_ctx512_train.pickle",
}
LEAST = 300_000
"""Events a second of the model alone."""
MOST_GROWTH = 20
"""How many times the time ten times the events may take; it is about 12."""

Request = tuple[int, int]
"""(size, stream) of a malloc; (-1, n) is the free of what the n-th request got."""


def recording(what: str) -> Path:
    """Return the path of a recording, or skip the benchmark where it is not there."""
    path = RECORDINGS[what]
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def timed(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the seconds that one call takes."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


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
@pytest.mark.parametrize("what", [*RECORDINGS, "100,000", "1,000,000"])
def test_events_a_second(benchmark: Any, what: str, settings: str) -> None:
    requests = recorded_requests(recording(what)) if what in RECORDINGS else synthetic_requests(int(what.replace(",", "")) * 2 // 3)
    events = len(replay(requests, settings))
    benchmark.pedantic(replay, (requests, settings), rounds=10 if events < 10_000 else 3)
    rate = events / min(timed(replay, requests, settings) for _ in range(3))
    benchmark.extra_info.update(events=events, rate=rate)
    print(f"\n{what} {settings or 'default'}: {events:,} events, {rate:,.0f} a second")
    assert rate > LEAST


def test_growth(benchmark: Any) -> None:
    seconds, events = [], []
    for count in (100_000, 1_000_000):
        requests = synthetic_requests(count * 2 // 3)
        events.append(len(replay(requests, "")))
        seconds.append(min(timed(replay, requests, "") for _ in range(3)))
    benchmark.pedantic(lambda: None)
    growth = seconds[1] / seconds[0]
    benchmark.extra_info.update(events=events, growth=growth)
    print(f"\n{events[1] / events[0]:.1f} times the events take {growth:.1f} times the time")
    assert growth < MOST_GROWTH


@pytest.mark.parametrize("what", RECORDINGS)
def test_open_loop_of_recordings(benchmark: Any, what: str) -> None:
    measure_open_loop(benchmark, read_trace(recording(what)), what, rounds=5)


@pytest.mark.parametrize("count", [100_000, 1_000_000])
def test_open_loop_of_long_runs(benchmark: Any, count: int) -> None:
    measure_open_loop(benchmark, as_recorded(synthetic_requests(count * 2 // 3)), f"{count:,}", rounds=2)


def test_why_of_a_late_failure(benchmark: Any) -> None:
    last = 5 << 30
    replayed = replay_device(as_recorded([*synthetic_requests(1_000_000 * 2 // 3), (last, 0)]))
    capacity = replayed.timeline.end  # all of it and no more: whatever cannot be given back is too much
    asked = timed(what_if_allocator, replayed)
    found = benchmark.pedantic(why_out_of_memory, (replayed,), {"capacity": capacity}, rounds=1)
    assert isinstance(found, Why)
    assert found.failure.event > 990_000
    ratio = benchmark.stats.stats.min / asked
    benchmark.extra_info.update(ratio=ratio, remedies=len(found.remedies))
    print(f"\na failure at event {found.failure.event:,} is explained in {ratio:.0f} times the time of one replay, {asked:.1f} s")


def as_recorded(requests: list[Request]) -> Trace:
    """Return what a recording of *requests* from the first on would hold."""
    made = replay(requests, "")
    device = DeviceTrace("cuda:0", made.events(), Basis.REQUESTED, start=0, final=made.state())
    return Trace((device,), "cuda-snapshot", Evidence.SIMULATED, Clock.NONE, release="2.14")


def measure_open_loop(benchmark: Any, trace: Trace, what: str, rounds: int) -> None:
    """Measure the whole comparison: the state at the start, the replay, the levels."""
    told = open_loop(trace)
    benchmark.pedantic(open_loop, (trace,), rounds=rounds)
    rate = told.events / min(timed(open_loop, trace) for _ in range(rounds))
    benchmark.extra_info.update(events=told.events, rate=rate)
    print(f"\nopen loop {what}, with the state at its start: {told.events:,} events, {rate:,.0f} a second")
    assert told.exact
