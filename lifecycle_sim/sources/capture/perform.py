"""Makes a capture, in the process that calls it: the one that may die."""

from __future__ import annotations

import gc
import platform
import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from lifecycle_sim.errors import CaptureError
from lifecycle_sim.events import Assumption
from lifecycle_sim.program.stored_steps import stored_graphs
from lifecycle_sim.sources.capture.answers import Answers
from lifecycle_sim.sources.capture.assemble import assemble, upper_peaks
from lifecycle_sim.sources.capture.building import build_on_meta, flatten_recurrent, moves_left_out, to_fake
from lifecycle_sim.sources.capture.changing import InBackward, freeze, optimizer_called
from lifecycle_sim.sources.capture.checkpointing import checkpoint_modules
from lifecycle_sim.sources.capture.plan import UPDATE, Plan, Recomputed, takes_update
from lifecycle_sim.sources.capture.record import Capture, ParameterRow, TermUse
from lifecycle_sim.sources.capture.semantics import Cuda
from lifecycle_sim.sources.capture.stepping import inference_step, training_step
from lifecycle_sim.sources.capture.terms import KernelTerms
from lifecycle_sim.sources.capture.tracker import Tracker

OURS = Path(__file__).resolve().parents[2]
TORCH = Path(torch.__file__).resolve().parent
HIGHER = re.compile(r"HigherOrderOperator (\w+)|FlexAttention does not support")
"""What torch says of operators that only a compiler makes kernels for."""


def perform(plan: Plan) -> Capture:
    """Make the capture *plan* in this process, and return it.

    Raises:
        CaptureError: a function of the plan failed, or does what a capture cannot represent.
        InputError: the model has no module that is to be recomputed.
    """
    began = time.perf_counter()
    torch.set_num_threads(1)
    with stage("build_model"):
        model = build_on_meta(plan.build_model, None if plan.dtype is None else getattr(torch, plan.dtype))
    if not isinstance(model, torch.nn.Module):
        raise CaptureError(f"build_model returned a {type(model).__name__}: return a torch.nn.Module")
    variant = plan.variant
    if plan.make_optimizer is None and not variant.changes_nothing:
        raise CaptureError(f"{', '.join(variant.told())}: the program defines no make_optimizer, so that it does not train")
    freeze(model, variant.freeze)
    if plan.recomputed is not None:
        checkpoint_modules(model, plan.recomputed)
    recurrent = flatten_recurrent(model) if torch.backends.cudnn.enabled else 0
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    to_fake(mode, model)
    cuda, answers = Cuda(plan.profile, plan.release), Answers(plan.scalar, plan.selected)
    cuda.skipped["recurrent_layers"] = recurrent
    tracker = Tracker(
        answers,
        lambda ledger, where: KernelTerms(ledger, where, plan.profile, plan.terms),
        cuda.run,
        cuda.scalars_on_host,
        cuda.composites,
        graph=plan.operators and plan.make_optimizer is not None,
    )
    if tracker.graph is not None:
        tracker.graph.follow(cuda.casts)
    with mode, cuda.installed(), moves_left_out(), _collected_between_steps() as collect, tracker:
        _run(plan, model, tracker, collect)
    return _capture(plan, model, tracker, cuda, answers, time.perf_counter() - began)


def _run(plan: Plan, model: Any, tracker: Tracker, collect: Callable[[], None]) -> None:
    tracker.watch_model(model)
    optimizer = None
    if plan.make_optimizer is not None:
        with stage("make_optimizer"):
            optimizer = _optimizer(plan, model)
    step, count = plan.step, plan.variant.accumulate
    low = None if plan.autocast is None else getattr(torch, plan.autocast)
    if step is None:
        step = partial(inference_step, autocast=low) if optimizer is None else partial(training_step, autocast=low, share=count)
    for number in range(plan.warmup + plan.steps):
        tracker.keeps_rows = plan.operators and number >= plan.warmup
        start = tracker.begin_step()
        for last in (False,) * (count - 1) + (True,):
            batch = _made(plan, tracker)
            with stage("step" if plan.step is not None else "the model's step"):
                more = {UPDATE: last} if takes_update(step) else {}
                kept = step(model, optimizer, batch, **more)  # a training loop's variable: it lives until the next returns  # noqa: F841
        del batch
        collect()
        tracker.end_step(start)
    if tracker.graph is not None:
        tracker.graph.forget()
    tracker.identities.forget()  # what goes when this function ends is not the program's doing


def _made(plan: Plan, tracker: Tracker) -> Any:
    """The batch of a step, or of a part of it."""
    with stage("make_batch"):
        batch = plan.make_batch()
    tracker.watch_inputs(batch)
    return batch


def _optimizer(plan: Plan, model: Any) -> Any:
    """The program's optimizer, or the one that stands in its place."""
    variant = plan.variant
    if variant.optimizer is not None:
        optimizer = optimizer_called(variant.optimizer, model)
    else:
        optimizer = None if plan.make_optimizer is None else plan.make_optimizer(model)
    return InBackward(optimizer) if variant.in_backward else optimizer


