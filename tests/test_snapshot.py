"""A snapshot of any release becomes the Trace it records: checked against a slow second reader, recorded figures and hand-made cases."""

import copy
import gc
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle_sim.errors import SnapshotError
from lifecycle_sim.events import NO_LABEL, NO_STACK, BlockState, Clock, Events, Kind, Span
from lifecycle_sim.sources.detect import read_trace
from lifecycle_sim.sources.snapshot import events as reader
from lifecycle_sim.sources.snapshot import read_snapshot
from lifecycle_sim.sources.snapshot.annotations import Mark, place_marks
from lifecycle_sim.sources.snapshot.context import Context
from tests import eras
from tests.eras import BASE, RELEASES, SEGMENT, T0, entry

# File: events, start requested, peak requested, first event at it, peak reserved (from the README of the recordings).
RECORDED = {
    "complete_small": (97, 0, 3_249_143_816, 52, 3_781_165_056),
    "lm_small_forward_fp32": (2_043, 523_811_840, 556_843_008, 144, 610_271_232),
    "lm_medium_ctx128_inference": (3_840, 1_701_310_464, 1_736_962_048, 292, 1_763_704_832),
    "lm_medium_ctx1024_inference": (3_840, 1_701_711_872, 2_877_435_904, 240, 3_204_448_256),
    "lm_medium_ctx128_train": (19_136, 5_095_321_600, 7_013_335_044, 9_966, 7_235_174_400),
    "lm_medium_ctx256_train": (19_430, 5_095_403_520, 9_103_544_320, 2_780, 9_265_217_536),
    "lm_medium_ctx512_train": (22_332, 5_095_567_360, 12_426_629_128, 3_485, 12_660_506_624),
    "lm_train_midrun": (19_464, 15_568_596_996, 22_827_925_508, 5_701, 23_842_521_088),
    "torch214_stub_train": (2_988, 0, 768_772_392, 1_288, 908_066_816),
    "torch214_stub_train_expandable": (2_985, 0, 768_772_392, 1_285, 882_900_992),
    "torch214_stub_small": (13, 0, 12_052_000, 8, 16_777_216),
}
STATES_ONLY = {
    "rl_pools_state_only": (0, 26_189_234_176, 24_916_034_560, 25_513_411_584, "2.5–2.8"),
    "torch20_state_only": (1, 6_658_457_600, None, None, "2.0"),
    "torch20_after_oom": (1, 11_844_714_496, None, None, "2.0"),
    "ring_of_one": (1, 17_133_731_840, None, None, "2.3–2.4"),
}


def load(folder, name):
    with open(folder / "data" / "snapshots" / f"{name}.pickle", "rb") as stream:
        return pickle.load(stream)


def rows_of(trace, device=0):
    """The events of a device in plain words, from the Trace."""
    events = trace.device(device).events
    columns = [column.tolist() for column in (events.kind, events.address, events.size, events.stream, events.time)]
    return [
        (*row, trace.stacks.frames_of(stack), trace.label(label), trace.pools[pool])
        for *row, stack, label, pool in zip(*columns, events.stack.tolist(), events.label.tolist(), events.pool.tolist(), strict=True)
    ]


def plain_rows(entries):
    """The same, straight from the entries of a document: the oracle."""
    rows = []
    for e in entries:
        frames = tuple((f.get("name", ""), f.get("filename", ""), f.get("line", 0)) for f in e.get("frames", ()))
        label = e.get("user_metadata") or (e.get("compile_context", "N/A") if e.get("compile_context") not in ("", "N/A", None) else None)
        where = e["device_free"] if e["action"] == "oom" else e["addr"]
        kind = Kind[e["action"].upper()]
        time = e.get("time_us", 0) * 1000
        rows.append((kind, where, e["size"], e.get("stream", 0), time, frames, label, tuple(e.get("pool_id", (0, 0)))))
    return rows


