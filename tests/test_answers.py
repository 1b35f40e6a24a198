"""What the commands answer where a recording does not tell all: states, unknown starts, failed allocations, peaks and who reached them."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from lifecycle_sim.cli import main
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.errors import InputError, ScenarioError, TraceFormatError, UnitError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Frame, Kind, Span, StackBuilder, Trace
from lifecycle_sim.output.summary_lifetimes import lifetimes_record
from lifecycle_sim.output.summary_peak import peak_summary
from lifecycle_sim.output.verdict import verdict
from lifecycle_sim.program.scenario import load_scenario
from lifecycle_sim.replay import BY, attribute, lifespans, replay_all
from lifecycle_sim.replay.lifespans import TEMPORARY_WITHIN, temporary_within
from lifecycle_sim.sources.detect import read_trace
from lifecycle_sim.sources.native import write_jsonl
from lifecycle_sim.units import parse_bytes
from tests.cli_support import KIB, json_of, small_trace
from tests.conftest import ROOT
from tests.programs import BASE, Act, final_state, record

STUB = ROOT / "scenarios" / "torch214_stub_small.pickle"


@pytest.fixture(autouse=True)
def _width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")


@pytest.fixture
def run():
    return lambda *arguments: CliRunner(catch_exceptions=False).invoke(main, [str(each) for each in arguments])


def unwrapped(result):
    """What a command says, on one line."""
    return " ".join(result.stdout.split())


@pytest.fixture
def asked(run, tmp_path):
    """A command on a trace."""

    def ask(command, trace, *more):
        path = tmp_path / f"{abs(hash(str(trace)))}.jsonl"
        path.write_bytes(write_jsonl(trace))
        return run(command, path, *more)

    return ask


def state_only(kinds=()):
    return record([Act(kind, 0, 0) for kind in kinds], final_state({BASE: 1000}))


def relative(sizes=((Kind.ALLOC, 10), (Kind.FREE, 30), (Kind.ALLOC, 5))):
    events = Events.of([kind for kind, _ in sizes], [-1] * len(sizes), [size for _, size in sizes])
    return Trace((DeviceTrace("cuda:0", events, Basis.ALLOCATED, identified=False),), "profiler", Evidence.MEASURED, Clock.NONE)


# States without history ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [(), (Kind.SNAPSHOT,)])
def test_a_state_is_not_a_peak(kinds):
    (replayed,) = replay_all(state_only(kinds))
    assert not replayed.history
    assert (replayed.peak.size, replayed.peak.lower, replayed.peak.upper, replayed.peak.exact) == (1000, 1000, None, False)
    assert [(each.code, each.count, each.size) for each in replayed.assumptions] == [("no_history", 1, 1000)]
    assert "_record_memory_history" in replayed.assumptions[0].text
    assert verdict(replayed, 999).fits is False
    assert verdict(replayed, 10**9).fits is None
    assert [level.upper for level in verdict(replayed, 10**9).levels] == [None, None]


def test_a_state_is_called_one(asked):
    result = asked("peak", state_only(), "--capacity", "1 GiB")
    assert result.exit_code == Exit.NO
    assert "held      1,000 B requested, measured, at the snapshot" in result.stdout
    assert "Held at the snapshot, by" in result.stdout
    assert "cannot be told whether it fits into 1,073,741,824 B (1 GiB)" in result.stdout
    assert "steady state" not in result.stdout
    assert not any(line.strip().startswith(("peak", "start", "end")) for line in result.stdout.splitlines())
    lifetimes = asked("lifetimes", state_only([Kind.SNAPSHOT])).stdout
    assert "≥ 1" in lifetimes
    assert "temporary" not in lifetimes
    assert asked("check", state_only()).exit_code == Exit.YES


def test_a_device_where_nothing_happened_while_others_were_recorded_has_a_peak():
    quiet, busy = state_only().devices[0], record([Act(Kind.ALLOC, BASE, 10)], final_state({BASE: 10})).devices[0]
    both = Trace((quiet, replace(busy, device="cuda:1")), "cuda-snapshot", Evidence.MEASURED, Clock.NONE)
    assert [(each.history, each.peak.exact) for each in replay_all(both)] == [(True, True), (True, True)]


# Levels from an unknown start ----------------------------------------------------------------------------------------------------------


def test_a_peak_above_an_unknown_start_has_no_upper_bound():
    (replayed,) = replay_all(relative())
    assert replayed.relative
    assert (replayed.peak.size, replayed.peak.lower, replayed.peak.upper) == (10, 30, None)  # the start is 20 at least
    assert replayed.start_bounds == (0, None)
    assert verdict(replayed, 29).fits is False
    assert verdict(replayed, 10**9).fits is None
    assert [each.code for each in replayed.assumptions] == ["relative_level"]


def test_an_unknown_start_is_said_and_no_capacity_fits(asked):
    result = asked("peak", relative(), "--capacity", "1 GiB")
    assert result.exit_code == Exit.NO
    assert "10 B allocated, measured, above an unknown start, after event 0" in result.stdout
    assert "at least 30 B in all" in result.stdout
    assert "unknown: all levels count from it" in result.stdout
    assert "-15 B allocated above it" in result.stdout
    assert "cannot be told whether it fits" in result.stdout
    assert json_of(asked("peak", relative(), "--capacity", "1 GiB", "--json"))["fits"] is None


def test_windows_with_a_known_end_are_not_relative():
    for trace in (record([Act(Kind.ALLOC, BASE, 10)], final_state({BASE: 10})), record([Act(Kind.ALLOC, 1, 10)], None, start=0)):
        (replayed,) = replay_all(trace)
        assert not replayed.relative
        assert replayed.peak.exact


# Failed allocations --------------------------------------------------------------------------------------------------------------------


def test_a_failed_allocation_tells_who_asked_and_what_there_was(run):
    (device, _) = json_of(run("peak", STUB, "--json"))["devices"]
    entry = device["oom"]["last"]
    assert device["oom"]["first"] == [entry]
    assert (entry["event"], entry["level"], entry["reserved"], entry["owner"]) == (11, 52_000, 4_194_304, "/project/t2.py:18 <module>")
    assert entry["frames"] == ["/project/t2.py:18 <module>"]
    assert device["owners"]["event"] == 8
    assert device["owners_at_oom"]["event"] == 11
    assert sum(share["bytes"] for share in device["owners_at_oom"]["shares"]) == 52_000
    text = run("peak", STUB).stdout
    assert "4,398,046,511,104 B (4 TiB) asked for (rounded), 85,895,151,616 B (79.996 GiB) free on the device" in text
    assert "with 52,000 B (50.781 KiB) requested and 4,194,304 B (4 MiB) reserved at that time" in text
    assert "asked for at /project/t2.py:18 <module>" in text
    assert "Held when the last allocation failed (event 11), by owner" in text


def test_at_oom_is_the_last_failed_allocation(run, asked):
    (device,) = json_of(run("peak", STUB, "--at", "oom", "--json"))["devices"]
    assert (device["device"], device["owners"]["event"], device["owners"]["bytes"], device["owners_at_oom"]) == ("cuda:0", 11, 52_000, None)
    result = asked("peak", small_trace(), "--at", "oom")
    assert result.exit_code == Exit.USAGE
    assert "no failed allocation is recorded" in result.stderr
    with pytest.raises(InputError, match="no failed allocation"):
        peak_summary(replay_all(small_trace())[0], at="oom")


def test_an_event_is_asked_of_the_devices_that_have_it(run):
    assert [each["device"] for each in json_of(run("peak", STUB, "--at", 1, "--json"))["devices"]] == ["cuda:0", "pinned"]
    assert [each["device"] for each in json_of(run("peak", STUB, "--at", 5, "--json"))["devices"]] == ["cuda:0"]
    result = run("peak", STUB, "--at", 13)
    assert result.exit_code == Exit.USAGE
    assert "there is no event 13: events count from 0, and cuda:0 has 13, pinned has 2" in result.stderr
    assert run("peak", STUB, "--at", "-2").exit_code == run("peak", STUB, "--at", "last").exit_code == Exit.USAGE


def test_who_holds_at_a_failure_is_shown_only_where_it_differs_from_the_peak():
    for kinds, sizes, told in (([Kind.ALLOC, Kind.OOM], [10, 99], False), ([Kind.ALLOC, Kind.FREE, Kind.OOM], [10, 10, 99], True)):
        events = Events.of(kinds, [1] * len(kinds), sizes)
        trace = Trace((DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0),), "native", Evidence.MEASURED, Clock.NONE)
        assert (peak_summary(replay_all(trace)[0])["owners_at_oom"] is not None) is told


def test_many_failures_are_told_by_the_first_and_the_last():
    events = Events.of([Kind.OOM] * 9, [0] * 9, range(1, 10))
    trace = Trace((DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0),), "native", Evidence.MEASURED, Clock.NONE)
    told = peak_summary(replay_all(trace)[0])["oom"]
    assert (told["count"], [each["bytes"] for each in told["first"]], told["last"]["bytes"]) == (9, [1, 2, 3, 4, 5], 9)


# Who reached the peak ------------------------------------------------------------------------------------------------------------------


def test_the_allocation_that_reached_the_peak_is_told_with_what_it_is_inside():
    trace = small_trace()
    spans = (
        Span("annotation", "outer", 0, 6),
        Span("annotation", "inner", 2, 3),
        Span("phase", "forward", 1, 4),
        Span("step", "step 1", 3, 5),
    )
    (replayed,) = replay_all(replace(trace, devices=(replace(trace.devices[0], spans=spans),)))
    reached = peak_summary(replayed)["reached_by"]
    assert (reached["event"], reached["bytes"], reached["label"]) == (2, KIB, "c")
    assert reached["owner"] == reached["frames"][0] == "/home/somebody/project/model.py:12 forward"
    assert reached["inside"] == {"annotation": "inner", "operator": None, "phase": "forward", "step": None}


def test_it_is_printed_in_one_line(asked, run):
    text = unwrapped(asked("peak", small_trace()))
    assert "reached by an allocation of 1,024 B (1 KiB) for c at …/project/model.py:12 forward" in text
    text = unwrapped(run("peak", ROOT / "scenarios/mlp_step.toml"))
    assert "at mlp_step.toml fc1, inside operator relu.backward, phase backward, step 2" in text
    text = unwrapped(run("peak", ROOT / "scenarios/torch214_stub_train.pickle"))
    assert "reached by an allocation of 160 B (no stack recorded), in step 2" in text


def test_a_level_that_is_highest_at_the_start_was_reached_by_nothing():
    (replayed,) = replay_all(record([Act(Kind.FREE, BASE, 10)], final_state({})))
    assert peak_summary(replayed)["reached_by"] is None


def test_nor_by_an_event_that_allocates_nothing_beside_a_gap():
    events = Events.of(
        [Kind.FREE, Kind.SNAPSHOT, Kind.FREE], [BASE] * 3, [10, 0, 1000], time=[0, 100, 101]
    )  # an allocation was lost in 0 … 100
    device = DeviceTrace("cuda:0", events, Basis.REQUESTED, final=final_state({}))
    (replayed,) = replay_all(Trace((device,), "cuda-snapshot", Evidence.MEASURED, Clock.NANOSECONDS))
    assert (replayed.peak.size, replayed.peak.event) == (1000, 1)
    assert peak_summary(replayed)["reached_by"] is None


def test_a_gradient_is_owned_by_its_autograd_node():
    stacks = StackBuilder()
    stack = stacks.add([Frame("torch::unwind::unwind()", "??", 0), Frame("torch::autograd::generated::MulBackward0::apply(int)", "??", 0)])
    events = Events.of([Kind.ALLOC], [1], [10], stack=[stack])
    trace = Trace(
        (DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0),), "native", Evidence.MEASURED, Clock.NONE, stacks=stacks.table()
    )
    (replayed,) = replay_all(trace)
    assert peak_summary(replayed)["reached_by"]["owner"] == "?? torch::autograd::generated::MulBackward0::apply(int)"
    assert attribute(replayed, "frame").shares[0].key == "?? torch::autograd::generated::MulBackward0::apply(int)"


# Hints, words and figures --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "note"),
    [
        ("category", "No category is recorded"),
        ("step", "No step is recorded"),
        ("annotation", "No annotation is recorded"),
        ("owner", None),
        ("size", None),
    ],
)
def test_a_grouping_that_tells_nothing_says_so(by, note):
    told = peak_summary(replay_all(small_trace())[0], by)["owners"]["note"]
    assert (told is None) if note is None else told.startswith(note)
    assert by in BY


def test_much_that_is_older_than_the_window_is_worth_a_hint(run, shared):
    text = unwrapped(run("peak", shared / "data/snapshots/lm_medium_ctx128_train.pickle"))
    assert "72.7 % is older than the window and has no stack: start recording before the model is built to see its owners." in text
    assert "cannot be told: only one step was found (ends of the annotation 'Optimizer.step#AdamW.step')" in text


def test_pending_frees_explain_why_more_is_requested_than_allocated(run, shared):
    text = unwrapped(run("peak", shared / "data/snapshots/rl_pools_state_only.pickle"))
    assert "active: 597,377,024 B (569.703 MiB) of it are freed and pending, and count as requested still" in text


def test_a_steady_state_says_from_what(run):
    text = run("peak", ROOT / "scenarios/torch214_stub_train_gap.pickle").stdout
    assert "since step 3 of 3\n                (step 3 leaves the storages that the step before left)" in text
    assert "from step 1 to step 2, before that" in text


def test_scenarios_tell_the_time_itself_and_say_nothing_of_steps_they_do_not_have(run):
    text = run("peak", ROOT / "scenarios/ledger.toml").stdout
    assert ", at 9\n" in text
    assert "steady state" not in text


def test_capacities_say_whose_they_are(run):
    assert "the capacity that the source states" in run("peak", ROOT / "scenarios/burst_wait.toml").stdout
    assert "the capacity that the source states" not in run("peak", ROOT / "scenarios/burst_wait.toml", "--capacity", "16 GiB").stdout


def test_a_temporary_storage_lives_for_a_small_part_of_the_record():
    pairs = [Act(kind, 2, 1) for _ in range(7) for kind in (Kind.ALLOC, Kind.FREE)]
    trace = record([Act(Kind.ALLOC, 1, 10), *pairs, Act(Kind.FREE, 1, 10)], None, start=0)
    (replayed,) = replay_all(trace)
    assert temporary_within(replayed) == 2
    told = lifespans(replayed)
    assert (told.within, told.temporary.count, told.passing.count) == (2, 7, 1)  # the first lives throughout
    assert lifetimes_record(replayed)["lifespans"]["within"] == 2
    long = record([Act(kind, 2, 1) for _ in range(100) for kind in (Kind.ALLOC, Kind.FREE)], None, start=0)
    assert temporary_within(replay_all(long)[0]) == TEMPORARY_WITHIN


def test_lifetimes_use_one_set_of_words(asked):
    text = asked("lifetimes", small_trace(), "--top", 2).stdout
    assert "Largest 2 of 4 storages (all 4 add up to 8,192 B (8 KiB))" in text
    assert "long-lived: never freed" in text
    assert "bytes in all: the sizes of all these storages added up" in text


def test_small_devices_and_empty_ranges_do_not_crowd_a_timeline(asked):
    big = DeviceTrace(
        "cuda:0", Events.of([0, 3], [1, 1], [10**6] * 2), Basis.REQUESTED, start=0, spans=(Span("annotation", "nothing", 1, 1),)
    )
    small = DeviceTrace("cpu", Events.of([0, 3], [1, 1], [8, 8]), Basis.REQUESTED, start=0, spans=(Span("step", "step 2", 0, 2),))
    trace = Trace((big, small), "native", Evidence.MEASURED, Clock.NONE)
    text = asked("timeline", trace, "--by", "span").stdout
    assert "level  left out, so small is it beside the others: --device cpu shows it" in text
    assert "1 without an event of this device are left out" in text
    assert "step step 2" not in text
    assert "left out, so small" not in asked("timeline", trace, "--device", "cpu").stdout


def test_check_says_what_decides(asked):
    assert asked("check", small_trace()).stdout.endswith("sound: no errors, nothing lost, no difference at the end\n")
    freed = record([Act(Kind.FREE, BASE, 10)], final_state({}))
    assert asked("check", freed).stdout.endswith("sound: no errors, nothing lost, no difference at the end\n")
    assert "warning" not in asked("check", freed).stdout
    assert replay_all(freed)[0].assumptions[0].code == "freed_without_alloc"


def test_an_allocation_made_larger_than_its_segment_is_found(run, tmp_path):
    assert run("convert", STUB, "-o", tmp_path / "a.jsonl").exit_code == Exit.YES
    text = (tmp_path / "a.jsonl").read_text()
    assert '"size":12000000' in text
    (tmp_path / "b.jsonl").write_text(text.replace('"size":12000000', '"size":25165824'))
    result = run("check", tmp_path / "b.jsonl", "--json")
    assert result.exit_code == Exit.NO
    assert {each["code"] for each in json.loads(result.stdout)["devices"][0]["findings"]} == {"beyond_segment", "above_reserved"}
    assert "problems found: 2 errors" in run("check", tmp_path / "b.jsonl").stdout


# Input and output ----------------------------------------------------------------------------------------------------------------------


def test_a_limit_is_rounded_down_and_a_size_tells_how(run):
    assert parse_bytes("11.6 GiB", round_down=True) == 12_455_405_158
    with pytest.raises(UnitError, match=r"not a whole number of bytes: write '12455405158 B', which is it rounded down"):
        parse_bytes("11.6 GiB")
    document = json_of(run("peak", STUB, "--capacity", "11.6 GiB", "--json"))
    assert document["devices"][0]["capacity"]["bytes"] == 12_455_405_158


@pytest.mark.parametrize(("capacity", "code"), [("12052000 B", Exit.YES), ("12051999 B", Exit.NO)])
def test_plot_tells_by_its_exit_code_whether_it_fits(run, tmp_path, capacity, code):
    trace = record([Act(Kind.ALLOC, 1, 12_052_000)], None, start=0)
    (tmp_path / "a.jsonl").write_bytes(write_jsonl(trace))
    assert run("plot", tmp_path / "a.jsonl", "-o", tmp_path / "a.png", "--capacity", capacity).exit_code == code
    assert (tmp_path / "a.png").is_file()


def test_what_a_minimalloc_file_loses_is_said(asked, tmp_path):
    assert "payload, simulated, from a start of 0" in asked("convert", small_trace(), "-o", tmp_path / "a.csv").stderr
    assert asked("convert", small_trace(), "-o", tmp_path / "a.npz").stderr == ""


def test_recordings_and_scenarios_taken_for_each_other_are_told_apart(run, tmp_path):
    result = run("run", STUB)
    assert result.exit_code == Exit.BAD_INPUT
    assert "is a recording, not a scenario: ask lifecycle-sim peak about it" in result.stderr
    with pytest.raises(TraceFormatError, match="is a scenario, not a recording: run_scenario"):
        read_trace(ROOT / "scenarios/ledger.toml")
    with pytest.raises(TraceFormatError, match="absent") as absent:
        read_trace(tmp_path / "absent.toml")
    assert "is a scenario" not in str(absent.value)
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    with pytest.raises(ScenarioError, match="looks like a recording"):
        load_scenario(tmp_path / "a.json")
    with pytest.raises(InputError, match="read a recording with read_trace"):
        replay_all("x.pickle")
