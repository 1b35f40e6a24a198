"""The average of a level over time, against a plain walk over every instant."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Kind, Trace
from lifecycle_sim.replay import Average, DeviceReplay, average, replay_device


def replayed(allocs: list[tuple[int, int]], clock: Clock = Clock.TICKS) -> DeviceReplay:
    """Storages that are allocated at the times given, with the sizes given, and stay."""
    events = Events.of([Kind.ALLOC] * len(allocs), range(len(allocs)), [size for _, size in allocs], time=[time for time, _ in allocs])
    return replay_device(Trace((DeviceTrace("gpu", events, Basis.PAYLOAD, start=0),), "native", Evidence.SIMULATED, clock))


def test_the_picture_at_the_top_of_the_module() -> None:
    events = Events.of([Kind.ALLOC, Kind.ALLOC, Kind.FREE, Kind.FREE], [1, 2, 2, 1], [1, 3, 3, 1], time=[2, 2, 4, 7])
    told = average(
        replay_device(Trace((DeviceTrace("gpu", events, Basis.PAYLOAD, start=0),), "native", Evidence.SIMULATED, Clock.TICKS)), 0, 10
    )
    assert told == Average(0, 10, 11)
    assert told.mean == Fraction(11, 10)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2**62)), min_size=1, max_size=12), st.integers(0, 25), st.integers(0, 25))
def test_against_every_instant(allocs: list[tuple[int, int]], begin: int, length: int) -> None:
    """Times may go back; then the latest time before counts."""
    told = average(replayed(allocs), begin, begin + length)
    latest = [max(time for time, _ in allocs[: k + 1]) for k in range(len(allocs))]
    held = sum(size for t in range(begin, begin + length) for (_, size), time in zip(allocs, latest, strict=True) if time <= t)
    assert told.area == held
    assert told.mean == (Fraction(held, length) if length else 0)


def test_by_default_from_the_first_event_to_the_last() -> None:
    assert average(replayed([(5, 8), (9, 8)])) == Average(5, 9, 32)
    assert average(replayed([(5, 8)])).mean == 0


def test_refusals() -> None:
    with pytest.raises(InputError, match="no times"):
        average(replayed([(1, 1)], Clock.NONE))
    with pytest.raises(InputError, match="no times"):
        average(replayed([]))
    with pytest.raises(InputError, match="ends before it begins"):
        average(replayed([(1, 1)]), 5, 4)
