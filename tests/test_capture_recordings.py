"""Captures against CUDA: recordings of a real card, and PyTorch's own CUDA code under a driver that does nothing. To the byte."""

from __future__ import annotations

import importlib.util
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

import lifecycle_sim as ls  # noqa: E402
from lifecycle_sim.events import Kind  # noqa: E402

WARMUP = 5
REFERENCE = {
    # requested bytes: before the measured step, at its peak, after it
    ("train", 128): (5_095_321_600, 7_013_335_044, 6_808_535_044),
    ("train", 256): (5_095_403_520, 9_103_544_320, 6_829_096_964),
    ("train", 512): (5_095_567_360, 12_426_629_128, 6_829_260_804),
    ("inference", 128): (1_701_310_464, 1_736_962_048, 1_701_310_464),
    ("inference", 1024): (1_701_711_872, 2_877_435_904, 1_701_711_872),
}
BLOCKS = {
    # allocated and reserved bytes at their peaks in the recorded step, and by how much the prediction is more: what ran before is not known
    ("train", 128): ((7_026_606_592, 0), (7_235_174_400, 41_943_040)),
    ("train", 256): ((9_113_374_720, 0), (9_265_217_536, 0)),
    ("train", 512): ((12_434_494_464, -1_343_488), (12_660_506_624, -25_165_824)),
    ("inference", 128): ((1_738_928_128, 0), (1_763_704_832, 20_971_520)),
    ("inference", 1024): ((2_879_401_984, 0), (3_204_448_256, 0)),
}
STUB_JOBS = ("gpt2_bf16_flash_adamw", "gpt2_fp32_efficient_adamw", "gpt2_bf16_checkpointed", "encoder_fp32_adam_clip", "resnet_fp32_sgd")


def tool(shared: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, shared / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stub_job(jobs: Any, name: str, steps: int, **more: Any) -> ls.Capture:
    """Capture a job of the stub driver as it was recorded: without cuDNN, from the first step on."""
    job = jobs.JOBS[name]
    options = {key: value for key, value in job.items() if key not in ("build", "batch", "optimizer")}

    def step(model: Any, optimizer: Any, _batch: None) -> None:
        torch.backends.cudnn.enabled = False
        jobs.train_step(model, optimizer, job["batch"], **options)

    return ls.capture(
        lambda: job["build"]().train(),
        lambda: None,
        lambda model: job["optimizer"]([parameter for parameter in model.parameters() if parameter.requires_grad]),
        step,
        warmup=0,
        steps=steps,
        **more,
    )


def reference_job(lm: Any, kind: str, context: int) -> ls.Capture:
    """The program of the recordings: five steps of warm-up, then the one that was recorded."""
    held: dict[str, Any] = {"step": 0}

    def batch() -> tuple[Any, ...]:
        if "inputs" not in held:
            shapes = [(WARMUP, 4, context), (1, 4, context)] * (2 if kind == "train" else 1)
            held["inputs"] = [torch.randint(0, 10_000, shape) for shape in shapes]
        number = held["step"]
        held["step"] += 1
        tensors = held["inputs"][number // WARMUP :: 2]
        return tuple(tensor[number % WARMUP] for tensor in tensors)

    def train(model: Any, optimizer: Any, inputs: tuple[Any, ...]) -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16) if context >= 512 else nullcontext():
            out = model(inputs[0])
            loss = lm.loss_of(out, inputs[1])
        loss.backward()
        optimizer.step()
        held["kept"] = out, loss
        if held["step"] <= WARMUP:
            optimizer.zero_grad()
        if held["step"] == WARMUP:
            held["kept"] = None

    def infer(model: Any, _optimizer: Any, inputs: tuple[Any, ...]) -> None:
        with torch.inference_mode():
            held["kept"] = model(inputs[0])
            if held["step"] >= WARMUP:
                held["kept"] = None

    make_optimizer, step = (lambda model: lm.AdamW(model.parameters()), train) if kind == "train" else (None, infer)
    return ls.capture(lambda: lm.LM(context, **lm.CONFIG), batch, make_optimizer, step, device="rtx5090", warmup=WARMUP, operators=False)


@pytest.mark.parametrize(("kind", "context"), REFERENCE, ids=[f"{kind}-{context}" for kind, context in REFERENCE])
def test_the_reference_job_is_predicted_to_the_byte_and_event_by_event(shared: Path, kind: str, context: int) -> None:
    captured = reference_job(tool(shared, "reference_lm"), kind, context)
    replayed = ls.replay_device(captured.trace)
    (step,) = captured.steps
    level = replayed.timeline.at
    assert (level(step.start - 1), replayed.span_peak(step).size, level(step.stop - 1)) == REFERENCE[kind, context]
    assert captured.upper == (REFERENCE[kind, context][1],)
    predicted = ls.predict(captured.trace).steps[-1]
    assert (predicted.allocated, predicted.reserved) == tuple(recorded + error for recorded, error in BLOCKS[kind, context])

    recorded = ls.read_trace(shared / f"data/snapshots/lm_medium_ctx{context}_{kind}.pickle").devices[0].events
    chosen = (recorded.kind == Kind.ALLOC) | (recorded.kind == Kind.FREE_COMPLETED)
    rest = iter(zip((recorded.kind[chosen] == Kind.ALLOC).tolist(), recorded.size[chosen].tolist(), strict=True))
    mine = captured.trace.devices[0].events
    for kind_of, size in zip(mine.kind[step.start : step.stop].tolist(), mine.size[step.start : step.stop].tolist(), strict=True):
        assert (kind_of == Kind.ALLOC, size) in rest  # which moves on to the first that is equal


@pytest.mark.parametrize("name", STUB_JOBS)
def test_jobs_under_a_stub_driver_are_predicted_to_the_byte(shared: Path, name: str) -> None:
    jobs = tool(shared, "stub_jobs")
    truth = json.loads((shared / "data" / "stub_jobs.json").read_text())[name]["steps"]
    captured = stub_job(jobs, name, len(truth), operators=False)
    predicted = ls.predict(captured.trace, capacity=80 * 2**30)
    for found, recorded in zip(predicted.steps, truth, strict=True):
        for level in ("requested", "allocated", "reserved"):
            told = {"peak": getattr(found, level), "after": getattr(found, f"{level}_after")}
            assert told == recorded[f"{level}_bytes"], level
