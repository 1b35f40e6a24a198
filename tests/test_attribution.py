"""Shares of a level against a plain walk: disjoint, exact at every event, in a fixed order."""

from dataclasses import replace as changed
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Category, Clock, DeviceTrace, Events, Evidence, Frame, Kind, StackBuilder, Trace
from lifecycle_sim.replay import DeviceReplay, attribute, levels_by, replay_device
from lifecycle_sim.replay.attribution import UNIDENTIFIED_KEY
from tests.programs import Act, final_state, live_after, programs, record
from tests.recordings import read_events

LINES = [Frame("f", f"/project/{name}.py", 1) for name in "abcd"]


def with_owners(trace: Trace, numbers: list[int]) -> Trace:
    """Give each allocation one of four owners, each free another stack."""
    builder = StackBuilder()
    stacks = [builder.add([Frame("g", "??", 0), frame]) for frame in reversed(LINES)][::-1]  # numbered against the alphabet
    (device,) = trace.devices
    given_stack = np.array([stacks[numbers[i % len(numbers)]] for i in range(len(device))], np.int32)
    return changed(trace, devices=(changed(device, events=changed(device.events, stack=given_stack)),), stacks=builder.table())


def shares_of(replayed: DeviceReplay, **options: object) -> dict[str, int]:
    return {share.key: share.size for share in attribute(replayed, **options).shares}  # type: ignore[arg-type]


owner_numbers = st.lists(st.integers(0, 3), min_size=1, max_size=7)


@given(programs(), owner_numbers, st.data())
def test_shares_are_those_of_a_plain_walk_at_every_event(acts: list[Act], numbers: list[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(acts)))
    window = acts[first:]
    replayed = replay_device(with_owners(record(window, final_state(live_after(acts))), numbers))
    held = {address: (size, "(older than the window, no stack)") for address, size in live_after(acts[:first]).items()}
    for event in range(-1, len(window)):
        if event >= 0:
            act = window[event]
            if act.kind is Kind.ALLOC:
                held[act.address] = (act.size, str(LINES[numbers[event % len(numbers)]]))
            else:
                del held[act.address]
        expected: dict[str, int] = {}
        for size, owner in held.values():
            expected[owner] = expected.get(owner, 0) + size
        told = attribute(replayed, at=event, top=None)
        assert {share.key: share.size for share in told.shares} == expected
        assert list(told.shares) == sorted(told.shares, key=lambda share: (-share.size, share.key))
        assert sum(share.count or 0 for share in told.shares) == len(held)
        assert told.total == sum(expected.values()) == replayed.timeline.at(event)
        folded = attribute(replayed, at=event, top=1)
        assert sum(share.size for share in folded.shares) == told.total
        assert len(folded.shares) <= 2


@given(programs(), owner_numbers, st.sets(st.integers(0, 39), max_size=5), st.integers(0, 5), st.integers(0, 20000))
def test_shares_add_up_whatever_was_lost(acts: list[Act], numbers: list[int], lost: set[int], top: int, start: int) -> None:
    kept = [act for i, act in enumerate(acts) if i not in lost]
    for final in (final_state(live_after(acts)), None):
        replayed = replay_device(with_owners(record(kept, final, start=start), numbers))
        for by in ("owner", "size", "stream"):
            for event in range(-1, len(kept)):
                told = attribute(replayed, by, at=event, top=top)
                assert sum(share.size for share in told.shares) == told.total == replayed.timeline.at(event)
                unidentified = [share.size for share in told.shares if share.key == UNIDENTIFIED_KEY]
                assert sum(unidentified) == replayed.unidentified
            keys, levels = levels_by(replayed, by, top=top)
            assert levels.shape == (len(keys), len(kept) + 1)
            assert levels.sum(axis=0).tolist() == replayed.timeline.levels.tolist()


@given(programs(), owner_numbers)
def test_rows_of_levels_are_the_shares_at_every_event(acts: list[Act], numbers: list[int]) -> None:
    replayed = replay_device(with_owners(record(acts, None, start=0), numbers))
    keys, levels = levels_by(replayed, top=None)
    assert list(keys)[: len(attribute(replayed, top=None).shares)] == [share.key for share in attribute(replayed, top=None).shares]
    for event in range(-1, len(acts)):
        column = dict(zip(keys, levels[:, event + 1].tolist(), strict=True))
        assert {key: size for key, size in column.items() if size} == shares_of(replayed, at=event, top=None)


