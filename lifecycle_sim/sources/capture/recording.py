"""Records the steps that a program really makes: ``with record(model, optimizer) as recording:`` around them.

torch is imported when a recording begins, not before.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import CaptureError
from lifecycle_sim.events import Assumption, Evidence, Trace
from lifecycle_sim.sources.capture.anchoring import anchored_first
from lifecycle_sim.sources.capture.assemble import assemble
from lifecycle_sim.sources.capture.joining import Joined, join
from lifecycle_sim.sources.capture.launch import need_torch
from lifecycle_sim.sources.snapshot import read_snapshot

if TYPE_CHECKING:
    from lifecycle_sim.sources.capture.following import Follower
    from lifecycle_sim.sources.capture.ledger import Ledger
    from lifecycle_sim.sources.capture.table import ParameterTable

FORMAT = "record"
MOST_ENTRIES = 5_000_000
"""Events of the allocator's history that are kept; of more, the oldest go."""


def record(model: Any, optimizer: Any = None, *, snapshot: bool = False) -> Recording:
    """Record what *model* really does, around its steps: ``with ls.record(model, optimizer) as recording``.

    Storages are followed by identity, from the operator that allocates them to their death, so that a view, a tied weight or a detached
    tensor counts once. What was there before is anchored as live at the beginning: parameters, buffers, gradients, optimizer state, and
    every tensor that an operator reads and that none made. Tensors that the recorded code never touches do not count.

    A step ends where the program calls ``recording.step()``, as it does with torch's profiler; if it never does, after each step of the
    optimizer.

    Args:
        model: the module; its first parameter's device is the one that is recorded.
        optimizer: the optimizer, or several; None for inference, or where it is made inside.
        snapshot: on CUDA, let torch's allocator record its own history too, and join the two: see :attr:`Recording.allocator`. A history
            that was being recorded ends.

    Raises:
        MissingExtraError: torch is not installed.
        CaptureError: *model* is no module, or *optimizer* no optimizer; or *snapshot* is asked for and the model is not on CUDA.
    """
    need_torch("recording a step")
    import torch

    if not isinstance(model, torch.nn.Module):
        raise CaptureError(f"model is a {type(model).__name__}: give a module of torch")
    from lifecycle_sim.sources.capture.parameters import refuse_lazy

    refuse_lazy(model)
    optimizers = tuple(optimizer) if isinstance(optimizer, (list, tuple)) else () if optimizer is None else (optimizer,)
    for each in optimizers:
        if not isinstance(each, torch.optim.Optimizer):
            raise CaptureError(f"optimizer is a {type(each).__name__}: give an optimizer of torch, a list of them, or None")
    device = _device_of(model)
    if snapshot and device.type != "cuda":
        raise CaptureError(f"a snapshot is CUDA's, and the model is on {device}: move it to CUDA first, or leave snapshot out")
    return Recording(model, optimizers, snapshot)


def params(model: Any, optimizer: Any = None) -> ParameterTable:
    """Return the table of the parameters and buffers of *model*: one row for each storage, with all names that refer to it.

    Tied weights, layers used twice, views and ``.data`` share a storage, and its bytes count once. With an optimizer, or a list of them,
    the bytes of its state are those it holds now: before the first step, most hold none.

    Raises:
        MissingExtraError: torch is not installed.
        CaptureError: *model* is no module, or *optimizer* no optimizer.
    """
    need_torch("counting parameters")
    from lifecycle_sim.sources.capture.parameters import parameter_table

    return parameter_table(model, optimizer)


