"""``lifecycle-sim fit`` end to end: plain numbers, probes, recordings, scenarios, configurations, captures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from lifecycle_sim.cli import main
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.study.batch.measured import StepPeaks
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def _width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def run():
    return lambda *arguments: CliRunner(catch_exceptions=False).invoke(main, ["fit", *(str(each) for each in arguments)])


def fake_captures(fixed, per_sample, states=(("parameter", 400), ("gradient", 400), ("optimizer_state", 800)), holes=(), gradients=0):
    """What ``capture_runs`` returns, without any."""

    def measure(places):
        found = []
        for seq, batch in places:
            size = fixed + per_sample * batch * (seq or 1)
            reserved = size + (1000 if batch in holes else 100)
            held = {"activation": per_sample * batch * (seq or 1), **dict(states)}
            phases = {"forward": size - 50, "backward": size, "optimizer": fixed + 90}
            levels = {"requested": max(phases.values()), "allocated": size + 40, "reserved": reserved}
            found.append(StepPeaks(batch, seq, levels, phases, held, dict(states), 1600, 400, False, 3))
        return found

    def runs(plan, workers):
        """Gradients are there all along from the second micro-batch on: as much as *gradients* more."""
        del workers
        if plan.accumulate == 1:
            return measure
        return lambda places: [
            replace(run, levels={basis: size + gradients for basis, size in run.levels.items()}) for run in measure(places)
        ]

    return runs


@pytest.fixture
def captures(monkeypatch):
    def put(*arguments, **more):
        monkeypatch.setattr("lifecycle_sim.cli.fit_questions.capture_runs", fake_captures(*arguments, **more))

    return put


def document(result):
    found = json.loads(result.stdout)
    assert found["schema"] == "lifecycle-sim/fit/1"
    return found


# -- plain numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "batch", "binding", "code"),
    [
        (("100 B", "30 B", "200 B", "10"), 3, "memory", Exit.YES),
        (("100 B", "30 B", "100 B", "10"), 0, "memory", Exit.NO),
        (("100 B", "30 B", "99 B", "10"), -1, "fixed part", Exit.NO),
        (("0 B", "1 B", "1000 B", "4"), 4, "limit", Exit.YES),
        (("0 B", "1 B", "9223372036854775807 B", "9223372036854775807"), 2**63 - 1, "limit", Exit.YES),
    ],
)
def test_plain_numbers(run, numbers, batch, binding, code):
    fixed, per_sample, budget, limit = numbers
    result = run("--fixed", fixed, "--per-sample", per_sample, "--budget", budget, "--limit", limit, "--json")
    (answer,) = document(result)["answers"]
    assert (answer["batch"], answer["binding"], result.exit_code) == (batch, binding, code)


def test_plain_numbers_as_a_table(run):
    result = run("--fixed", "100 B", "--per-sample", "30 B", "--budget", "200 B", "--limit", 10)
    assert "largest batch  3\n" in result.stdout
    assert "at batch 4     220 B, 20 B too much" in result.stdout


def test_a_sample_must_add_bytes(run):
    result = run("--fixed", "1 B", "--per-sample", "0 B", "--budget", "2 B")
    assert (result.exit_code, result.stdout) == (Exit.BAD_INPUT, "")
    assert "per_sample is 0" in result.stderr


def test_the_deadline_of_the_issue_is_enumerated(run):
    result = run("--fixed", "0 B", "--per-sample", "1 B", "--budget", "100 B", "--global-batch", 100, "--overhead", "1 ns",
                 "--time-per-sample", "1 ns", "--deadline", "103 ns", "--json")  # fmt: skip
    told = document(result)["in_time"]
    assert [(row["first"], row["last"]) for row in told["shown"]] == [(50, 50), (100, 100)]
    assert (told["binds"], told["count"]) == ("deadline", 2)
    assert document(result)["accumulation"]["shown"][1] == {"micro_batch": 50, "accumulated": 2, "padded": 0}


def test_times_are_those_that_were_measured(run, tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("batch,time,peak\n1,2 ns,x\n50,51 ns,x\n64,65 ns,x\n")
    asked = ("--fixed", "0 B", "--per-sample", "1 B", "--budget", "100 B", "--global-batch", 100, "--times", path)
    told = document(run(*asked, "--deadline", "103 ns", "--json"))["in_time"]
    assert [(row["first"], row["last"], row["time"]) for row in told["shown"]] == [(50, 50, 102)]
    assert (told["timed"], told["fastest"]) == (64, {"micro_batch": 50, "time": 102})
    assert "micro-batches up to 64; between two of them" in " ".join(run(*asked).stdout.split())
    path.write_text("batch,time\n1,2\nx,3 ns\n")
    result = run(*asked)
    assert (result.exit_code, result.stdout) == (Exit.BAD_INPUT, "")
    assert "times.csv line 2: " in result.stderr
    assert "times.csv line 3: batch 'x' is no whole number" in result.stderr


def test_rows_of_another_basis_are_passed_over(run, tmp_path):
    path = tmp_path / "p.csv"
    rows = [f"{b},{100 * b} B,requested\n{b},{200 * b} B,allocated\n" for b in (1, 2, 4)]
    path.write_text("batch,peak,basis\n" + "".join(rows))
    assert document(run(path, "--basis", "requested", "--budget", "300 B", "--json"))["answers"][0]["batch"] == 3
    result = run(path, "--basis", "reserved", "--budget", "300 B")
    assert (result.exit_code, result.stdout) == (Exit.BAD_INPUT, "")
    assert "holds no probe in reserved bytes: its rows count allocated, requested ones" in result.stderr


# -- usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give a source, or --probe"),
        (("--fixed", "1 B"), "need both --fixed and --per-sample"),
        (("a.csv", "--fixed", "1 B", "--per-sample", "1 B"), "leave the source and --probe out"),
        (("--fixed", "1 B", "--per-sample", "1 B"), "nothing says how many bytes there are"),
        (("--fixed", "1", "--per-sample", "1 B", "--budget", "1 B"), "has no unit"),
        (("--fixed", "1 B", "--per-sample", "1 B", "--budget", "1 B", "--growth", "8"), "--growth does not go with plain numbers"),
        (("a.csv", "--longest"), "--longest does not go with a CSV"),
        (("a.py", "--series", "x"), "--series chooses rows"),
        (("a.py", "--longest"), "--longest needs the --batch"),
        (("a.py", "--batch", "4"), "--batch is what is sought"),
        (("a.py", "--longest", "--batch", "4", "--seq", "8"), "leave --seq out"),
        (("a.py", "-o", "x.png", "--seq", "8"), "give two or more"),
        (("a.py", "--growth", "8", "--batch", "4,8"), "at one --batch"),
        (("a.py", "--seq", "8,8"), "8 is given twice"),
        (("a.py", "--seq", "0"), "'0' is no whole number"),
        (("--probe", "8;128=a"), "is not of the form BATCH,SEQ=RECORDING"),
        (("a.csv", "--overhead", "1 ms"), "needs both --overhead and --time-per-sample"),
        (("a.csv", "--overhead", "1 ms", "--time-per-sample", "1 ms", "--times", "t.csv"), "leave one out"),
        (("a.csv", "--deadline", "1 ms"), "a --deadline needs them"),
        (("a.csv", "--widen", "nan"), "nan is no number"),
        (("a.csv", "--global-batch", 10**27), "is not in the range"),
        (("--fixed", "1 B", "--per-sample", "1 B", "--budget", "9 B", "--headroom", "10 B"), "--headroom is more than the 9 B there are"),
        ((ROOT / "scenarios/batch/three_configurations.toml", "--budget", "9 GB", "--limit", 4), "--budget, --limit is said in a table"),
        (("a.csv", "--overhead", "1 ms", "--time-per-sample", "1 ms"), "times are of steps over a --global-batch"),
        (("a.csv", "--deadline", "1"), "has no unit"),
    ],
)
def test_wrong_usage(run, arguments, says):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert says in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("none.csv", None, "No such file"),
        ("bad.csv", "batch,peak,basis\n1,x,requested\n", "is not a size"),
        ("twice.csv", "batch,micro_batch,peak,basis\n1,1,1 GB,requested\n", "has several columns for 'batch': leave one"),
        ("semicolons.csv", "batch;peak;basis\n1;1 GB;requested\n", "its first line is batch;peak;basis: columns are parted by commas"),
        ("odd_basis.csv", "batch,peak,basis\n1,1 GB,mine\n", "line 2 counts 'mine' bytes"),
        ("large.csv", f"batch,peak,basis\n{2**63},1 GB,requested\n", "is no whole number from 1 to 2^63 - 1"),
        ("phase.csv", "batch,peak,basis,peak in forward\n1,1 GB,requested,2 GB\n", "line 2: a phase has a higher peak than the step"),
        ("unit.csv", "batch,peak,basis,peak in forward\n1,1 GB,requested,2\n", "line 2: peak in forward: size '2' has no unit"),
        ("two.csv", "batch,peak\n1,4 GB\n", "does not say what its bytes count"),
        ("odd.csv", b"\x80\x04\xff", "is no CSV of probes, but no text at all"),
        ("falls.csv", "batch,peak,basis\n1,5 GB,reserved\n2,4 GB,reserved\n3,6 GB,reserved\n", "non-monotone"),
        ("bad.toml", "a = [", "is no TOML"),
    ],
)
def test_bad_input_is_told_in_lines(run, tmp_path, name, text, says):
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    result = run(tmp_path / name, "--budget", "10 GB")
    assert (result.exit_code, result.stdout) == (Exit.BAD_INPUT, "")
    assert says in result.stderr
    assert all(line.startswith("error: ") for line in result.stderr.splitlines())


# -- probes ----------------------------------------------------------------------------------------------------------


def write(path: Path, rows) -> Path:
    path.write_text("batch,seq,peak,basis\n" + "".join(f"{b},{s},{peak} B,requested\n" for b, s, peak in rows))
    return path


def test_a_file_of_probes_answers_for_each_length(run, tmp_path):
    path = write(tmp_path / "p.csv", [(b, s, 1000 + 3 * b * s * s) for s in (10, 20) for b in (1, 4, 8)])
    result = run(path, "--budget", "7000 B", "--headroom", "600 B", "--json")
    told = document(result)
    assert [(each["seq"], each["batch"], each["binding"]) for each in told["answers"]] == [(10, 8, "calibrated range"), (20, 4, "memory")]
    assert told["minimum"] == 4
    assert told["answers"][1]["left"] == 7000 - 600 - 5800
    assert told["model"]["by"] == "sequence"
    assert all(row["covered"] for row in told["model"]["probes"])
    text = run(path, "--budget", "7000 B", "--headroom", "600 B").stdout
    assert "The least of them, 4, holds for all lengths." in text
    assert "shape          affine" in text


def test_widening_is_said(run, tmp_path):
    path = write(tmp_path / "p.csv", [(b, 10, 1000 + 100 * b) for b in (1, 4, 8)])
    narrow, wide = run(path, "--budget", "1 MB"), run(path, "--budget", "3 kB", "--widen", "2")
    assert "nothing larger was measured" in narrow.stdout
    assert "to 2 times the largest probe, 8, in proportion: measure again near the answer" in " ".join(wide.stdout.split())
    assert "largest batch  13 " in wide.stdout


def test_two_probes_only_say_no(run, tmp_path):
    path = write(tmp_path / "p.csv", [(1, 10, 2130), (2, 10, 2907)])
    result = run(path, "--budget", "4000 B", "--json")
    told = document(result)
    assert (result.exit_code, told["fits"], told["answers"]) == (Exit.NO, None, [])
    assert told["excluded"] == [{"seq": 10, "first_excluded": 4, "bytes": 4461}]
    assert "can only say no" in " ".join(run(path, "--budget", "4000 B").stdout.split())


def test_the_published_adapter_does_not_fit_at_four(run, shared, tmp_path):
    text = (shared / "data/reference/measured_peak_vs_microbatch.csv").read_text()
    path = tmp_path / "published.csv"
    path.write_text("\n".join(line for line in text.splitlines() if ",OOM," not in line))
    result = run(path, "--series", "litgpt Llama2-7B 1xA100 LoRA", "--basis", "allocated", "--budget", "40 GB", "--json")
    assert document(result)["excluded"] == [{"seq": None, "first_excluded": 4, "bytes": 44_610_000_000}]


def test_recordings_are_probes(run, shared):
    folder = shared / "data/snapshots"
    given = [f"4,{seq}={folder}/lm_medium_ctx{seq}_train.pickle" for seq in (128, 256)]
    options = [part for each in given for part in ("--probe", each)]
    result = run(*options, "--by", "tokens", "--budget", "8 GiB", "--json")
    told = document(result)
    assert [row["bytes"] for row in told["model"]["probes"]] == [7_013_335_044, 9_103_544_320]
    assert told["excluded"][0]["first_excluded"] is not None
    assert run(*options, "--budget", "8 GiB").exit_code == Exit.BAD_INPUT  # one batch at each length
    state = f"8={folder}/rl_pools_state_only.pickle"
    result = run("--probe", state, "--probe", state, "--budget", "8 GiB")
    assert "holds only a state, no history" in result.stderr


# -- scenarios and configurations ------------------------------------------------------------------------------------


def test_a_scenario_is_searched(run):
    result = run(ROOT / "scenarios/mlp_step.toml", "--budget", "1 GiB", "--json")
    (answer,) = document(result)["answers"]
    assert (answer["batch"], answer["phase"], answer["verified"], answer["rounds"]) == (2516, "backward", True, 2)
    assert (answer["at"], answer["above"]) == (1_073_618_944, 1_074_044_928)
    result = run(ROOT / "scenarios/mlp_step.toml", "--budget", "1 GiB", "--longest", "--batch", "4,8", "--json")
    assert [(each["batch"], each["value"]) for each in document(result)["answers"]] == [(4, 40_260), (8, 20_130)]


def test_a_frontier_is_drawn(run, tmp_path):
    target = tmp_path / "frontier.png"
    arguments = (ROOT / "scenarios/mlp_step.toml", "--budget", "1 GiB", "--seq", "64,128,256", "-o", target)
    result = run(*arguments, "--json")
    edge = document(result)["frontier"]
    assert (edge["lengths"], edge["largest"]) == ([64, 128, 256], [2516, 1258, 629])
    assert target.stat().st_size > 10_000
    assert run(*arguments).exit_code == Exit.USAGE  # never replaced unasked
    assert "! does not fit" in run(*arguments, "--force").stdout


@pytest.mark.parametrize(
    ("target", "says"), [("x.xyz", "a figure is written as .png"), ("none/x.png", "lies in a folder that does not exist")]
)
def test_a_figure_that_cannot_be_written_is_told_before_anything_is_run(run, captures, monkeypatch, tmp_path, target, says):
    captures(2000, 30)
    monkeypatch.setattr("lifecycle_sim.cli.fit_questions.find_largest", None)
    result = run("x.py", "--budget", "20 kB", "--seq", "8,16", "-o", tmp_path / target)
    assert (result.exit_code, result.stdout) == (Exit.BAD_INPUT, "")
    assert says in result.stderr
    result = run("x.py", "--budget", "20 kB", "--global-batch", 8, "--times", tmp_path / "none.csv")
    assert "No such file" in result.stderr


def test_a_scenario_that_has_no_batch(run):
    result = run(ROOT / "scenarios/ledger.toml", "--budget", "1 GiB")
    assert result.exit_code == Exit.BAD_INPUT
    assert "unknown parameter 'batch'" in result.stderr


def test_configurations_are_compared(run):
    path = ROOT / "scenarios/batch/three_configurations.toml"
    rows = document(run(path, "--json"))["configurations"]["rows"]
    assert [(row["name"], row["memory_batch"], row["micro_batch"]) for row in rows] == [
        ("plain", 32, 32),
        ("fused", 10, 10),
        ("recomputed", 136, 128),
    ]
    assert "0.713 on held-out" in run(path).stdout


# -- captures --------------------------------------------------------------------------------------------------------


def test_a_file_is_searched_and_verified_on_both_sides(run, captures):
    captures(2000, 30)
    result = run("x.py", "--budget", "20 kB", "--headroom", "1 kB", "--seq", "8", "--limit", "512", "--global-batch", "100", "--json")
    told = document(result)
    (answer,) = told["answers"]
    assert (answer["batch"], answer["binding"], answer["phase"], answer["growing"]) == (70, "memory", "backward", "activation")
    assert (answer["left"], answer["deficit"]) == (19_000 - 2100 - 70 * 240, 2100 + 71 * 240 - 19_000)
    assert answer["with_retries"] == {"fits": False, "retries": 3}
    assert {70, 71} <= {each["batch"] for each in answer["runs"]}
    assert (answer["scanned"], answer["holes"]) == ([68, 73], [])
    assert told["accumulation"]["shown"][0] == {"micro_batch": 50, "accumulated": 2, "padded": 0}
    assert answer["accumulation_needs"] == 0
    text = run("x.py", "--budget", "20 kB", "--seq", "8").stdout
    assert "it and the next were both run" in text
    assert "not counted" in text
    assert "it was run, the next is beyond the limit" in " ".join(run("x.py", "--budget", "20 kB", "--limit", "3").stdout.split())


def test_the_way_to_a_global_batch_is_run_as_it_accumulates(run, captures):
    captures(2000, 30, gradients=500)
    asked = ("x.py", "--budget", "20 kB", "--headroom", "1 kB", "--seq", "8", "--limit", "512")
    result = run(*asked, "--global-batch", "140", "--json")
    told = document(result)
    assert told["answers"][0]["batch"] == 70
    room = 19_000 - 2100 - 500
    assert room // 240 == 68  # what brute force finds: 140 = 2 × 70 does not fit with its gradients, 3 × 47 does
    assert told["accumulation"]["run"] == {
        "micro_batches": 2,
        "micro_batch": 47,
        "at": 2600 + 47 * 240,
        "left": room - 47 * 240,
        "larger": {"micro_batch": 70, "deficit": 70 * 240 - room},
        "runs": 2,
    }
    assert told["accumulation"]["shown"][0] == {"micro_batch": 47, "accumulated": 3, "padded": 1}
    text = " ".join(run(*asked, "--global-batch", "140").stdout.split())
    assert "run micro-batch 47, 2 a step: 13,880 B" in text
    assert "next larger micro-batch 70 lacks 400 B" in text
    once = document(run(*asked, "--global-batch", "60", "--json"))["accumulation"]["run"]
    assert (once["micro_batches"], once["micro_batch"], once["larger"]) == (1, 60, None)
    none = document(run("x.py", "--budget", "2400 B", "--seq", "8", "--global-batch", "4", "--json"))
    assert (none["answers"][0]["batch"], none["accumulation"]["run"]["micro_batch"], none["accumulation"]["shown"]) == (1, None, [])
    assert "no micro-batch fits" in run("x.py", "--budget", "2400 B", "--seq", "8", "--global-batch", "4").stdout


def test_holes_are_reported(run, captures):
    captures(2000, 30, holes=(69,))
    result = run("x.py", "--budget", "20 kB", "--headroom", "1 kB", "--seq", "8", "--json")
    (answer,) = document(result)["answers"]
    assert answer["holes"] == [69]
    assert answer["refusal"] is not None
    assert answer["model_basis"] == "allocated"
    assert "69 below it do not fit" in run("x.py", "--budget", "20 kB", "--headroom", "1 kB", "--seq", "8").stdout


def test_where_nothing_fits_what_could_help_is_told(run, captures):
    captures(2000, 30)
    result = run("x.py", "--budget", "1000 B", "--json")
    (answer,) = document(result)["answers"]
    assert (result.exit_code, answer["batch"], answer["binding"]) == (Exit.NO, -1, "fixed part")
    assert [(each["means"], each["bytes"], each["enough"]) for each in answer["helps"]] == [
        ("freeze", 1200, True),
        ("optimizer", 400, False),
        ("optimizer", 800, False),
        ("shard", 800, False),
        ("shard", 1200, True),
        ("shard", 1400, True),
        ("recompute", 30, False),
    ]
    assert "a smaller batch cannot help" in run("x.py", "--budget", "1000 B").stdout
    (answer,) = document(run("x.py", "--budget", "2050 B", "--json"))["answers"]
    assert (answer["batch"], answer["binding"]) == (0, "memory")


def test_lengths_make_a_table_with_its_least(run, captures):
    captures(2000, 3)
    result = run("x.py", "--budget", "40 kB", "--seq", "64,128", "--device", "t4", "--basis", "requested", "--json")
    told = document(result)
    assert [each["batch"] for each in told["answers"]] == [197, 98]
    assert (told["minimum"], told["budget"]["card"]) == (98, "t4")


def test_a_real_file_is_captured(run):
    pytest.importorskip("torch", reason="torch is not installed: captures need it")
    result = run(ROOT / "scenarios/capture/mlp.py", "--device", "t4", "--limit", "1", "--json")
    (answer,) = document(result)["answers"]
    assert (result.exit_code, answer["batch"], answer["binding"], answer["basis"]) == (Exit.YES, 1, "limit", "reserved")
    assert answer["states"]["optimizer_state"] == 2 * answer["states"]["parameter"] == 2 * answer["states"]["gradient"]
    assert answer["phase"] == "optimizer"


def test_every_key_is_documented(run, captures, tmp_path):
    from tests.test_json_docs import SECTIONS, keys_in

    captures(2000, 30)
    path = write(tmp_path / "p.csv", [(b, 10, 1000 + 100 * b) for b in (1, 4, 8)])
    steps = ("--global-batch", "64", "--overhead", "1 ms", "--time-per-sample", "1 ms", "--deadline", "1 s")
    asked = [
        ("x.py", "--budget", "20 kB", "--seq", "8,16", *steps),
        ("x.py", "--budget", "1 kB"),
        (path, "--budget", "3 kB", "--widen", "2", *steps),
        (ROOT / "scenarios/batch/three_configurations.toml",),
        ("--fixed", "1 B", "--per-sample", "1 B", "--budget", "9 B"),
    ]
    import re

    named = set(re.findall(r"`([a-z_]+)`", SECTIONS["fit"])) | {"schema", "source"}
    data = {"requested", "allocated", "reserved", "parameter", "gradient", "optimizer_state", "activation"}
    for arguments in asked:
        assert set(keys_in(document(run(*arguments, "--json")))) - data <= named
