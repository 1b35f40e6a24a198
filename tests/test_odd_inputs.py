"""Odd texts, odd files and odd streams: a command answers or says in one line why not, quickly, and a terminal is never harmed."""

import json
import os
import pickle
import subprocess
import sys
import time

import pytest

import lifecycle_sim as ls
from lifecycle_sim.cli.endings import LONGEST, Exit
from lifecycle_sim.errors import ScenarioError, SnapshotError
from lifecycle_sim.output.atomic import write_atomically
from lifecycle_sim.output.printable import shown
from lifecycle_sim.program.scenario import LARGEST, load_scenario
from lifecycle_sim.sources.native import write_jsonl
from lifecycle_sim.sources.snapshot import read_snapshot
from tests import eras
from tests.cli_support import lifecycle_sim, small_trace

LINUX = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
HARMFUL = "\x1b[31m\x07\u202e\ud800\nend"


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "small.jsonl"
    path.write_bytes(write_jsonl(small_trace()))
    return path


def snapshot(tmp_path, text):
    """A snapshot in which *text* stands wherever a text can."""
    frames = [{"name": text, "filename": text, "line": 3}]
    marks = [{"stage": stage, "name": text, "device": 0, "time_us": eras.T0 + at} for at, stage in enumerate(("START", "END"))]
    entry = eras.entry("alloc", eras.BASE, 100, 0, user_metadata=text, frames=frames)
    path = tmp_path / "odd.pickle"
    path.write_bytes(pickle.dumps({"device_traces": [[entry]], "external_annotations": marks}))
    return path


@pytest.mark.parametrize("command", ["peak", "peak --by stack", "peak --by label", "lifetimes", "timeline --by span", "check"])
def test_texts_that_a_terminal_would_obey_are_spelled_out(tmp_path, command):
    for more in ([], ["--json"]):
        result = lifecycle_sim(*command.split(), snapshot(tmp_path, HARMFUL), *more)
        assert result.returncode == 0, result.stderr
        assert all(c.isprintable() or c == "\n" for c in result.stdout)
        if more:
            assert json.loads(result.stdout)["devices"]
    if command == "peak --by label":
        assert "\\x1b[31m\\x07\\u202e\\ud800 end" in lifecycle_sim(*command.split(), snapshot(tmp_path, HARMFUL)).stdout


@pytest.mark.parametrize("text", ["f" * 1_000_000, "/" * 1_000_000, "a/" * 300_000, "a/" * 300_000 + " ", "\\" * 300_000, "é" * 300_000])
def test_very_long_texts_are_shown_in_time_linear_in_their_length(text):
    start = time.perf_counter()
    assert len(shown(text, 160)) <= 160
    assert len(shown(f"{text}:3 {text}", 160)) <= 160
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("command", ["peak", "lifetimes"])
def test_very_long_names_make_no_command_slow(tmp_path, command):
    result = lifecycle_sim(command, snapshot(tmp_path, "x" * 300_000))
    assert result.returncode == 0
    assert len(result.stdout) < 10_000


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("a/b/c/d/", "…/c/d/"),
        ("/a//b//c", "…/b/c"),
        ("C:\\x\\y\\z.py:3 f", "…/y/z.py:3 f"),
        ("////", "////"),
        ("///x", "…//x"),
        ("see /a/b/c.py and /d/e/f.py", "see …/b/c.py and …/e/f.py"),
    ],
)
def test_paths_of_any_form_are_cut(text, cut):
    assert shown(text) == cut


def test_letters_that_a_font_lacks_draw_a_figure_without_warnings(tmp_path):
    result = lifecycle_sim("plot", snapshot(tmp_path, "$\\frac{$ 🧠 中 " + HARMFUL), "-o", tmp_path / "odd.png", "--by", "label")
    assert (result.returncode, result.stderr.replace(f"drawing {tmp_path / 'odd.png'} …\n", "")) == (0, "")


