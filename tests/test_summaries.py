"""Summaries, tables, verdicts and exports against brute force and by hand."""

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.cli.source import _TOML as TOML
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Kind, Trace
from lifecycle_sim.output.exports.minimalloc import write_minimalloc
from lifecycle_sim.output.printable import one_line, short_cpp, short_path, shown
from lifecycle_sim.output.summary import all_fit, document, summarise, surely_fit
from lifecycle_sim.output.summary_check import check_record
from lifecycle_sim.output.summary_lifetimes import lifetimes_record
from lifecycle_sim.output.summary_peak import peak_summary
from lifecycle_sim.output.summary_timeline import timeline_record
from lifecycle_sim.output.tables import print_tables
from lifecycle_sim.output.tables_peak import tables
from lifecycle_sim.output.verdict import verdict
from lifecycle_sim.replay import replay_device
from lifecycle_sim.sources.minimalloc import read_minimalloc
from tests.cli_support import KIB, small_trace


@pytest.fixture(autouse=True)
def _width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def trace_of(events, **more):
    device = DeviceTrace("cuda:0", events, Basis.REQUESTED, **{"start": 0} | more)
    return Trace((device,), "native", Evidence.MEASURED, Clock.NONE, labels=("\x1b[31mred\n[bold]",))


def random_trace(seed, count):
    """Events of storages that live for a random while; some to the end."""
    draw, live, kinds, addresses, sizes = np.random.default_rng(seed), [], [], [], []
    for event in range(count):
        if live and draw.random() < 0.5:
            address, size = live.pop(int(draw.integers(len(live))))
            kinds.append(Kind.FREE)
        else:
            address, size = event + 1, int(draw.integers(1, 1000))
            live.append((address, size))
            kinds.append(Kind.ALLOC)
        addresses.append(address)
        sizes.append(size)
    return trace_of(Events.of(kinds, addresses, sizes))


@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(5, 60))
def test_points_are_no_more_than_asked_for_and_keep_first_last_and_peak(seed, count, points):
    replayed = replay_device(random_trace(seed, count))
    record = timeline_record(replayed, points)["points"]
    kept = dict(zip(record["event"], record["bytes"], strict=True))
    assert len(kept) <= points
    assert kept.items() >= {-1: 0, count - 1: replayed.timeline.end, replayed.peak.event: replayed.peak.size}.items()
    assert all(replayed.timeline.at(event) == level for event, level in kept.items())


def test_a_timeline_of_too_few_points_is_refused():
    with pytest.raises(InputError, match="at least 5 points"):
        timeline_record(replay_device(small_trace()), 4)


def test_documents_do_not_grow_with_the_events():
    lengths = []
    for count in (2_000, 40_000):
        replayed = replay_device(random_trace(1, count))
        records = (
            peak_summary(replayed),
            timeline_record(replayed, 100, "stream"),
            lifetimes_record(replayed),
            check_record(replayed, ()),
        )
        lengths.append([len(json.dumps(record)) for record in records])
    assert all(long < 2 * short for short, long in zip(*lengths, strict=True))


def test_levels_beyond_64_bits_stay_exact():
    huge = 2**62
    replayed = replay_device(trace_of(Events.of([Kind.ALLOC] * 4, [1, 2, 3, 4], [huge] * 4)))
    record = json.loads(json.dumps([peak_summary(replayed), timeline_record(replayed, 5), lifetimes_record(replayed)]))
    assert record[0]["peak"]["bytes"] == record[1]["points"]["bytes"][-1] == record[2]["chosen"]["bytes"] == 4 * huge


@pytest.mark.parametrize(("capacity", "fits"), [(7 * KIB, True), (7 * KIB - 1, False), (0, False), (2**80, True)])
def test_a_verdict_is_exact(capacity, fits):
    judged = verdict(replay_device(small_trace()), capacity)
    assert judged.fits is fits
    assert judged.levels[0].overflow == max(0, 7 * KIB - capacity)


def test_a_verdict_says_when_it_cannot_tell():
    events = Events.of([Kind.ALLOC, Kind.ALLOC, Kind.FREE, Kind.ALLOC], [1, 2, 2, 1], [4, 8, 8, 4])
    replayed = replay_device(trace_of(events, start=None))
    assert not replayed.peak.exact or replayed.gaps
    judged = verdict(replayed, replayed.peak.size)
    assert judged.fits is (None if replayed.peak.upper is None else replayed.peak.upper <= replayed.peak.size)
    assert verdict(replayed, replayed.peak.size - 1).fits is False


def test_the_capacity_of_the_source_is_the_default():
    replayed = replay_device(trace_of(Events.of([Kind.ALLOC], [1], [100]), capacity=99))
    assert summarise(replayed)["capacity"]["fits"] is False
    assert summarise(replayed, 100)["capacity"]["fits"] is True


@pytest.mark.parametrize(
    ("answers", "all_of_them"),
    [([], None), ([None], None), ([None, True], True), ([True, True], True), ([True, "?"], None), ([True, "?", False], False)],
)
def test_all_devices_fit_or_not(answers, all_of_them):
    words = {True: {"fits": True}, False: {"fits": False}, "?": {"fits": None}, None: None}
    devices = [{"capacity": words[answer]} for answer in answers]
    assert all_fit(devices) is all_of_them
    assert surely_fit(devices) is all(answer in (None, True) for answer in answers)


