"""Makes captures in a process of their own: whatever a model does there, and however it ends, nothing here is changed."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import multiprocessing
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pickle import PicklingError
from types import ModuleType
from typing import Any

from lifecycle_sim.errors import CaptureError, InputError, LifecycleError, MissingExtraError
from lifecycle_sim.sources.capture.named import chosen_terms, left_after
from lifecycle_sim.sources.capture.plan import NEWEST, Plan, PlanFile, Recomputed, dtype_name
from lifecycle_sim.sources.capture.profiles import DeviceProfile, find_profile
from lifecycle_sim.sources.capture.record import Capture
from lifecycle_sim.sources.capture.variant import AS_IT_IS, Variant

FORKED, FRESH = "fork", "spawn"
OLDEST = (2, 6)
"""The oldest torch that is supported; the floor of the extra."""
REFUSES_FORK = ("Autograd-and-Fork", "re-initialize CUDA in forked subprocess")
"""What torch says in a fork of a process that used a device."""
SENT = "cannot be sent to a process of their own"


def capture(
    build_model: Callable[[], Any],
    make_batch: Callable[[], Any],
    make_optimizer: Callable[[Any], Any] | None = None,
    step: Callable[[Any, Any, Any], Any] | None = None,
    *,
    device: str | DeviceProfile = "h100",
    dtype: Any = None,
    autocast: Any = None,
    warmup: int = 2,
    steps: int = 1,
    terms: Collection[str] | None = None,
    scalar: float = 0.5,
    selected: float = 1.0,
    operators: bool = True,
    workspace: int | None = None,
    release: str = NEWEST,
    recomputed: Recomputed | None = None,
    variant: Variant = AS_IT_IS,
) -> Capture:
    """Capture steps of a model as a CUDA device would allocate them, without memory or a device.

    The functions run in a process of their own. All tensors that they make are on the device, whatever device they ask for; scalars
    made by ``torch.tensor`` are on the host.

    Args:
        build_model: returns the module; run under ``torch.device("meta")``.
        make_batch: returns the input of a step: a tensor, a tuple or list of arguments, or a mapping of keyword arguments.
        make_optimizer: returns the optimizer of the model; None for inference.
        step: runs a step with the model, the optimizer and a batch. What it returns lives until the next step returns. By default
            forward, backward, ``optimizer.step()`` and ``zero_grad()``, or the forward in inference mode if there is no optimizer.
        device: the card: a name of ``PROFILES``, or a profile.
        dtype: type to convert the model to, such as ``torch.bfloat16`` or ``"bf16"``.
        autocast: low type in which the default step runs its forward under autocast.
        warmup: steps before the measured ones. With 1 or more, optimizer state is there when measuring begins.
        steps: measured steps.
        terms: names of the kernel terms that apply; by default all.
        scalar: what reading a floating-point number from the device gives.
        selected: the share of elements that a mask selects; 1 is an upper bound.
        operators: whether to keep a row for each operator of the measured steps.
        workspace: bytes of a cuBLAS workspace, in place of the card's own.
        release: the PyTorch release to be predicted, where releases are known to differ; operators are always those of the torch installed.
        recomputed: modules that torch is to checkpoint, as :func:`lifecycle_sim.apply` lets it.
        variant: what to change in the program before it is captured. Micro-batches that it accumulates are made by ``make_batch``, each.

    Raises:
        MissingExtraError: torch is not installed.
        CaptureError: a function failed, does what a capture cannot represent, or ended the process.
        InputError: the device or a term is not known, or a module that is to be recomputed.
    """
    plan = Plan(
        build_model,
        make_batch,
        make_optimizer,
        step,
        find_profile(device, workspace),
        dtype_name(dtype, "dtype"),
        dtype_name(autocast, "autocast"),
        warmup,
        steps,
        chosen_terms(terms),
        scalar,
        selected,
        operators,
        release,
        recomputed,
        variant,
    )
    need_torch("capturing a step")
    return _forked_or_fresh(plan) if sys.platform == "linux" else apart(_report, plan, FRESH)


def capture_file(
    path: str,
    function: str | None = None,
    parameters: Mapping[str, int] | None = None,
    *,
    device: str | DeviceProfile = "h100",
    dtype: Any = None,
    autocast: Any = None,
    warmup: int = 2,
    steps: int = 1,
    without: Collection[str] = (),
    workspace: int | None = None,
    release: str = NEWEST,
    recomputed: Recomputed | None = None,
    variant: Variant = AS_IT_IS,
) -> Capture:
    """Capture what the Python file *path* defines, in a fresh process; this process neither runs the file nor imports torch.

    Args:
        path: a file that defines ``build_model`` and ``make_batch``, and ``make_optimizer`` and ``step`` as far as they are needed.
        function: the function in it that returns these as a mapping instead, and may add dtype, autocast, warmup and steps.
        parameters: values by name, such as batch and seq, for those of the functions that take them.
        device: as for :func:`capture`, like all that follow.
        dtype: see there.
        autocast: see there.
        warmup: see there.
        steps: see there.
        without: names of kernel terms to leave out.
        workspace: as for :func:`capture`.
        release: see there.
        recomputed: see there.
        variant: see there; a step's batch, given or by default, is divided by the micro-batches that it accumulates.

    Raises:
        MissingExtraError: torch is not installed.
        CaptureError: the file or a function of it failed, or ended the process.
        InputError: the device or a term is not known, or a module that is to be recomputed.
    """
    profile = find_profile(device, workspace)
    low, kind = dtype_name(autocast, "autocast"), dtype_name(dtype, "dtype")
    plan = Plan(unset, unset, None, None, profile, kind, low, warmup, steps, left_after(without))
    plan = replace(plan, release=release, recomputed=recomputed, variant=variant)
    need_torch("capturing a step")
    return apart(_report, PlanFile(path, function, dict(parameters or {}), plan), FRESH)


def unset() -> None:
    """Stands for a function that a file defines."""


def need_torch(feature: str) -> None:
    """See that torch, which *feature* needs, is installed and not too old.

    Raises:
        MissingExtraError: it is not installed.
        CaptureError: it is older than the oldest release that is supported.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("torch", "torch", feature)
    try:
        installed = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return
    numbers = tuple(int(number) for number in installed.split(".")[:2] if number.isdigit())
    if len(numbers) == len(OLDEST) and numbers < OLDEST:
        floor = ".".join(map(str, OLDEST))
        raise CaptureError(f"torch {installed} is installed, and {feature} needs {floor} or newer: pip install --upgrade 'torch>={floor}'")