def shell(line, *files):
    """Run lifecycle-sim with *line* after it, in a shell."""
    command = f'exec "$0" -m lifecycle_sim {line}'
    return subprocess.run(["sh", "-c", command, sys.executable, *map(str, files)], capture_output=True, text=True, timeout=60)


@LINUX
@pytest.mark.parametrize("line", ['peak "$1" > /dev/full', 'peak "$1" --json > /dev/full', "--help > /dev/full", "--version > /dev/full"])
def test_a_full_disk_is_told(recording, line):
    result = shell(line, recording)
    assert (result.returncode, result.stderr) == (Exit.BAD_INPUT, "error: standard output: No space left on device\n")


@LINUX
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('peak "$1" >&-', "error: standard output: is closed, so there is no place for the answer\n"),
        ('check "$1" --json >&-', "error: standard output: is closed, so there is no place for the answer\n"),
        ("peak - <&-", "error: standard input is closed: give a file, or something to read on standard input\n"),
        ("run - <&-", "error: standard input is closed: give a file, or something to read on standard input\n"),
        ('peak ""', "error: : the name of the file is empty: give a path, or - for standard input\n"),
    ],
)
def test_streams_that_are_closed_are_told(recording, line, told):
    result = shell(line, recording)
    assert (result.returncode, result.stdout, result.stderr) == (Exit.BAD_INPUT, "", told)


@LINUX
def test_what_prints_nothing_needs_no_standard_output(recording, tmp_path):
    assert shell('convert "$1" -o "$2" >&-', recording, tmp_path / "x.npz").returncode == Exit.YES
    assert (tmp_path / "x.npz").stat().st_size


@LINUX
def test_a_scenario_without_end_is_refused():
    with pytest.raises(ScenarioError, match="larger than 64 MiB"):
        load_scenario("/dev/zero")
    with pytest.raises(ScenarioError, match="larger than 64 MiB"):
        load_scenario("#" * LARGEST + "\n")


def test_a_long_line_on_stderr_loses_its_middle(tmp_path):
    (tmp_path / "x.toml").write_text(f'[[event]]\nat = 0\nalloc = "x"\nsize = "{"y" * 100_000}"\n')
    result = lifecycle_sim("run", tmp_path / "x.toml")
    assert result.returncode == Exit.BAD_INPUT
    assert 0 < len(result.stderr.splitlines()[0]) < LONGEST + 20


@pytest.mark.parametrize("command", ["convert", "plot"])
@pytest.mark.parametrize("name", ["x.foo", "x", ".npz", ".png", "-", ""])
def test_a_suffix_that_is_not_known_is_wrong_usage(recording, tmp_path, command, name):
    result = lifecycle_sim(command, recording, "-o", name, cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.getcwd()})
    assert result.returncode == Exit.USAGE
    assert not list(tmp_path.glob("x*"))


@LINUX
def test_a_folder_that_cannot_be_written_to_is_named_without_the_draft():
    with pytest.raises(OSError, match="cannot be written") as caught:
        write_atomically("/proc/x.npz", b"x")
    assert caught.value.filename == "/proc/x.npz"


@pytest.mark.parametrize("free", [-5, 1 << 70, "x"])
def test_an_oom_entry_is_refused_under_the_key_that_it_has(free):
    entry = {"action": "oom", "size": 10, "stream": 0, "device_free": free, "time_us": 1, "frames": []}
    with pytest.raises(SnapshotError, match=r"device_traces\[0\]\[0\]\.device_free: is"):
        read_snapshot({"device_traces": [[entry]]})


@pytest.mark.parametrize(
    "error",
    [
        ls.InputError(["one", "two"]),
        ls.CaptureError("one"),
        ls.MissingExtraError("torch", "torch", "capturing a step"),
    ],
)
def test_errors_come_back_from_another_process_as_they_were(error):
    """An exception that cannot be unpickled breaks a whole pool of processes."""
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))
