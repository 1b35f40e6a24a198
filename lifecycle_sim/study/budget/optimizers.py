"""What PyTorch's optimizers keep for each parameter, as closed forms.

Measured with torch 2.13 for 16 optimizers and two types of parameters. A state has the type of the parameter it is for, with every
optimizer of ``torch.optim``; 32-bit moments for 16-bit weights come from a recipe that keeps master weights. Beside it each tensor has a
few scalars, 4 bytes each, on the host unless the optimizer is fused or capturable. Nothing is there before the first step, except with
Adagrad.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.widths import one_of

SCALAR = 4
"""Bytes of one scalar of optimizer state."""


@dataclass(frozen=True)
class Optimizer:
    """What an optimizer keeps.

    Attributes:
        name: its name, with the switches that change its state.
        moments: the keys under which it keeps a tensor as large as the parameter.
        scalars: the keys under which it keeps a scalar for each tensor.
        eager: whether the state is there before the first step.
        factored: whether it keeps sums over rows and columns (Adafactor) in place of a full second moment.
    """

    name: str
    moments: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    eager: bool = False
    factored: bool = False

    def elements(self, shape: Sequence[int]) -> dict[str, int]:
        """Return how many elements it keeps for a parameter of *shape* under each key, scalars left out."""
        kept = dict.fromkeys(self.moments, prod(shape))
        if self.factored:
            if len(shape) > 1:
                kept |= {"row_var": prod(shape[:-1]), "col_var": prod(shape[:-2]) * shape[-1]}
            else:
                kept |= {"variance": prod(shape)}
        return kept


_STEP = ("step",)
_ADAM = Optimizer("adam", ("exp_avg", "exp_avg_sq"), _STEP)
OPTIMIZERS: dict[str, Optimizer] = {
    "none": Optimizer("none"),
    "sgd": Optimizer("sgd"),
    "adam": _ADAM,
    "adamw": replace(_ADAM, name="adamw"),
    "adagrad": Optimizer("adagrad", ("sum",), _STEP, eager=True),
    "rmsprop": Optimizer("rmsprop", ("square_avg",), _STEP),
    "adadelta": Optimizer("adadelta", ("square_avg", "acc_delta"), _STEP),
    "adamax": Optimizer("adamax", ("exp_avg", "exp_inf"), _STEP),
    "nadam": replace(_ADAM, name="nadam", scalars=("step", "mu_product")),
    "radam": replace(_ADAM, name="radam"),
    "rprop": Optimizer("rprop", ("prev", "step_size"), _STEP),
    "asgd": Optimizer("asgd", ("ax",), ("step", "eta", "mu")),
    "adafactor": Optimizer("adafactor", (), _STEP, factored=True),
    "muon": Optimizer("muon", ("momentum_buffer",)),
}
"""By name; *none* is inference."""

SWITCHES: dict[str, dict[str, str]] = {
    "sgd": {"momentum": "momentum_buffer"},
    "adam": {"amsgrad": "max_exp_avg_sq"},
    "adamw": {"amsgrad": "max_exp_avg_sq"},
    "rmsprop": {"momentum": "momentum_buffer", "centered": "grad_avg"},
}
"""The switches of an optimizer that add a tensor, and its key."""


def find_optimizer(name: str | Optimizer) -> Optimizer:
    """Return the optimizer called *name*: ``"adamw"``, or with switches ``"adamw+amsgrad"``, ``"rmsprop+centered+momentum"``.

    Raises:
        InputError: the optimizer, or a switch of it, is not known.
    """
    if isinstance(name, Optimizer):
        return name
    if not isinstance(name, str):
        raise InputError(f"{name!r} is no optimizer: give a name such as 'adamw'")
    base, *switches = name.lower().replace(" ", "").split("+")
    found = OPTIMIZERS[one_of("optimizer", base, OPTIMIZERS)]
    known = SWITCHES.get(base, {})
    for switch in switches:
        if not known:
            raise InputError(f"optimizer {base!r} has no switch that changes its state: leave {switch!r} out")
        found = replace(found, moments=(*found.moments, known[one_of(f"switch of {base}", switch, known)]))
    return replace(found, name="+".join([base, *switches]))


def scalar_bytes(optimizer: Optimizer, tensors: int) -> int:
    """Return the bytes of the scalars that *optimizer* keeps for *tensors* tensors: in no total, as they are on the host."""
    return SCALAR * len(optimizer.scalars) * tensors
