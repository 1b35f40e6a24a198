"""Sweeps: each point by itself is a capture and runs, and what a process holds on the CPU is never a figure of the card."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from lifecycle_sim.output.summary_sweep import sweep_document
from lifecycle_sim.sources.capture.process import ProcessRun
from lifecycle_sim.study import grid
from lifecycle_sim.study.grid import Spread
from tests.test_json_docs import SECTIONS, SHARED, keys_in

PROGRAM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64, device="cuda"), nn.Linear(64, 10)
        self.register_buffer("scale", torch.ones(64))

    def forward(self, rows, classes):
        return nn.functional.cross_entropy(self.second(self.first(rows).to("cuda") * self.scale), classes)

def build_model():
    return Model().to("cuda")

def make_batch(batch=1, seq=1):
    return torch.randn(batch * seq, 64, device="cuda"), torch.randint(0, 10, (batch * seq,)).cuda()

def make_optimizer(model):
    return torch.optim.AdamW(model.parameters())

def step(model, optimizer, batch):
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(*batch)
    scaler.scale(loss).backward()
    torch.cuda.synchronize()
    scaler.step(optimizer)
    optimizer.zero_grad()
"""
WEIGHTS = (64 * 64 + 64 + 64 * 10 + 10) * 4


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def document(program: Path) -> Any:
    pytest.importorskip("torch", reason="torch is not installed: sweeps need it")
    arguments = ["sweep", str(program), "--batch", "4,64", "--seq", "8", "--warmup", "1", "--steps", "2", "--repeats", "1", "--json"]
    result = CliRunner(catch_exceptions=False).invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_combination_has_its_own_figures(document: Any, program: Path) -> None:
    assert [point["parameters"] for point in document["points"]] == [{"batch": 4, "seq": 8}, {"batch": 64, "seq": 8}]
    for point in document["points"]:
        rows = point["parameters"]["batch"] * 8
        assert point["payload"] == {
            "parameters": WEIGHTS,
            "buffers": 256,
            "gradients": WEIGHTS,
            "optimizer_state": 2 * WEIGHTS,
            "inputs": rows * (64 * 4 + 8),
            "total": 4 * WEIGHTS + 256 + rows * 264,
        }
        run = point["run"]
        assert run["repeats"] == 1
        for spread in ("nanoseconds", "rss_peak", "rss_before", "rss_after"):
            assert 0 < run[spread]["least"] <= run[spread]["middle"] <= run[spread]["most"]
        assert run["rss_before"]["least"] < run["rss_peak"]["most"]
        assert point["problems"] == []
    alone = ls.predict(ls.capture_file(str(program), None, {"batch": 64, "seq": 8}, warmup=1, steps=2).trace).steps[1:]
    for level in ("requested", "allocated", "reserved"):
        told = document["points"][1]["prediction"][level]
        assert told == {"peak": max(getattr(step, level) for step in alone), "end": getattr(alone[-1], f"{level}_after")}


def test_every_key_is_named_in_the_docs(document: Any) -> None:
    assert document["schema"] == "lifecycle-sim/sweep/1"
    named = set(re.findall(r"`([a-z_]+)`", SECTIONS["sweep"] + SHARED))
    own = {key for key in keys_in(document) if key not in ("batch", "seq", "torch", "python")}
    assert own <= named
    assert set(document["figures"]) <= set(re.findall(r"`([a-z_]+)`", SECTIONS["sweep"]))


def _levels() -> Any:
    payload = grid.Payload(1, 2, 3, 4, 5)
    levels = grid.StepLevels("measured steps", 10, 20, 30, 1, 2, 3)
    return grid.Predicted(payload, levels, True, 2, 3, 0.5, 100, {"torch": "2.13.0"})


def _run(nanoseconds: int, rss: int) -> ProcessRun:
    return ProcessRun(2, (nanoseconds, nanoseconds + 2, nanoseconds + 100), rss // 2, rss, rss, False, 1)


def test_a_point_without_a_prediction_gets_none_from_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two points of equal memory here; the capture of one failed. Neither the other's figures nor the process's stand in for it."""

    def capture(_path: str, _function: Any, parameters: Any, **_options: Any) -> Any:
        raise ls.CaptureError("a shape depends on data")

    monkeypatch.setattr(grid, "capture_file", capture)
    monkeypatch.setattr(grid, "run_on_cpu", lambda *_args, **_kwargs: _run(7, 4_000_000))
    sweep = ls.sweep_file("program.py", sizes={"batch": [1, 2]}, repeats=3)
    assert (sweep.fits, sweep.complete) == (None, False)
    (point, _) = sweep_document("program.py", sweep)["points"]
    assert (point["payload"], point["prediction"], point["problems"]) == (None, None, ["not predicted: a shape depends on data"])
    assert point["run"]["rss_peak"] == {"least": 4_000_000, "middle": 4_000_000, "most": 4_000_000}
    assert point["run"]["nanoseconds"]["middle"] == 9


def test_a_run_that_fails_is_told_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def run(_path: str, _function: Any, parameters: Any, **_options: Any) -> ProcessRun:
        tried.append(parameters["batch"])
        if parameters["batch"] == 2:
            raise ls.CaptureError("the process that ran the steps was ended by signal 9 (SIGKILL): nothing of the step is known")
        return _run(10 * len(tried), 1_000_000 * len(tried))

    monkeypatch.setattr(grid, "_predict", lambda _job: _levels())
    monkeypatch.setattr(grid, "run_on_cpu", run)
    sweep = ls.sweep_file("program.py", sizes={"batch": [1, 2, 4]}, repeats=3)
    assert tried == [1, 1, 1, 2, 4, 4, 4]  # the one that failed is not tried again
    assert [len(point.problems) for point in sweep.points] == [0, 1, 0]
    assert (sweep.fits, sweep.complete) == (True, False)
    assert sweep.points[0].nanoseconds == Spread(12, 22, 32)
    assert sweep.points[2].rss == Spread(5_000_000, 6_000_000, 7_000_000)


def test_a_spread_is_an_order_of_what_was_measured() -> None:
    assert Spread.of([5]) == Spread(5, 5, 5)
    assert Spread.of([4, 1, 3, 2]) == Spread(1, 2, 4)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "problem"),
    [
        (["--batch", "1,x"], 2, "'1,x' is no list of sizes: write integers with commas between"),
        (["--batch", "0,-1"], 3, "batch 0 is no size: give integers of 1 or more"),
        (["--batch", "2,2"], 3, "batch has a value twice"),
        (["--batch", "1", "--param", "batch=2"], 3, "batch is given as one value and as several"),
        (["--device", "h1000"], 3, "device 'h1000' is not known"),
        (["--seq", "8", "--repeats", "0", "--param", "width=2"], 3, "no function takes 'width'"),
    ],
)
def test_what_cannot_be_swept_is_told(arguments: list[str], exit_code: int, problem: str, program: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: sweeps need it")
    result = CliRunner().invoke(main, ["sweep", str(program), *arguments])
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert problem in result.stderr


def test_a_card_that_is_too_small_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "_predict", lambda job: replace(_levels(), fits=job.parameters["batch"] < 2))
    result = CliRunner().invoke(main, ["sweep", "program.py", "--batch", "1,2,3", "--repeats", "0"])
    assert result.exit_code == 1, result.output
    assert "It does not fit at batch 2; batch 3." in result.stdout
    assert "A step on the CPU" not in result.stdout