class Recording(Shown):
    """Steps of a program, recorded while they ran. Made by :func:`record`, for one ``with`` block.

    Attributes:
        seconds: how long the block took.
        operators: how many operators ran in it.
    """

    def __init__(self, model: Any, optimizers: tuple[Any, ...], snapshot: bool = False) -> None:
        self._model = model
        self._snapshot = snapshot
        self._joined: Joined | None = None
        self._optimizers = optimizers
        self._follower: Follower | None = None
        self._trace: Trace | None = None
        self._began = 0.0
        self.seconds = 0.0
        self.operators = 0

    def __enter__(self) -> Recording:
        """Begin to record.

        Raises:
            CaptureError: this recording began before.
        """
        if self._follower is not None or self._trace is not None:
            raise CaptureError("a recording is made once: call record() again for another")
        from lifecycle_sim.sources.capture.following import Follower

        self._follower = Follower(self._model, self._optimizers, _device_of(self._model), self._snapshot)
        if self._snapshot:
            _record_history(True)
        self._follower.begin()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        """End to record. The trace is there even if the block failed: it then ends where the block did."""
        follower = self._follower
        if follower is None:
            return
        self.seconds = time.perf_counter() - self._began
        follower.end(*error)
        self.operators = follower.operators
        document = _taken() if self._snapshot else None
        ordered = _ordered(follower)
        self._trace = _trace_of(follower, self._model, ordered)
        if document is not None:
            self._joined = join(ordered, len(follower.before), read_snapshot(document), str(_device_of(self._model)))
        self._follower = None

    def step(self) -> None:
        """Say that a step of the program ends here.

        Raises:
            CaptureError: outside of the ``with`` block.
        """
        if self._follower is None:
            raise CaptureError("step() belongs inside of the with block of its recording")
        self._follower.mark()

    @property
    def trace(self) -> Trace:
        """The trace: requested bytes of one device, measured.

        Raises:
            CaptureError: the recording did not end yet.
        """
        if self._trace is None:
            state = "goes on: read its trace after the with block" if self._follower is not None else "never began: use it in a with block"
            raise CaptureError(f"the recording {state}")
        return self._trace

    @property
    def allocator(self) -> Joined:
        """The allocator's own record of the same block, joined with the recording by addresses.

        Raises:
            CaptureError: none was asked for, or the recording did not end yet.
        """
        if self._joined is None:
            why = "did not end yet" if self._snapshot else "has no snapshot: ask for it with record(model, optimizer, snapshot=True)"
            raise CaptureError(f"the recording {why}")
        return self._joined

    @property
    def parameters(self) -> ParameterTable:
        """The table of the model's parameters and of the optimizer's bytes, as they are now."""
        return params(self._model, list(self._optimizers))

    def __repr__(self) -> str:
        if self._trace is None:
            return f"Recording({type(self._model).__name__}, {'under way' if self._follower is not None else 'not begun'})"
        return f"Recording({type(self._model).__name__}, {len(self._trace):,} events of {self.operators:,} operators)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        if self._trace is None:
            return [("recording", repr(self))]
        steps = sum(span.kind == "step" for span in self._trace.devices[0].spans)
        return [
            ("model", type(self._model).__name__),
            ("events", f"{len(self._trace):,} of {self.operators:,} operators"),
            ("steps", f"{steps:,}"),
            *((assumption.code, f"{assumption.count:,} times: {assumption.text}") for assumption in self._trace.assumptions),
            ("recorded in", f"{self.seconds:.3f} s"),
        ]


def _device_of(model: Any) -> Any:
    import torch

    for tensor in itertools.chain(model.parameters(), model.buffers()):
        return tensor.device
    return torch.device("cpu")


def _record_history(on: bool) -> None:
    """Begin the allocator's history anew, or end it."""
    import torch

    torch.cuda.memory._record_memory_history(enabled=None)
    if on:
        torch.cuda.memory._record_memory_history(stacks="python", max_entries=MOST_ENTRIES)


def _taken() -> Any:
    """Return the allocator's snapshot, and end its history."""
    import torch

    torch.cuda.synchronize()
    document = torch.cuda.memory._snapshot()
    _record_history(False)
    return document


def _ordered(follower: Follower) -> Ledger:
    ledger = follower.ledger
    ends = follower.marks or follower.optimizer_steps
    ledger.steps = list(zip([follower.began, *ends], ends, strict=False))
    return anchored_first(ledger, follower.before, follower.apart)


def _trace_of(follower: Follower, model: Any, ordered: Ledger) -> Trace:
    import torch

    trace = assemble(
        ordered,
        device=str(_device_of(model)),
        release=".".join(torch.__version__.split(".")[:2]),
        settings={"record": {"torch": str(torch.__version__), "execution": "eager"}},
        assumptions=_assumptions(follower, model),
        evidence=Evidence.MEASURED,
    )
    return replace(trace, format=FORMAT)


def _assumptions(follower: Follower, model: Any) -> Iterable[Assumption]:
    storages = follower.ledger.storages
    if follower.before:
        yield Assumption(
            "live_before_recording",
            len(follower.before),
            "storages that were there before the recording count from its beginning",
            sum(storages[number].size for number in follower.before),
        )
    if follower.scalars:
        yield Assumption("scalars_apart", follower.scalars, "scalars of the host, such as the step counters of an optimizer, do not count")
    if follower.elsewhere:
        yield Assumption("other_devices", follower.elsewhere, "storages on other devices than that of the first parameter do not count")
    if hasattr(model, "_orig_mod"):
        yield Assumption("compiled_ran_eager", 1, "the model is compiled; while it is recorded, it runs operator by operator, not compiled")