@pytest.mark.parametrize("seed", range(5))
def test_a_minimalloc_export_has_the_same_peak(seed):
    replayed = replay_device(random_trace(seed, 300))
    assert replay_device(read_minimalloc(write_minimalloc(replayed).decode())).peak.size == replayed.peak.size


def test_a_minimalloc_export_keeps_bytes_without_a_name():
    events = Events.of([Kind.ALLOC, Kind.FREE], [1, 1], [10, 10])
    replayed = replay_device(trace_of(events, start=100))
    assert replayed.peak.size == 110
    assert replay_device(read_minimalloc(write_minimalloc(replayed).decode())).peak.size == 110


def test_a_temporary_storage_is_freed_within_so_many_allocations():
    """Against a walk over the events."""
    replayed = replay_device(random_trace(3, 400))
    events, births, temporary = replayed.recorded.events, {}, 0
    for event, (kind, address) in enumerate(zip(events.kind.tolist(), events.address.tolist(), strict=True)):
        if kind == Kind.ALLOC:
            births[address] = event
        else:
            temporary += int((events.kind[births[address] + 1 : event] == Kind.ALLOC).sum()) <= 4
    record = lifetimes_record(replayed, temporary=4)
    assert record["chosen"]["count"] == record["lifespans"]["temporary"]["count"] == temporary > 0


def test_a_storage_older_than_the_window_is_not_temporary():
    events = Events.of([Kind.FREE, Kind.ALLOC, Kind.FREE], [9, 1, 1], [10, 20, 20])
    record = lifetimes_record(replay_device(trace_of(events, start=None)), temporary=8)
    assert [(row["bytes"], row["alloc"], row["free"]) for row in record["shown"]] == [(20, 1, 2)]


def test_what_a_recording_says_cannot_command_a_terminal():
    replayed = replay_device(trace_of(Events.of([Kind.ALLOC], [1], [100], label=[0])))
    text = io.StringIO()
    print_tables(tables(document("peak", replayed.trace, "\x1b[2Jname", [peak_summary(replayed)])), text)
    assert "\x1b" not in text.getvalue()
    assert "\\x1b[31mred [bold]" in text.getvalue()


def test_out_of_memory_is_told():
    events = Events.of([Kind.ALLOC, Kind.OOM], [1, 4096], [100, 2**30])
    replayed = replay_device(trace_of(events))
    (entry,) = summarise(replayed)["oom"]["first"]
    inside = dict.fromkeys(["annotation", "operator", "phase", "step"])
    told = {"event": 1, "time": None, "bytes": 2**30, "device_free": 4096, "level": 100, "reserved": None}
    assert entry == told | {"owner": None, "frames": [], "label": None, "inside": inside}
    text = io.StringIO()
    print_tables(tables(document("peak", replayed.trace, "x", [peak_summary(replayed)])), text)
    assert "event 1: 1,073,741,824 B (1 GiB) asked for (rounded), 4,096 B (4 KiB) free" in text.getvalue()


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("/home/a/b/model.py:12 forward", "…/b/model.py:12 forward"),
        ("b/model.py:12 forward", "b/model.py:12 forward"),
        (r"C:\Users\a\b\model.py:3 f", "…/b/model.py:3 f"),
        ("/a/b/c.py:1 f ← /a/b/d/e.py:2 g", "…/b/c.py:1 f ← …/d/e.py:2 g"),
        ("plain words / and more", "plain words / and more"),
    ],
)
def test_paths_are_cut_to_their_last_two_parts(text, short):
    assert shown(text) == short
    assert short_path(short) == short


def test_long_names_are_cut_in_the_middle():
    assert shown("a" * 30 + "b" * 30, 20) == "a" * 6 + "…" + "b" * 13


def test_names_of_cpp_functions_lose_their_arguments():
    assert short_cpp("?? torch::autograd::Engine::run(std::vector<int>&&)") == "torch::autograd::Engine::run(…)"
    assert short_cpp("x.cpp at::(anonymous namespace)::make(int)") == "x.cpp at::make(…)"
    assert short_cpp("model.py:3 <lambda>(x)") == "model.py:3 <lambda>(x)"


@given(st.text())
def test_one_line_is_one_printable_line(text):
    assert one_line(text).isprintable()
    one_line(text).encode()


@pytest.mark.parametrize(
    ("text", "is_toml"),
    [
        ('title = "x"', True),
        ("# a comment\n\n[[event]]\nat = 0", True),
        ("[parameters]\nbatch = 4", True),
        ("parameters = { batch = 2 }\n", True),
        ('{"traceEvents": []}', False),
        ('[{"ph": "i"}]', False),
        ("[[0, 1], [2, 3]]", False),
        ("[]", False),
        ("id,lower,upper,size\na,0,1,2", False),
        ("<!DOCTYPE html>\n<html>", False),
        ("\x80\x04\x95", False),
        ("", False),
    ],
)
def test_scenarios_are_known_by_how_they_begin(text, is_toml):
    assert bool(TOML.match(text.encode("latin-1"))) is is_toml