@contextmanager
def _collected_between_steps() -> Iterator[Callable[[], None]]:
    """Let reference cycles go between steps and at no other time, so that the same step always gives the same trace."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()  # what is there already need not be looked through again
    gc.disable()
    try:
        yield _collect
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


def _collect() -> None:
    gc.collect()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Turn what fails inside into one line: which function, what, and the user's own line."""
    try:
        yield
    except CaptureError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not _is_foreign(frame.filename)]
        where = f" ({own[-1].filename}:{own[-1].lineno}, in {own[-1].name})" if own else ""
        said = " ".join(str(error).split())
        higher = HIGHER.search(said) if isinstance(error, NotImplementedError) else None
        if higher is not None:
            operator = higher.group(1) or "flex_attention"
            hint = ": take scaled_dot_product_attention in the captured step" if operator == "flex_attention" else ""
            raise CaptureError(f"{name} uses {operator}, whose compiled kernels a capture cannot represent{hint}{where}") from error
        raise CaptureError(f"{name} failed with {type(error).__name__}{': ' if said else ''}{said[:500]}{where}") from error


def _is_foreign(filename: str) -> bool:
    path = Path(filename).resolve()
    return filename.startswith("<") or OURS in path.parents or TORCH in path.parents


def _capture(plan: Plan, model: Any, tracker: Tracker, cuda: Cuda, answers: Answers, seconds: float) -> Capture:
    ledger, terms = tracker.ledger, tracker.terms
    uses: tuple[TermUse, ...] = () if terms is None else terms.uses()
    measured = ledger.steps[plan.warmup :]
    upper = upper_peaks(ledger, measured, [] if terms is None else terms.intervals)
    versions = {"torch": str(torch.__version__), "python": platform.python_version()}
    graphs = () if tracker.graph is None else tracker.graph.graphs(f"step {number}" for number in range(1, len(ledger.steps) + 1))
    header = _header(plan, uses, upper, versions) | ({"graph": stored_graphs(graphs)} if graphs else {})
    trace = assemble(
        ledger,
        capacity=plan.profile.capacity,
        release=plan.release,
        settings={"capture": header},
        assumptions=[*answers.assumptions(), *cuda.assumptions(), *_without_value(uses)],
    )
    saved = frozenset(number for number, storage in enumerate(ledger.storages) if storage.saved)
    return Capture(
        trace,
        plan.profile,
        plan.warmup,
        uses,
        parameter_rows(model),
        tuple(tracker.rows),
        saved,
        upper,
        seconds,
        most_memory(),
        versions,
    )


def _without_value(uses: tuple[TermUse, ...]) -> list[Assumption]:
    return [
        Assumption(use.term.name, use.count, f"{use.term.rule}: counted as nothing; it may be up to this much at a time", use.term.upper)
        for use in uses
        if use.term.upper is not None and use.count
    ]


def _header(plan: Plan, uses: tuple[TermUse, ...], upper: tuple[int, ...], versions: dict[str, str]) -> dict[str, Any]:
    profile, switches = plan.profile, torch.backends
    return {
        "versions": versions,
        "device": {
            "name": profile.name,
            "architecture": profile.architecture,
            "processors": profile.processors,
            "threads": profile.threads,
            "capacity": profile.capacity,
            "cublas_workspace": profile.cublas_workspace,
        },
        "warmup": plan.warmup,
        "steps": plan.steps,
        "dtype": plan.dtype,
        "autocast": plan.autocast,
        **({} if plan.recomputed is None else {"recomputed": _recomputed(plan.recomputed)}),
        "variant": list(plan.variant.told()),
        "execution": "eager",
        "release": plan.release,
        "switches": {
            "flash_attention": switches.cuda.flash_sdp_enabled(),
            "efficient_attention": switches.cuda.mem_efficient_sdp_enabled(),
            "math_attention": switches.cuda.math_sdp_enabled(),
            "cudnn": switches.cudnn.enabled,
        },
        "answers": {"scalar": plan.scalar, "selected": plan.selected},
        "terms": [
            {
                "name": use.term.name,
                "rule": use.term.rule,
                "source": use.term.source,
                "count": use.count,
                "most": use.most if use.term.upper is None else None,
                "interval": None if use.term.upper is None else [0, use.term.upper],
            }
            for use in uses
        ],
        "upper_peaks": list(upper),
    }


def _recomputed(asked: Recomputed) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(asked).items()}


def parameter_rows(model: Any) -> tuple[ParameterRow, ...]:
    """Return the parameters and buffers of *model*, each once, in the order of their first names."""
    names: dict[int, list[str]] = {}
    found: dict[int, tuple[Any, bool]] = {}
    for buffer, named in ((False, model.named_parameters), (True, model.named_buffers)):
        for name, tensor in named(remove_duplicate=False):
            names.setdefault(id(tensor), []).append(name)
            found.setdefault(id(tensor), (tensor, buffer))
    return tuple(
        ParameterRow(
            names[key][0],
            tuple(names[key]),
            tuple(tensor.shape),
            str(tensor.dtype).removeprefix("torch."),
            tensor.numel() * tensor.element_size(),
            bool(tensor.requires_grad),
            buffer,
        )
        for key, (tensor, buffer) in found.items()
    )


def most_memory() -> int:
    """Return the most bytes that this process ever held in memory; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if platform.system() == "Darwin" else most * 1024)
