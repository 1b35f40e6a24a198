"""What if the settings or the device were others: small cases by hand, recordings of one program under two settings, PyTorch's own runs.

Sizes in the pictures are MiB; `[a]` is a block handed out, `( )` a free one, `|` the end of a segment.
"""

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lifecycle_sim import read_trace
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Kind, Trace
from lifecycle_sim.replay import DeviceReplay, replay_all, replay_device
from lifecycle_sim.replay.allocator.requests import Action
from lifecycle_sim.study.executor import run_jobs
from lifecycle_sim.study.sweep import rank, sweep_allocator
from lifecycle_sim.study.what_if import WhatIf, ask, what_if_allocator
from tests.ghost_traces import trace_of

ROOT = Path(__file__).resolve().parents[1]
TRAIN, EXPANDABLE = (ROOT / "scenarios" / f"torch214_stub_train{name}.pickle" for name in ("", "_expandable"))
MIB = 1 << 20
KINDS = {"+": Kind.ALLOC, "-": Kind.FREE, "r": Kind.FREE_REQUESTED, "c": Kind.FREE_COMPLETED, "!": Kind.OOM}
KINDS |= {"S+": Kind.SEGMENT_ALLOC, "S-": Kind.SEGMENT_FREE}


def program(*rows: tuple[Any, ...], **more: Any) -> DeviceReplay:
    """The replay of a trace of (action, address, MiB[, stream[, pool]])."""
    full = [(*row, *(0,) * (5 - len(row))) for row in rows]
    events = Events.of(
        [KINDS[row[0]] for row in full],
        [row[1] for row in full],
        [int(row[2] * MIB) for row in full],
        stream=[row[3] for row in full],
        pool=[row[4] for row in full],
    )
    pools = tuple((0, n) for n in range(1 + max(row[4] for row in full)))
    trace = Trace((DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0, **more),), "native", Evidence.SIMULATED, Clock.NONE, pools=pools)
    return replay_device(trace)


