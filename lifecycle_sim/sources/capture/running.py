"""Runs the steps of a plan for real on the CPU, in the process that calls it, and measures them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from torch.utils import _device as devices

from lifecycle_sim.errors import CaptureError
from lifecycle_sim.sources.capture.building import moves_left_out
from lifecycle_sim.sources.capture.perform import most_memory, stage
from lifecycle_sim.sources.capture.plan import Plan
from lifecycle_sim.sources.capture.process import ProcessRun
from lifecycle_sim.sources.capture.redirect import here, moved_here, replace
from lifecycle_sim.sources.capture.stepping import inference_step, training_step

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
FORGET_PEAK = "5"
"""Written to ``clear_refs``, it sets the most resident memory to what is resident now (Linux, ``proc(5)``)."""


def run_plan(plan: Plan) -> ProcessRun:
    """Run the steps of *plan* on the CPU and return how long they took and what the process held.

    Raises:
        CaptureError: a function of the plan failed.
    """
    with on_cpu():
        return _run(plan)


def _run(plan: Plan) -> ProcessRun:
    before = resident()
    with stage("build_model"):
        model = plan.build_model()
    if not isinstance(model, torch.nn.Module):
        raise CaptureError(f"build_model returned a {type(model).__name__}: return a torch.nn.Module")
    if plan.dtype is not None:
        model = model.to(getattr(torch, plan.dtype))
    optimizer = None
    if plan.make_optimizer is not None:
        with stage("make_optimizer"):
            optimizer = plan.make_optimizer(model)
    step = plan.step
    if step is None:
        low = None if plan.autocast is None else getattr(torch, plan.autocast)
        step = partial(inference_step if optimizer is None else training_step, autocast=low)
    took = []
    since_start = True
    for number in range(plan.warmup + plan.steps):
        if number == plan.warmup:
            gc.collect()
            since_start = not _forget_peak()
        with stage("make_batch"):
            batch = plan.make_batch()
        with stage("step" if plan.step is not None else "the model's step"):
            began = time.perf_counter_ns()
            kept = step(model, optimizer, batch)  # as a variable of a training loop: it lives until the next step returns  # noqa: F841
            ended = time.perf_counter_ns()
        del batch
        if number >= plan.warmup:
            took.append(ended - began)
    peak = most_memory() if since_start else _status("VmHWM")
    return ProcessRun(plan.warmup, tuple(took), before, resident(), peak, since_start, torch.get_num_threads())


def resident() -> int:
    """Return the resident bytes of this process; where the system does not tell, the most it ever had."""
    return _status("VmRSS") or most_memory()


def _status(name: str) -> int:
    with suppress(OSError):
        for line in STATUS.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> bool:
    """Let the most resident memory be that from now on; whether the system can."""
    try:
        CLEAR.write_text(FORGET_PEAK)
    except OSError:
        return False
    return _status("VmHWM") > 0


@contextmanager
def on_cpu() -> Iterator[None]:
    """Let ``"cuda"`` mean the CPU inside the block: in factories, moves of modules and tensors, autocast and scalers."""
    with ExitStack() as undo:
        undo.enter_context(moves_left_out())
        for make in devices._device_constructors():
            owner = next((each for each in (torch, torch.fft) if getattr(each, make.__name__, None) is make), None)
            if owner is not None:
                replace(undo, owner, make.__name__, _made_here(make))
        replace(undo, torch.Tensor, "cuda", lambda tensor, *_args, **_kwargs: tensor)
        replace(undo, torch.Tensor, "to", moved_here(torch.Tensor.to))
        for owner in (torch.autocast, torch.amp.GradScaler):
            replace(undo, owner, "__init__", _begun_here(owner.__init__))
        replace(undo, torch.cuda, "synchronize", lambda *_args: None)
        yield


def _made_here(make: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs["device"] = here(kwargs["device"])
        return make(*args, **kwargs)

    return made


def _begun_here(begin: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(begin)
    def begun(made: Any, *args: Any, **kwargs: Any) -> None:
        for name in ("device", "device_type"):
            if name in kwargs:
                kwargs[name] = here(kwargs[name])
        if args:
            args = (here(args[0]), *args[1:])
        begin(made, *args, **kwargs)

    return begun