def _forked_or_fresh(plan: Plan) -> Capture:
    """Capture in a forked process, which takes any function; in a fresh one where torch refuses to go on in a fork."""
    try:
        return apart(_report, plan, FORKED)
    except CaptureError as error:
        if not any(sign in str(error) for sign in REFUSES_FORK):
            raise
    try:
        return apart(_report, plan, FRESH)
    except CaptureError as error:
        if SENT not in str(error):
            raise
    raise CaptureError(
        "a device has been in use in this process, after which torch does not work in a fork of it, and the functions cannot be sent to a "
        "fresh process: define them at the top level of a module, or capture before the first backward pass, or a file with capture_file"
    )


def apart(report: Callable[[Any, Any], None], plan: Plan | PlanFile, method: str, doing: str = "captured") -> Any:
    """Run *report* in a process of its own and return what it sends; a kind of error and its problems are raised here.

    Args:
        report: sends, over the connection it is given, what it makes of *plan*.
        plan: what it is about.
        method: how the process starts.
        doing: what the process did, for the message if it ends before it sends.
    """
    context = multiprocessing.get_context(method)
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=report, args=(plan, sending), daemon=True)  # type: ignore[attr-defined]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*use of fork\\(\\) may lead to deadlocks.*")
            with _main_left_alone() if isinstance(plan, PlanFile) and method == FRESH else nullcontext():
                process.start()
    except (PicklingError, AttributeError, TypeError) as error:
        raise CaptureError(f"the functions {SENT} ({error}): define them at the top level of a module") from None
    try:
        sending.close()
        said = receiving.recv()
    except EOFError:
        process.join()
        raise CaptureError(f"the process that {doing} {_ending(process.exitcode)}: nothing of the step is known") from None
    finally:
        receiving.close()
        if process.is_alive():
            process.join(5)
        if process.is_alive():
            process.terminate()
            process.join()
    if isinstance(said, tuple):
        kind, problems = said
        raise kind(problems)
    return said


@contextmanager
def _main_left_alone() -> Iterator[None]:
    """Start processes that don't run the main module again: it may be a script that captures without asking for its own name first."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _untested() -> str:
    """What to think of a failure that is neither the user's function's nor foreseen."""
    import torch

    return f"the capture itself failed; torch {torch.__version__} is installed, and {OLDEST[0]}.{OLDEST[1]} to {NEWEST} are known to work: "


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with code {code}"


def _report(plan: Plan | PlanFile, sending: Any) -> None:
    """In the process of its own: make the capture, and send it or what is wrong."""
    say(sending, "perform", "perform", plan)


def say(sending: Any, module: str, function: str, plan: Plan | PlanFile) -> None:
    """Send what *function* of *module*, beside this one, makes of *plan*, or the kind of error and its problems."""
    try:
        make = getattr(importlib.import_module(f"{__package__}.{module}"), function)
        from lifecycle_sim.sources.capture.perform import stage
        from lifecycle_sim.sources.capture.semantics import scalers_on

        if isinstance(plan, PlanFile):
            with stage(plan.path), scalers_on():
                plan = plan.load()
        said: Any = make(plan)
    except InputError as error:
        said = (type(error), error.problems)
    except LifecycleError as error:
        said = (CaptureError, (str(error),))
    except Exception as error:  # torch's inner names come and go with its releases
        frame = traceback.extract_tb(error.__traceback__)[-1]
        said = (CaptureError, (f"{_untested()}{type(error).__name__}: {error} (in {frame.name})",))
    sending.send(said)
    sending.close()