def peaks(found: WhatIf) -> dict[str, int]:
    return {row.name: row.outcome.peak_reserved // MIB for row in found.rows}


#                       default: a segment each                       expandable: pages of 20, one run
#   + a, + b (12 each)  [a  12]|[b  12]|                              [a  12][b  12](16)
#   - a, - b            (   12)|(   12)|                              (        40       )
#   + c (24)            (   12)|(   12)|[c      24]|   48             [c      24](  16)     40
TWO_AND_A_LARGER = [("+", 1, 12), ("+", 2, 12), ("-", 1, 12), ("-", 2, 12), ("+", 3, 24)]


def test_expandable_segments_join_what_segments_keep_apart() -> None:
    found = what_if_allocator(program(*TWO_AND_A_LARGER), ["expandable_segments:True"])
    assert peaks(found) == {"default": 48, "expandable_segments:True": 40}
    default, expandable = (row.outcome for row in found.rows)
    assert (default.peak_event, default.device_allocs, default.retries) == (4, 3, 0)
    assert (default.requested_at_peak, default.internal_at_peak, default.external_at_peak) == (24 * MIB, 0, 24 * MIB)
    assert (expandable.peak_event, expandable.device_allocs, expandable.peak_allocated) == (1, 2, 24 * MIB)
    assert [row.fits for row in found.rows] == [None, None]
    assert found.error is None


#   a device of 40: c does not fit beside the two cached segments; they go back, and it is asked again
#   (   12)|(   12)|   ──▶   [c      24]|
def test_a_smaller_device_is_retried_on() -> None:
    found = what_if_allocator(program(*TWO_AND_A_LARGER), capacity=40 * MIB)
    (row,) = found.rows
    assert (row.fits, row.outcome.retries, row.outcome.peak_reserved, row.outcome.device_frees) == (True, 1, 24 * MIB, 2)
    assert found.capacity_from == "given"


def test_where_memory_runs_out_is_a_result() -> None:
    found = what_if_allocator(program(*TWO_AND_A_LARGER, ("+", 4, 1)), ["expandable_segments:True"], capacity=20 * MIB)
    default, expandable = found.rows
    assert default.fits is False
    assert default.outcome.failure is not None
    failure = default.outcome.failure
    assert (failure.event, failure.requested, failure.segment, failure.reserved, failure.device_free) == (1, *[12 * MIB] * 3, 8 * MIB)
    assert (default.outcome.peak_reserved, default.outcome.peak_allocated) == (12 * MIB, 12 * MIB)
    assert expandable.fits is False


def test_the_source_may_state_the_capacity() -> None:
    found = what_if_allocator(program(*TWO_AND_A_LARGER, capacity=40 * MIB))
    assert (found.capacity, found.capacity_from, found.rows[0].fits) == (40 * MIB, "source", True)


#   20 of the 64 belong to nobody that is named:      [? 20][a 12]|[b 12]|[c 24]|  68: c does not fit, and would if they were not there
def test_bytes_of_nobody_come_off_the_capacity() -> None:
    known = program(("+", 1, 12), ("+", 2, 12), ("+", 3, 24)).trace
    trace = replace(known, devices=(replace(known.devices[0], start=20 * MIB),))
    found = what_if_allocator(replay_device(trace), capacity=64 * MIB)
    failure = found.rows[0].outcome.failure
    assert failure is not None
    assert (failure.event, failure.reserved, failure.device_free) == (2, 24 * MIB, 20 * MIB)
    assert [each.size for each in found.assumptions if "come off the capacity" in each.text] == [20 * MIB]
    assert what_if_allocator(replay_device(trace), capacity=68 * MIB).rows[0].fits
    assert what_if_allocator(replay_device(known), capacity=64 * MIB).rows[0].fits


#   a's free waits for another stream from event 1 to event 3, so that b cannot have its block
#   + a   [a 12]|        r a   [a…12]|        + b   [a…12]|[b 12]|        c a   (  12)|[b 12]|
def test_a_late_free_keeps_its_block_until_it_completed() -> None:
    late = program(("+", 1, 12), ("r", 1, 12), ("+", 2, 12), ("c", 1, 12), ("+", 3, 12))
    soon = program(("+", 1, 12), ("r", 1, 12), ("c", 1, 12), ("+", 2, 12), ("+", 3, 12))
    assert (peaks(what_if_allocator(late)), peaks(what_if_allocator(soon))) == ({"default": 24}, {"default": 24})
    assert what_if_allocator(late).rows[0].outcome.peak_event == 2
    assert what_if_allocator(soon).rows[0].outcome.peak_event == 4
    assert "late_free" in {each.code for each in what_if_allocator(late).assumptions}
    assert what_if_allocator(late, capacity=12 * MIB).rows[0].fits is False  # the flush waits for a, whose segment goes; then c finds none


def test_streams_and_pools_of_the_recording_are_kept() -> None:
    one = program(("+", 1, 12), ("-", 1, 12), ("+", 2, 12))
    streams = program(("+", 1, 12), ("-", 1, 12), ("+", 2, 12, 7))
    pools = program(("+", 1, 12, 0, 1), ("-", 1, 12), ("+", 2, 12))
    assert [peaks(what_if_allocator(each))["default"] for each in (one, streams, pools)] == [12, 24, 24]


#   a run of segment_free, then …          taken for
#   alloc, free or the end                 empty_cache()
#   segment_alloc up to the recorded peak  empty_cache(): the device had room before
#   segment_alloc above it                 the allocator's own, before it asked again
#   oom                                    the allocator's own
@pytest.mark.parametrize(
    ("rows", "action"),
    [
        ([("S+", 90, 12), ("+", 1, 12), ("-", 1, 12), ("S-", 90, 12)], Action.FLUSH),
        ([("S+", 90, 24), ("+", 1, 24), ("-", 1, 24), ("S-", 90, 24), ("S+", 92, 12), ("+", 2, 12)], Action.OWN_FLUSH),
        ([("S+", 90, 40), ("S-", 90, 40), ("S+", 91, 12), ("+", 2, 12), ("-", 2, 12), ("S-", 91, 12), ("S+", 92, 14)], Action.FLUSH),
        ([("S+", 90, 12), ("+", 1, 12), ("-", 1, 12), ("S-", 90, 12), ("!", 0, 99)], Action.OWN_FLUSH),
        ([("S+", 90, 12, 0, 1), ("+", 1, 12, 0, 1), ("-", 1, 12, 0, 1), ("S-", 90, 12, 0, 1)], Action.DROP),
    ],
)
def test_what_a_run_of_returned_segments_is_taken_for(rows: list[tuple[Any, ...]], action: Action) -> None:
    requests = ask(program(*rows)).requests
    assert Action(int(requests.action[np.isin(requests.action, (Action.FLUSH, Action.OWN_FLUSH, Action.DROP))][-1])) is action


def test_a_recorded_failure_is_tried_again_and_what_followed_goes_on() -> None:
    rows = [("S+", 90, 12), ("+", 1, 12), ("!", 12 * MIB, 30), ("-", 1, 12), ("S+", 92, 14), ("+", 2, 14)]
    found = what_if_allocator(program(*rows))
    (row,) = found.rows
    assert (found.capacity, found.capacity_from) == (24 * MIB, "out of memory")
    assert row.outcome.failure is not None
    assert (row.outcome.failure.event, row.outcome.failure.recorded, row.outcome.attempts_met) == (2, True, 0)
    assert row.outcome.end_reserved == 14 * MIB  # the request after the failure was made: a's segment had to go for it
    met = what_if_allocator(program(*rows), capacity=100 * MIB).rows[0]
    assert (met.fits, met.outcome.attempts, met.outcome.attempts_met, met.outcome.peak_reserved) == (True, 1, 1, 42 * MIB)


# ── recordings ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("recording", "settings", "other"),
    [(TRAIN, "expandable_segments:True", EXPANDABLE), (EXPANDABLE, "", TRAIN)],
    ids=["to expandable", "from expandable"],
)
def test_what_if_foretells_the_recording_of_the_same_program_under_other_settings(recording: Path, settings: str, other: Path) -> None:
    found = what_if_allocator(replay_device(read_trace(recording)), [settings])
    real = replay_device(read_trace(other))
    assert real.reserved is not None
    assert found.error == 0
    assert found.rows[1].outcome.peak_reserved == real.reserved.peak_size
    kinds = np.bincount(real.recorded.events.kind, minlength=len(Kind))
    assert found.rows[1].outcome.device_allocs == kinds[Kind.SEGMENT_ALLOC] + kinds[Kind.SEGMENT_MAP]
    assert found.rows[1].outcome.end_reserved == real.reserved.end


