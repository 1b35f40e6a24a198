"""Makes captures in a process of their own: whatever a model does there, and however it ends, nothing here is changed."""

from __future__ import annotations

import importlib.util
import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from pickle import PicklingError
from typing import Any

from lifecycle_sim.errors import CaptureError, InputError, LifecycleError, MissingExtraError
from lifecycle_sim.sources.capture.named import chosen_terms, left_after
from lifecycle_sim.sources.capture.plan import NEWEST, Plan, PlanFile, dtype_name
from lifecycle_sim.sources.capture.profiles import DeviceProfile, find_profile
from lifecycle_sim.sources.capture.record import Capture

FORKED, FRESH = "fork", "spawn"


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
    accumulate: int = 1,
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
        accumulate: micro-batches of a step, each from a call of *make_batch*; a *step* must have a parameter ``update`` for that, which is
            true for the last micro-batch, after which the optimizer steps.

    Raises:
        MissingExtraError: torch is not installed.
        CaptureError: a function failed, does what a capture cannot represent, or ended the process.
        InputError: the device or a term is not known.
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
        accumulate,
    )
    _need_torch()
    return _apart(plan, FORKED if sys.platform == "linux" else FRESH)


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
    accumulate: int = 1,
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
        accumulate: see there.

    Raises:
        MissingExtraError: torch is not installed.
        CaptureError: the file or a function of it failed, or ended the process.
        InputError: the device or a term is not known.
    """
    profile = find_profile(device, workspace)
    low, kind = dtype_name(autocast, "autocast"), dtype_name(dtype, "dtype")
    plan = Plan(_unset, _unset, None, None, profile, kind, low, warmup, steps, left_after(without), release=release, accumulate=accumulate)
    _need_torch()
    return _apart(PlanFile(path, function, dict(parameters or {}), plan), FRESH)


def _unset() -> None:
    """Stands for a function that a file defines."""


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("torch", "torch", "capturing a step")


def _apart(plan: Plan | PlanFile, method: str) -> Capture:
    """Run :func:`_report` in a process of its own and return what it says."""
    context = multiprocessing.get_context(method)
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_report, args=(plan, sending), daemon=True)  # type: ignore[attr-defined]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*use of fork\\(\\) may lead to deadlocks.*")
            process.start()
    except (PicklingError, AttributeError, TypeError) as error:
        raise CaptureError(
            f"the functions cannot be sent to a process of their own ({error}): define them at the top level of a module"
        ) from None
    try:
        sending.close()
        said = receiving.recv()
    except EOFError:
        process.join()
        raise CaptureError(f"the process that captured {_ending(process.exitcode)}: nothing of the step is known") from None
    finally:
        receiving.close()
        if process.is_alive():
            process.join(5)
        if process.is_alive():
            process.terminate()
            process.join()
    if isinstance(said, Capture):
        return said
    kind, problems = said
    raise kind(problems)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with code {code}"


def _report(plan: Plan | PlanFile, sending: Any) -> None:
    """In the process of its own: make the capture, and send it or what is wrong."""
    from lifecycle_sim.sources.capture.perform import perform, stage

    try:
        if isinstance(plan, PlanFile):
            with stage(plan.path):
                plan = plan.load()
        said: Any = perform(plan)
    except InputError as error:
        said = (type(error), error.problems)
    except LifecycleError as error:
        said = (CaptureError, (str(error),))
    sending.send(said)
    sending.close()