@pytest.mark.parametrize("name", RECORDED)
def test_recordings_have_their_published_figures(shared, name):
    trace = read_trace(shared / "data" / "snapshots" / f"{name}.pickle")
    count, start, peak, at, reserved = RECORDED[name]
    device = trace.device(0)
    events, final = device.events, device.final
    assert len(events) == count
    assert device.start is None
    assert trace.assumptions == ()
    sign = np.select([events.kind == Kind.ALLOC, events.kind == Kind.FREE_COMPLETED], [1, -1], 0)
    level = np.cumsum(sign * events.size)
    level += final.requested - level[-1]
    assert level[0] - sign[0] * events.size[0] == start
    assert (level.max(), level.argmax()) == (peak, at)
    grows, shrinks = (Kind.SEGMENT_ALLOC, Kind.SEGMENT_MAP), (Kind.SEGMENT_FREE, Kind.SEGMENT_UNMAP)
    held = np.cumsum(np.select([np.isin(events.kind, grows), np.isin(events.kind, shrinks)], [events.size, -events.size], 0))
    held += final.reserved - held[-1]
    assert held.max() == reserved


@pytest.mark.parametrize("name", [*RECORDED, *STATES_ONLY])
def test_recordings_are_read_as_a_second_reader_does(shared, name):
    document = load(shared, name)
    trace = read_snapshot(document)
    assert rows_of(trace) == plain_rows(document["device_traces"][0])
    final = trace.device(0).final
    segments = document["segments"]
    assert final.segments.size.tolist() == [s["total_size"] for s in segments]
    assert final.segments.allocated.tolist() == [s["allocated_size"] for s in segments]
    assert [trace.pools[pool] for pool in final.segments.pool] == [tuple(s.get("segment_pool_id", (0, 0))) for s in segments]
    blocks = [(s, block) for s, segment in enumerate(segments) for block in segment["blocks"]]
    assert final.blocks.segment.tolist() == [s for s, _ in blocks]
    assert final.blocks.size.tolist() == [block["size"] for _, block in blocks]
    assert final.blocks.requested.tolist() == [block["requested_size"] for _, block in blocks]
    for (_, block), address, stack in zip(blocks, final.blocks.address.tolist(), final.blocks.stack.tolist(), strict=True):
        newest = (block.get("history") or [{}])[0]
        frames = block.get("frames") or (newest.get("frames", ()) if block["state"] != "inactive" else ())
        assert trace.stacks.frames_of(stack) == tuple((f["name"], f["filename"], f["line"]) for f in frames)
        assert address == block.get("address", newest.get("addr", address))


@pytest.mark.parametrize("name", STATES_ONLY)
def test_recordings_without_a_trace_keep_their_state(shared, name):
    trace = read_trace(shared / "data" / "snapshots" / f"{name}.pickle")
    count, reserved, allocated, active, release = STATES_ONLY[name]
    device = trace.device(0)
    assert (len(device), device.final.reserved, trace.release) == (count, reserved, release)
    segments, blocks = device.final.segments, device.final.blocks
    assert blocks.size[blocks.state > 0].sum() == segments.active.sum()
    assert blocks.size[blocks.state == BlockState.ALLOCATED].sum() == segments.allocated.sum()
    if allocated is not None:
        assert (segments.allocated.sum(), segments.active.sum()) == (allocated, active)


def test_pinned_memory_and_labels_of_a_recording(shared):
    trace = read_trace(shared / "data" / "snapshots" / "torch214_stub_small.pickle")
    assert [d.device for d in trace] == ["cuda:0", "pinned"]
    assert trace.device("pinned").final.reserved == 4096
    events = trace.device(0).events
    assert trace.label(events.label[events.kind == Kind.ANNOTATE][0]) == "packed"
    assert events.address[events.kind == Kind.OOM].tolist() == [85_895_151_616]
    assert trace.device(0).spans == (Span("annotation", "## step ##", 2, 4),)
    assert trace.release == "2.14+"
    assert trace.settings["max_round_threshold"] == -1


