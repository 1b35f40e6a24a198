"""The commands end to end: answers, exit codes, one JSON document, nothing overwritten, no traceback."""

import json
import os
import re
import signal
import subprocess
import sys
from itertools import pairwise

import pytest
from click.testing import CliRunner

from lifecycle_sim.cli import COMMANDS, main
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.sources.native import read_jsonl, read_npz, write_jsonl
from tests.cli_support import KIB, json_of, keys_of, lifecycle_sim, small_trace
from tests.conftest import ROOT

ASK = ["peak", "timeline", "lifetimes", "check"]  # the questions that a recording alone answers


@pytest.fixture(autouse=True)
def _width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def run():
    """A command in this process; anything that leaves it as an exception is a failure."""
    return lambda *arguments: CliRunner(catch_exceptions=False).invoke(main, [str(each) for each in arguments])


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "small.jsonl"
    path.write_bytes(write_jsonl(small_trace()))
    return path


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(
        """
        parameters = { batch = 2 }
        capacity = "4 KiB"
        [[event]]
        at = 0
        alloc = "x"
        size = "batch * 1 KiB"
        [[event]]
        at = 1
        free = "x"
        """
    )
    return path


def test_peak_tells_the_level_where_it_is_and_who_holds_it(run, recording):
    result = run("peak", recording)
    assert result.exit_code == Exit.YES
    assert "7,168 B (7 KiB) requested, measured, after event 2, 20 ns after the first" in result.stdout
    assert "project/model.py:12 forward" in result.stdout
    assert "/home/somebody" not in result.stdout
    assert result.stderr == ""


def test_peak_in_json_holds_the_same_facts_and_full_paths(run, recording):
    document = json_of(run("peak", recording, "--json"))
    (device,) = document["devices"]
    assert document["schema"] == "lifecycle-sim/peak/1"
    assert device["peak"] == {"bytes": 7 * KIB, "event": 2, "time": 30, "exact": True, "lower": 7 * KIB, "upper": 7 * KIB}
    assert [(share["key"], share["bytes"], share["count"]) for share in device["owners"]["shares"]] == [
        ("/home/somebody/project/model.py:12 forward", 5 * KIB, 2),
        ("/home/somebody/project/train.py:40 step", 2 * KIB, 1),
    ]
    assert sum(share["bytes"] for share in device["owners"]["shares"]) == device["peak"]["bytes"]


@pytest.mark.parametrize(("at", "held"), [(-1, 0), (0, 4 * KIB), (5, 5 * KIB)])
def test_peak_at_an_event(run, recording, at, held):
    (device,) = json_of(run("peak", recording, "--json", "--at", at, "--by", "label"))["devices"]
    assert device["owners"]["event"] == at
    assert device["owners"]["bytes"] == held == sum(share["bytes"] for share in device["owners"]["shares"])


@pytest.mark.parametrize(("capacity", "code", "overflow"), [("7 KiB", Exit.YES, 0), ("7167 B", Exit.NO, 1)])
def test_a_capacity_gives_a_verdict_to_the_byte(run, recording, capacity, code, overflow):
    result = run("peak", recording, "--capacity", capacity, "--json")
    assert result.exit_code == code
    assert json_of(result)["fits"] is (code == Exit.YES)
    assert json_of(result)["devices"][0]["capacity"]["levels"] == [
        {"level": "requested", "bytes": 7 * KIB, "upper": 7 * KIB, "overflow": overflow}
    ]


def test_timeline_keeps_the_peak_at_few_points(run, recording):
    (device,) = json_of(run("timeline", recording, "--points", 5, "--json", "--by", "stream"))["devices"]
    assert len(device["points"]["event"]) <= 5
    assert (2, 7 * KIB) in zip(device["points"]["event"], device["points"]["bytes"], strict=True)
    assert device["parts"]["shown"] == [{"stream": 0, "bytes": 7 * KIB, "event": 2, "start": 0, "end": 5 * KIB}]
    assert "peak" in run("timeline", recording).stdout


def test_lifetimes_leaked(run, recording):
    (device,) = json_of(run("lifetimes", recording, "--leaked", "--json"))["devices"]
    assert [row["label"] for row in device["shown"]] == ["a", "d"]
    assert device["chosen"] == {"which": "never_freed", "within": None, "sort": "size", "count": 2, "bytes": 5 * KIB}


@pytest.mark.parametrize(("within", "labels"), [(0, ["c"]), (1, ["b", "c"])])
def test_lifetimes_temporary_counts_the_allocations_in_between(run, recording, within, labels):
    (device,) = json_of(run("lifetimes", recording, "--temporary", within, "--json"))["devices"]
    assert [row["label"] for row in device["shown"]] == labels
    assert device["lifespans"]["temporary"]["count"] == len(labels)


