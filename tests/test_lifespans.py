"""Spans of life in allocations, temporary and long-lived storages, and the table of sizes against spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Kind
from lifecycle_sim.replay import Total, lifespans, replay_device
from lifecycle_sim.replay.lifespans import allocation_spans
from tests.programs import Act, final_state, live_after, programs, record


def test_spans_count_the_allocations_in_between() -> None:
    """The picture at the top of the module."""
    a, b, c, d = ((address, 4) for address in range(4))
    order = [(Kind.ALLOC, a), (Kind.ALLOC, b), (Kind.ALLOC, c), (Kind.FREE, b), (Kind.ALLOC, d), (Kind.FREE, c), (Kind.FREE, a)]
    replayed = replay_device(record([Act(kind, *storage) for kind, storage in order], None, start=0))
    assert allocation_spans(replayed).tolist() == [3, 1, 1, 0]
    told = lifespans(replayed, within=1)
    assert told.temporary == Total(2, 8, 8)
    assert told.passing == Total(1, 4, 4)
    assert told.long_lived == Total(1, 4, 0)
    assert told.span_names == ("1", "2 – 3", "to the end")
    assert [(cell.size_class, cell.span_class, cell.count, cell.size) for cell in told.cells] == [(0, 0, 2, 8), (0, 1, 1, 4), (0, 2, 1, 4)]


@given(programs(), st.integers(0, 5), st.data())
def test_against_a_plain_walk(acts: list[Act], within: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(acts)))
    window, older = acts[first:], live_after(acts[:first])
    replayed = replay_device(record(window, final_state(live_after(acts))))
    made, born = 0, dict.fromkeys(older, -1)
    held = dict(older)
    kinds: dict[str, list[int]] = {"temporary": [], "passing": [], "older_freed": []}
    for act in window:
        if act.kind is Kind.ALLOC:
            made += 1
            born[act.address], held[act.address] = made, act.size
            continue
        span = made - born[act.address]
        kind = "older_freed" if born[act.address] < 0 else "temporary" if span <= within else "passing"
        kinds[kind].append(held.pop(act.address))
    kinds["long_lived"] = list(held.values())
    told = lifespans(replayed, within)
    for kind, sizes in kinds.items():
        total = getattr(told, kind)
        assert (total.count, total.size) == (len(sizes), sum(sizes))
    assert sum(getattr(told, kind).at_peak for kind in kinds) == replayed.peak.size
    assert sum(cell.count for cell in told.cells) == sum(len(sizes) for sizes in kinds.values())
    assert sum(cell.size for cell in told.cells) == sum(map(sum, kinds.values()))
    assert len({(cell.size_class, cell.span_class) for cell in told.cells}) == len(told.cells)
    assert {cell.size_class for cell in told.cells} == set(range(len(told.size_names)))
    assert {cell.span_class for cell in told.cells} == set(range(len(told.span_names)))


@pytest.mark.parametrize(("others", "within", "temporary"), [(1, 0, 1), (3, 1, 3), (30, 7, 30), (100, 8, 100)])
def test_what_lives_throughout_is_not_temporary_however_few_allocations_there_are(others: int, within: int, temporary: int) -> None:
    """::

    weights  +-----------+
    others    ++ ++ ++ ++
    """
    weights, other = (1, 64), (2, 8)
    order = [(Kind.ALLOC, weights), *[(Kind.ALLOC, other), (Kind.FREE, other)] * others, (Kind.FREE, weights)]
    told = lifespans(replay_device(record([Act(kind, *storage) for kind, storage in order], None, start=0)))
    assert told.within == within
    assert (told.temporary.count, told.passing.count, told.long_lived.count) == (temporary, 1, 0)


def test_storages_older_than_the_window_have_no_known_span() -> None:
    replayed = replay_device(record([Act(Kind.FREE, 1 << 40, 9)], final_state({(1 << 40) + (1 << 12): 700})))
    told = lifespans(replayed)
    assert (told.older_freed, told.long_lived) == (Total(1, 9, 9), Total(1, 700, 700))
    assert told.size_names == ("8 B – 16 B", "512 B – 1 KiB")
    assert told.span_names == ("older, freed", "older, to the end")


def test_a_negative_span_is_refused_and_an_empty_trace_has_no_cells() -> None:
    replayed = replay_device(record([], None))
    with pytest.raises(InputError, match="within -1 allocations"):
        lifespans(replayed, -1)
    assert (lifespans(replayed).cells, lifespans(replayed).size_names) == ((), ())