@pytest.mark.parametrize("chunk", [1, 3, 1024])
@pytest.mark.parametrize("release", RELEASES)
def test_every_release_is_read_and_told(release, chunk, monkeypatch):
    monkeypatch.setattr(reader, "CHUNK", chunk)
    document = eras.document(release)
    before = pickle.dumps(document)
    trace = read_snapshot(document)
    assert pickle.dumps(document) == before
    assert trace.release == release
    assert rows_of(trace) == plain_rows(document["device_traces"][0])
    assert [d.device for d in trace] == (["cuda:0", "pinned"] if release == "2.14+" else ["cuda:0"])
    final = trace.device(0).final
    assert (final.reserved, final.requested) == (SEGMENT, 12_000)
    assert final.blocks.address.tolist() == [BASE, BASE + 4096, BASE + 12288]
    assert final.blocks.state.tolist() == [1, 2, 0]
    assert trace.stacks.frames_of(final.blocks.stack[0]) == (("forward", "model.py", 7), ("main", "train.py", 20))
    assert trace.clock is (Clock.NONE if release in ("2.0", "2.1") else Clock.NANOSECONDS)
    codes = {a.code: a.count for a in trace.assumptions}
    assert codes.get("addresses_derived") == (3 if release == "2.0" else None)
    assert codes.get("no_time") == (len(trace) if trace.clock is Clock.NONE else None)
    if "external_annotations" in document:
        assert trace.device(0).spans == (Span("annotation", "step", 2, 7),)


def test_bare_list_and_missing_parts():
    bare = read_snapshot([eras.segment(2), eras.segment(0, BASE + SEGMENT)])
    assert [d.device for d in bare] == ["cuda:0", "cuda:2"]
    assert len(bare) == 0
    assert bare.clock is Clock.NONE
    no_segments = read_snapshot({"device_traces": [[], eras.entries()]})
    assert [(d.device, d.final) for d in no_segments] == [("cuda:1", None)]
    all_freed = read_snapshot({"segments": [], "device_traces": [eras.entries()]})
    assert all_freed.device(0).final.reserved == 0
    assert read_snapshot({"segments": [], "device_traces": [[], []]}).devices == ()
    assert read_snapshot([]).devices == ()


def test_pools_may_be_lists_and_states_have_two_names():
    document = {"segments": [eras.segment(0, BASE, [0, 3])]}
    document["segments"][0]["blocks"][1]["state"] = "active_awaiting_free"
    trace = read_snapshot(document)
    assert trace.pools == ((0, 0), (0, 3))
    assert trace.device(0).final.segments.pool.tolist() == [1]
    assert trace.device(0).final.blocks.state.tolist() == [1, BlockState.PENDING_FREE, 0]


def test_equal_stacks_are_one_whatever_objects_they_are():
    entries = [entry("alloc", BASE + i, 1, i, frames=copy.deepcopy(eras.STACK)) for i in range(5)]
    trace = read_snapshot({"device_traces": [entries]})
    assert trace.device(0).events.stack.tolist() == [0] * 5
    assert len(trace.stacks) == 1


def test_an_unknown_action_keeps_its_row():
    entries = [entry("alloc", BASE, 8, 0), entry("teleport", BASE, 1 << 62, 1), {"action": "teleport"}, entry("free_completed", BASE, 8, 2)]
    trace = read_snapshot({"device_traces": [entries]})
    events = trace.device(0).events
    assert events.kind.tolist() == [Kind.ALLOC, Kind.OTHER, Kind.OTHER, Kind.FREE_COMPLETED]
    assert events.time.tolist() == [T0 * 1000, (T0 + 1) * 1000, (T0 + 1) * 1000, (T0 + 2) * 1000]
    assert {a.code: a.count for a in trace.assumptions} == {"unknown_action": 2, "time_filled": 1}
    assert "teleport" in trace.assumptions[0].text


