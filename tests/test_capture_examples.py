"""The examples that ship as Python: what their comments say is so."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import pytest

import lifecycle_sim as ls
from tests.conftest import ROOT

torch: Any = pytest.importorskip("torch", reason="torch is not installed: these examples need it")

EXAMPLES = ROOT / "scenarios" / "capture"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_eight_checks_of_the_adamw_experiment():
    checks = load("adamw_experiment").eight_checks()
    assert [right for _, _, right in checks] == [8, 32, 32, 0, 64, 128, 4, 120_000_000_000_000_000_000]
    assert [(name, found) for name, found, right in checks if found != right] == []


def test_the_experiment_as_a_script():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "adamw_experiment.py"], capture_output=True, text=True, env=_environment(), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("holds") == len(done.stdout.splitlines()) == 8


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("dtype", "master", "size", "total"),
    [(torch.float32, False, 32_768, 131_072), (torch.bfloat16, False, 16_384, 65_536), (torch.bfloat16, True, 16_384, 131_072)],
)
def test_the_shared_linear_layers_when_they_really_train(dtype, master, size, total):
    example = load("shared_linear")
    model = example.SharedLinear().to(dtype)
    optimizer = example.with_master()["make_optimizer"](model) if master else example.make_optimizer(model)
    with ls.record(model, optimizer) as recording:
        for _ in range(2):
            optimizer.zero_grad()
            model(*(rows.to(dtype) for rows in example.make_batch())).backward()
            optimizer.step()
            recording.step()
    (row,) = recording.parameters.rows
    assert (row.objects, row.references, row.elements, row.size) == (1, 2, 8_192, size)
    replayed = ls.replay_device(recording.trace)
    held = {share.key: share.size for share in ls.attribute(replayed, at=len(recording.trace) - 1, by="category").shares}
    assert held == {"parameter": size, "gradient": size, "optimizer_state": total - 2 * size}
    assert recording.parameters.total == total == ls.steady_state(replayed).level


def test_the_master_copy_learns_as_adamw_does():
    example = load("shared_linear")
    ours, theirs = example.SharedLinear(), example.SharedLinear()
    theirs.load_state_dict(ours.state_dict())
    optimizers = example.MasterAdamW(ours.parameters()), torch.optim.AdamW(theirs.parameters())
    for _ in range(5):
        (x,) = example.make_batch()
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
    assert torch.allclose(ours.query.weight, theirs.query.weight, atol=1e-6)
