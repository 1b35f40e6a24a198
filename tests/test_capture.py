"""The way in: captures of functions and of files, what they hold, and how they fail."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

import lifecycle_sim as ls  # noqa: E402
from lifecycle_sim.events import Category, check  # noqa: E402
from lifecycle_sim.sources.capture import PROFILES, find_profile  # noqa: E402
from lifecycle_sim.sources.native import read_jsonl, read_npz, write_jsonl, write_npz  # noqa: E402
from tests.capture_models import ConvNet, Gpt, Mlp, images, rows, tokens  # noqa: E402
from tests.cli_support import json_of, lifecycle_sim  # noqa: E402
from tests.conftest import ROOT  # noqa: E402


def adamw(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters())


@pytest.fixture(scope="module")
def gpt() -> ls.Capture:
    return ls.capture(lambda: Gpt("newer"), tokens, adamw, autocast="bf16", device="a100-80g", warmup=1, steps=2)


def test_a_capture_is_a_sound_trace_that_the_native_formats_keep(gpt: ls.Capture) -> None:
    assert check(gpt.trace) == ()
    assert read_jsonl(write_jsonl(gpt.trace)) == gpt.trace
    assert read_npz(write_npz(gpt.trace)) == gpt.trace
    assert gpt.trace.format == "capture"
    assert str(gpt.trace.evidence) == "simulated"
    header = gpt.trace.settings["capture"]
    assert header["device"]["name"] == "a100-80g"
    assert header["versions"]["torch"] == str(torch.__version__)
    assert [span.name for span in gpt.steps] == ["step 2", "step 3"]


def test_steps_hold_phases_in_their_order(gpt: ls.Capture) -> None:
    spans = gpt.trace.devices[0].spans
    for step in gpt.steps:
        inside = [span for span in spans if span.kind == "phase" and step.start <= span.start < step.stop]
        order = [span.name for span in inside if span.name != "recompute"]
        assert list(dict.fromkeys(order)) == ["forward", "backward", "optimizer"]
        recomputed = [span for span in inside if span.name == "recompute"]
        assert len(recomputed) == 3  # the blocks
        assert all(any(b.name == "backward" and b.start <= r.start and r.stop <= b.stop for b in inside) for r in recomputed)


def test_equal_steps_leave_equal_levels_and_peaks(gpt: ls.Capture) -> None:
    replayed = ls.replay_device(gpt.trace)
    first, second = (replayed.span_peak(step).size for step in gpt.steps)
    assert first == second
    assert ls.steady_state(replayed).level == replayed.timeline.end


def test_owners_are_modules_and_tied_weights_count_once(gpt: ls.Capture) -> None:
    tied = next(row for row in gpt.parameters if len(row.names) > 1)
    assert tied.names == ("token.weight", "head.weight")
    events = gpt.trace.devices[0].events
    size = sum(row.size for row in gpt.parameters)
    assert int(events.size[events.category == Category.PARAMETER].sum()) == size == 4 * sum(p.numel() for p in Gpt().parameters())
    owners = {share.key for share in ls.attribute(ls.replay_device(gpt.trace), "owner", top=None).shares}
    assert "<blocks.1.up> setup" in owners


def test_operators_have_flops_and_saved_sets(gpt: ls.Capture) -> None:
    products = [row for row in gpt.operators if row.flops]
    assert {row.phase for row in products} == {"forward", "backward", "recompute"}
    saved = gpt.saved
    assert saved
    numbers = set(gpt.trace.devices[0].events.address.tolist())
    assert saved <= numbers
    assert all(set(row.reads) | set(row.writes) <= numbers for row in gpt.operators)


def test_the_same_capture_twice_is_the_same_trace() -> None:
    first, second = (ls.capture(Mlp, rows, adamw, warmup=0) for _ in range(2))
    assert write_npz(first.trace) == write_npz(second.trace)


def test_workspaces_follow_the_card_and_can_be_left_out() -> None:
    def workspaces(**options: Any) -> list[int]:
        trace = ls.capture(Mlp, rows, adamw, warmup=0, operators=False, **options).trace
        events = trace.devices[0].events
        return events.size[events.label == trace.labels.index("cublas_workspace")].tolist() if "cublas_workspace" in trace.labels else []

    assert workspaces(device="h100") == [33_554_432] * 2
    assert workspaces(device="L4", workspace=4096) == [4096] * 2
    assert workspaces(device="l4", terms=()) == []
    assert find_profile("A100").cublas_workspace == 8_519_680 == PROFILES["rtx5090"].cublas_workspace


def test_convolutions_have_an_upper_bound_and_say_so() -> None:
    captured = ls.capture(ConvNet, images, adamw, warmup=1)
    peak = ls.replay_device(captured.trace).span_peak(captured.steps[0]).size
    assert peak < captured.upper[0] <= peak + 136_314_880
    assert "convolution_workspace" in {assumption.code for assumption in captured.trace.assumptions}


def test_inference_without_an_optimizer() -> None:
    captured = ls.capture(Mlp, rows, warmup=1)
    events = captured.trace.devices[0].events
    assert not set(events.category.tolist()) & {Category.GRADIENT, Category.OPTIMIZER_STATE, Category.ACTIVATION}


def test_devices_in_user_code_mean_the_captured_one() -> None:
    def batch() -> tuple[Any, Any]:
        return torch.randn(8, 32, device="cuda"), torch.randint(0, 16, (8,)).to("cuda:0").cuda()

    class Placed(Mlp):
        def __init__(self) -> None:
            super().__init__()
            self.layers[0] = torch.nn.Linear(32, 64, device="cuda")
            self.layers[2] = torch.nn.LayerNorm(64, device=torch.device("cuda", 0))
            self.layers[4].bias = torch.nn.Parameter(torch.zeros(16).to("cuda"))

        def forward(self, x: Any, target: Any) -> Any:
            return torch.nn.functional.cross_entropy(self.layers(x).to("cuda"), target)

    Placed.__name__ = Mlp.__name__
    plain = ls.capture(Mlp, rows, adamw, warmup=0)
    moved = ls.capture(lambda: Placed().to("cuda"), batch, adamw, warmup=0)
    assert write_npz(moved.trace) == write_npz(plain.trace)


def test_a_step_in_a_file_may_call_its_batch_batch(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "def build_model(): return torch.nn.Linear(8, 8)\n"
        "def make_batch(batch=1): return torch.ones(batch, 8)\n"
        "def make_optimizer(seq): return torch.optim.SGD(seq.parameters(), 0.1)\n"
        "def step(model, optimizer, batch): model(batch).sum().backward(); optimizer.step(); optimizer.zero_grad()\n"
    )
    events = ls.capture_file(str(program), parameters={"batch": 5}, warmup=0).trace.devices[0].events
    assert events.size[events.category == Category.INPUT].tolist() == [5 * 8 * 4] * 2
    with pytest.raises(ls.CaptureError, match="no function takes 'seq'"):
        ls.capture_file(str(program), parameters={"seq": 5}, warmup=0)


def test_a_scaler_scales_and_what_it_reads_is_assumed() -> None:
    def step(model: Any, optimizer: Any, batch: Any) -> None:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(*batch)
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    captured = ls.capture(Mlp, rows, adamw, step, warmup=0)
    assert "gradients_finite" in {assumption.code for assumption in captured.trace.assumptions}
    events = captured.trace.devices[0].events
    assert Category.OPTIMIZER_STATE in events.category


def _fails(_model: Any, _optimizer: Any, _batch: Any) -> None:
    raise ValueError("wrong\nshape")


def _dies(_model: Any, _optimizer: Any, _batch: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _scores(_model: Any, _optimizer: Any, batch: Any) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    heads = batch[0].view(1, 1, *batch[0].shape)
    flex_attention(heads, heads, heads)


def _depends(model: Any, _optimizer: Any, batch: Any) -> None:
    torch.unique(batch[1])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"step": _fails}, r"^step failed with ValueError: wrong shape \(.*test_capture.py:\d+, in _fails\)$"),
        ({"step": _dies}, r"^the process that captured was ended by signal 9 \(SIGKILL\): nothing of the step is known$"),
        ({"step": _depends}, r"^the operator aten._unique2.default gives a shape that depends on data"),
        (
            {"step": _scores},
            r"^step uses flex_attention, .*: take scaled_dot_product_attention in .* \(.*test_capture.py:\d+, in _scores\)$",
        ),
        ({"device": "h1000"}, r"^device 'h1000' is not known: did you mean 'h100'\?"),
        ({"terms": ("nothing",)}, r"^term 'nothing' is not known: the terms are cublas_workspace"),
        ({"autocast": "int8"}, r"^autocast 'int8' is not known: choose one of float32"),
        ({"warmup": -1, "steps": 0}, r"^warmup is -1.*\nsteps is 0"),
    ],
)
def test_what_fails_is_told_in_one_line_each(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ls.InputError, match=problem):
        ls.capture(Mlp, rows, adamw, **options)


def test_a_model_without_a_loss() -> None:
    with pytest.raises(ls.CaptureError, match=r"the model returned a tensor of shape \(8, 32\) and no scalar loss"):
        ls.capture(torch.nn.Identity, lambda: torch.randn(8, 32), lambda _model: torch.optim.SGD([torch.zeros(1)]), warmup=0)


@pytest.mark.parametrize("program", ["mlp.py", "gpt.py:checkpointed"])
def test_the_command_writes_a_trace_that_the_others_read(program: str, tmp_path: Path) -> None:
    path = tmp_path / "step.npz"
    seq = ["--seq", 64] if program.startswith("gpt") else []
    arguments = ["capture", ROOT / "scenarios" / "capture" / program, "--batch", 2, *seq, "--warmup", 1, "-o", path]
    result = lifecycle_sim(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    (device,) = json_of(result)["devices"]
    trace = ls.read_trace(path)
    replayed = ls.replay_device(trace)
    step = [span for span in trace.devices[0].spans if span.kind == "step"][1]
    assert device["steps"][0]["requested"]["peak"] == replayed.span_peak(step).size
    assert device["steps"][0]["reserved"]["peak"] >= device["steps"][0]["allocated"]["peak"] >= device["steps"][0]["requested"]["peak"]
    assert lifecycle_sim(*arguments).returncode == 2  # it is there already


MISFIT = """
import torch

