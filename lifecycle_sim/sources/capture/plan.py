"""What to capture: the callables that make a model, its input and its optimizer, and the settings. It needs no torch."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lifecycle_sim.errors import CaptureError
from lifecycle_sim.sources.capture.named import TERMS
from lifecycle_sim.sources.capture.profiles import DeviceProfile
from lifecycle_sim.sources.capture.variant import AS_IT_IS, Variant

CALLABLES = {"build_model": 0, "make_batch": 0, "make_optimizer": 1, "step": 3}
"""The functions that a plan is made of, and with how many arguments each is called."""
REQUIRED, OPTIONAL = list(CALLABLES)[:2], list(CALLABLES)[2:]
NEWEST = "2.14"
"""The newest release whose rules are known."""
UPDATE = "update"
"""The parameter of a step that tells whether it is of the last micro-batch, after which the optimizer steps."""
OPTIONS = ("dtype", "autocast", "warmup", "steps")
DTYPES = {
    "float32": "float32",
    "fp32": "float32",
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float64": "float64",
}


@dataclass(frozen=True)
class Recomputed:
    """Modules that torch checkpoints (``use_reentrant=False``).

    Attributes:
        modules: their paths.
        early_stop: whether recomputation stops at the last tensor needed.
        preserve_rng: whether each call keeps the state of the random number generators.
        saved: operators, with their overload, whose outputs are saved all the same.
    """

    modules: tuple[str, ...]
    early_stop: bool = True
    preserve_rng: bool = True
    saved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A capture to be made.

    Attributes:
        build_model: returns the module.
        make_batch: returns the input of a step: a tensor, a tuple or list of arguments, or a mapping of keyword arguments.
        make_optimizer: returns the optimizer of a model, or several; None for inference.
        step: runs one step with the model, the optimizer and a batch.
        profile: the card.
        dtype: name of the type to convert the model to, None to leave it.
        autocast: name of the low type to run the default step's forward in, None for none.
        warmup: steps before the measured ones.
        steps: measured steps.
        terms: names of the kernel terms that apply.
        scalar: what reading a floating-point number gives.
        selected: the share of elements that a mask selects.
        operators: whether to keep a row for each operator of the measured steps.
        release: the PyTorch release whose rules hold where releases differ.
        recomputed: modules that torch checkpoints, beside what the model itself does.
        variant: what is changed in the program.
    """

    build_model: Callable[[], Any]
    make_batch: Callable[[], Any]
    make_optimizer: Callable[[Any], Any] | None
    step: Callable[[Any, Any, Any], Any] | None
    profile: DeviceProfile
    dtype: str | None = None
    autocast: str | None = None
    warmup: int = 2
    steps: int = 1
    terms: Collection[str] = tuple(TERMS)
    scalar: float = 0.5
    selected: float = 1.0
    operators: bool = True
    release: str = NEWEST
    recomputed: Recomputed | None = None
    variant: Variant = AS_IT_IS

    def __post_init__(self) -> None:
        problems = [f"{name} is {value!r}: give a function" for name in REQUIRED if not callable(value := getattr(self, name))]
        problems += [
            f"{name} is {value!r}: give a function, or None"
            for name in OPTIONAL
            if (value := getattr(self, name)) is not None and not callable(value)
        ]
        if not isinstance(self.warmup, int) or self.warmup < 0:
            problems.append(f"warmup is {self.warmup!r}: give the number of steps before the measured ones, 0 or more")
        if not isinstance(self.steps, int) or self.steps < 1:
            problems.append(f"steps is {self.steps!r}: give the number of steps to measure, 1 or more")
        if not 0 < self.selected <= 1:
            problems.append(f"selected is {self.selected!r}: give the share of elements that a mask selects, above 0 and at most 1")
        if re.fullmatch(r"[0-9]+\.[0-9]+", self.release) is None:
            problems.append(f"release {self.release!r} is no PyTorch release: write it like {NEWEST}")
        if self.variant.accumulate > 1 and self.step is not None and not takes_update(self.step):
            problems.append(
                f"{self.variant.accumulate} micro-batches a step do not go with a step of its own without a parameter update: "
                "let step(model, optimizer, batch, update) step the optimizer only where update is true"
            )
        if problems:
            raise CaptureError(problems)


def takes_update(step: Any) -> bool:
    """Whether a step is one of a micro-batch: whether it has a parameter ``update``."""
    return UPDATE in _parameters(step)


