"""Compute and copy streams on SimPy's clock, against a recurrence that needs no clock, and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.program.edits.offload import parse_rate
from lifecycle_sim.program.engine_copies import Do, Item, Link, run_with_copies

GIGA = 10**9


def there_and_back(forward: list[int], backward: list[int]) -> list[Item]:
    """Operators that each make one tensor, which goes to the host, and which another needs later, in the opposite order."""
    items = []
    for tensor, time in enumerate(forward):
        items += [Item(Do.RUN, tensor, time), Item(Do.SEND, tensor), Item(Do.LEAVE, tensor)]
    items.append(Item(Do.FETCH, 0))
    for tensor, time in reversed(list(enumerate(backward))):
        items += [Item(Do.NEED, tensor), Item(Do.RUN, len(forward) + tensor, time), Item(Do.DROP, tensor)]
    return items


def recurrence(forward: list[int], backward: list[int], sizes: list[int], ahead: int, behind: int) -> tuple[int, int]:
    """When all has ended, and how long compute waited; a byte takes a nanosecond."""
    now, waited, link = 0, 0, 0
    arrived: list[int] = []
    for tensor, time in enumerate(forward):
        now += time
        link = max(link, now) + sizes[tensor]
        arrived.append(link)
        if tensor >= behind and arrived[tensor - behind] > now:
            waited += arrived[tensor - behind] - now
            now = arrived[tensor - behind]
    needs = list(reversed(range(len(backward))))
    back: dict[int, int] = {}
    free = 0

    def fetch(until: int) -> None:
        nonlocal free
        for tensor in needs[len(back) : until]:
            free = max(free, now, arrived[tensor]) + sizes[tensor]
            back[tensor] = free

    fetch(ahead)
    for place, tensor in enumerate(needs):
        fetch(place + 1 + ahead)
        waited += max(0, back[tensor] - now)
        now = max(now, back[tensor]) + backward[tensor]
    return max(now, link), waited


TIMES = st.integers(0, 20)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TIMES, TIMES, st.integers(1, 30)), min_size=1, max_size=8), st.integers(0, 4), st.integers(0, 4))
def test_the_clock_agrees_with_the_recurrence(rows: list[tuple[int, int, int]], ahead: int, behind: int) -> None:
    forward, backward, sizes = (list(column) for column in zip(*rows, strict=True))
    course = run_with_copies(there_and_back(forward, backward), sizes.__getitem__, Link(GIGA, ahead, behind))
    assert (course.makespan, course.waited) == recurrence(forward, backward, sizes, ahead, behind)
    assert course.sent == course.fetched == sum(sizes)
    allocated = [value for _, do, value in course.order if do is Do.NEED]
    assert sorted(allocated) == list(range(len(rows)))
    assert sorted(value for _, do, value in course.order if do is Do.LEAVE) == list(range(len(rows)))


def test_waiting_for_every_copy_hides_none() -> None:
    course = run_with_copies(there_and_back([3, 4], [5, 6]), [10, 20].__getitem__, Link(GIGA, overlap=False))
    assert (course.makespan, course.waited, course.host_peak) == (18 + 60, 60, 30)


def test_a_link_at_leisure_hides_all() -> None:
    course = run_with_copies(there_and_back([10] * 4, [10] * 4), lambda _: 1, Link(GIGA, ahead=1))
    assert course.makespan == 80 + 2  # the last is made as the first is needed: its way there and back
    assert course.waited == 2


def test_what_lies_on_the_host_at_first_counts_there() -> None:
    items = [Item(Do.RUN, 0, 5), Item(Do.NEED, 7), Item(Do.RUN, 1, 5), Item(Do.SEND, 7), Item(Do.LEAVE, 7)]
    course = run_with_copies(items, lambda _: 3, Link(GIGA), away=[7])
    assert (course.makespan, course.host_peak) == (5 + 3 + 5 + 3, 3)
    assert [(do, value) for _, do, value in course.order] == [(Do.RUN, 0), (Do.NEED, 7), (Do.RUN, 1), (Do.LEAVE, 7)]


def test_rates() -> None:
    assert parse_rate("25 GB/s") == 25 * GIGA
    assert Link(3).time(1) == 333_333_334  # rounded up
    for text in ("25 GB", "25/s", "0 B/s"):
        with pytest.raises(ls.UnitError):
            parse_rate(text)
    with pytest.raises(ls.InputError, match="ahead is -1"):
        Link(1, ahead=-1)
