"""Recordings cut at many places: a later start changes no level, and where a middle part was lost the truth lies in the bounds."""

import random

import numpy as np
import pytest

from lifecycle_sim.replay import replay_device
from lifecycle_sim.replay.mappings import TAKES
from lifecycle_sim.sources.container import load_document
from lifecycle_sim.sources.snapshot import read_snapshot

RECORDINGS = ("complete_small", "torch214_stub_train", "torch214_stub_train_expandable", "lm_medium_ctx128_train")
CUTS = {"lm_medium_ctx128_train": 8}


@pytest.fixture(scope="module", params=RECORDINGS)
def recording(request, shared):
    document = load_document(shared / "data" / "snapshots" / f"{request.param}.pickle")
    return document, replay_device(read_snapshot(document), "cuda:0"), CUTS.get(request.param, 30)


def kept(document, *parts):
    events = document["device_traces"][0]
    return replay_device(read_snapshot(document | {"device_traces": [[event for part in parts for event in events[part]]]}), "cuda:0")


def test_a_window_that_starts_later_has_the_same_levels(recording):
    document, whole, cuts = recording
    for first in random.Random(1).sample(range(len(whole.timeline)), cuts):
        later = kept(document, slice(first, None))
        assert later.peak.exact
        assert np.array_equal(later.timeline.levels, whole.timeline.levels[first:])
        assert np.array_equal(later.reserved.levels, whole.reserved.levels[first:])


def test_where_a_middle_part_was_lost_the_bounds_hold_the_truth_or_nothing_tells_of_the_loss(recording):
    document, whole, cuts = recording
    choose, levels, n = random.Random(2), whole.timeline.levels, len(whole.timeline)
    seen = 0
    for turn in range(cuts):
        off = choose.randrange(1, n - 1)
        on = min(n - 1, off + 1 + choose.randrange(choose.choice((3, 30, 300))))
        if turn % 3 == 0:  # over the peak
            off, on = max(1, whole.peak.event - choose.randrange(50)), min(n - 1, whole.peak.event + 1 + choose.randrange(50))
        lossy = kept(document, slice(off), slice(on, None))
        assert lossy.peak.lower <= max(levels[: off + 1].max(), levels[on:].max())
        if lossy.gaps:
            seen += 1
            assert not lossy.peak.exact
            assert lossy.peak.upper >= whole.peak.size
        else:
            assert not contradiction(lossy)
    assert seen > cuts // 3


def contradiction(replayed):
    """Whether something is said to be live in a range while the range is taken from the device."""
    events, found = replayed.recorded.events, replayed.lifetimes
    return any(
        (
            (found.alloc < event)
            & (event < found.free)
            & (events.address[event] <= found.address)
            & (found.address < events.address[event] + events.size[event])
        ).any()
        for event in np.flatnonzero(np.isin(events.kind, TAKES)).tolist()
    )


def test_complete_recordings_contradict_nothing(recording):
    _, whole, _ = recording
    assert whole.peak.exact
    assert not contradiction(whole)