def dtype_name(dtype: Any, what: str) -> str | None:
    """Return torch's name for *dtype*: a ``torch.dtype``, a name such as ``"bf16"``, or None.

    Raises:
        CaptureError: the name is not known.
    """
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise CaptureError(f"{what} {dtype!r} is not known: choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


@dataclass(frozen=True)
class PlanFile:
    """A Python file that defines the callables of a plan, and what to call them with.

    Attributes:
        path: the file.
        function: the function in it that returns the callables as a mapping; None if the file defines them itself.
        parameters: values by name, such as ``batch`` and ``seq``, given to those callables that take parameters of these names.
        plan: all else.
    """

    path: str
    function: str | None
    parameters: Mapping[str, int]
    plan: Plan

    def load(self) -> Plan:
        """Run the file and return its plan.

        Raises:
            CaptureError: it cannot be run, or lacks a callable.
        """
        module = run_file(self.path)
        function: Any = None
        if self.function is None:
            given: Any = vars(module)
        else:
            function = getattr(module, self.function, None)
            if not callable(function):
                known = ", ".join(name for name, value in vars(module).items() if inspect.isfunction(value) and not name.startswith("_"))
                raise CaptureError(f"{self.path} defines no function {self.function!r}: it defines {known or 'none'}")
            own = self._of_micro_batch([function])
            given = own._with_parameters(function)()
            if not isinstance(given, Mapping):
                raise CaptureError(
                    f"{self.path}:{self.function} returned a {type(given).__name__}: return a dict of the functions {', '.join(CALLABLES)}"
                )
        missing = [name for name in REQUIRED if not callable(given.get(name))]
        if missing:
            raise CaptureError(f"{self.path} defines no function {name}(): see the examples in scenarios/capture" for name in missing)
        found = [name for name in CALLABLES if callable(given.get(name))]
        takers = [(function, 0)] if self.function is not None else [(given[name], CALLABLES[name]) for name in found]
        own = self._of_micro_batch(takers)
        callables = {name: own._with_parameters(given[name], CALLABLES[name]) for name in found}
        unmet = [name for name in self.parameters if not any(name in _parameters(*taker) for taker in takers)]
        if unmet:
            raise CaptureError(f"{self.path}: no function takes {name!r}: add the parameter, or leave the option out" for name in unmet)
        options = {} if self.function is None else {name: given[name] for name in OPTIONS if given.get(name) is not None}
        for name in ("dtype", "autocast"):
            chosen = getattr(self.plan, name) or dtype_name(options.get(name), name)
            options[name] = chosen
        return replace(self.plan, **{"make_optimizer": None, "step": None, **callables, **options})

    def _of_micro_batch(self, takers: Collection[tuple[Callable[..., Any], int]]) -> PlanFile:
        """Return the plan with the batch of a micro-batch: the step's, divided by the number of those that are accumulated.

        Raises:
            CaptureError: no function takes a batch, or it cannot be divided.
        """
        parts = self.plan.variant.accumulate
        if parts == 1:
            return self
        defaults = [_parameters(*taker)["batch"].default for taker in takers if "batch" in _parameters(*taker)]
        whole = self.parameters.get("batch", next((value for value in defaults if isinstance(value, int)), None))
        if not defaults or whole is None:
            raise CaptureError(
                f"{self.path}: no function takes a parameter batch with a value, so that there is nothing to divide by {parts}"
            )
        if whole % parts:
            raise CaptureError(f"{self.path}: a batch of {whole} cannot be divided into {parts} equal micro-batches")
        return replace(self, parameters={**self.parameters, "batch": whole // parts})

    def _with_parameters(self, function: Callable[..., Any], own: int = 0) -> Callable[..., Any]:
        taken = {name: value for name, value in self.parameters.items() if name in _parameters(function, own)}
        if not taken:
            return function

        return partial(function, **taken)


def _parameters(function: Any, own: int = 0) -> Mapping[str, Any]:
    """The parameters of *function* by name, after the first *own*, which it is called with anyway."""
    try:
        return dict(list(inspect.signature(function).parameters.items())[own:])
    except (TypeError, ValueError):
        return {}


def run_file(path: str) -> Any:
    """Run the Python file *path* and return it as a module; files beside it can be imported."""
    file = Path(path)
    if not file.is_file():
        raise CaptureError(f"{path}: there is no such file: give a Python file that defines {', '.join(CALLABLES)}")
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file, submodule_search_locations=None)
    if spec is None or spec.loader is None:
        raise CaptureError(f"{path}: is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