@pytest.mark.parametrize(("sort", "labels"), [("size", "abcd"), ("span", "abcd"), ("birth", "abcd")])
def test_lifetimes_are_sorted(run, recording, sort, labels):
    (device,) = json_of(run("lifetimes", recording, "--sort", sort, "--json"))["devices"]
    assert "".join(row["label"] for row in device["shown"]) == labels


def test_check_finds_nothing_in_a_sound_trace_and_a_double_free_in_another(run, recording, tmp_path):
    assert run("check", recording).exit_code == Exit.YES
    other = tmp_path / "two.jsonl"
    lines = recording.read_text().splitlines()
    other.write_text("\n".join([*lines, lines[-3]]) + "\n")
    result = run("check", other, "--json")
    assert result.exit_code in (Exit.NO, Exit.BAD_INPUT)


def test_convert_there_and_back(run, recording, tmp_path):
    assert run("convert", recording, "-o", tmp_path / "out.npz").exit_code == Exit.YES
    assert read_npz((tmp_path / "out.npz").read_bytes()) == small_trace()
    assert run("convert", tmp_path / "out.npz", "-o", tmp_path / "out.jsonl").exit_code == Exit.YES
    assert read_jsonl((tmp_path / "out.jsonl").read_bytes()) == small_trace()


def test_convert_to_minimalloc_keeps_the_peak(run, recording, tmp_path):
    assert run("convert", recording, "-o", tmp_path / "out.csv").exit_code == Exit.YES
    assert (tmp_path / "out.csv").read_text() == "id,lower,upper,size\n0,1,7,4096\n1,2,4,2048\n2,3,5,1024\n3,6,7,1024\n"
    assert json_of(run("peak", tmp_path / "out.csv", "--json"))["devices"][0]["peak"]["bytes"] == 7 * KIB


def test_convert_names_the_suffixes_it_knows(run, recording, tmp_path):
    result = run("convert", recording, "-o", tmp_path / "out.xlsx")
    assert result.exit_code == Exit.USAGE
    assert all(suffix in result.stderr for suffix in (".jsonl", ".npz", ".csv", ".pickle"))


@pytest.mark.parametrize("command", ["convert", "plot"])
def test_nothing_is_overwritten_without_force(run, recording, tmp_path, command):
    output = tmp_path / ("out.npz" if command == "convert" else "out.png")
    output.write_bytes(b"mine")
    result = run(command, recording, "-o", output)
    assert result.exit_code == Exit.USAGE
    assert "--force" in result.stderr
    assert output.read_bytes() == b"mine"
    assert run(command, recording, "-o", output, "--force").exit_code == Exit.YES
    assert output.read_bytes() != b"mine"


@pytest.mark.parametrize(("capacity", "code"), [("7 KiB", Exit.YES), ("7167 B", Exit.NO)])
def test_plot_answers_whether_it_fits_when_asked(run, recording, tmp_path, capacity, code):
    assert run("plot", recording, "-o", tmp_path / "out.png", "--capacity", capacity).exit_code == code
    assert (tmp_path / "out.png").exists()


def test_plot_shows_time_where_asked_and_in_scenarios(run, recording, scenario, tmp_path):
    def label(source, *more):
        assert run("plot", source, "-o", tmp_path / "out.svg", "--force", *more).exit_code == Exit.YES
        return re.findall(r"<!-- (event|time[^>]*) -->", (tmp_path / "out.svg").read_text())

    assert label(recording) == ["event"]
    assert label(recording, "--x", "time") == ["time since the first event (ns)"]
    assert label(scenario, "--x", "event") == ["event"]
    assert label(scenario)[0].startswith("time (")
    assert run("plot", recording, "-o", tmp_path / "other.svg", "--kind", "composition", "--x", "time").exit_code == Exit.USAGE


@pytest.mark.parametrize("command", ASK)
def test_bad_input_is_one_line_each_and_nothing_on_stdout(run, tmp_path, command):
    (tmp_path / "bad\n\x1b[31m.pickle").write_bytes(b"\x80\x04 this is no pickle")
    for source in (tmp_path / "bad\n\x1b[31m.pickle", tmp_path / "absent", tmp_path):
        result = run(command, source, "--json")
        assert result.exit_code == Exit.BAD_INPUT
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["peak"],
        ["peak", "x", "--capacity", "4G"],
        ["peak", "x", "--param", "batch"],
        ["peak", "x", "--param", "batch=1.5"],
        ["peak", "x", "--param", "a=1", "--param", "a=2"],
        ["lifetimes", "x", "--leaked", "--temporary", "3"],
        ["plot", "x", "-o", "x.bmp"],
        ["convert", "x"],
        ["nothing"],
    ],
)
def test_wrong_usage(run, arguments):
    result = run(*arguments)
    assert result.exit_code == Exit.USAGE
    assert result.stdout == ""