@pytest.mark.parametrize(
    ("name", "placed_within"),
    [
        ("complete_small", None),
        ("lm_small_forward_fp32", 0.0),
        ("lm_medium_ctx1024_inference", 0.003),
        ("lm_medium_ctx128_train", 0.003),
        ("lm_train_midrun", 0.01),
    ],
)
def test_the_recorded_settings_give_the_recorded_peak(name: str, placed_within: float | None, shared: Path) -> None:
    found = what_if_allocator(replay_device(read_trace(shared / "data" / "snapshots" / f"{name}.pickle")))
    assert found.error == 0
    if placed_within is None:
        assert found.placed is None
    else:
        assert found.recorded_peak is not None
        assert found.placed_error is not None
        assert abs(found.placed_error) <= placed_within * found.recorded_peak


def test_a_beginning_that_the_device_cannot_hold_is_placed(shared: Path) -> None:
    replayed = replay_device(read_trace(shared / "data" / "snapshots" / "lm_train_midrun.pickle"))
    small, large = (what_if_allocator(replayed, capacity=size << 30).rows[0] for size in (22, 24))
    assert (small.start, large.start) == ("placed", "rebuilt")
    assert small.outcome.peak_reserved <= 22 << 30


PROGRAMS = [
    recording
    for file in sorted((ROOT / "tests" / "data").glob("ghost_programs_2.1[34]*.gz"))
    for recording in json.loads(gzip.decompress(file.read_bytes()))
    if not {"options", "fraction"} & {op[0] for op in recording["ops"]} and "fraction" not in recording["settings"]
]
AMBIGUOUS = {"division_list/43"}
"""Here the program's own empty_cache() stands before a request that would have set a new peak: that looks like the allocator's own."""