def test_ties_go_by_key_and_the_rest_is_one_share() -> None:
    acts = [Act(Kind.ALLOC, address, size) for address, size in enumerate([5, 5, 9, 5])]
    replayed = replay_device(with_owners(record(acts, None, start=0), [3, 1, 0, 2]))
    assert list(shares_of(replayed)) == [str(LINES[i]) for i in (0, 1, 2, 3)]
    assert shares_of(replayed, top=2) == {str(LINES[0]): 9, str(LINES[1]): 5, "(2 other owners)": 10}
    assert shares_of(replayed, top=3)["(1 other owner)"] == 5
    assert list(shares_of(replayed, by="size", top=0)) == ["(2 other size classes)"]
    told = attribute(replayed, top=2)
    assert (told.groups, told.event, told.total, told.shares[0].fraction) == (4, 3, 24, 9 / 24)


def test_the_full_stack_of_the_biggest_storage_stays_at_hand() -> None:
    builder = StackBuilder()
    user = Frame("f", "/project/a.py", 1)
    small, big = builder.add([Frame("x", "", 0), user]), builder.add([Frame("y", "", 0), user])
    events = Events.of([0, 0, 0], [1, 2, 3], [10, 20, 20], stack=[small, big, small])
    trace = Trace((DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0),), "native", Evidence.MEASURED, Clock.NONE, builder.table())
    (share,) = attribute(replay_device(trace)).shares
    assert trace.stacks.frames_of(share.stack) == (Frame("y", "", 0), user)
    assert attribute(replay_device(trace), "stream").shares[0].stack == -1


def test_bytes_that_no_storage_is_known_for_are_a_share() -> None:
    replayed = replay_device(record([Act(Kind.ALLOC, 1, 10)], None, start=100))
    assert shares_of(replayed, by="stream") == {"stream 0": 10, UNIDENTIFIED_KEY: 100}
    keys, levels = levels_by(replayed, "stream")
    assert (keys, levels.tolist()) == (("stream 0", UNIDENTIFIED_KEY), [[0, 10], [100, 100]])


def test_events_without_identity_are_shared_out_by_category_alone() -> None:
    activation, gradient = Category.ACTIVATION, Category.GRADIENT
    events = Events.of([0, 0, Kind.FREE, 0], [-1] * 4, [50, 30, 50, 7], category=[activation, gradient, activation, activation])
    device = DeviceTrace("cuda:0", events, Basis.PAYLOAD, start=4, identified=False)
    replayed = replay_device(Trace((device,), "memory-timeline", Evidence.MEASURED, Clock.NONE))
    assert shares_of(replayed, by="category") == {"activation": 50, "gradient": 30, UNIDENTIFIED_KEY: 4}
    assert shares_of(replayed, by="category", at=3) == {"gradient": 30, "activation": 7, UNIDENTIFIED_KEY: 4}
    keys, levels = levels_by(replayed, "category", top=1)
    assert keys == ("activation", "(1 other category)", UNIDENTIFIED_KEY)
    assert levels.tolist() == [[0, 50, 50, 0, 7], [0, 0, 30, 30, 30], [4] * 5]
    with pytest.raises(InputError, match="without identities"):
        attribute(replayed)


def test_totals_past_64_bits_stay_exact() -> None:
    size = 2**62
    replayed = replay_device(record([Act(Kind.ALLOC, address, size + address) for address in range(5)], None, start=0))
    assert [share.size for share in attribute(replayed).shares] == [5 * size + 10]
    assert levels_by(replayed)[1].tolist() == [replayed.timeline.levels.tolist()]


def test_events_out_of_the_window_and_negative_tops_are_refused() -> None:
    replayed = replay_device(record([Act(Kind.ALLOC, 1, 10)], None))
    with pytest.raises(InputError, match="no event 1: choose 0 to 0, or -1"):
        attribute(replayed, at=1)
    with pytest.raises(InputError, match="top is -1"):
        attribute(replayed, top=-1)


def test_the_peak_of_a_recorded_training_run_is_owned_by_lines_of_its_script(shared: Path) -> None:
    replayed = replay_device(read_events(shared / "data/snapshots/torch214_stub_train.pickle", start=0))
    told = attribute(replayed)
    assert (told.total, told.event) == (768_772_392, 1288)
    assert sum(share.size for share in told.shares) == told.total
    assert told.shares[0].key == "/project/t4.py:11 forward"
    assert all(share.key.startswith("/project/t4.py:") for share in told.shares if share.stack >= 0)
    keys, levels = levels_by(replayed)
    assert levels.sum(axis=0).tolist() == replayed.timeline.levels.tolist()
    assert dict(zip(keys, levels[:, told.event + 1].tolist(), strict=True))["/project/t4.py:11 forward"] == 184_614_912