def test_times_that_go_back_are_kept_and_counted():
    trace = read_snapshot({"device_traces": [[entry("alloc", BASE + i, 1, t) for i, t in enumerate((5, 3, 4))]]})
    assert (trace.device(0).events.time - T0 * 1000).tolist() == [5000, 3000, 4000]
    assert [(a.code, a.count) for a in trace.assumptions] == [("time_goes_back", 1)]


def test_a_block_without_requested_size_is_counted():
    first = eras.segment()
    for block in first["blocks"]:
        del block["requested_size"]
    first["blocks"][0]["history"] = [{"addr": BASE, "real_size": 77}]
    trace = read_snapshot([first])
    assert trace.device(0).final.requested == 77 + 8192
    assert [(a.code, a.count) for a in trace.assumptions] == [("requested_unknown", 2)]


def test_labels_fall_back_to_the_compile_context():
    entries = [
        entry("alloc", BASE + i, 1, i, user_metadata=m, compile_context=c)
        for i, (m, c) in enumerate([("a", "1/0"), ("", "1/0"), ("", ""), ("", "N/A")])
    ]
    trace = read_snapshot({"device_traces": [entries]})
    assert [trace.label(n) for n in trace.device(0).events.label] == ["a", "1/0", None, None]
    assert trace.device(0).events.label[3] == NO_LABEL


def test_lone_surrogates_become_text_that_can_be_written():
    entries = [entry("alloc", BASE, 1, 0, user_metadata="\ud800", frames=[{"name": "\udfff", "filename": "f", "line": 1}])]
    trace = read_snapshot({"device_traces": [entries]})
    "".join([*trace.labels, trace.stacks.frames[0].name]).encode()


@pytest.mark.parametrize("on", [True, False])
def test_reading_leaves_the_collector_as_it_was(on):
    was_on = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        read_trace(pickle.dumps(eras.document()))
        with pytest.raises(SnapshotError):
            read_snapshot({"segments": 1})
        assert gc.isenabled() is on
    finally:
        (gc.enable if was_on else gc.disable)()


def put(path, value):
    """A change of a document: *value* at *path*; a missing one if it is ``...``."""

    def change(document):
        for part in path[:-1]:
            document = document[part]
        if value is ...:
            del document[path[-1]]
        else:
            document[path[-1]] = value

    return change


