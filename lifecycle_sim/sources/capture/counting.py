"""Makes the table of parameters of what a Python file defines: the model without memory, the optimizer after a first step."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from lifecycle_sim.errors import CaptureError
from lifecycle_sim.sources.capture.launch import need_torch
from lifecycle_sim.sources.capture.plan import dtype_name, run_file
from lifecycle_sim.sources.capture.table import ParameterTable


def params_file(path: str, function: str | None = None, parameters: Mapping[str, int] | None = None, dtype: Any = None) -> ParameterTable:
    """Return the table of parameters of the model that the Python file *path* defines.

    The model is built without memory for its tensors. The optimizer, if there is one, makes its state in a first step with gradients
    that have no values.

    Args:
        path: a file that defines ``build_model``, and ``make_optimizer`` if there is one.
        function: the function in it to call instead: it returns the module, or a mapping of these functions.
        parameters: values by name, for those of the functions that take them.
        dtype: type to convert the model to, such as ``"bf16"``.

    Raises:
        MissingExtraError: torch is not installed.
        CaptureError: the file or a function of it failed, or is not there.
    """
    need_torch("counting parameters")
    kind = dtype_name(dtype, "dtype")
    import torch

    from lifecycle_sim.sources.capture.building import build_on_meta, first_step
    from lifecycle_sim.sources.capture.parameters import parameter_table
    from lifecycle_sim.sources.capture.perform import stage

    given = dict(parameters or {})
    with stage(path):
        defined = vars(run_file(path))
    build, make_optimizer = _functions(path, defined, function)
    with stage(function or "build_model"):
        model = build_on_meta(partial(build, **_chosen(build, given)), _type(kind))
        if isinstance(model, Mapping):
            make_optimizer = model.get("make_optimizer")
            kind = kind or dtype_name(model.get("dtype"), "dtype")
            build = _required(path, model)
            model = build_on_meta(partial(build, **_chosen(build, given)), _type(kind))
    if not isinstance(model, torch.nn.Module):
        raise CaptureError(f"{path}:{function or 'build_model'} returned a {type(model).__name__}: return a torch.nn.Module")
    unmet = [name for name in given if not any(name in _taken(each) for each in (build, make_optimizer, defined.get(function or "")))]
    if unmet:
        raise CaptureError(f"{path}: no function takes {name!r}: add the parameter, or leave the option out" for name in unmet)
    if make_optimizer is None:
        return parameter_table(model)
    with stage("make_optimizer"):
        optimizer = make_optimizer(model, **_chosen(make_optimizer, given))
    for each in optimizer if isinstance(optimizer, (list, tuple)) else (optimizer,):
        if not isinstance(each, torch.optim.Optimizer):
            raise CaptureError(
                f"{path}: make_optimizer returned a {type(each).__name__}: return a torch.optim.Optimizer, or a list of them"
            )
    with stage("the optimizer's first step"):
        first_step(model, optimizer)
    return parameter_table(model, optimizer)


def _functions(path: str, defined: Mapping[str, Any], function: str | None) -> tuple[Any, Any]:
    """What builds the model, and what makes the optimizer."""
    if function is None:
        return _required(path, defined), defined.get("make_optimizer")
    chosen = defined.get(function)
    if not callable(chosen):
        known = ", ".join(name for name, value in defined.items() if inspect.isfunction(value) and not name.startswith("_"))
        raise CaptureError(f"{path} defines no function {function!r}: it defines {known or 'none'}")
    return chosen, None


def _required(path: str, defined: Mapping[str, Any]) -> Any:
    build = defined.get("build_model")
    if not callable(build):
        raise CaptureError(
            f"{path} defines no function build_model(): define one that returns the module, or name another: {path}:function"
        )
    return build


def _type(name: str | None) -> Any:
    import torch

    return None if name is None else getattr(torch, name)


def _taken(function: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _chosen(function: Any, given: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in given.items() if name in _taken(function)}
