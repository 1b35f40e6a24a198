"""Any trace as a CUDA memory snapshot: what was read is written as it was, and what is simulated gets addresses that can be."""

import pickle
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Kind, Span, Trace
from lifecycle_sim.output.exports import write
from lifecycle_sim.output.exports.snapshot import as_snapshot
from lifecycle_sim.program.scenario import run_scenario
from lifecycle_sim.replay import replay_all, replay_device
from lifecycle_sim.replay.tiling import Live, segments_of, tile
from lifecycle_sim.sources.detect import read_trace
from lifecycle_sim.sources.snapshot import read_snapshot
from lifecycle_sim.sources.snapshot.writer import write_snapshot
from tests.cli_support import lifecycle_sim, small_trace
from tests.conftest import ROOT
from tests.eras import RELEASES, document
from tests.strategies import traces
from tests.viewer import walk_back

SHIPPED = sorted((ROOT / "scenarios").glob("*.pickle"))
SCENARIOS = sorted(path for path in (ROOT / "scenarios").glob("*.toml") if not path.stem.startswith("line_"))
RECORDINGS = [
    *(f"lm_medium_{part}" for part in ("ctx1024_inference", "ctx128_inference", "ctx128_train", "ctx256_train", "ctx512_train")),
    *("complete_small", "lm_small_forward_fp32", "lm_train_midrun", "ring_of_one", "rl_pools_state_only", "torch20_after_oom"),
    *("torch20_state_only", "torch214_stub_small", "torch214_stub_train", "torch214_stub_train_expandable"),
]


def assert_equal(one: Trace, other: Trace) -> None:
    assert [f.name for f in fields(Trace) if getattr(one, f.name) != getattr(other, f.name)] == []


def written(trace: Trace) -> dict:
    return pickle.loads(as_snapshot(trace).data)


@pytest.mark.parametrize("release", RELEASES)
def test_a_snapshot_of_any_release_is_written_as_it_was_read(release: str) -> None:
    trace = read_snapshot(document(release))
    again = read_trace(as_snapshot(trace).data)
    if release == "2.11":  # told from 2.10 by forward_frames alone, which are not read
        assert again.release == "2.10–2.11"
        again = replace(again, release=trace.release)
    assert_equal(again, trace)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_document_is_the_one_that_pytorch_wrote(path: Path) -> None:
    original, again = pickle.loads(path.read_bytes()), written(read_trace(path))
    assert list(again) == list(original)
    for mark, mark_again in zip(original.pop("external_annotations"), again.pop("external_annotations"), strict=True):
        assert mark | {"time_us": 0} == mark_again | {"time_us": 0}
    assert again == original
    for part in ("segments", "host_segments"):
        for one, other in zip(original[part], again[part], strict=True):
            assert sorted(one) == sorted(other)
            assert [list(block) for block in one["blocks"]] == [list(block) for block in other["blocks"]]
    for trace, trace_again in zip(original["device_traces"], again["device_traces"], strict=True):
        assert [list(entry) for entry in trace_again] == [list(entry) for entry in trace]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_reads_back_as_it_was(shared: Path, name: str) -> None:
    path = shared / "data" / "snapshots" / f"{name}.pickle"
    trace, export = read_trace(path), as_snapshot(read_trace(path))
    assert_equal(read_trace(export.data), trace)
    assert len(export.data) < path.stat().st_size
    assert export.notes == ()


def test_frames_and_stacks_are_shared_as_pytorch_shares_them() -> None:
    trace = read_trace(ROOT / "scenarios" / "torch214_stub_train.pickle")
    (entries,) = written(trace)["device_traces"]
    assert len({id(entry["frames"]) for entry in entries}) == len(set(trace.devices[0].events.stack.tolist())) == 25
    frames = {id(frame): frame for entry in entries for frame in entry["frames"]}
    assert len(frames) == len({tuple(frame.values()) for frame in frames.values()})


def test_the_same_trace_gives_the_same_bytes_in_protocol_4() -> None:
    one, other = as_snapshot(run_scenario(SCENARIOS[0])).data, as_snapshot(run_scenario(SCENARIOS[0])).data
    assert one == other
    assert one[:2] == b"\x80\x04"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_becomes_a_snapshot_with_its_levels_spans_labels_and_stacks(path: Path) -> None:
    trace = run_scenario(path)
    again = read_trace(as_snapshot(trace).data)
    assert again.evidence is Evidence.SIMULATED
    for one, other in zip(replay_all(trace), replay_all(again), strict=True):
        same_levels(one.timeline.levels, other.timeline.levels)
        assert other.reconciliation.difference == 0
        assert sorted(one.lifetimes.size.tolist()) == sorted(other.lifetimes.size.tolist())
        assert [(s.name, s.closed) for s in one.recorded.spans] == [(s.name, s.closed) for s in other.recorded.spans]
        for span, again_span in zip(one.recorded.spans, other.recorded.spans, strict=True):
            assert one.timeline.levels[span.start] == other.timeline.levels[again_span.start]
            assert one.span_peak(span).size == other.span_peak(again_span).size
        names = {trace.label(n) for n in one.recorded.events.label[~np.isin(one.recorded.events.kind, (Kind.SHARE, Kind.RELEASE))].tolist()}
        assert {again.label(number) for number in other.recorded.events.label.tolist()} == names
        assert_sound(other)


