"""Why memory ran out: a case by hand, and failures of PyTorch's compiled allocator, which was also asked what would have helped.

The recordings `out_of_memory_*.pickle.gz` are random programs that ran into their first failure on a device of 256 MiB. What stands below
them is what the compiled allocator itself did when the same programs were run again under other settings, on other devices, with an
``empty_cache()`` before the request, or with that request made smaller (benchmarks/ghost/failures.py does that).
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from lifecycle_sim import read_trace
from lifecycle_sim.errors import InputError
from lifecycle_sim.replay import replay_device
from lifecycle_sim.study.remedies import Remedy
from lifecycle_sim.study.why import AllMet, Why, why_out_of_memory
from tests.test_what_if import MIB, ROOT, TRAIN, program

DATA = Path(__file__).parent / "data"


def failed(found: Why | AllMet) -> Why:
    assert isinstance(found, Why)
    return found


def by_name(found: Why) -> dict[str, Remedy]:
    return {remedy.name: remedy for remedy in found.remedies}


#   a segment of 20 on a device of 20        why: 10 is free, but in pieces of 5, and the device has nothing left
#   [a 5][b 5][c 5][d 5]|  - a, - c          a request of 5 would have been met, 5 less; a segment of 10 needs 10 more of the device
#   (  5)[b 5](  5)[d 5]|  + e (10)
FRAGMENTED = [*(("+", n, 5) for n in range(1, 5)), ("-", 1, 5), ("-", 3, 5), ("+", 5, 10), ("-", 2, 5)]


def test_enough_was_free_but_not_in_one_piece() -> None:
    found = failed(why_out_of_memory(program(*FRAGMENTED), capacity=20 * MIB))
    failure = found.failure
    assert (failure.event, failure.requested, failure.segment, failure.reserved) == (6, 10 * MIB, 10 * MIB, 20 * MIB)
    assert (failure.allocated, failure.given_back, failure.device_free) == (10 * MIB, 0, 0)
    (place,) = found.free
    assert (place.pool, place.small, place.stream, place.size, place.count, place.largest) == ((0, 0), False, 0, 10 * MIB, 2, 5 * MIB)
    assert place.usable
    assert found.pieces == (5 * MIB, 5 * MIB)
    assert found.fragmented
    remedies = by_name(found)
    less, more = remedies["asking for less"], remedies["more of the device (a smaller headroom)"]
    assert (less.met, less.size, less.total) == (True, 5 * MIB, 5 * MIB)
    assert (more.met, more.fits, more.size, more.total) == (True, True, 10 * MIB, 30 * MIB)
    assert not any(remedies[name].met for name in ("empty_cache() just before", "expandable_segments:True", "max_split_size_mb:64"))


#   cached segments of 12, one between them in use       flushing gives both back: no failure at all
def test_whole_segments_are_no_fragmentation() -> None:
    rows = [("+", 1, 12), ("+", 2, 12), ("+", 3, 12), ("-", 1, 12), ("-", 3, 12), ("+", 4, 24)]
    found = why_out_of_memory(program(*rows), capacity=36 * MIB)
    assert isinstance(found, AllMet)
    assert (found.outcome.retries, found.outcome.peak_reserved) == (1, 36 * MIB)
    assert not failed(why_out_of_memory(program(*rows, ("+", 5, 30)), capacity=36 * MIB)).fragmented


def test_a_larger_request_may_fit_where_a_smaller_one_does_not() -> None:
    found = failed(why_out_of_memory(program(("+", 1, 20), ("+", 2, 14)), capacity=32 * MIB))
    assert by_name(found)["asking for less"].total == 12 * MIB  # a segment of its own; 9 MiB would want one of 20
    found = failed(why_out_of_memory(program(("+", 1, 20), ("+", 2, 9)), capacity=32 * MIB))
    assert by_name(found)["asking for less"].total == MIB  # from the small pool, whose segments are of 2


@dataclass(frozen=True)
class Truth:
    """What the compiled allocator did. ``failing`` holds for each option the event of its own failure, None where there was none."""

    event: int
    failing: dict[str, int | None]
    flush: bool
    largest: int
    capacity: int


SPLITS = [f"max_split_size_mb:{limit}" for limit in (32, 64, 128, 256, 512)]
TRUTH = {
    1: Truth(364, {"expandable_segments:True": None} | dict.fromkeys(SPLITS, 364), False, 7_339_520, 285_212_672),
    24: Truth(468, {"expandable_segments:True": None} | dict.fromkeys(SPLITS, 468), True, 3_037_184, 278_921_216),
    29: Truth(506, {"expandable_segments:True": 420} | dict.fromkeys(SPLITS, 506), False, 5_302_272, 278_921_216),
}


@pytest.mark.parametrize("seed", TRUTH)
def test_the_compiled_allocator_agrees(seed: int) -> None:
    truth = TRUTH[seed]
    found = failed(why_out_of_memory(replay_device(read_trace(DATA / f"out_of_memory_{seed}.pickle.gz"))))
    remedies = by_name(found)
    assert (found.failure.event, found.failure.recorded, found.capacity) == (truth.event, True, 256 * MIB)
    for name, event in truth.failing.items():
        failure = remedies[name].failure
        assert (failure.event if failure is not None else None) == event, name
        assert remedies[name].met == (event is None)
    assert remedies["empty_cache() just before"].met == truth.flush
    assert remedies["asking for less"].total == truth.largest
    assert remedies["more of the device (a smaller headroom)"].total == truth.capacity


def test_after_its_flush_pytorch_does_not_look_among_the_free_blocks_again() -> None:
    found = failed(why_out_of_memory(replay_device(read_trace(DATA / "out_of_memory_24.pickle.gz"))))
    assert found.free[0].usable
    assert found.free[0].largest >= found.failure.rounded  # it was there, and was not taken


def test_a_recording_and_a_smaller_device() -> None:
    replayed = replay_device(read_trace(TRAIN))
    assert isinstance(why_out_of_memory(replayed, capacity=908_066_816), AllMet)
    found = failed(why_out_of_memory(replayed, capacity=800 * MIB))
    assert (found.failure.event, found.failure.requested) == (2217, 81_920_000)
    fits = {remedy.name for remedy in found.remedies if remedy.fits}
    assert fits == {
        "expandable_segments:True",
        "max_split_size_mb:32",
        "max_split_size_mb:64",
        "more of the device (a smaller headroom)",
    }
    more = by_name(found)["more of the device (a smaller headroom)"].total
    assert more is not None
    assert isinstance(why_out_of_memory(replayed, capacity=more), AllMet)
    assert isinstance(why_out_of_memory(replayed, capacity=more - 1), Why)


def test_a_window_that_begins_mid_run_has_a_control(shared: Path) -> None:
    replayed = replay_device(read_trace(shared / "data" / "snapshots" / "lm_medium_ctx512_train.pickle"))
    found = failed(why_out_of_memory(replayed, capacity=12_650_000_000))
    assert found.start == "rebuilt"
    control = next(remedy for remedy in found.remedies if remedy.means == "start")
    assert control.fits is True  # so that what other settings do better is not theirs alone


def test_a_chosen_entry_and_what_is_none() -> None:
    replayed = replay_device(read_trace(ROOT / "scenarios" / "torch214_stub_small.pickle"), 0)
    assert failed(why_out_of_memory(replayed, event=11)).failure.requested == 4 << 40
    with pytest.raises(InputError, match="event 3 of cuda:0 is no out-of-memory entry: the recording has 11"):
        why_out_of_memory(replayed, event=3)
    with pytest.raises(InputError, match="no out-of-memory entry; say how large the device is"):
        why_out_of_memory(program(*FRAGMENTED))


def test_the_second_of_two_recorded_failures_is_told_by_its_own_figures() -> None:
    rows = [("S+", 90, 12), ("+", 1, 12), ("!", 8 * MIB, 30), ("!", 6 * MIB, 10), ("-", 1, 12)]
    replayed = program(*rows)
    first, second = (failed(why_out_of_memory(replayed, event=event)) for event in (2, 3))
    assert (first.capacity, second.capacity) == (20 * MIB, 18 * MIB)
    assert (first.failure.event, second.failure.event) == (2, 3)
    assert by_name(second)["asking for less"].total == MIB