EVENT = ("device_traces", 0, 1)
BLOCK = ("segments", 0, "blocks", 0)
WRONG = [
    (put(("segments",), None), "segments: is None, should be a list of segments"),
    (put(("device_traces",), {}), "device_traces: is {} (dict), should be a list of lists, one for each device"),
    (put(("device_traces", 1), 7), "device_traces[1]: is 7 (int), should be a list of trace entries"),
    (put(EVENT, 7), "device_traces[0][1]: is 7 (int), should be a trace entry: a dict with action, addr, size and more"),
    (put((*EVENT, "action"), 7), "device_traces[0][1].action: is 7 (int), should be the name of an action"),
    (put((*EVENT, "action"), ...), "device_traces[0][1].action: is missing, should be the name of an action"),
    (put((*EVENT, "size"), "abc"), "device_traces[0][1].size: is 'abc' (str), should be an integer that fits 64 bits"),
    (put((*EVENT, "size"), True), "device_traces[0][1].size: is True (bool), should be an integer that fits 64 bits"),
    (put((*EVENT, "size"), 8.0), "device_traces[0][1].size: is 8.0 (float), should be an integer that fits 64 bits"),
    (put((*EVENT, "size"), ...), "device_traces[0][1].size: is missing, should be an integer that fits 64 bits"),
    (put((*EVENT, "size"), -8), "device_traces[0][1].size: is -8 (int), should be a number of bytes, 0 or more"),
    (put((*EVENT, "addr"), ...), "device_traces[0][1].addr: is missing, should be an integer that fits 64 bits"),
    (put((*EVENT, "addr"), 1 << 63), f"device_traces[0][1].addr: is {1 << 63} (int), should be an integer that fits 64 bits"),
    (put((*EVENT, "addr"), 1 << 200), "device_traces[0][1].addr: is a number of 201 bits (int), should be an integer that fits 64 bits"),
    (put((*EVENT, "stream"), None), "device_traces[0][1].stream: is None, should be an integer that fits 64 bits"),
    (put((*EVENT, "time_us"), 1 << 62), "should be a time in microseconds of which the nanoseconds fit 64 bits"),
    (
        put((*EVENT, "pool_id"), (0,)),
        "device_traces[0][1].pool_id: is (0) (tuple), should be a pool: a pair of integers from 0 to 2^64 - 1",
    ),
    (put((*EVENT, "user_metadata"), 5), "device_traces[0][1].user_metadata: is 5 (int), should be a string"),
    (put((*EVENT, "compile_context"), 5), "device_traces[0][1].compile_context: is 5 (int), should be a string"),
    (put((*EVENT, "frames"), None), "device_traces[0][1].frames: is None, should be a list of frames"),
    (put((*EVENT, "frames"), [1]), "device_traces[0][1].frames[0]: is 1 (int), should be a frame: a dict with name, filename and line"),
    (put((*EVENT, "frames"), [{"line": "7"}]), "device_traces[0][1].frames[0].line: is '7' (str), should be an integer that fits 64 bits"),
    (
        put(("device_traces", 0, 10, "device_free"), "x"),
        "device_traces[0][10].device_free: is 'x' (str), should be an integer that fits 64 bits",
    ),
    (put(("segments", 0), []), "segments[0]: is [] (list), should be a segment: a dict with device, address, total_size, blocks and more"),
    (put(("segments", 0, "device"), "0"), "segments[0].device: is '0' (str), should be an integer from -1 to 1023"),
    (put(("segments", 0, "device"), -1), "segments: holds a segment with device -1"),
    (put(("segments", 0, "address"), ...), "segments[0].address: is missing, should be an integer, 0 or more, that fits 64 bits"),
    (put(("segments", 0, "segment_type"), "huge"), "segments[0].segment_type: is 'huge' (str), should be 'small' or 'large'"),
    (put(("segments", 0, "is_expandable"), 1), "segments[0].is_expandable: is 1 (int), should be True or False"),
    (put(("segments", 0, "blocks"), ...), "segments[0].blocks: is missing, should be a list of blocks"),
    (
        put(("segments", 0, "total_size"), 7),
        "segments[0].blocks: add up to 2097152 bytes, should fill the 7 bytes of their segment (total_size)",
    ),
    (put((*BLOCK, "state"), "busy"), "segments[0].blocks[0].state: is 'busy' (str), should be one of active_allocated, "),
    (put((*BLOCK, "size"), 0), "segments[0].blocks[0].size: is 0 (int), should be an integer, 1 or more, that fits 64 bits"),
    (put((*BLOCK, "address"), BASE + 1), f"segments[0].blocks[0].address: is {BASE + 1}, should be {BASE}: blocks follow each other"),
    (put(("external_annotations", 0, "stage"), "MID"), "external_annotations[0].stage: is 'MID' (str), should be 'START' or 'END'"),
    (put(("allocator_settings",), 3), "allocator_settings: is 3 (int), should be a dict"),
    (put(("host_traces",), [[]]), "host_traces[0]: is [] (list), should be a trace entry"),
]


@pytest.mark.parametrize(("change", "line"), WRONG, ids=[line for _, line in WRONG])
def test_a_wrong_value_is_named_by_its_path(change, line):
    document = copy.deepcopy(eras.document())
    change(document)
    with pytest.raises(SnapshotError) as caught:
        read_snapshot(document)
    (found,) = caught.value.problems
    assert line in found


def test_many_problems_are_listed_to_a_bound():
    entries = [entry("alloc", BASE, "x", i) for i in range(3000)]
    with pytest.raises(SnapshotError) as caught:
        read_snapshot({"device_traces": [entries]})
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1] == "… and 2,980 more"


