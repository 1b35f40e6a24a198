"""Small random programs with a known truth, and the plain replay that is the oracle for the fast one.

A program is a list of (action, address, size): it never allocates a live address and never frees a dead one. Blocks sit at fixed
places of one segment, so that addresses are reused as an allocator reuses them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from lifecycle_sim.events import (
    Basis,
    Blocks,
    Clock,
    DeviceTrace,
    Events,
    Evidence,
    Kind,
    MemoryState,
    Segments,
    Trace,
)

BASE, PLACE, PLACES = 1 << 40, 1 << 12, 8


@dataclass(frozen=True)
class Act:
    kind: Kind
    address: int
    size: int


@st.composite
def programs(draw: st.DrawFn, most: int = 40, places: int = PLACES) -> list[Act]:
    live: dict[int, int] = {}
    acts: list[Act] = []
    for _ in range(draw(st.integers(0, most))):
        address = BASE + PLACE * draw(st.integers(0, places - 1))
        if address in live:
            acts.append(Act(Kind.FREE, address, live.pop(address)))
        else:
            live[address] = draw(st.integers(1, PLACE))
            acts.append(Act(Kind.ALLOC, address, live[address]))
    return acts


@st.composite
def overlapping_programs(draw: st.DrawFn, most: int = 40) -> list[Act]:
    """Programs whose storages begin anywhere and are of any width, so that addresses are reused in part."""
    live: dict[int, int] = {}
    acts: list[Act] = []
    for _ in range(draw(st.integers(0, most))):
        start, width = draw(st.integers(0, PLACES - 1)), draw(st.integers(1, 4))
        begin, end = BASE + PLACE * start, BASE + PLACE * min(start + width, PLACES)
        in_the_way = [address for address, size in live.items() if address < end and begin < address + size]
        if in_the_way:
            acts.append(Act(Kind.FREE, in_the_way[0], live.pop(in_the_way[0])))
        else:
            live[begin] = end - begin - draw(st.integers(0, PLACE - 1))
            acts.append(Act(Kind.ALLOC, begin, live[begin]))
    return acts


def live_after(acts: Sequence[Act]) -> dict[int, int]:
    """The live storages after *acts*, by a plain walk."""
    live: dict[int, int] = {}
    for act in acts:
        if act.kind is Kind.ALLOC:
            live[act.address] = act.size
        else:
            del live[act.address]
    return live


def true_levels(acts: Sequence[Act]) -> list[int]:
    """The level before the first of *acts* and after each, by a plain walk."""
    levels = [0]
    for act in acts:
        levels.append(levels[-1] + (act.size if act.kind is Kind.ALLOC else -act.size))
    return levels


def final_state(live: dict[int, int], places: int = PLACES) -> MemoryState:
    """One segment that holds *live* in blocks of whole places, with the rest inactive."""
    end = BASE + PLACE * places
    rows: list[tuple[int, int, int | None]] = []
    at = BASE
    for address, size in [*sorted(live.items()), (end, 0)]:
        if address > at:
            rows.append((at, address - at, None))
        at = address + PLACE * -(-size // PLACE)
        if size:
            rows.append((address, at - address, size))
    n = len(rows)
    return MemoryState(
        Segments(
            address=np.array([BASE]), size=np.array([PLACE * places]), stream=np.zeros(1, np.int64), pool=np.zeros(1, np.int32),
            small=np.zeros(1, bool), expandable=np.zeros(1, bool), allocated=np.full(1, -1), active=np.full(1, -1),
            requested=np.full(1, -1), stack=np.full(1, -1, np.int32),
        ),
        Blocks(
            segment=np.zeros(n, np.int32), address=np.array([address for address, _, _ in rows]),
            size=np.array([size for _, size, _ in rows]), requested=np.array([requested or 0 for *_, requested in rows]),
            state=np.array([requested is not None for *_, requested in rows], np.uint8),
            stack=np.full(n, -1, np.int32), category=np.zeros(n, np.uint8),
        ),
    )  # fmt: skip


def record(acts: Sequence[Act], final: MemoryState | None, times: Sequence[int] | None = None, **fields: object) -> Trace:
    """A measured one-device trace of *acts*."""
    events = Events.of(
        [act.kind for act in acts], [act.address for act in acts], [act.size for act in acts],
        time=range(len(acts)) if times is None else times,
    )  # fmt: skip
    device = DeviceTrace("cuda:0", events, Basis.REQUESTED, final, **fields)  # type: ignore[arg-type]
    return Trace((device,), "cuda-snapshot", Evidence.MEASURED, Clock.NANOSECONDS)
