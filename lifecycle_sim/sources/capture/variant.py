"""Changes of a program that is captured: another optimizer, gradients that go early, accumulation, frozen parts. It needs no torch.

Such a change alters what autograd saves and which operators run, so that no edit of an older capture could tell it to the byte: the program
is changed, and captured again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lifecycle_sim.errors import CaptureError
from lifecycle_sim.spelling import closest

OPTIMIZERS = {
    "sgd": "torch.optim.SGD: no state",
    "sgd-momentum": "torch.optim.SGD with momentum: one state of each parameter's size",
    "adamw": "torch.optim.AdamW as torch chooses on CUDA: foreach",
    "adamw-foreach": "torch.optim.AdamW(foreach=True)",
    "adamw-fused": "torch.optim.AdamW(fused=True)",
    "adamw-loop": "torch.optim.AdamW(foreach=False), parameter by parameter",
    "adamw-8bit": "AdamW with moments of 8 bits, as bitsandbytes lays them out: one byte an element, a float32 scale for every 256; "
    "tensors below 4,096 elements keep float32 moments; its kernel takes nothing for itself",
}
"""The optimizers that can stand in place of the program's own."""


@dataclass(frozen=True)
class Variant:
    """What is changed in a program before it is captured.

    Attributes:
        optimizer: a name of ``OPTIMIZERS``, in place of what ``make_optimizer`` returns.
        in_backward: each parameter's update runs as soon as its gradient is whole, inside of the backward pass, and frees it.
        accumulate: micro-batches of a step, each with its own forward and backward pass, before the optimizer's one step.
        freeze: parameters that get no gradient: their names, paths of modules, or patterns such as ``"blocks.[0-5]"``.
    """

    optimizer: str | None = None
    in_backward: bool = False
    accumulate: int = 1
    freeze: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = []
        if self.optimizer is not None and self.optimizer not in OPTIMIZERS:
            close = closest(self.optimizer, OPTIMIZERS)
            hint = f"did you mean {close!r}?" if close else f"choose one of {', '.join(OPTIMIZERS)}"
            problems.append(f"optimizer {self.optimizer!r} is not known: {hint}")
        if isinstance(self.accumulate, bool) or not isinstance(self.accumulate, int) or self.accumulate < 1:
            problems.append(f"accumulate is {self.accumulate!r}: give the number of micro-batches of a step, 1 or more")
        elif self.in_backward and self.accumulate > 1:
            problems.append(
                "an update in the backward pass and accumulation exclude each other: the first micro-batch would already change the "
                "parameters, and free the gradient to which the next one adds"
            )
        if problems:
            raise CaptureError(problems)

    @property
    def changes_nothing(self) -> bool:
        """Whether the program is left as it is."""
        return self == AS_IT_IS

    def told(self) -> Iterable[str]:
        """Yield each change in words."""
        if self.optimizer is not None:
            yield f"optimizer {self.optimizer}"
        if self.in_backward:
            yield "optimizer in the backward pass"
        if self.accumulate > 1:
            yield f"{self.accumulate} micro-batches accumulated"
        if self.freeze:
            yield f"frozen: {', '.join(self.freeze)}"


AS_IT_IS = Variant()
"""The program as it is."""
