"""A recording joined with the allocator's snapshot of the same steps: by hand, at random, and two steps under PyTorch's own CUDA code."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.events import Basis, Category, Clock, DeviceTrace, Events, Evidence, Kind, Trace
from lifecycle_sim.sources.capture.joining import BEFORE, Joined, _blocks, _match, join
from lifecycle_sim.sources.capture.ledger import Ledger, Phase, StorageRecord, Where
from lifecycle_sim.sources.snapshot import read_snapshot
from tests.conftest import ROOT

RECORDED = ROOT / "tests" / "data" / "joined_recording.json.gz"


def snapshot_of(rows: list[tuple[Kind, int, int]]) -> Trace:
    kind, address, size = zip(*rows, strict=True)
    device = DeviceTrace("cuda:0", Events.of(kind, address, size), Basis.REQUESTED)
    return Trace((device,), "cuda-snapshot", Evidence.MEASURED, Clock.NONE)


def ledger_of(events: list[tuple[int, int]]) -> Ledger:
    """Allocations ``(address, size)`` and frees ``(~number, 0)``."""
    ledger = Ledger()
    for first, size in events:
        if first < 0:
            ledger.free(~first, Phase.FORWARD)
        else:
            ledger.storages[ledger.alloc(size, f"op{len(ledger.storages)}", Where(Phase.FORWARD, ()))].pointer = first
    return ledger


A, B = 0x1000, 0x2000


def test_scratch_at_the_address_of_a_storage_is_not_taken_for_it() -> None:
    r"""Scratch before and after the storage, at its address and of its size::

    row       0    1    2    3    4    5    6    7    8
    B         +--------------------------------------
    A              [scr-)    [--a-)    [scr-)    [--b
    """
    rows = [(Kind.ALLOC, B, 8)]
    rows += [(Kind.ALLOC, A, 64), (Kind.FREE, A, 64), (Kind.ALLOC, B + 64, 8), (Kind.ALLOC, A, 64), (Kind.FREE, A, 64)]
    rows += [(Kind.ALLOC, A, 64), (Kind.FREE, A, 64), (Kind.ALLOC, B + 128, 8), (Kind.ALLOC, A, 64)]
    ledger = ledger_of([(B, 8), (B + 64, 8), (A, 64), (~2, 0), (B + 128, 8), (A, 64)])
    joined = join(ledger, 0, snapshot_of(rows), "cuda:0")
    assert (joined.storages, joined.matched, joined.besides, joined.besides_most) == (5, 5, 2, 64)
    events = joined.trace.devices[0].events
    workspaces = [row for row in range(len(rows)) if events.category[row] == Category.WORKSPACE]
    assert workspaces == [1, 2, 6, 7]
    assert [joined.trace.labels[events.label[row]] for row in (0, 3, 4, 8, 9)] == ["op0", "op1", "op2", "op3", "op4"]


def test_what_was_there_before_has_the_block_that_only_a_free_tells_of() -> None:
    ledger = ledger_of([(A, 64), (B, 8), (~0, 0), (A, 64)])
    joined = join(ledger, 1, snapshot_of([(Kind.ALLOC, B, 8), (Kind.FREE, A, 64), (Kind.ALLOC, A, 64)]), "cuda:0")
    assert (joined.storages, joined.matched, joined.matched_bytes, joined.besides) == (2, 2, 72, 0)


def test_a_storage_of_other_memory_has_no_block() -> None:
    joined = join(ledger_of([(A, 64), (0x77, 4096), (A, 32)]), 0, snapshot_of([(Kind.ALLOC, A, 64)]), "cuda:0")
    assert (joined.matched, joined.missing_bytes) == (1, 4096 + 32)
    assert repr(joined) == "Joined(1 of 3 storages, 0 blocks besides)"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["alloc", "free", "scratch"]), st.integers(0, 5), st.sampled_from([8, 64])), max_size=60))
def test_storages_of_random_programs_have_their_own_blocks(program: list[tuple[str, int, int]]) -> None:
    """The lowest free address is given out, as allocators do; scratch comes and goes inside an operator, before its output."""
    rows: list[tuple[Kind, int, int]] = []
    seen: list[tuple[int, int]] = []
    live: dict[int, tuple[int, int, int]] = {}  # by number: address, size, row
    row_of: dict[int, int] = {}
    for what, which, size in program:
        free = next(address for address in range(1, 200) if address not in {each[0] for each in live.values()})
        if what == "free" and live:
            number = list(live)[which % len(live)]
            address, size, _ = live.pop(number)
            rows.append((Kind.FREE, address, size))
            seen.append((~number, 0))
        elif what != "free":
            other = free
            if what == "scratch":  # of a size of its own: of the same one, its block could as well be the output's
                rows += [(Kind.ALLOC, free, size + 1), (Kind.FREE, free, size + 1)]
            number = len(row_of)
            row_of[number] = len(rows)
            live[number] = (other, size, len(rows))
            rows.append((Kind.ALLOC, other, size))
            seen.append((other, size))
    if not rows:
        return
    ledger = ledger_of(seen)
    found = _match(ledger, 0, _blocks(snapshot_of(rows).devices[0]))
    assert {number: block.start for number, block in found.items()} == row_of


@pytest.fixture(scope="module")
def pair() -> dict[str, Any]:
    return json.loads(gzip.decompress(RECORDED.read_bytes()))


@pytest.fixture(scope="module")
def joined(pair: dict[str, Any]) -> Joined:
    ledger = Ledger(events=pair["events"], phases=[Phase[name] for name in pair["phases"]], backwards=pair["backwards"])
    for size, operator, pointer, born, died, category, name, phase in pair["storages"]:
        kind = None if category is None else Category(category)
        ledger.storages.append(StorageRecord(size, operator, Where(Phase[phase], ()), born, died, kind, name, pointer=pointer))
    return join(ledger, pair["before"], read_snapshot(pair["snapshot"]), "cuda:0")


def test_every_storage_of_two_real_steps_has_its_block(joined: Joined, pair: dict[str, Any]) -> None:
    assert joined.storages == joined.matched == len(pair["storages"]) - pair["before"] > 500
    assert joined.missing_bytes == 0
    assert 0 < joined.besides_most < 100_000  # the sort of an embedding's gradient
    replayed = ls.replay_device(joined.trace, "cuda:0")
    assert (replayed.peak.size, replayed.timeline.end) == (pair["peak"], pair["end"])  # torch.cuda.memory_stats()


def test_categories_at_every_event_are_those_of_the_recording(joined: Joined, pair: dict[str, Any]) -> None:
    """Gradients made in the two steps, told by the allocator's rows, are those that the recording labelled."""
    events = joined.trace.devices[0].events
    gradients = (events.category == Category.GRADIENT) & (events.kind == Kind.ALLOC)
    labelled = [each[0] for each in pair["storages"][pair["before"] :] if each[5] == Category.GRADIENT]
    assert sorted(events.size[gradients].tolist()) == sorted(labelled)
    assert sum(labelled) == 2 * sum(each[0] for each in pair["storages"] if each[5] == Category.PARAMETER)
    assert BEFORE not in events.address.tolist()
