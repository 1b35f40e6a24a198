"""Strategies that make Traces: sound ones that a checker accepts, and wild ones that only keep the types and references right."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from lifecycle_sim.events import (
    Assumption,
    Basis,
    Blocks,
    BlockState,
    Category,
    Clock,
    DeviceTrace,
    Events,
    Evidence,
    Frame,
    Kind,
    MemoryState,
    Segments,
    Span,
    StackTable,
    Trace,
)

SLOT = 2048
SLOTS = 6
BASE = 1 << 40

texts = st.text(max_size=6)
_int64s = st.integers(-(2**63), 2**63 - 1)
_sizes = st.integers(0, 2**63 - 1)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def traces(draw: st.DrawFn, sound: bool = True, min_devices: int = 0, max_events: int = 24) -> Trace:
    """Draw a trace of up to three devices, with stacks, labels, pools, spans, settings, and here and there a final state.

    A sound trace keeps every invariant: storages are allocated, then freed; times do not go back; blocks tile segments, and the final
    state agrees with the events. A record with a final state may begin mid-run: some storages are live before its first event.
    """
    frames = draw(st.lists(st.builds(Frame, texts, texts, st.integers(0, 999)), min_size=1, max_size=3, unique=True))
    numbers = st.lists(st.integers(0, len(frames) - 1), min_size=1, max_size=3).map(tuple)
    stacks = StackTable(tuple(frames), tuple(draw(st.lists(numbers, max_size=3, unique=True))))
    labels = tuple(draw(st.lists(texts, max_size=3, unique=True)))
    pools = ((0, 0), *draw(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=2, unique=True)))
    names = draw(st.lists(st.sampled_from(["cuda:0", "cuda:1", "cpu", "device"]) | texts, min_size=min_devices, max_size=3, unique=True))
    tables = {"stack": (-1, len(stacks)), "label": (-1, len(labels)), "pool": (0, len(pools))}
    clock = draw(st.sampled_from(Clock))
    device = _sound_device if sound else _wild_device
    return Trace(
        tuple(draw(device(name, clock, tables, max_events)) for name in names),
        draw(st.sampled_from(["native", "cuda-snapshot", "scenario"])),
        draw(st.sampled_from(Evidence)),
        clock,
        stacks,
        labels,
        pools,
        draw(st.none() | texts),
        draw(st.dictionaries(texts, _json, max_size=2)),
        tuple(draw(st.lists(st.builds(Assumption, texts, st.integers(0, 99), texts, st.none() | st.integers(0, 2**40)), max_size=2))),
    )


def _column(draw: st.DrawFn, values: st.SearchStrategy[Any], length: int) -> list[Any]:
    return draw(st.lists(values, min_size=length, max_size=length))


def _references(draw: st.DrawFn, tables: dict[str, tuple[int, int]], length: int, *names: str) -> dict[str, list[int]]:
    return {name: _column(draw, st.integers(tables[name][0], tables[name][1] - 1), length) for name in names}


def _spans(draw: st.DrawFn, length: int) -> tuple[Span, ...]:
    edges = st.tuples(st.integers(0, length), st.integers(0, length)).map(sorted)
    drawn = draw(st.lists(st.tuples(st.sampled_from(["step", "annotation"]), texts, edges, st.booleans()), max_size=3))
    spans = [Span(kind, name, start, stop, closed) for kind, name, (start, stop), closed in drawn]
    return tuple(sorted(spans, key=lambda span: (span.start, -span.stop)))


@st.composite
def _sound_device(draw: st.DrawFn, name: str, clock: Clock, tables: dict[str, tuple[int, int]], max_events: int) -> DeviceTrace:
    """A record over a few slots of memory: each choice of a slot allocates it if it is free, and else frees it."""
    form = draw(st.sampled_from(["complete", "complete", "mid-run", "amounts"]))
    live: dict[int, int] = draw(st.dictionaries(st.integers(0, SLOTS - 1), st.integers(1, SLOT), max_size=3)) if form == "mid-run" else {}
    start = 0 if form != "amounts" else draw(st.integers(0, 99))
    rows: list[tuple[Kind, int, int]] = []
    choices = st.tuples(st.integers(0, SLOTS - 1), st.integers(1, SLOT), st.booleans())
    for slot, size, in_two in draw(st.lists(choices, max_size=max_events // 2)):
        address = -1 if form == "amounts" else BASE + slot * SLOT
        if slot not in live:
            live[slot] = size
            rows.append((Kind.ALLOC, address, size))
        elif in_two and form != "amounts":
            freed = live.pop(slot)
            rows += [(Kind.FREE_REQUESTED, address, freed), (Kind.FREE_COMPLETED, address, freed)]
        else:
            rows.append((Kind.FREE, address, live.pop(slot)))
    steps = _column(draw, st.integers(0, 3), len(rows)) if clock is not Clock.NONE else [0] * len(rows)
    columns = _references(draw, tables, len(rows), "stack", "label", "pool")
    columns["category"] = _column(draw, st.sampled_from(Category), len(rows))
    kind, address, size = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    events = Events.of(kind, address, size, time=np.cumsum(steps), **columns)
    return DeviceTrace(
        name,
        events,
        draw(st.sampled_from(Basis)),
        _tiled(live) if form == "mid-run" else None,
        None if form == "mid-run" else start,
        form != "amounts",
        _spans(draw, len(rows)),
        draw(st.none() | st.integers(0, 2**40)),
    )


def _tiled(live: dict[int, int]) -> MemoryState:
    """One segment of all slots: a block for each live one, and one for each run of free ones."""
    blocks: list[tuple[int, int, int, int, int, int, int]] = []
    for slot in range(SLOTS):
        if slot in live:
            blocks.append((0, BASE + slot * SLOT, SLOT, live[slot], BlockState.ALLOCATED, -1, 0))
        elif blocks and blocks[-1][4] == BlockState.INACTIVE:
            blocks[-1] = (*blocks[-1][:2], blocks[-1][2] + SLOT, *blocks[-1][3:])
        else:
            blocks.append((0, BASE + slot * SLOT, SLOT, 7, BlockState.INACTIVE, -1, 0))
    active = len(live) * SLOT
    return _state([(BASE, SLOTS * SLOT, 0, 0, True, False, active, active, sum(live.values()), -1)], blocks)


def _state(segments: list[tuple[Any, ...]], blocks: list[tuple[Any, ...]]) -> MemoryState:
    types = (np.int64, np.int64, np.int64, np.int32, np.bool_, np.bool_, np.int64, np.int64, np.int64, np.int32)
    block_types = (np.int32, np.int64, np.int64, np.int64, np.uint8, np.int32, np.uint8)
    return MemoryState(
        Segments(*(np.array([row[i] for row in segments], kind) for i, kind in enumerate(types))),
        Blocks(*(np.array([row[i] for row in blocks], kind) for i, kind in enumerate(block_types))),
    )


@st.composite
def _wild_device(draw: st.DrawFn, name: str, clock: Clock, tables: dict[str, tuple[int, int]], max_events: int) -> DeviceTrace:
    """Any kinds in any order, few addresses or any, all values that the columns can hold."""
    length = draw(st.integers(0, max_events))
    address = draw(st.sampled_from([st.integers(-1, 3), _int64s]))
    columns = _references(draw, tables, length, "stack", "label", "pool")
    columns["category"] = _column(draw, st.sampled_from(Category), length)
    for column in draw(st.sets(st.sampled_from(["stream", "time"]))):
        columns[column] = _column(draw, _int64s, length)
    size = _column(draw, draw(st.sampled_from([st.integers(0, 4), _sizes])), length)
    events = Events.of(_column(draw, st.sampled_from(Kind), length), _column(draw, address, length), size, **columns)
    final = draw(st.none() | _wild_state(tables))
    start = draw(st.none() | st.integers(0, 2**40))
    return DeviceTrace(name, events, draw(st.sampled_from(Basis)), final, start, draw(st.booleans()), _spans(draw, length))


@st.composite
def _wild_state(draw: st.DrawFn, tables: dict[str, tuple[int, int]]) -> MemoryState:
    stack = st.integers(-1, tables["stack"][1] - 1)
    pool = st.integers(0, tables["pool"][1] - 1)
    flags, totals = st.booleans(), st.integers(-1, 2**40)
    segments = draw(st.lists(st.tuples(_int64s, _sizes, _int64s, pool, flags, flags, totals, totals, totals, stack), max_size=3))
    if not segments:
        return _state([], [])
    row = st.integers(0, len(segments) - 1)
    block = st.tuples(row, _int64s, _sizes, _int64s, st.sampled_from(BlockState), stack, st.sampled_from(Category))
    return _state(segments, draw(st.lists(block, max_size=4)))