def test_overlapping_segments_are_refused():
    with pytest.raises(SnapshotError, match=r"segments\[0\]: overlaps segment 1"):
        read_snapshot([eras.segment(0, BASE + 4096), eras.segment(0, BASE)])
    assert len(read_snapshot([eras.segment(0, BASE), eras.segment(1, BASE)]).devices) == 2


def test_lists_that_stand_at_two_places_are_refused():
    trace = eras.entries()
    with pytest.raises(SnapshotError, match=r"device_traces\[1\]: is the very same list as device_traces\[0\]"):
        read_snapshot({"device_traces": [trace, trace]})
    assert read_snapshot({"device_traces": [[]] * 4}).devices == ()


def test_sizes_that_add_up_beyond_64_bits_are_refused():
    with pytest.raises(SnapshotError, match="2\\^62"):
        read_snapshot({"device_traces": [[entry("alloc", BASE, 1 << 61, i) for i in range(3)]]})


def brute_spans(marks, times):
    """Spans by looking at every event for every mark."""
    spans, open_marks = [], []
    for mark in marks:
        if mark.opens:
            open_marks.append(mark)
            continue
        stop = sum(t <= mark.time for t in times)
        same = [m for m in open_marks if m.name == mark.name]
        if same:
            open_marks.remove(same[-1])
            start = sum(t < same[-1].time for t in times)
            spans.append((mark.name, start, max(start, stop), True))
        else:
            spans.append((mark.name, 0, stop, False))
    spans += [(m.name, sum(t < m.time for t in times), len(times), False) for m in open_marks]
    return sorted(spans)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 8), max_size=12).map(sorted),
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(0, 9)), max_size=10).map(lambda m: sorted(m, key=lambda x: x[2])),
)
def test_annotations_are_placed_as_by_brute_force(times, marks):
    # Marks of one moment keep an identity of their own, so that the oracle removes the right one.
    marks = [Mark(*mark) for mark in marks]
    events = Events.of([0] * len(times), list(range(len(times))), [1] * len(times), time=times)
    context = Context()
    spans = place_marks(marks, events, len(times), context)
    assert sorted((s.name, s.start, s.stop, s.closed) for s in spans) == brute_spans(marks, times)
    assert list(spans) == sorted(spans, key=lambda s: (s.start, -s.stop))
    assert all(0 <= s.start <= s.stop <= len(times) for s in spans)
    unclosed = sum(not s.closed for s in spans)
    assert sum(a.count for a in context.assumptions()) == unclosed


def test_annotations_that_cannot_be_placed_are_counted():
    document = eras.document()
    document["external_annotations"] += [
        {"stage": "START", "name": "away", "device": 5, "time_us": T0},
        {"name": "no stage", "device": 0},
        {"stage": "END", "name": "lone", "device": 0, "time_us": T0 - 1},
    ]
    trace = read_snapshot(document)
    counts = {a.code: a.count for a in trace.assumptions}
    assert counts == {"annotation_elsewhere": 1, "annotation_left_out": 1, "unclosed_annotation": 1}
    assert trace.device(0).spans[0] == Span("annotation", "lone", 0, 0, closed=False)
    for e in document["device_traces"][0] + document["host_traces"]:
        del e["time_us"]
    counts = {a.code: a.count for a in read_snapshot(document).assumptions}
    assert counts["annotation_unplaced"] == 3


def test_settings_keep_only_what_can_be_written():
    document = eras.document()
    document["allocator_settings"] |= {"odd": [1], 3: 4, "big": 1 << 90, "table": {"1": 0, "2": []}}
    trace = read_snapshot(document)
    assert {"odd", 3, "big"}.isdisjoint(trace.settings)
    assert trace.settings["table"] == {"1": 0}
    assert {a.code: a.count for a in trace.assumptions} == {"setting_left_out": 4}


def test_missing_frames_are_no_stack():
    e = entry("alloc", BASE, 1, 0)
    del e["frames"]
    trace = read_snapshot({"device_traces": [[e, entry("alloc", BASE + 1, 1, 0)]]})
    assert trace.device(0).events.stack.tolist() == [NO_STACK, 0]
