"""The state at a window's start, against the state that the whole recording leads to."""

import numpy as np
import pytest

from lifecycle_sim import InputError, read_trace
from lifecycle_sim.events import Basis, BlockState, Clock, DeviceTrace, Events, Evidence, Kind, MemoryState, Trace
from lifecycle_sim.replay.allocator import Allocator, Device, Release
from lifecycle_sim.replay.allocator.recording import open_loop, rebuild
from lifecycle_sim.replay.allocator.settings import AllocatorSettings
from tests.conftest import ROOT
from tests.ghost_traces import trace_of
from tests.test_allocator_ghost import RECORDINGS
from tests.windows import without_first

MIB = 1 << 20
SHIPPED = ["torch214_stub_train", "torch214_stub_train_expandable", "torch214_stub_small"]


def active(state: MemoryState) -> dict[int, tuple[int, int, int]]:
    b = state.blocks
    rows = zip(b.address.tolist(), b.size.tolist(), b.requested.tolist(), b.state.tolist(), strict=True)
    return {address: (size, requested, status) for address, size, requested, status in rows if status != BlockState.INACTIVE}


def ranges(state: MemoryState) -> list[tuple[int, ...]]:
    s = state.segments
    return sorted(
        zip(s.address.tolist(), s.size.tolist(), s.stream.tolist(), s.pool.tolist(), s.small.tolist(), s.expandable.tolist(), strict=True)
    )