@pytest.mark.parametrize("recording", PROGRAMS, ids=[f"{each['torch']}-{each['name']}" for each in PROGRAMS])
def test_the_compiled_allocator_did_what_the_first_row_says(recording: dict[str, Any]) -> None:
    if recording["name"] in AMBIGUOUS:
        pytest.skip("a flush of the program's that cannot be told from the allocator's own")
    settings: dict[str, Any] = {"PYTORCH_CUDA_ALLOC_CONF": recording["settings"]}
    if "expandable_segments:True" in recording["settings"]:
        settings["expandable_segments"] = True
    trace = replace(trace_of(recording), settings=settings, release=recording["torch"])
    came = what_if_allocator(replay_device(trace), capacity=recording["total"]).rows[0].outcome
    real = recording["statistics"]
    assert came.peak_reserved == real["reserved_bytes"]["all"]["peak"]
    assert came.end_reserved == real["reserved_bytes"]["all"]["current"]
    assert (came.retries, came.device_allocs) == (real["num_alloc_retries"], real["num_device_alloc"])
    assert came.attempts - came.attempts_met == real["num_ooms"]


# ── any trace ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_scenario_and_a_static_instance_are_traces_like_any_other(shared: Path) -> None:
    from lifecycle_sim import run_scenario

    trace = run_scenario(ROOT / "scenarios" / "mlp_step.toml")
    assert what_if_allocator(replay_device(trace)).rows[0].outcome.peak_reserved == 26 * MIB
    instance = replay_device(read_trace(shared / "data" / "minimalloc" / "A.1048576.csv"))
    assert what_if_allocator(instance, capacity=64 * MIB).rows[0].fits is True


def test_what_cannot_be_replayed_says_why(shared: Path) -> None:
    with pytest.raises(InputError, match="without identities"):
        what_if_allocator(replay_device(read_trace(shared / "data" / "profiler" / "kineto_resnet50.pt.trace.json.gz")))
    (_, pinned) = replay_all(read_trace(ROOT / "scenarios" / "torch214_stub_small.pickle"))
    with pytest.raises(InputError, match="does not come from the CUDA caching allocator"):
        what_if_allocator(pinned)
    with pytest.raises(InputError, match="capacity of 0 bytes"):
        what_if_allocator(program(*TWO_AND_A_LARGER), capacity=0)
    with pytest.raises(InputError, match=r"is not in PyTorch 2\.0"):
        what_if_allocator(program(*TWO_AND_A_LARGER), ["expandable_segments:True"], release="2.0")


# ── sweeps and workers ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sweep_ranks_what_fits_first_then_by_peak_then_by_calls() -> None:
    found = sweep_allocator(replay_device(read_trace(TRAIN)), ("max_split_size_mb:100",), capacity=800 * MIB)
    assert found.rows[0].name == "recorded"
    assert "max_split_size_mb:100" in {row.name for row in found.rows}
    fits = [row.fits for row in found.rows[1:]]
    assert fits == sorted(fits, reverse=True)
    assert set(fits) == {True, False}
    among = [(row.outcome.peak_reserved, row.outcome.device_allocs) for row in found.rows[1:] if row.fits]
    assert among == sorted(among)
    assert [rank(row) for row in found.rows[1:]] == sorted(rank(row) for row in found.rows[1:])


def test_a_sweep_leaves_out_what_the_release_does_not_know() -> None:
    names = {row.name for row in sweep_allocator(program(*TWO_AND_A_LARGER), release="2.0").rows}
    assert "max_split_size_mb:128" in names
    assert not any("expandable" in name or "large_segment" in name for name in names)


def test_garbage_collection_without_a_limit_is_noted() -> None:
    found = what_if_allocator(program(*TWO_AND_A_LARGER), ["garbage_collection_threshold:0.5"], capacity=80 * MIB)
    assert found.rows[1].note is not None
    assert "memory limit" in found.rows[1].note


def test_the_answer_does_not_depend_on_the_workers() -> None:
    replayed = replay_device(read_trace(EXPANDABLE))
    alone = sweep_allocator(replayed)
    assert sweep_allocator(replayed, workers=2) == alone
    with ThreadPoolExecutor(3) as threads:
        assert sweep_allocator(replayed, executor=threads) == alone


def test_few_jobs_are_not_worth_a_process() -> None:
    assert run_jobs(abs, [-1, 2, -3], work=10, workers=None) == [1, 2, 3]
    with pytest.raises(InputError, match="0 workers"):
        run_jobs(abs, [1], workers=0)
