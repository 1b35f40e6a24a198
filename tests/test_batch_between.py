"""Peaks of batches that nobody ran, told from two that were: against the allocator given the very requests of each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Kind, Span, Trace
from lifecycle_sim.study.batch.between import MOST, Requests, levels_between
from lifecycle_sim.study.batch.measured import StepPeaks
from lifecycle_sim.study.batch.verified import find_largest

#   weights ──────────────────────────────────────────────
#   layer 1      ───────────────────────────────
#   layer 2           ─────────────────────
#   loss                   ───
PER_SAMPLE = (0, 16_384, 16_384, 400)
FIXED = (200 * 2**20, 512, 0, 0)


def requests(batch: int, per_sample: tuple[int, ...] = PER_SAMPLE, turn: bool = False) -> Requests:
    """A step: all storages made in turn, and freed from the last to the first, or in the order they were made."""
    numbers = range(len(per_sample))
    freed = list(numbers) if turn else list(reversed(numbers))
    size = [fixed + per * batch for fixed, per in zip(FIXED, per_sample, strict=False)]
    events = Events.of([Kind.ALLOC] * len(size) + [Kind.FREE] * len(size), [*numbers, *freed], [*size, *(size[number] for number in freed)])
    device = DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0, spans=(Span("step", "step 1", 0, len(events)),))
    return Requests(Trace((device,), "native", Evidence.SIMULATED, Clock.NONE))


def peaks(batch: int) -> StepPeaks:
    asked = requests(batch)
    prediction = ls.predict(asked.trace, capacity=MOST)
    levels = {level: prediction.peak(level) for level in ("requested", "allocated", "reserved")}
    return StepPeaks(batch, None, levels, {"forward": levels["requested"]}, requests=asked)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 10**6), st.sampled_from(["requested", "allocated", "reserved"]))
def test_between_and_beyond_two_runs_it_is_what_the_allocator_makes_of_the_third(one, more, batch, basis):
    tell = levels_between({one: requests(one), one + more: requests(one + more)}, basis)
    assert tell is not None
    assert tell(batch) == peaks(batch).peak(basis)


def test_runs_with_other_events_tell_nothing_and_the_largest_alike_are_taken():
    assert levels_between({}, "reserved") is None
    assert levels_between({1: requests(1)}, "reserved") is None
    assert levels_between({1: requests(1), 2: requests(2, turn=True)}, "reserved") is None
    assert levels_between({1: requests(1), 2: requests(2, PER_SAMPLE[:3])}, "reserved") is None
    grown = (0, 0, 0, 2**20)
    tell = levels_between(
        {1: requests(1), 2: requests(2), 8: requests(8, grown), 16: requests(16, grown), 17: requests(17, turn=True)}, "requested"
    )
    assert tell is not None
    assert tell(20) == sum(FIXED) + 20 * 2**20
    assert tell(2**60) == MOST


def test_sizes_that_are_rounded_up_are_told_from_counts_far_apart():
    def padded(batch: int) -> Requests:
        return requests(-(-batch // 64) * 64)

    tell = levels_between({batch: padded(batch) for batch in (1, 384, 640, 641)}, "requested")
    assert tell is not None
    assert abs(tell(1280) / peaks(1280).peak("requested") - 1) < 0.05  # from 640 and 641 it would be 60 times as much a sample


@pytest.mark.parametrize("room", [2**30, 3 * 2**30 + 5, 17 * 2**30])
def test_steps_of_reserved_bytes_take_few_runs(room):
    """Lines alone take 20 to 50 runs here: reserved bytes rise by 2 MiB for some batch or other of the layers."""
    asked: list[int] = []

    def measure(places):
        asked.extend(batch for _, batch in places)
        return [peaks(batch) for _, batch in places]

    (found,) = find_largest(measure, room)
    assert found.at is not None
    assert found.above is not None
    assert found.at.peak("reserved") <= room < found.above.peak("reserved")
    assert len(asked) == len(set(asked)) <= 3 + 2 + 4
    assert all(peaks(found.value + more).peak("reserved") > room for more in (1, 2, 3))
