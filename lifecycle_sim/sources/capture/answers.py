"""Answers to what only values could tell: scalars that are read, and shapes that depend on data. Every answer is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from lifecycle_sim.errors import CaptureError
from lifecycle_sim.events import Assumption

aten = torch.ops.aten
READ_SCALAR = aten._local_scalar_dense.default
EQUAL = aten.equal.default
NONZERO = aten.nonzero.default
MASKED_SELECT = aten.masked_select.default
INDEX = aten.index.Tensor
MASKS = (torch.bool, torch.uint8)
UNKNOWN_SHAPE = torch._subclasses.fake_tensor.DynamicOutputShapeException
UNKNOWN_VALUE = torch._subclasses.fake_tensor.DataDependentOutputException


@dataclass
class Answers:
    """The answers given in place of values.

    Attributes:
        scalar: the answer to reading a floating-point scalar; a truth is True and a whole number 0.
        selected: the share of elements that a mask selects, 0 to 1: 1 is an upper bound.
        given: how often each kind of answer was given.
    """

    scalar: float = 0.5
    selected: float = 1.0
    given: Counter[str] = field(default_factory=Counter)

    def read(self, tensor: Any, on_host: bool = False) -> bool | int | float:
        """Answer the reading of the scalar *tensor*."""
        if on_host:
            self.given["read_host"] += 1
            return True if tensor.dtype == torch.bool else self.scalar if tensor.is_floating_point() else 0
        if tensor.dtype == torch.bool:
            self.given["read_bool"] += 1
            return True
        if tensor.is_floating_point():
            self.given["read_float"] += 1
            return self.scalar
        if tensor.is_complex():
            self.given["read_float"] += 1
            return complex(self.scalar)  # type: ignore[return-value]
        self.given["read_int"] += 1
        return 0

    def nonzero(self, tensor: Any) -> Any:
        """Return the coordinates of the selected elements of *tensor*, as many as are assumed."""
        self.given["selected"] += 1
        rows = int(tensor.numel() * self.selected)
        return tensor.new_empty((max(rows, min(1, tensor.numel())), tensor.dim()), dtype=torch.int64)

    def assumptions(self) -> list[Assumption]:
        """Return what was assumed, each with how often."""
        texts = {
            "read_host": "a scalar on the host was read, such as an optimizer's count of steps, whose value a capture does not follow: "
            f"numbers were taken for {self.scalar:g}",
            "read_bool": "a truth was read from the device (.item(), if tensor: …): it was taken for True",
            "read_int": "a whole number was read from the device (.item()): it was taken for 0",
            "read_float": f"a number was read from the device (.item()): it was taken for {self.scalar:g}",
            "selected": "a shape depended on values (nonzero, a mask as index): "
            + ("the upper bound was taken, all elements" if self.selected == 1 else f"{self.selected:g} of the elements were taken"),
        }
        return [Assumption(code, self.given[code], text) for code, text in texts.items() if self.given[code]]


def refuse(func: Any, error: BaseException) -> CaptureError:
    """Return the error that says that *func* cannot be represented."""
    what = "a shape" if isinstance(error, UNKNOWN_SHAPE) else "a value"
    return CaptureError(
        f"the operator {func} gives {what} that depends on data, which a capture without values cannot know: "
        "replace it in the captured step, or record the step on real tensors"
    )
