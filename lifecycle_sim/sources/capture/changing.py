"""Carries out a :class:`~lifecycle_sim.sources.capture.variant.Variant` on a model and its optimizer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch

from lifecycle_sim.errors import CaptureError
from lifecycle_sim.spelling import closest, path_expression

QUANTISED_FROM, QUANTISED_BLOCK, QUANTISED_LEVELS = 4096, 256, 256
"""bitsandbytes' least size of a tensor with moments of 8 bits, elements that share a scale, and entries of the map of values."""


def freeze(model: Any, patterns: Iterable[str]) -> None:
    """Let the parameters of *model* that *patterns* choose want no gradient.

    Raises:
        CaptureError: a pattern chooses none, or nothing is left to train.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    problems = []
    for pattern in patterns:
        matches = re.compile(f"(?:{path_expression(pattern)})(?:\\..+)?").fullmatch
        found = [parameter for name, parameter in named.items() if matches(name)]
        if not found:
            close = closest(pattern, [*named, *(path for path, _ in model.named_modules() if path)])
            problems.append(f"freeze {pattern!r} chooses no parameter" + (f": did you mean {close!r}?" if close else ""))
        for parameter in found:
            parameter.requires_grad_(False)
    if not problems and named and not any(parameter.requires_grad for parameter in named.values()):
        problems.append("everything is frozen, so that there is nothing to train")
    if problems:
        raise CaptureError(problems)


def optimizer_called(name: str, model: Any) -> Any:
    """Return the optimizer *name* for the parameters of *model* that are trained."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    made: dict[str, Callable[[], Any]] = {
        "sgd": lambda: torch.optim.SGD(trained, lr=1e-3),
        "sgd-momentum": lambda: torch.optim.SGD(trained, lr=1e-3, momentum=0.9),
        "adamw": lambda: torch.optim.AdamW(trained),
        "adamw-foreach": lambda: torch.optim.AdamW(trained, foreach=True),
        "adamw-fused": lambda: torch.optim.AdamW(trained, fused=True),
        "adamw-loop": lambda: torch.optim.AdamW(trained, foreach=False),
        "adamw-8bit": lambda: EightBitAdamW(trained),
    }
    return made[name]()


class EightBitAdamW(torch.optim.Optimizer):
    """The memory of bitsandbytes' AdamW with 8-bit moments: its state by its layout, and a kernel that takes nothing for itself."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        super().__init__(parameters, {"lr": 1e-3})
        self._maps: list[Any] = []

    def step(self, closure: Any = None) -> None:
        """Make the state that is lacking, and touch each parameter once."""
        with torch.no_grad():
            self._step()

    def _step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    if parameter not in self.state:
                        self.state[parameter] = self._state_of(parameter)
                    parameter.add_(parameter.grad if parameter.grad.dtype == parameter.dtype else 0)

    def _state_of(self, parameter: Any) -> dict[str, Any]:
        if parameter.numel() < QUANTISED_FROM:
            return {f"state{number}": torch.zeros_like(parameter, dtype=torch.float32) for number in (1, 2)}
        if not self._maps:
            self._maps = [parameter.new_zeros(QUANTISED_LEVELS, dtype=torch.float32) for _ in (1, 2)]
        blocks = -(-parameter.numel() // QUANTISED_BLOCK)
        state = {}
        for number, values in enumerate(self._maps, start=1):
            state[f"state{number}"] = torch.zeros_like(parameter, dtype=torch.uint8)
            state[f"qmap{number}"] = values
            state[f"absmax{number}"] = parameter.new_zeros(blocks, dtype=torch.float32)
        return state


class InBackward:
    """An optimizer for each parameter, which steps as soon as the parameter's gradient is whole, and frees it.

    Raises:
        CaptureError: the optimizer cannot be made for one parameter.
    """

    def __init__(self, optimizer: Any) -> None:
        self._hooks = []
        for each in _several(optimizer):
            for group in each.param_groups:
                for parameter in group["params"]:
                    if parameter.requires_grad:
                        self._hooks.append(parameter.register_post_accumulate_grad_hook(_stepping(_for_one(each, group, parameter))))

    def step(self) -> None:
        """All is done already."""

    def zero_grad(self) -> None:
        """All is gone already."""


def _stepping(optimizer: Any) -> Callable[[Any], None]:
    def hook(_parameter: Any) -> None:
        optimizer.step()
        optimizer.zero_grad()

    return hook


def _for_one(optimizer: Any, group: dict[str, Any], parameter: Any) -> Any:
    try:
        return type(optimizer)([{**group, "params": [parameter]}])
    except (TypeError, ValueError) as error:
        raise CaptureError(
            f"{type(optimizer).__name__} cannot be made for one parameter, as an update in the backward pass needs ({error}): "
            "choose another optimizer"
        ) from None


def _several(optimizer: Any) -> Iterable[Any]:
    return optimizer if isinstance(optimizer, (list, tuple)) else (optimizer,)