def recording_of(allocator: Allocator) -> Trace:
    """What the allocator did, as a recording."""
    device = DeviceTrace("cuda:0", allocator.events(), Basis.REQUESTED, final=allocator.state())
    settings = {"expandable_segments": allocator.settings.expandable_segments}
    return Trace((device,), "cuda-snapshot", Evidence.SIMULATED, Clock.NONE, release=str(allocator.release), settings=settings)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_window_starts_as_the_whole_run_stands_there(name):
    trace = read_trace(ROOT / "scenarios" / f"{name}.pickle")
    count = len(trace.devices[0].events)
    for dropped in range(1, count - 4, max(1, count // 12)):
        start = open_loop(without_first(trace, dropped)).start
        there = open_loop(trace, stop=dropped).final
        assert ranges(start.state) == ranges(there)
        found, true = active(start.state), active(there)
        assert found.keys() == true.keys()
        unsettled = {size.address: size for size in start.open_sizes if size.settled_by is None}
        for address, (size, requested, state) in true.items():
            assert found[address][1:] == (requested, state)
            if address in unsettled:
                assert unsettled[address].low <= size <= unsettled[address].high
            else:
                assert found[address][0] == size


@pytest.mark.parametrize("name", [name for name in RECORDINGS if name.endswith(("/43", "/44")) and "toggling" not in name])
def test_windows_of_programs_with_streams_pools_and_deferred_frees(name):
    trace, capacity = trace_of(RECORDINGS[name]), RECORDINGS[name]["total"]
    whole = open_loop(trace, capacity=capacity)
    if not whole.exact:
        return  # settings were changed while it ran, which no recording holds
    for dropped in (40, 120, 200):
        start = open_loop(without_first(trace, dropped), capacity=capacity).start
        there = open_loop(trace, stop=dropped, capacity=capacity).final
        assert ranges(start.state) == ranges(there)
        assert {a: block[1:] for a, block in active(start.state).items()} == {a: block[1:] for a, block in active(there).items()}


#     a segment of 40 MiB at the window's start
#     ├─── A 11 MiB ───┤ ½ ├ B 8 MiB ┤ free …       next to B: the gap of ½ MiB can only be A's tail
#     ├─── A 11 MiB ───┤ ½    free …                B went before: A's size is open …
#     ├─── A 11 MiB ───┤ ½ ├ C 3 MiB ┤ free …       … until C lands where A ends
def tailed(second_stays: bool, landing: bool) -> Trace:
    allocator = Allocator(Device(), release="2.11")
    allocator.free(allocator.malloc(40 * MIB))
    first, second = allocator.malloc(11 * MIB + MIB // 2), allocator.malloc(8 * MIB)
    allocator.free(first)
    block = allocator.malloc(11 * MIB)
    if not second_stays:
        allocator.free(second)
    dropped = len(allocator)
    if landing:
        allocator.free(allocator.malloc(3 * MIB))
    allocator.free(block)
    return without_first(recording_of(allocator), dropped)


def test_a_small_gap_belongs_to_the_block_before_it():
    start = rebuild(tailed(True, False).devices[0], AllocatorSettings(), Release(2, 11))
    assert start.open_sizes == ()
    assert (11 * MIB + MIB // 2, 11 * MIB, BlockState.ALLOCATED) in active(start.state).values()


@pytest.mark.parametrize("landing", [True, False])
def test_a_tail_is_an_interval_until_a_later_block_lands_where_it_ends(landing):
    told = open_loop(tailed(False, landing))
    (size,) = told.start.open_sizes
    assert (size.requested, size.low, size.high) == (11 * MIB, 11 * MIB, 12 * MIB)
    assert size.size == (11 * MIB + MIB // 2 if landing else 11 * MIB)
    assert size.settled_by == (0 if landing else None)
    assert told.exact
    assert ("size_open" in [each.code for each in told.assumptions]) is not landing
    assert told.slack.tolist() == ([0] * 6 if landing else [MIB, MIB, 0])


#     the ring begins here   ▼
#     free_requested(X)  …   free_completed(X)      X waits for its free at the start
def test_a_free_that_only_completes_in_the_window_was_pending_at_its_start():
    trace = without_first(read_trace(ROOT / "scenarios" / "torch214_stub_small.pickle"), 6)
    assert trace.devices[0].events.kind[3] == Kind.FREE_COMPLETED
    states = {requested: state for _, requested, state in active(open_loop(trace).start.state).values()}
    assert states == {12_000_000: BlockState.PENDING_FREE, 4_000: BlockState.ALLOCATED}


def test_requests_to_free_that_were_left_out_of_the_recording_leave_blocks_allocated():
    trace = read_trace(ROOT / "scenarios" / "torch214_stub_train.pickle")
    device, kept = trace.devices[0], trace.devices[0].events.kind != Kind.FREE_REQUESTED
    events = Events(**{name: column[kept] for name, column in vars(device.events).items()})
    cut = without_first(
        Trace(
            (DeviceTrace("cuda:0", events, Basis.REQUESTED, final=device.final),),
            "cuda-snapshot",
            Evidence.MEASURED,
            Clock.NONE,
            release="2.14",
        ),
        500,
    )
    told = open_loop(cut)
    assert told.exact
    assert not (told.start.state.blocks.state == BlockState.PENDING_FREE).any()
    assert np.array_equal(told.levels.allocated, told.levels.active)


def test_without_final_segments_nothing_can_be_rebuilt():
    device = DeviceTrace("cuda:0", Events.of([Kind.ALLOC], [512], [512]), Basis.REQUESTED)
    with pytest.raises(InputError, match="holds no segments"):
        rebuild(device, AllocatorSettings(), Release(2, 11))


#     the gap's events are lost:   free(A) alloc(B)
#     A  ├───────────── freed in the window ──┤
#     B                 ├─ live at the end, at an address inside A: it came later, and is left out of the start
def test_what_overlaps_a_block_that_was_there_first_came_later():
    trace = read_trace(ROOT / "scenarios" / "torch214_stub_train_gap.pickle")
    start = open_loop(trace).start
    true = active(open_loop(read_trace(ROOT / "scenarios" / "torch214_stub_train.pickle"), stop=600).final)
    found = active(start.state)
    assert {loss.code: loss.count for loss in start.losses}["lost_alloc"] > 0
    shared_out = [found[address] == true[address] for address in found.keys() & true.keys()]
    assert all(shared_out)
    assert len(shared_out) == len(true) - 1  # one block was both handed out and freed where nothing was recorded


#     recorded   alloc(D)                                  free_requested(B) free_completed(B)
#     lost                  … free(D) alloc(B) …
#     D  ├──────────────────────┤                          B overlaps D, so it came after: it was not there at the start
#     B                             ├──────────────────────┤
def test_a_block_over_one_that_is_handed_out_in_the_window_came_later():
    last = Allocator(Device(), release="2.11")
    address = last.malloc(30 * MIB)
    last.free(address)
    kinds = [Kind.ALLOC, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED]
    events = Events.of(kinds, [address, address + MIB, address + MIB], [12 * MIB, 11 * MIB, 11 * MIB])
    start = rebuild(DeviceTrace("cuda:0", events, Basis.REQUESTED, final=last.state()), AllocatorSettings(), Release(2, 11))
    assert active(start.state) == {}
    assert {loss.code: loss.count for loss in start.losses} == {"lost_free": 1, "lost_alloc": 1}
