"""Every rule of the allocator by an example, with a picture above it where that helps.

Addresses are written from the first segment's start; sizes in KiB or MiB. `[a]` is a block handed out, `( )` a free one.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError, TraceInvariantError
from lifecycle_sim.events import BlockState, Kind
from lifecycle_sim.replay.allocator import Allocator, AllocatorSettings, Device, LowestAddress, RecordedAddresses
from lifecycle_sim.replay.allocator.device import FIRST_RESERVATION, FIRST_SEGMENT, NextAddress
from lifecycle_sim.replay.allocator.hashorder import SlotTable
from lifecycle_sim.replay.allocator.rounding import round_size, segment_size

KIB, MIB = 1 << 10, 1 << 20
SIDE = 0x2000


def place(allocator: Allocator, size: int, stream: int = 0) -> int:
    """Allocate; return the address, which there must be."""
    address = allocator.malloc(size, stream)
    assert address is not None
    return address


def trace(allocator: Allocator, start: int = 0) -> list[tuple[str, int, int]]:
    """Return (action, address from the first segment or range, size) of the events from *start* on."""
    events = allocator.events()
    rows = zip(events.kind.tolist(), events.address.tolist(), events.size.tolist(), strict=True)
    return [(Kind(kind).name.lower(), offset(address) if kind != Kind.OOM else address, size) for kind, address, size in rows][start:]


def offset(address: int) -> int:
    return address - (FIRST_SEGMENT if address >= FIRST_SEGMENT else FIRST_RESERVATION)


# ── rounding and sizes ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("size", "rounded"), [(1, 512), (511, 512), (512, 512), (513, 1024), (MIB - 1, MIB), (MIB + 1, MIB + 512)])
def test_requests_round_up_to_512(size: int, rounded: int) -> None:
    assert round_size(size) == rounded


#   1024    1280    1536    1792    2048       divisions = 4
#    ├───────┼───────┼───────┼───────┤
#         1200 ─▶ 1280
@pytest.mark.parametrize(
    ("size", "divisions", "rounded"),
    [(4200, 4, 5120), (4096, 4, 4096), (2048, 4, 2048), (2049, 4, 2560), (1200, 4, 1536), (1200, 2, 1536), (700, 1, 1024), (300, 4, 512)],
)
def test_power_of_two_divisions(size: int, divisions: int, rounded: int) -> None:
    assert round_size(size, (divisions,) * 16) == rounded


def test_each_power_of_two_has_its_own_number_of_divisions() -> None:
    table = (0, 2, *[0] * 14)
    assert round_size(2 * MIB + 1, table) == 3 * MIB
    assert round_size(4 * MIB + 1, table) == 4 * MIB + 512
    assert round_size(MIB + 1, table) == MIB + 512


def test_one_division_left_sizes_alone_up_to_2_3() -> None:
    for release, size in (("2.3", 1000), ("2.4", 1024)):
        allocator = Allocator(settings="roundup_power2_divisions:1", release=release)
        place(allocator, 1000)
        assert allocator.statistics()["allocated_bytes"].current == size


@pytest.mark.parametrize(
    ("rounded", "segment"),
    [(512, 2), (MIB, 2), (MIB + 512, 20), (10 * MIB - 512, 20), (10 * MIB, 10), (10 * MIB + 512, 12), (33 * MIB, 34)],
)
def test_segment_sizes(rounded: int, segment: int) -> None:
    assert segment_size(rounded) == segment * MIB
    assert segment_size(rounded, 25 * MIB) == (25 * MIB if segment == 20 else segment * MIB)


def test_requests_for_nothing_and_for_far_too_much_leave_no_trace() -> None:
    allocator = Allocator()
    assert allocator.malloc(0) == 0
    allocator.free(0)
    assert allocator.malloc(1 << 60) is None
    assert allocator.failures[0].event is None
    assert len(allocator) == 0
    assert allocator.counters.ooms == 0
    with pytest.raises(InputError, match="negative"):
        allocator.malloc(-1)


# ── splitting ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


#   small pool:  [a 1K][        free 2047K        ]     always split
#   large pool:  [b 19M + 512 ..... 20M]                a rest of at most 1 MiB goes with the block
#                [c 19M − 512 ..][ free 1M + 512 ]      a larger one does not
def test_large_blocks_are_split_when_more_than_a_mebibyte_is_left() -> None:
    for size, block in ((KIB, KIB), (19 * MIB + 512, 20 * MIB), (19 * MIB, 20 * MIB), (19 * MIB - 512, 19 * MIB - 512)):
        allocator = Allocator()
        place(allocator, 3 * MIB if size > MIB else size)
        allocator.free(FIRST_SEGMENT)
        place(allocator, size)
        assert allocator.state().blocks.size[0] == block
        assert allocator.statistics()["requested_bytes"].current == size


def test_with_expandable_segments_every_rest_is_split_off_even_of_older_segments() -> None:
    allocator = Allocator()
    allocator.free(place(allocator, 3 * MIB))
    allocator.set_options("expandable_segments:True")
    place(allocator, 19 * MIB + 512)
    assert allocator.state().blocks.size.tolist() == [19 * MIB + 512, MIB - 512]


def test_a_pool_may_never_split() -> None:
    allocator = Allocator()
    pool = allocator.create_pool(no_split=True)
    allocator.begin_pool(pool)
    place(allocator, 512)
    assert allocator.state().blocks.size.tolist() == [2 * MIB]


#   max_split_size 32:   ( 40M free )     3M does not take it: 3 < 32 ≤ 40
#                                         36M takes all of it: 40 < 36 + 20
#   max_non_split_rounding 20:  ( 60M )   40M does not: 60 ≥ 40 + 20
def test_oversize_blocks_are_kept_for_oversize_requests() -> None:
    allocator = Allocator(settings="max_split_size_mb:32")
    allocator.free(place(allocator, 40 * MIB))
    assert offset(place(allocator, 3 * MIB)) == 40 * MIB
    assert offset(place(allocator, 36 * MIB)) == 0
    assert allocator.statistics().oversize_allocations.current == 1
    allocator.free(place(allocator, 60 * MIB))
    assert offset(place(allocator, 40 * MIB)) == 120 * MIB
    assert offset(place(allocator, 40 * MIB + 512)) == 60 * MIB


# ── best fit and its ties ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_smallest_block_that_fits_on_the_same_stream_is_taken() -> None:
    allocator = Allocator()
    first, second = place(allocator, 60 * MIB), place(allocator, 40 * MIB)
    side = place(allocator, 30 * MIB, SIDE)
    for address in (first, second, side):
        allocator.free(address)
    assert place(allocator, 30 * MIB) == second


#   addresses   0         20        40
#               (Z 20M)   (Y 20M)          Y was obtained first, Z later at a lower address that had been given back
@pytest.mark.parametrize(("release", "lowest"), [("2.0", True), ("2.11", True), ("2.12", False), ("2.13", False)])
def test_equal_segments_go_by_address_and_from_2_12_by_age(release: str, lowest: bool) -> None:
    allocator = Allocator(Device(policy=LowestAddress()), release=release)
    gone, older = place(allocator, 20 * MIB), place(allocator, 20 * MIB)
    allocator.free(gone)
    allocator.empty_cache()
    younger = place(allocator, 20 * MIB)
    assert younger == gone
    allocator.free(older)
    allocator.free(younger)
    assert place(allocator, 20 * MIB) == (younger if lowest else older)


#   [front 512][rest 512][guard][b 512][guard]…     front is a younger object than b, at a lower address of the same segment
@pytest.mark.parametrize(("release", "lowest"), [("2.11", True), ("2.12", False), ("2.13", True)])
def test_in_2_12_every_block_object_has_its_own_age(release: str, lowest: bool) -> None:
    allocator = Allocator(release=release)
    first, _, other, _ = place(allocator, 1024), place(allocator, 512), place(allocator, 512), place(allocator, 512)
    allocator.free(first)
    front = place(allocator, 512)
    assert (front, place(allocator, 512)) == (first, first + 512)
    allocator.free(front)
    allocator.free(other)
    assert place(allocator, 512) == (front if lowest else other)


# ── frees ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


#   [a][b][c]   free b, then a, then c:   [a](  )[c]   (     )[c]   (        )
def test_free_neighbours_are_merged_and_keep_the_last_request() -> None:
    allocator = Allocator()
    a, b, c = (place(allocator, 1000 + i) for i in range(3))
    for address in (b, a, c):
        allocator.free(address)
    blocks = allocator.state().blocks
    assert blocks.size.tolist() == [2 * MIB]
    assert blocks.requested.tolist() == [1002]


def test_bad_frees_are_refused() -> None:
    allocator = Allocator()
    address = place(allocator, 100)
    allocator.free(address)
    for action in (allocator.free, allocator.defer, allocator.finish, lambda a: allocator.record_stream(a, SIDE)):
        with pytest.raises(TraceInvariantError, match=f"{address:#x}"):
            action(address)
    with pytest.raises(TraceInvariantError, match="no free segment"):
        allocator.release_segment(address + 512)


#   free    │ free_requested                     the block waits
#   malloc  │                                    the side stream is not there yet
#   complete│                                    nothing happens by itself
#   malloc  │ free_completed · alloc             on any stream
def test_a_free_waits_for_recorded_streams_until_a_malloc_looks() -> None:
    allocator = Allocator()
    address = place(allocator, 1000)
    allocator.record_stream(address, SIDE)
    allocator.record_stream(address, 0)  # its own stream does not count
    allocator.free(address)
    place(allocator, 100)
    statistics = allocator.statistics()
    assert (statistics["active"].current, statistics["allocation"].current) == (2, 1)
    assert allocator.state().blocks.state[0] == BlockState.PENDING_FREE
    allocator.complete(SIDE)
    before = len(allocator)
    place(allocator, 100, SIDE)
    assert trace(allocator, before) == [("free_completed", 0, 1000), ("segment_alloc", 2 * MIB, 2 * MIB), ("alloc", 2 * MIB, 100)]


def test_an_event_that_is_not_complete_blocks_those_behind_it_on_its_stream_only() -> None:
    allocator = Allocator()
    first, second, third = (place(allocator, 1000) for _ in range(3))
    allocator.record_stream(first, SIDE)
    allocator.free(first)
    allocator.complete(SIDE)
    allocator.record_stream(second, SIDE)
    allocator.free(second)
    allocator.record_stream(third, 2 * SIDE)
    allocator.free(third)
    allocator.complete(2 * SIDE)
    allocator.process_events()
    assert allocator.state().blocks.state.tolist() == [BlockState.INACTIVE, BlockState.PENDING_FREE, BlockState.INACTIVE]


def test_a_free_can_wait_for_what_a_recording_does_not_say() -> None:
    allocator = Allocator()
    first, second = place(allocator, 1000), place(allocator, 1000)
    for address in (first, second):
        allocator.defer(address)
        allocator.free(address)
    place(allocator, 100)
    allocator.finish(second)
    assert trace(allocator)[-1] == ("free_completed", 1024, 1000)
    allocator.empty_cache()
    assert trace(allocator)[-1] == ("free_completed", 0, 1000)


#   slots of a table of four:   the top two bits of hash × 2^64 / golden ratio; a slot that is taken sends the later one on to the next
def test_side_streams_are_looked_at_in_the_order_of_their_hashes() -> None:
    def product(key: int) -> int:
        return (1 << 56 | key) * 11400714819323198485 % 2**64

    keys = [3 + 32 * n for n in range(12)]
    for first in keys:
        for second in keys:
            if first == second:
                continue
            table = SlotTable[int](lambda key: 1 << 56 | key)
            table.add(first, 0)
            table.add(second, 1)
            same_slot = product(first) >> 62 == product(second) >> 62
            order = [first, second] if same_slot else sorted((first, second), key=product)
            assert [key for key, _ in table] == order


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40))))
def test_the_table_holds_what_a_dictionary_holds(changes: list[tuple[bool, int]]) -> None:
    table, plain = SlotTable[int](lambda key: key * 37), dict[int, int]()
    for add, key in changes:
        if add:
            assert table.add(key, key + 1) == plain.setdefault(key, key + 1)
        else:
            table.discard(key)
            plain.pop(key, None)
        assert dict(table) == plain
        assert len(table) == len(plain)
        distances = [-1 if entry is None else entry.distance for entry in table._entries]
        assert all(after <= before + 1 for before, after in pairwise(distances)), "a later entry is further from its slot"
    table.drain(lambda key, _: key % 2 == 0)
    assert dict(table) == {key: value for key, value in plain.items() if key % 2}


# ── giving memory back ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_refused_request_flushes_the_cache_and_asks_again() -> None:
    allocator = Allocator(Device(64 * MIB))
    kept, free, small = place(allocator, 20 * MIB), place(allocator, 30 * MIB), place(allocator, 1000)
    allocator.free(free)
    allocator.free(small)
    before = len(allocator)
    place(allocator, 40 * MIB)
    assert trace(allocator, before) == [
        ("segment_free", 20 * MIB, 30 * MIB),
        ("segment_free", 50 * MIB, 2 * MIB),
        ("segment_alloc", 52 * MIB, 40 * MIB),
        ("alloc", 52 * MIB, 40 * MIB),
    ]
    assert (allocator.counters.alloc_retries, allocator.counters.ooms) == (1, 0)
    allocator.free(kept)


def test_out_of_memory_is_a_result() -> None:
    allocator = Allocator(Device(21 * MIB))
    place(allocator, 20 * MIB)
    assert allocator.malloc(3 * MIB + 1) is None
    failure = allocator.failures[0]
    assert (failure.requested, failure.rounded, failure.segment) == (3 * MIB + 1, 3 * MIB + 512, 20 * MIB)
    assert (failure.reserved, failure.device_free, failure.limit, failure.pool) == (20 * MIB, MIB, None, (0, 0))
    assert trace(allocator)[failure.event or 0] == ("oom", MIB, 3 * MIB + 512)
    assert (allocator.counters.alloc_retries, allocator.counters.ooms) == (1, 1)


def test_whole_segments_go_and_split_ones_stay() -> None:
    allocator = Allocator()
    small, large, part = place(allocator, 1000), place(allocator, 30 * MIB), place(allocator, 3 * MIB)
    for address in (small, large):
        allocator.free(address)
    before = len(allocator)
    allocator.empty_cache()
    assert trace(allocator, before) == [("segment_free", offset(large), 30 * MIB), ("segment_free", 0, 2 * MIB)]
    assert allocator.largest_free() == {((0, 0), False, 0): 17 * MIB}
    allocator.free(part)
    allocator.release_segment(part)
    assert allocator.reserved == 0


#   max_split_size 32, want 50 of 110:   (60M) alone suffices and goes; otherwise the largest go until 50 are free
def test_oversize_blocks_go_first_when_splitting_is_limited() -> None:
    allocator = Allocator(Device(110 * MIB), "max_split_size_mb:32")
    a, b = place(allocator, 34 * MIB), place(allocator, 76 * MIB)
    allocator.free(a)
    allocator.free(b)
    before = len(allocator)
    place(allocator, 50 * MIB)
    assert trace(allocator, before)[0] == ("segment_free", 34 * MIB, 76 * MIB)
    assert allocator.counters.alloc_retries == 0
    allocator = Allocator(Device(110 * MIB), "max_split_size_mb:32")
    for address in [place(allocator, size * MIB) for size in (34, 36, 38)]:
        allocator.free(address)
    before = len(allocator)
    place(allocator, 60 * MIB)
    assert trace(allocator, before)[:2] == [("segment_free", 70 * MIB, 38 * MIB), ("segment_free", 34 * MIB, 36 * MIB)]
    assert allocator.counters.alloc_retries == 0


#   limit 100, threshold 0.7: above 70 MiB the segments of at least average age go, before the device is asked
def test_old_free_segments_are_collected_above_the_threshold() -> None:
    allocator = Allocator(Device(200 * MIB), "garbage_collection_threshold:0.7")
    allocator.set_memory_fraction(0.5)
    old, young = place(allocator, 30 * MIB), place(allocator, 34 * MIB)
    allocator.free(old)
    for _ in range(5):
        allocator.free(place(allocator, 4 * MIB, SIDE))
    allocator.free(young)
    before = len(allocator)
    place(allocator, 40 * MIB)
    assert [row for row in trace(allocator, before) if row[0] == "segment_free"] == [("segment_free", 0, 30 * MIB)]
    assert allocator.counters.alloc_retries == 0


@pytest.mark.parametrize(("release", "limited"), [("2.9", True), ("2.10", False)])
def test_a_fraction_of_one_is_no_limit_from_2_10_on(release: str, limited: bool) -> None:
    allocator = Allocator(Device(100 * MIB), release=release)
    allocator.set_memory_fraction(0.5)
    assert allocator.limit == 50 * MIB
    assert allocator.malloc(60 * MIB) is None
    allocator.set_memory_fraction(1.0)
    assert allocator.limit == (100 * MIB if limited else None)
    place(allocator, 60 * MIB)
    with pytest.raises(InputError, match="between 0 and 1"):
        allocator.set_memory_fraction(2)
    with pytest.raises(InputError, match="capacity"):
        Allocator().set_memory_fraction(0.5)


def test_a_request_may_be_refused_before_the_device_is_asked() -> None:
    allocator = Allocator(Device(100 * MIB), "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5")
    allocator.free(place(allocator, 40 * MIB))
    allocator.set_memory_fraction(1.0)
    assert allocator.malloc(45 * MIB) is None
    assert (allocator.counters.oom_rejections, allocator.counters.ooms, allocator.failures[0].event) == (1, 0, None)
    assert allocator.reserved == 40 * MIB


# ── expandable segments ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


#   pages of 20 MiB   ├────────┼────────┼─ ─        [a 30M     ](10M)  hole …
#                                                   [a 30M     ][b 25M      ](15M)  hole …
def test_expandable_segments_grow_by_whole_pages() -> None:
    allocator = Allocator(settings="expandable_segments:True")
    place(allocator, 30 * MIB)
    place(allocator, 25 * MIB)
    assert trace(allocator) == [
        ("segment_map", 0, 40 * MIB),
        ("alloc", 0, 30 * MIB),
        ("segment_map", 40 * MIB, 20 * MIB),
        ("alloc", 30 * MIB, 25 * MIB),
    ]
    state = allocator.state()
    assert state.segments.size.tolist() == [60 * MIB]
    assert state.segments.expandable.tolist() == [True]
    assert allocator.statistics()["segment"].allocated == 0
    assert allocator.statistics()["inactive_split_bytes"].peak == 0


#   pages     0        20        40        60        80        100      120
#   blocks    [a 30M        ][ free 45M             ][c 30M         ]( )          only 40–60 is a whole page inside the free block
def test_only_whole_pages_of_free_blocks_are_unmapped_and_holes_are_filled_again() -> None:
    allocator = Allocator(settings="expandable_segments:True")
    _, b, _ = place(allocator, 30 * MIB), place(allocator, 45 * MIB), place(allocator, 30 * MIB)
    allocator.free(b)
    before = len(allocator)
    allocator.empty_cache()
    assert trace(allocator, before) == [("segment_unmap", 40 * MIB, 20 * MIB)]
    assert allocator.state().segments.size.tolist() == [40 * MIB, 60 * MIB]
    assert allocator.reserved == 100 * MIB
    before = len(allocator)
    assert offset(place(allocator, 45 * MIB)) == 30 * MIB
    assert trace(allocator, before)[0] == ("segment_map", 40 * MIB, 20 * MIB)


def test_an_empty_range_is_given_up() -> None:
    allocator = Allocator(settings="expandable_segments:True")
    allocator.free(place(allocator, 30 * MIB))
    allocator.empty_cache()
    assert (allocator.reserved, len(allocator.state().segments)) == (0, 0)
    assert place(allocator, 30 * MIB) != FIRST_RESERVATION


def test_what_was_mapped_before_the_room_ran_out_stays() -> None:
    allocator = Allocator(Device(100 * MIB), "expandable_segments:True")
    a, _, _ = place(allocator, 20 * MIB), place(allocator, 20 * MIB), place(allocator, 40 * MIB)
    allocator.free(a)
    assert allocator.malloc(70 * MIB) is None
    assert allocator.counters.ooms == 1
    assert allocator.reserved <= 100 * MIB
    assert allocator.malloc(20 * MIB) is not None


def test_with_the_flag_off_expandable_blocks_are_passed_over() -> None:
    allocator = Allocator(settings="expandable_segments:True")
    allocator.free(place(allocator, 30 * MIB))
    allocator.set_options("expandable_segments:False")
    assert place(allocator, 30 * MIB) == FIRST_SEGMENT
    allocator.set_options("expandable_segments:True")
    assert place(allocator, 30 * MIB) == FIRST_RESERVATION


@pytest.mark.parametrize(("release", "expandable"), [("2.4", False), ("2.5", True)])
def test_private_pools_are_expandable_from_2_5_on(release: str, expandable: bool) -> None:
    allocator = Allocator(settings="expandable_segments:True", release=release)
    allocator.begin_pool(allocator.create_pool())
    place(allocator, 30 * MIB)
    assert allocator.state().segments.expandable.tolist() == [expandable]
    custom = Allocator(settings="expandable_segments:True")
    custom.begin_pool(custom.create_pool(custom_allocator=True))
    place(custom, 30 * MIB)
    assert custom.state().segments.expandable.tolist() == [False]


# ── private pools ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_requests_are_diverted_to_the_pool_begun_last_that_takes_their_stream() -> None:
    allocator = Allocator()
    outer, inner = allocator.create_pool(), allocator.create_pool()
    allocator.begin_pool(outer)
    allocator.begin_pool(inner, [SIDE])
    place(allocator, 100)
    place(allocator, 100, SIDE)
    allocator.end_pool(inner)
    allocator.end_pool(outer)
    place(allocator, 100)
    events = allocator.events()
    pools = [allocator.pools[pool] for kind, pool in zip(events.kind, events.pool, strict=True) if kind == Kind.ALLOC]
    assert pools == [outer, inner, (0, 0)]


def test_a_released_pool_is_given_back_with_the_next_flush() -> None:
    allocator = Allocator()
    pool = allocator.create_pool()
    allocator.begin_pool(pool)
    allocator.free(place(allocator, 100))
    allocator.end_pool(pool)
    allocator.release_pool(pool)
    allocator.empty_cache()
    assert allocator.reserved == 2 * MIB
    allocator.release_pool(pool)
    allocator.empty_cache(pool)
    assert allocator.reserved == 0
    private = allocator.statistics().reserved_by_private_pool[pool]
    assert (private["all"].current, private["small_pool"].peak) == (0, 2 * MIB)
    for action in (allocator.release_pool, allocator.end_pool):
        with pytest.raises(InputError):
            action(pool)


def test_pool_mistakes_are_refused() -> None:
    allocator = Allocator()
    pool = allocator.create_pool((0, 7))
    assert allocator.create_pool() == (0, 1)
    with pytest.raises(InputError, match="exists already"):
        allocator.create_pool(pool)
    allocator.begin_pool(pool)
    address = place(allocator, 100)
    allocator.end_pool(pool)
    allocator.release_pool(pool)
    allocator.release_pool(pool)
    with pytest.raises(InputError, match="released"):
        allocator.begin_pool(pool)
    allocator.free(address)
    with pytest.raises(InputError, match="no capture"):
        allocator.end_capture()


@pytest.mark.parametrize(("release", "looked"), [("2.12", False), ("2.13", True)])
def test_a_diversion_was_a_capture_up_to_2_12(release: str, looked: bool) -> None:
    allocator = Allocator(Device(64 * MIB), release=release)
    late, cached = place(allocator, 1000), place(allocator, 40 * MIB)
    allocator.record_stream(late, SIDE)
    allocator.free(late)
    allocator.free(cached)
    allocator.complete(SIDE)
    pool = allocator.create_pool()
    allocator.begin_pool(pool)
    place(allocator, 100)
    assert (allocator.statistics()["active"].current == 1) == looked
    assert (allocator.malloc(30 * MIB) is not None) == looked
    before = len(allocator)
    allocator.empty_cache()
    assert len(allocator) == before


#   in a capture: record_stream(a, side), free(a)       after it: 2.3 waits for the side stream, 2.4 forgets what the capture recorded
@pytest.mark.parametrize(("release", "waits"), [("2.3", True), ("2.4", False), ("2.13", False)])
def test_streams_recorded_in_a_capture_are_dropped_from_2_4_on(release: str, waits: bool) -> None:
    allocator = Allocator(release=release)
    address = place(allocator, 1000)
    allocator.begin_capture()
    allocator.record_stream(address, SIDE)
    allocator.free(address)
    place(allocator, 100)
    allocator.end_capture()
    assert allocator.statistics()["active"].current == 2
    place(allocator, 100)
    assert (allocator.statistics()["active"].current == 3) == waits
    allocator.complete(SIDE)
    place(allocator, 100)
    assert allocator.statistics()["active"].current == 3


def test_a_pool_may_lend_before_anything_is_given_back() -> None:
    allocator = Allocator(Device(64 * MIB))
    pool = allocator.create_pool(use_on_oom=True)
    allocator.begin_pool(pool)
    allocator.free(place(allocator, 30 * MIB))
    allocator.end_pool(pool)
    allocator.free(place(allocator, 20 * MIB))
    assert place(allocator, 28 * MIB) == FIRST_SEGMENT
    assert allocator.counters.alloc_retries == 0
    assert allocator.reserved == 50 * MIB


def test_a_released_pool_lends_no_more() -> None:
    allocator = Allocator(Device(64 * MIB))
    pool = allocator.create_pool(use_on_oom=True)
    allocator.begin_pool(pool)
    allocator.free(place(allocator, 30 * MIB))
    allocator.end_pool(pool)
    allocator.release_pool(pool)
    allocator.release_pool(pool)
    place(allocator, 20 * MIB)
    before = len(allocator)
    place(allocator, 28 * MIB)
    assert trace(allocator, before)[0] == ("segment_free", 0, 30 * MIB)


def test_frees_deferred_by_a_capture_are_completed_by_a_flush() -> None:
    allocator = Allocator()
    address = place(allocator, 1000)
    allocator.record_stream(address, SIDE)
    allocator.begin_capture()
    allocator.free(address)
    allocator.end_capture()
    allocator.empty_cache()
    assert allocator.reserved == 0


#   side stream:   event of default block │ event of the pool's block      destroying the pool waits for the later one, so both are over
def test_waiting_for_a_pools_events_passes_what_came_before_on_the_stream() -> None:
    allocator = Allocator()
    pool = allocator.create_pool()
    default = place(allocator, 1000)
    allocator.begin_pool(pool)
    private = place(allocator, 1000)
    allocator.end_pool(pool)
    allocator.release_pool(pool)
    for address in (default, private):
        allocator.record_stream(address, SIDE)
        allocator.free(address)
    allocator.release_pool(pool)
    allocator.empty_cache(pool)
    assert allocator.state().blocks.state.tolist() == [BlockState.PENDING_FREE, BlockState.INACTIVE]
    place(allocator, 100)
    assert allocator.statistics()["active"].current == 1


# ── devices ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_recorded_addresses_come_first_and_then_those_of_another_policy() -> None:
    policy = RecordedAddresses([0x1000_0000], [0x2000_0000_0000], then=NextAddress(0x9000_0000))
    allocator = Allocator(Device(policy=policy))
    first = place(allocator, 30 * MIB)
    assert (first, place(allocator, 30 * MIB)) == (0x1000_0000, 0x9000_0000)
    allocator.set_options("expandable_segments:True")
    assert place(allocator, 40 * MIB) == 0x2000_0000_0000
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.reserved == 70 * MIB


def test_what_others_hold_is_not_to_be_had() -> None:
    allocator = Allocator(Device(64 * MIB, foreign=40 * MIB))
    assert allocator.malloc(30 * MIB) is None
    assert allocator.failures[0].device_free == 24 * MIB
    with pytest.raises(InputError, match="negative"):
        Device(-1)


def test_settings_may_be_given_as_a_record() -> None:
    allocator = Allocator(settings=AllocatorSettings(expandable_segments=True))
    place(allocator, 100)
    assert allocator.settings.expandable_segments
    assert allocator.state().segments.size.tolist() == [2 * MIB]
