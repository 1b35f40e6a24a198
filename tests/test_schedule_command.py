"""``lifecycle-sim schedule``: what it prints, writes and refuses."""

import json
import re

import pytest
from click.testing import CliRunner

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from tests.conftest import ROOT
from tests.test_json_docs import SECTIONS, SHARED, keys_in

EVEN = str(ROOT / "scenarios" / "schedule" / "even.toml")
GPT3 = str(ROOT / "scenarios" / "schedule" / "gpt3.toml")
SMALL = ("--stages", "4", "--microbatches", "16")
GIB = 1 << 30


def asked(*arguments, code=0):
    result = CliRunner(catch_exceptions=False).invoke(main, ["schedule", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def words(*arguments, code=0):
    """What is printed, whatever the width."""
    return " ".join(asked(*arguments, code=code).stdout.split())


def answered(*arguments, code=0):
    return json.loads(asked(*arguments, "--json", code=code).stdout)


def test_one_schedule_tells_times_and_what_is_in_flight():
    document = answered("1f1b", *SMALL)
    assert document["schedule"]["actions"] == 128
    assert (document["makespan"], document["work"], document["idle"], document["fits"]) == (57, 192, 36, None)
    assert [rank["in_flight"] for rank in document["ranks"]] == [4, 3, 2, 1]
    assert [rank["area"] for rank in document["ranks"]] == [204, 150, 98, 48]
    assert document["peak"] is None
    text = words("1f1b", *SMALL)
    assert "makespan 57 ticks" in text
    assert "15.8 %" in text


def test_bytes_peak_on_the_rank_that_binds_and_the_exit_code_tells_whether_they_fit():
    assert answered("1f1b", *SMALL, "--costs", EVEN)["fits"] is True
    document = answered("gpipe", *SMALL, "--costs", EVEN, code=1)
    assert document["capacity"] == {"bytes": 16 * GIB, "given": False, "from": "costs", "overflow": int(18.5 * GIB)}
    assert [rank["peak"]["bytes"] for rank in document["ranks"]] == [int(34.5 * GIB)] * 4
    assert answered("gpipe", *SMALL, "--costs", EVEN, "--capacity", "35 GiB")["capacity"]["overflow"] == 0
    assert "fits" in words("gpipe", *SMALL, "--costs", EVEN, "--capacity", "35 GiB")


def test_schedules_side_by_side_and_the_sentence_that_neither_time_nor_work_tells_the_peak():
    document = answered("gpipe", *SMALL, "--costs", EVEN, "--compare", "1f1b, zbv")
    found = {row["name"]: row["result"] for row in document["rows"]}
    assert list(found) == ["gpipe", "1f1b", "zbv"]
    assert {name: (came["peak"], came["fits"]) for name, came in found.items()} == {
        "gpipe": (int(34.5 * GIB), False),
        "1f1b": (int(10.5 * GIB), True),
        "zbv": (int(10.5 * GIB), True),
    }
    assert found["gpipe"]["makespan"] == found["1f1b"]["makespan"] == 114_000_000
    text = words("gpipe", *SMALL, "--costs", EVEN, "--compare", "1f1b, zbv")
    assert "gpipe and 1f1b take the same time and do the same work, and at its peak gpipe holds 3.29 times as" in text
    assert [row["name"] for row in answered("1f1b", *SMALL, "--compare", "all")["rows"]][:2] == ["1f1b", "gpipe"]
    nothing = answered("gpipe", *SMALL, "--costs", EVEN, "--compare", "1f1b", "--capacity", "1 GiB", code=1)
    assert nothing["fits"] is False


def test_a_sweep_runs_every_combination_whatever_the_workers():
    arguments = ("interleaved-1f1b", "--sweep", "p=2,4 m=4,7 v=2,3", "--compare", "dualpipev")
    document = answered(*arguments)
    assert len(document["rows"]) == 2 * 2 * 3
    assert answered(*arguments, "--workers", "2") == document
    refused = [row for row in document["rows"] if row["why_not"]]
    assert all(row["result"] is None for row in refused)
    assert "Not possible" in words(*arguments)
    assert "do not make" in words(*arguments)


def test_a_comparison_in_which_nothing_is_possible_is_answered_no():
    document = answered("dualpipev", "--sweep", "p=4,8 m=7", code=1)
    assert [row["result"] for row in document["rows"]] == [None, None]
    assert "Not possible" in words("dualpipev", "--sweep", "p=4,8 m=7", code=1)


def test_the_largest_micro_batch_is_proved_at_both_sides():
    document = answered("1f1b", *SMALL, "--costs", GPT3, "--recompute", "--largest", code=1)
    assert document["largest"]["size"] == -1  # four ranks hold 24 layers each, whose parameters alone do not fit
    document = answered("1f1b", "--stages", 8, "--microbatches", 32, "--costs", GPT3, "--recompute", "--largest")
    found = document["largest"]
    assert (found["size"], found["above"]["size"]) == (6, 7)
    assert found["at"]["bytes"] <= 80 * GIB < found["above"]["bytes"]
    seven = answered("1f1b", "--stages", 8, "--microbatches", 32, "--costs", GPT3, "--recompute", "--param", "batch=7", code=1)
    assert seven["peak"] == found["above"]["bytes"]
    assert "a micro-batch of 6, with 81,990,254,592 B" in words(
        "1f1b", "--stages", 8, "--microbatches", 32, "--costs", GPT3, "--recompute", "--largest"
    )
    assert "none: a micro-batch of 1 takes" in words("gpipe", *SMALL, "--costs", EVEN, "--largest", code=1)


def test_communication_lengthens_the_run_and_not_the_peak():
    without, with_it = (answered("1f1b", *SMALL, "--costs", EVEN, *more) for more in ((), ("--communication", "100 us")))
    assert with_it["makespan"] > without["makespan"]
    assert (with_it["peak"], with_it["work"]) == (without["peak"], without["work"])
    assert answered("1f1b", *SMALL, "--communication", "2")["communication"] == 2


def test_the_trace_of_a_schedule_is_read_by_the_other_commands(tmp_path):
    document = answered("1f1b", *SMALL, "--costs", EVEN, "-o", tmp_path / "x.jsonl")
    trace = ls.read_trace(tmp_path / "x.jsonl")
    assert [device.device for device in trace] == ["rank:0", "rank:1", "rank:2", "rank:3"]
    assert [replayed.peak.size for replayed in ls.replay_all(trace)] == [rank["peak"]["bytes"] for rank in document["ranks"]]
    for command in (["peak", "--device", "rank:3"], ["timeline"], ["check"]):
        result = CliRunner(catch_exceptions=False).invoke(main, [command[0], str(tmp_path / "x.jsonl"), *command[1:]])
        assert result.exit_code == 0, result.output
    drawn = CliRunner(catch_exceptions=False).invoke(
        main, ["plot", str(tmp_path / "x.jsonl"), "--device", "rank:0", "--x", "time", "-o", str(tmp_path / "x.png")]
    )
    assert drawn.exit_code == 0


def test_action_lists_are_written_and_read_back(tmp_path):
    written = tmp_path / "lists.csv"
    before = answered("dualpipev", "--stages", 2, "--microbatches", 4, "--lists", "-o", written)
    assert "(0F3;3B1)OVERLAP_F_B" in written.read_text()
    after = answered(written, "--lists")
    assert (after["makespan"], after["lists"], after["ranks"]) == (before["makespan"], before["lists"], before["ranks"])
    assert "rank 1 1F0 2F0" in words(written, "--lists")
    again = asked("1f1b", *SMALL, "-o", written, code=2)
    assert "exists already" in again.stderr
    asked("1f1b", *SMALL, "-o", written, "--force")


def test_a_deadlock_is_told_with_its_circle(tmp_path):
    (tmp_path / "stuck.csv").write_text("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n")
    told = asked(tmp_path / "stuck.csv", code=3).stderr
    assert told.startswith("error: stuck never ends, because its ranks wait in a circle: rank 0 waits at 0B0 for 1B0 of rank 1, behind 1F1")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("1f1b",), 2, "how many ranks and micro-batches? add --stages and --microbatches"),
        (("nothing", *SMALL), 3, "schedule 'nothing' is not known"),
        (("zbv", *SMALL, "--chunks", "3"), 3, "zbv: it has 2 stages a rank, not 3"),
        (("interleaved-1f1b", "--stages", "4", "--microbatches", "9"), 3, "take 8 or 12"),
        (("1f1b", *SMALL, "--costs", EVEN, "--model", "x.py"), 2, "--costs and --model both say"),
        (("1f1b", *SMALL, "--tflops", "3"), 2, "are about a model: add --model"),
        (("1f1b", *SMALL, "--param", "batch=2"), 2, "--param is about the costs"),
        (("1f1b", *SMALL, "--largest"), 2, "--largest needs the bytes of a rank"),
        (("1f1b", *SMALL, "--largest", "--capacity", "1 GiB"), 3, "no bytes are known, so no micro-batch is the largest"),
        (("1f1b", *SMALL, "--largest", "--compare", "all"), 2, "--largest is about one schedule"),
        (("1f1b", *SMALL, "--costs", "absent.toml"), 3, "cannot read the scenario 'absent.toml'"),
        (("1f1b", *SMALL, "--workers", "0"), 2, "--workers"),
        (("1f1b", "--stages", "9", "--microbatches", "9", "--costs", EVEN), 3, "has 8 layers, which do not make 9 stages"),
        (("1f1b", *SMALL, "--communication", "50 us"), 2, "is of another clock than the costs: give a whole number of ticks"),
        (("1f1b", *SMALL, "--costs", EVEN, "--communication", "5"), 2, "is of another clock than the costs: give a duration"),
        (("1f1b", *SMALL, "--communication", "soon"), 2, "--communication"),
        (("1f1b", *SMALL, "--sweep", "p=2"), 2, "p is in --sweep and has an option of its own"),
        (("1f1b", "--sweep", "p=2"), 2, "add --stages and --microbatches, or p=… and m=… to --sweep"),
        (("1f1b", "--sweep", "q=2"), 3, "'q=2' is none of p=…, m=…, v=…"),
        (("1f1b", "--sweep", "p=2 p=3"), 3, "p is there twice"),
        (("1f1b", "--sweep", " "), 3, "a sweep needs values"),
        (("1f1b", "--sweep", "p=99991,99989,99971 m=1"), 3, "no common multiple of a handy size"),
        (("1f1b", *SMALL, "--compare", "1f2b"), 3, "did you mean '1f1b'?"),
        (("lists.csv", *SMALL), 2, "says itself how many ranks and micro-batches there are"),
        (("absent.csv",), 3, "absent.csv: cannot be read"),
        (("1f1b", *SMALL, "-o", "x.txt"), 3, "cannot write this suffix"),
        (("1f1b", *SMALL, "-o", "x.jsonl"), 3, "no bytes are known, so there is nothing to trace"),
        (("1f1b", *SMALL, "--compare", "all", "-o", "x.jsonl"), 2, "schedules side by side are drawn"),
        (("1f1b", *SMALL, "--compare", "all", "-o", "x.png"), 3, "9 schedules cannot be drawn side by side"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_words(arguments, code, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = asked(*arguments, code=code)
    assert says in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("1f1b", *SMALL, "--lists"),
        ("1f1b", "--stages", "8", "--microbatches", "32", "--costs", GPT3, "--recompute", "--largest"),
        ("1f1b", *SMALL, "--costs", EVEN, "--compare", "zbv,dualpipev", "--capacity", "16 GiB"),
        ("dualpipev", "--sweep", "p=2,4 m=4"),
    ],
)
def test_every_key_of_the_documents_is_named(arguments):
    named = set(re.findall(r"`([a-z_]+)`", SHARED + SECTIONS["schedule"]))
    assert set(keys_in(answered(*arguments))) <= named


def test_costs_without_a_parameter_for_the_size_of_a_micro_batch_have_no_largest(tmp_path):
    (tmp_path / "fixed.toml").write_text(
        '[[layer]]\nforward = 1\ninput_gradient = 1\nweight_gradient = 1\nactivation = "1 MiB"\nrepeat = 4\n'
    )
    told = asked("1f1b", *SMALL, "--costs", tmp_path / "fixed.toml", "--largest", "--capacity", "1 GiB", code=3)
    assert "has no parameter batch, the size of a micro-batch: add [parameters] with batch = 1" in told.stderr


def test_many_ranks_are_told_in_part():
    text = words("1f1b", "--stages", 40, "--microbatches", 4)
    assert "8 ranks between them are left out" in text


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figures_are_written(tmp_path, suffix):
    asked("zbv", *SMALL, "--costs", EVEN, "-o", tmp_path / f"one.{suffix}")
    asked("gpipe", *SMALL, "--costs", EVEN, "--compare", "1f1b", "-o", tmp_path / f"twins.{suffix}")
    assert all((tmp_path / f"{name}.{suffix}").stat().st_size > 10_000 for name in ("one", "twins"))


def test_recomputation_takes_a_tick_more_where_nothing_else_is_known():
    assert answered("gpipe", *SMALL, "--recompute")["makespan"] == (16 + 3) * 4
    assert answered("zb-h1", *SMALL, "--recompute")["work"] == 4 * 16 * 4


def test_layers_are_cut_as_the_option_says():
    document = answered("1f1b", "--stages", 8, "--microbatches", 32, "--costs", GPT3, "--balance", "bytes")
    assert (document["fits"], document["peak"] < 74 << 30) == (True, True)
    (told,) = [row for row in document["assumptions"] if "cut into 8 stages of 9, 9, 10, 11, 12, 13, 15, 17" in row]
    assert "so that the stage with the most bytes" in told
    assert answered("gpipe", *SMALL, "--costs", EVEN, "--balance", "2,2,2,2", code=1)["assumptions"] == [
        "the 8 layers are cut into 4 stages of 2 each"
    ]
    compared = answered("gpipe", *SMALL, "--costs", EVEN, "--compare", "zbv", "--balance", "time")
    assert compared["assumptions"] == ["layers are cut into stages, so that the stage that takes longest takes as little as can be"]
    given = answered("gpipe", *SMALL, "--costs", EVEN, "--compare", "zbv", "--balance", "3,2,2,1", code=1)
    assert given["rows"][1]["why_not"] == "zbv: the layers of 4 stages are given, and there are 8: give 8 numbers"
    assert "--balance is about the cut of layers" in asked("gpipe", *SMALL, "--balance", "time", code=2).stderr
    assert "'x' tells no cut" in asked("gpipe", *SMALL, "--costs", EVEN, "--balance", "x", code=3).stderr


def test_a_capacity_says_whose_it_is():
    assert "16 GiB), as the costs say" in words("gpipe", *SMALL, "--costs", EVEN, code=1)
    assert "40 GiB), as given" in words("gpipe", *SMALL, "--costs", EVEN, "--capacity", "40 GiB")


def test_a_negative_communication_is_refused_as_such():
    assert "-3 is negative" in asked("1f1b", *SMALL, "--communication=-3", code=2).stderr