def same_levels(one: np.ndarray, other: np.ndarray) -> None:
    """Levels are the same where they change: a free in two steps has one step more at which nothing does."""

    def changes(levels: np.ndarray) -> list[int]:
        return [int(levels[0]), *levels[1:][levels[1:] != levels[:-1]].tolist()]

    assert changes(one) == changes(other)


def assert_sound(replayed) -> None:
    """A plain walk: live storages never overlap, begin at multiples of 512, and lie in a segment; blocks tile segments."""
    recorded = replayed.recorded
    segments = list(zip(recorded.final.segments.address.tolist(), recorded.final.segments.size.tolist(), strict=True))
    live = {}
    found = replayed.lifetimes
    for row in np.flatnonzero(found.before_window).tolist():
        live[int(found.address[row])] = int(found.size[row])
    for kind, address, size in zip(
        *(c.tolist() for c in (recorded.events.kind, recorded.events.address, recorded.events.size)), strict=True
    ):
        if kind == Kind.ALLOC:
            assert address % 512 == 0
            assert any(start <= address and address + size <= start + length for start, length in segments)
            assert all(address + max(size, 1) <= other or other + max(held, 1) <= address for other, held in live.items())
            live[address] = size
        elif kind == Kind.FREE_COMPLETED:
            assert live.pop(address) == size
    blocks = recorded.final.blocks
    for row, (start, length) in enumerate(segments):
        own = blocks.segment == row
        ends = np.concatenate([[start], (blocks.address + blocks.size)[own]])
        assert ends[:-1].tolist() == blocks.address[own].tolist()
        assert ends[-1] == start + length
        free = blocks.state[own] == 0
        assert not (free[1:] & free[:-1]).any()


@settings(max_examples=80, deadline=None)
@given(traces(min_devices=1))
def test_any_sound_trace_is_written_with_its_levels_or_refused_for_want_of_identity(trace: Trace) -> None:
    if not all(device.identified for device in trace):
        with pytest.raises(InputError, match="without identities"):
            as_snapshot(trace)
        return
    export = as_snapshot(trace)
    again = read_trace(export.data)
    assert again.evidence is trace.evidence
    assert again.stacks.frames == () or set(again.stacks.frames) <= set(trace.stacks.frames)
    devices = {d.device: d for d in replay_all(again)} if again.devices else {}
    for one in replay_all(trace):
        name = next((n.split(" is written as ")[1] for n in export.notes if n.startswith(f"{one.device} is written")), one.device)
        if name not in devices:  # a device without events or segments is not in a snapshot
            assert (len(one.recorded), one.timeline.start) == (0, 0)
            continue
        same_levels(one.timeline.levels, devices[name].timeline.levels)
        assert devices[name].reconciliation.difference == 0
        moved = any("read back with another" in note for note in export.notes)
        if not moved:
            assert sorted(s.name for s in devices[name].recorded.spans) == sorted(s.name for s in one.recorded.spans)


@settings(max_examples=60, deadline=None)
@given(traces(sound=False, min_devices=1))
def test_a_wild_trace_is_written_or_refused_in_words(trace: Trace) -> None:
    try:
        data = write_snapshot(trace).data
    except InputError:
        return
    assert isinstance(pickle.loads(data), dict)


def test_older_storages_pinned_memory_and_several_devices_are_kept() -> None:
    events = Events.of([Kind.FREE_COMPLETED, Kind.ALLOC], [512, 4096], [100, 200], time=[1000, 2000])
    record = DeviceTrace("cuda:1", events, Basis.REQUESTED)
    trace = Trace((record, replace(record, device="pinned"), replace(record, device="xpu")), "native", Evidence.MEASURED, Clock.NANOSECONDS)
    export = as_snapshot(trace)
    again = read_trace(export.data)
    assert [device.device for device in again] == ["cuda:0", "cuda:1", "pinned"]
    assert "xpu is written as cuda:0" in export.notes
    for device in again:
        assert replay_device(again, device.device).timeline.levels.tolist() == [100, 0, 200]
        assert device.events.address.tolist() == [512, 4096]
    plain = pickle.loads(export.data)
    assert plain["host_traces"][0]["compile_context"] == ""
    assert plain["host_segments"][0]["device"] == -1
    assert [len(entries) for entries in plain["device_traces"]] == [2, 2]