def test_a_narrow_console_does_not_break_the_names_of_owners(run, recording, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = run("peak", recording, "--by", "owner").stdout.splitlines()
    assert max(map(len, lines[1:])) <= 60
    assert any(line.endswith(("…/project/model.py:12 forward", "…/project/model.py:12")) for line in lines)
    assert any(line.strip().startswith("(5 KiB)") for line in lines)


def test_run_says_of_a_recording_that_it_is_one(run, recording, tmp_path):
    (tmp_path / "no.toml").write_text("x = ")
    for source, says in ((recording, "is a recording, not a scenario: ask lifecycle-sim peak"), (tmp_path / "no.toml", "is not TOML")):
        result = run("run", source)
        assert result.exit_code == Exit.BAD_INPUT
        assert says in result.stderr


def test_a_scenario_says_when_by_its_own_clock(run, scenario, recording):
    assert re.search(r"after event \d+, at [\d,]+(\s|$)", run("peak", scenario).stdout)
    assert "after the first" in run("peak", recording).stdout
    assert json_of(run("peak", scenario, "--json"))["devices"][0]["time"]["from_zero"]


def test_a_scenario_runs_with_its_parameters_and_its_capacity_is_a_verdict(run, scenario):
    for command in ("run", "peak"):
        result = run(command, scenario, "--json")
        assert result.exit_code == Exit.YES
        assert json_of(result)["devices"][0]["peak"]["bytes"] == 2 * KIB
        result = run(command, scenario, "--param", "batch=5", "--json")
        assert result.exit_code == Exit.NO
        assert json_of(result)["devices"][0]["capacity"]["levels"][0]["overflow"] == KIB
    text = run("run", scenario).stdout
    assert "payload" in text
    assert "frees before allocs" in text


def test_of_very_many_problems_the_first_are_told(run, tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text("".join(f'[[event]]\nat = {i}\nalloc = "x{i}"\nsize = "4G"\n' for i in range(150)))
    result = run("run", path)
    assert result.exit_code == Exit.BAD_INPUT
    lines = result.stderr.splitlines()
    assert len(lines) == 101
    assert lines[-1] == "error: and 50 more problems like these"


def test_parameters_need_a_scenario(run, recording):
    result = run("peak", recording, "--param", "batch=4")
    assert result.exit_code == Exit.BAD_INPUT
    assert "only a scenario has parameters" in result.stderr


def test_standard_input_is_a_recording_or_a_scenario(recording, scenario):
    for path in (recording, scenario):
        result = lifecycle_sim("peak", "-", "--json", input=path.read_bytes())
        assert result.returncode == 0, result.stderr
        piped, named = json.loads(result.stdout), json_of(lifecycle_sim("peak", path, "--json"))
        assert piped["source"].pop("name") == "standard input"
        assert named["source"].pop("name") == str(path)
        for document in (piped, named):  # a scenario's lines bear its name
            (device,) = document["devices"]
            device["reached_by"] = [device["reached_by"].pop(key) for key in ("event", "bytes")]
        assert piped == named


def test_output_is_the_same_in_every_process(recording):
    outputs = {
        lifecycle_sim(*arguments, recording, *more, env=os.environ | {"PYTHONHASHSEED": seed}).stdout
        for arguments, more in ((["peak"], ["--json"]),)
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1


def test_a_terminal_that_lacks_letters_still_gets_the_answer(recording):
    result = lifecycle_sim("peak", recording, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0, result.stderr
    assert "7,168 B (7 KiB)" in result.stdout
    assert result.stdout.isascii()


def test_a_broken_pipe_ends_quietly(recording):
    command = [sys.executable, "-m", "lifecycle_sim", "timeline", str(recording), "--json", "--points", "100000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == Exit.BROKEN_PIPE


def test_long_work_is_told_once_on_stderr_and_an_interrupt_ends_it_quietly(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it: reading takes for ever
    command = [sys.executable, "-m", "lifecycle_sim", "peak", str(tmp_path / "pipe")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == f"reading {tmp_path / 'pipe'} …\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == Exit.INTERRUPTED


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], ["numpy", "rich", "matplotlib", "simpy", "networkx", "msgspec"]),
        (["--version"], ["numpy", "rich", "matplotlib", "simpy", "networkx", "msgspec"]),
        (["peak", "RECORDING", "--json"], ["rich", "matplotlib", "simpy", "networkx"]),
        (["peak", "RECORDING"], ["matplotlib", "simpy", "networkx"]),
        (["timeline", "RECORDING", "--json"], ["rich", "matplotlib", "simpy", "networkx"]),
        (["check", "RECORDING", "--json"], ["rich", "matplotlib", "simpy", "networkx"]),
    ],
)
def test_a_command_imports_only_what_it_needs(recording, arguments, absent):
    arguments = [str(recording) if each == "RECORDING" else each for each in arguments]
    code = f"""
import sys
from lifecycle_sim.cli import main
try:
    main({arguments!r})
except SystemExit as ending:
    assert not ending.code, ending.code
print("IMPORTED", *[name for name in {absent!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "IMPORTED", done.stdout + done.stderr


def test_help_lists_every_command_once_on_a_line_of_its_own(run):
    lines = run("--help").stdout.splitlines()
    for command, line in COMMANDS.items():
        assert [each for each in lines if each.split()[:1] == [command]] == [f"  {command:<9}  {line}"]
        assert len(f"  {command:<9}  {line}") < 80
    files = {
        path.stem
        for path in (ROOT / "lifecycle_sim" / "cli").glob("*.py")
        if re.search(r"^def command\(", path.read_text("utf-8"), re.MULTILINE)
    }
    assert set(COMMANDS) == files


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(run, command):
    text = run(command, "--help").stdout
    assert f"lifecycle-sim {command}" in text
    assert "Example" in text


def test_internal_errors_say_so_in_one_line(run, recording, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("lifecycle_sim.cli.timeline.timeline_record", broken)
    result = run("timeline", recording)
    assert result.exit_code == Exit.INTERNAL_ERROR
    assert result.stderr.startswith("error: internal error: ZeroDivisionError: by zero (")
    assert result.stderr.count("\n") == 1
    assert "Traceback" in run("--traceback", "timeline", recording).stderr


DEVICE = {
    "peak": [
        "device", "events", "basis", "evidence", "history", "relative", "peak", "reached_by", "start", "start_bounds", "end", "time",
        "reserved", "recorded_end", "storages", "oom", "assumptions", "reconciliation", "capacity", "owners", "owners_at_oom",
        "steady_state",
    ],
    "timeline": ["device", "events", "basis", "evidence", "history", "relative", "peak", "start", "end", "time", "points", "reserved"],
    "lifetimes": ["device", "events", "basis", "evidence", "history", "relative", "storages", "chosen", "shown", "lifespans"],
    "check": ["device", "events", "basis", "history", "relative", "sound", "findings", "losses", "assumptions", "reconciliation"],
}  # fmt: skip
WHOLE = {
    "peak": ["schema", "source", "devices", "fits"],
    "timeline": ["schema", "source", "devices"],
    "lifetimes": ["schema", "source", "devices"],
    "check": ["schema", "source", "devices", "findings", "sound"],
}


@pytest.mark.parametrize("command", ASK)
def test_documents_keep_their_keys_and_order(run, recording, command):
    document = json_of(run(command, recording, "--json"))
    assert list(document) == WHOLE[command]
    assert list(document["source"]) == ["name", "format", "release", "evidence", "clock", "devices", "events"]
    assert list(document["devices"][0]) == DEVICE[command]
    assert keys_of(document["devices"][0].get("peak")) in (
        None,
        dict.fromkeys(["bytes", "event", "time", "exact", "lower", "upper"]),
    )


@pytest.mark.parametrize("command", ASK)
@pytest.mark.parametrize("columns", [80, 100])
def test_piped_tables_keep_their_width_and_carry_no_escapes(recording, command, columns):
    lines = lifecycle_sim(command, recording, env=os.environ | {"COLUMNS": str(columns)}).stdout.splitlines()
    assert max(map(len, lines[1:])) <= columns
    assert not any("\x1b" in line or line != line.rstrip() for line in lines)
    assert all(line or before for before, line in pairwise(lines))


RECORDED = {
    "complete_small": (0, 3_249_143_816, 52, 3_781_165_056),
    "lm_medium_ctx512_train": (5_095_567_360, 12_426_629_128, 3485, 12_660_506_624),
    "torch214_stub_train_expandable": (0, 768_772_392, 1285, 882_900_992),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recordings_have_their_known_peaks(run, shared, name):
    start, peak, event, reserved = RECORDED[name]
    path = shared / "data" / "snapshots" / f"{name}.pickle"
    result = run("peak", path, "--json")
    assert result.exit_code == Exit.YES
    (device,) = json_of(result)["devices"]
    assert (device["start"], device["peak"]["bytes"], device["peak"]["event"]) == (start, peak, event)
    assert device["reserved"]["peak"]["bytes"] == reserved
    assert device["reconciliation"]["difference"] == 0
    assert sum(share["bytes"] for share in device["owners"]["shares"]) == peak