def build_model(): return torch.nn.Linear(3, 3)
def make_batch(): return torch.randn(2, 4)
"""


@pytest.mark.parametrize(
    ("text", "more", "problem"),
    [
        ("x = 1\n", [], "defines no function build_model(): see"),
        ("def build_model(): pass\ndef make_batch(): pass\n", ["--batch", "2"], "no function takes 'batch'"),
        ("1 / 0\n", [], "failed with ZeroDivisionError: division by zero"),
        ("import nowhere_to_be_found\n", [], "failed with ModuleNotFoundError"),
        (MISFIT, [], "the model's step failed with RuntimeError: a and b must have same reduction dim, but got [2, 4] X [3, 3]."),
    ],
)
def test_a_file_that_cannot_be_captured(text: str, more: list[str], problem: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(text)
    result = lifecycle_sim("capture", program, *more, "-o", tmp_path / "step.npz")
    assert result.returncode == 3
    _, *said = result.stderr.splitlines()  # what it does, and a line for each thing that is wrong
    assert problem in said[0]
    assert all(line.startswith("error: ") for line in said)


def test_a_script_may_capture_a_file_without_asking_for_its_own_name(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    mlp = ROOT / "scenarios" / "capture" / "mlp.py"
    script.write_text(f"import lifecycle_sim as ls\nprint(len(ls.capture_file({str(mlp)!r}, warmup=0).steps))\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_kernels_of_others_are_labelled() -> None:
    with torch.library._scoped_library("lifecycle_sim_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        library.impl("twice", torch.empty_like, "Meta")
        captured = ls.capture(Mlp, rows, None, lambda _model, _optimizer, batch: torch.ops.lifecycle_sim_test.twice(batch[0]), steps=2)
    (found,) = [each for each in captured.trace.assumptions if each.code == "foreign_operators"]
    assert found.count == 4  # two steps of warm-up, two measured
    assert "(lifecycle_sim_test::twice): what they return counts" in found.text


def test_work_areas_of_libraries_are_labelled() -> None:
    def step(_model: Any, _optimizer: Any, batch: Any) -> Any:
        return torch.fft.rfft(batch[0]), torch.linalg.vector_norm(batch[0]), torch.linalg.qr(batch[0])

    captured = ls.capture(Mlp, rows, None, step, warmup=0)
    (found,) = [each for each in captured.trace.assumptions if each.code == "library_workspaces"]
    assert found.count == 2
    assert "(aten::_fft_r2c, aten::linalg_qr)" in found.text


def _refuses_a_fork(model: Any, optimizer: Any, batch: Any) -> None:
    if type(multiprocessing.current_process()).__name__ == "ForkProcess":
        raise RuntimeError("Unable to handle autograd's threading in combination with fork-based multiprocessing. See …/Autograd-and-Fork")
    model(*batch).backward()


def test_where_torch_refuses_to_go_on_in_a_fork_the_process_is_a_fresh_one() -> None:
    captured = ls.capture(Mlp, rows, adamw, _refuses_a_fork, warmup=0)
    assert [span.kind for span in captured.steps] == ["step"]
    with pytest.raises(ls.CaptureError, match=r"a device has been in use in this process, .* define them at the top level of a module"):
        ls.capture(Mlp, rows, adamw, lambda *given: _refuses_a_fork(*given), warmup=0)


@pytest.mark.parametrize("ask", [lambda: ls.capture(Mlp, rows), lambda: ls.record(Mlp()), lambda: ls.params(Mlp())])
def test_a_torch_that_is_too_old_is_refused(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "2.5.1+cu124")
    with pytest.raises(
        ls.CaptureError, match=r"^torch 2.5.1\+cu124 is installed, and .* needs 2.6 or newer: pip install --upgrade 'torch>=2.6'$"
    ):
        ask()


def _misses_a_name(_model: Any) -> Any:
    raise AttributeError("no attribute '_foreach_supported_types'")


def test_what_torch_no_longer_has_is_told_with_its_release(monkeypatch: pytest.MonkeyPatch) -> None:
    from lifecycle_sim.sources.capture import perform

    monkeypatch.setattr(perform, "to_fake", lambda _mode, model: _misses_a_name(model))  # a fork keeps it
    with pytest.raises(
        ls.CaptureError, match=rf"^the capture itself failed; torch {re.escape(torch.__version__)} is .*\(in _misses_a_name\)$"
    ):
        ls.capture(Mlp, rows, adamw, warmup=0)


def test_a_step_of_ones_own_is_told_which_micro_batch_is_the_last() -> None:
    def step(model: Any, optimizer: Any, batch: Any, update: bool) -> None:
        model(batch).sum().backward()
        if update:
            optimizer.step()
            optimizer.zero_grad()

    def plain(model: Any, optimizer: Any, batch: Any) -> None:
        model(batch).sum().backward()

    def made() -> Any:
        return torch.nn.Linear(16, 16)

    def batch() -> Any:
        return torch.randn(4, 16)

    captured = ls.capture(made, batch, adamw, step, warmup=1, variant=ls.Variant(accumulate=3))
    names = [row.name for row in captured.operators]
    assert sum(name.startswith("aten.addmm") for name in names) == 3
    last = captured.steps[-1]
    phases = [span.name for span in captured.trace.devices[0].spans if span.kind == "phase" and last.start <= span.start < last.stop]
    assert phases.count("optimizer") == 1
    with pytest.raises(ls.CaptureError, match="3 micro-batches a step do not go with a step of its own without a parameter update"):
        ls.capture(made, batch, adamw, plain, variant=ls.Variant(accumulate=3))


def test_what_a_step_is_given_is_no_parameter_of_a_file(tmp_path: Path) -> None:
    """``step(model, optimizer, batch)`` is given a batch; a parameter called batch as well is another one's."""
    from lifecycle_sim.sources.capture.plan import Plan, PlanFile

    text = "def build_model(): return 'm'\ndef make_batch(batch=1): return batch\n"
    text += "def make_optimizer(batch, lr=1): return batch, lr\n"
    text += "def step(model, optimizer, batch, more=0): return model, optimizer, batch, more\n"
    path = tmp_path / "program.py"
    path.write_text(text)
    plan = Plan(str, str, None, None, find_profile("t4", None))
    made: Any = PlanFile(str(path), None, {"batch": 7, "lr": 5, "more": 3}, plan).load()
    assert (made.make_batch(), made.make_optimizer("model")) == (7, ("model", 5))
    assert made.step("model", "optimizer", "rows") == ("model", "optimizer", "rows", 3)
    path.write_text(text.replace("make_batch(batch=1): return batch", "make_batch(): return 1"))
    with pytest.raises(ls.CaptureError, match="no function takes 'batch'"):
        PlanFile(str(path), None, {"batch": 7}, plan).load()