def test_bytes_without_a_name_are_one_block_throughout() -> None:
    trace = small_trace()
    trace = replace(trace, devices=(replace(trace.devices[0], start=10_000),))
    export = as_snapshot(trace)
    assert replay_device(read_trace(export.data)).timeline.start == 10_000
    assert any("10,000 bytes that belong to no named storage" in note for note in export.notes)


@pytest.mark.parametrize("clock", [Clock.TICKS, Clock.NONE])
def test_events_within_a_tick_follow_each_other(clock: Clock) -> None:
    kind = [Kind.ALLOC] * 12
    time = [0] * 12 if clock is Clock.NONE else [5] * 11 + [6]
    events = Events.of(kind, range(12), [8] * 12, time=time)
    spans = (Span("step", "one", 2, 7), Span("step", "two", 7, 12))
    record = DeviceTrace("cuda:0", events, Basis.PAYLOAD, start=0, spans=spans)
    export = as_snapshot(Trace((record,), "scenario", Evidence.SIMULATED, clock))
    (again,) = read_trace(export.data)
    assert [(span.name, span.start, span.stop) for span in again.spans] == [("one", 2, 7), ("two", 7, 12)]
    assert again.events.time.tolist()[-2:] == ([10_000, 11_000] if clock is Clock.NONE else [510_000, 600_000])


@pytest.mark.parametrize(
    "spans",
    [
        [("a", 0, 4), ("a", 1, 2), ("a", 2, 3)],
        [("a", 1, 1), ("b", 4, 4), ("c", 0, 0)],
        [("a", 3, 4), ("a", 2, 4), ("b", 0, 4)],
        [("a", 0, 2), ("a", 2, 4), ("b", 1, 2)],
    ],
)
def test_spans_read_back_where_they_were(spans: list[tuple[str, int, int]]) -> None:
    events = Events.of([Kind.ALLOC] * 4, [512, 1024, 1536, 2048], [8] * 4, time=[1000, 4000, 5000, 9000])
    given_spans = tuple(sorted((Span("annotation", *span) for span in spans), key=lambda span: (span.start, -span.stop)))
    trace = Trace((DeviceTrace("cuda:0", events, Basis.REQUESTED, spans=given_spans),), "native", Evidence.MEASURED, Clock.NANOSECONDS)
    export = as_snapshot(trace)
    assert read_trace(export.data).devices[0].spans == given_spans
    assert not any("read back" in note for note in export.notes)


def test_spans_that_cannot_read_back_are_counted() -> None:
    events = Events.of([Kind.ALLOC] * 3, [512, 1024, 1536], [8] * 3, time=[1000, 1000, 2000])
    spans = (Span("annotation", "inside one microsecond", 1, 3),)
    trace = Trace((DeviceTrace("cuda:0", events, Basis.REQUESTED, spans=spans),), "native", Evidence.MEASURED, Clock.NANOSECONDS)
    assert any(note.startswith("cuda:0: 1 spans read back with another begin") for note in as_snapshot(trace).notes)


@settings(max_examples=40, deadline=None)
@given(traces(min_devices=1))
def test_a_viewer_can_walk_back_through_every_event(trace: Trace) -> None:
    if all(device.identified for device in trace):
        walk_back(pickle.loads(as_snapshot(trace).data))


@pytest.mark.parametrize("path", [*SCENARIOS, *[p for p in SHIPPED if "gap" not in p.stem]], ids=lambda path: path.stem)
def test_a_viewer_can_walk_back_through_scenarios_and_recordings(path: Path) -> None:
    walk_back(written(run_scenario(path) if path.suffix == ".toml" else read_trace(path)))


def test_the_torch_of_an_installation_reads_what_is_written(tmp_path: Path) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz", reason="torch is not installed")
    for source in [*SCENARIOS, *SHIPPED]:
        trace = run_scenario(source) if source.suffix == ".toml" else read_trace(source)
        target = tmp_path / f"{source.name}.pickle"
        write(trace, target)
        snapshot = pickle.loads(target.read_bytes())
        again = read_trace(target)
        reserved = sum(device.final.reserved for device in again if device.device != "pinned")
        told = viz.segsum(snapshot)
        assert f"segments: {len(snapshot['segments'])}\n" in told
        assert f"total_reserved: {viz.Bytes(reserved)}\n" in told
        text = viz.trace(snapshot)
        for device in again:
            if device.device != "pinned":
                assert f"{len(device)} entries" in text
        assert "add_local_files" in viz.trace_plot(snapshot)
        assert "Allocator State History" in viz.segment_plot(snapshot)
        assert "Active Cached Memory Timeline" in viz.trace_plot(snapshot, plot_segments=True)
        assert viz.memory(snapshot, format_flamegraph=str)
        left = viz.filter_alloc_free_pairs(snapshot)["device_traces"]
        assert sum(map(len, left)) <= sum(len(device) for device in again)


def test_the_command_writes_a_snapshot_and_says_what_it_made_up(tmp_path: Path) -> None:
    result = lifecycle_sim("convert", ROOT / "scenarios" / "ledger.toml", "-o", tmp_path / "out.pickle")
    assert (result.returncode, result.stdout) == (0, "")
    assert "the addresses are made up" in result.stderr
    assert "device is written as cuda:0" in result.stderr
    assert read_trace(tmp_path / "out.pickle").release == "2.14+"


def test_amounts_without_identities_are_refused_in_words() -> None:
    events = Events.of([Kind.ALLOC], [-1], [8])
    trace = Trace((DeviceTrace("cpu", events, Basis.ALLOCATED, identified=False),), "profiler", Evidence.MEASURED, Clock.NONE)
    for attempt in (as_snapshot, write_snapshot):
        with pytest.raises(InputError, match=r"cpu: .*without identities"):
            attempt(trace)


def test_what_the_plain_writer_cannot_write_is_said_for_every_device() -> None:
    events = Events.of([Kind.ALLOC, Kind.SHARE, Kind.FREE], [512] * 3, [8] * 3)
    trace = Trace((DeviceTrace("cuda:0", events, Basis.PAYLOAD), DeviceTrace("cuda:2000", events, Basis.PAYLOAD)), "native", *NEITHER)
    with pytest.raises(InputError, match="cuda:2000: a snapshot's devices are numbered"):
        write_snapshot(trace)
    with pytest.raises(InputError, match=r"no final state(.|\n)*holds FREE, SHARE events"):
        write_snapshot(replace(trace, devices=trace.devices[:1]))


NEITHER = (Evidence.MEASURED, Clock.NONE)


@pytest.mark.parametrize("order", [(0, 1, 3), (1, 0, 3), (3, 1, 0)])
def test_freed_neighbours_merge_and_the_smallest_piece_that_fits_is_taken(order: tuple[int, ...]) -> None:
    r"""Addresses from the base, in units of 512 bytes.

    ::

        a b c d e    alloc 1 1 1 2 1, then free a b d       [-- --  c -- -- e]
        f            2 units: d's place fits as well as a + b: the lower       [f f c -- -- e]
        g            1 unit: only d's place is left                            [f f c g -- e]
    """
    unit = 512
    sizes = (1, 1, 1, 2, 1)
    rows = [(Kind.ALLOC, k, size * unit) for k, size in enumerate(sizes)]
    rows += [(Kind.FREE, k, sizes[k] * unit) for k in order]
    rows += [(Kind.ALLOC, 5, 2 * unit), (Kind.ALLOC, 6, unit)]
    events = Events.of(*zip(*rows, strict=True))
    trace = Trace((DeviceTrace("cuda:0", events, Basis.PAYLOAD, start=0),), "scenario", Evidence.SIMULATED, Clock.NONE)
    (again,) = read_trace(as_snapshot(trace).data)
    base = int(again.final.segments.address[0])
    placed = ((again.events.address[again.events.kind == Kind.ALLOC] - base) // unit).tolist()
    assert placed == [0, 1, 2, 3, 5, 0, 3]


def test_blocks_end_where_the_next_one_begins() -> None:
    def column(*values: int) -> np.ndarray:
        return np.array(values, np.int64)

    segments = segments_of(column(0), column(4096), column(0), np.zeros(1, np.int32))
    live = Live(column(512, 1024, 3584), column(300, 600, 900), column(1024, 1024, 1024), *(np.zeros(3, np.int64) for _ in range(5)))
    state, without_room = tile(segments, replace(live, state=np.ones(3, np.uint8)))
    assert without_room == 0
    assert state.blocks.address.tolist() == [0, 512, 1024, 2048, 3584]
    assert state.blocks.size.tolist() == [512, 512, 1024, 1536, 512]
    assert state.blocks.state.tolist() == [0, 1, 1, 0, 1]
    assert (state.segments.allocated.tolist(), state.segments.requested.tolist()) == ([2048], [1800])
