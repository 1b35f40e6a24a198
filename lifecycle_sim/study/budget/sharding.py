"""How weights, gradients and states are divided over ranks.

============ ======================================================================================
data         ranks that hold the same model and see other data: ZeRO and FSDP divide over these,
             never over all devices
tensor       ranks that each hold a part of every matrix
pipeline     ranks that each hold some of the layers
============ ======================================================================================

Stage 1 divides master weights and moments, stage 2 gradients as well, stage 3 (FSDP) weights too. A rank's shard is rounded up: what does
not divide evenly is padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.widths import ceil_div, count, one_of

UNITS = ("flat", "parameter")


@dataclass(frozen=True)
class Sharding:
    """How a model is divided.

    Attributes:
        stage: the ZeRO stage, 0 to 3; FSDP that reshards is 3.
        data: the data-parallel degree, over which the stage divides.
        tensor: the tensor-parallel degree.
        pipeline: the pipeline-parallel degree; layers are taken to be divided evenly.
        unit: ``"flat"``: all elements of a kind in one buffer, as ZeRO and FSDP 1 have it; ``"parameter"``: each parameter by its first
            dimension, as FSDP 2 does.
        whole: elements that every tensor-parallel rank keeps whole, such as norms.
        whole_gradients: whether gradients stay undivided in spite of the stage, as under ``no_sync`` while they accumulate.
        devices: all devices, to be checked against the product of the degrees; None leaves that out.
    """

    stage: int = 0
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    unit: str = "flat"
    whole: int = 0
    whole_gradients: bool = False
    devices: int | None = None

    def __post_init__(self) -> None:
        for what in ("data", "tensor", "pipeline"):
            count(f"{what}-parallel degree", getattr(self, what), 1)
        if count("ZeRO stage", self.stage) > 3:
            raise InputError(f"ZeRO stage is {self.stage}: the stages are 0, 1, 2 and 3")
        one_of("unit of sharding", self.unit, UNITS)
        count("elements kept whole", self.whole)
        product = self.data * self.tensor * self.pipeline
        if self.devices is not None and self.devices != product:
            raise InputError(
                f"{self.devices:,} devices are not {self.data:,} data × {self.tensor:,} tensor × {self.pipeline:,} pipeline = {product:,}: "
                "the stage divides by the data-parallel degree alone, so it must be right"
            )

    @property
    def divides(self) -> bool:
        """Whether anything is divided at all."""
        return self.stage > 0 or self.tensor > 1 or self.pipeline > 1

    def local(self, elements: int) -> int:
        """Return how many of *elements* a rank has after tensor and pipeline parallelism, before the stage divides them."""
        kept = min(self.whole, elements)
        return ceil_div(kept + ceil_div(elements - kept, self.tensor), self.pipeline)

    def shard(self, shapes: Sequence[Sequence[int]], stage: int) -> int:
        """Return how many elements of parameters of *shapes* one rank holds of a kind that is divided from *stage* on."""
        elements = sum(prod(shape) for shape in shapes)
        if self.stage < stage:
            return self.local(elements)
        if self.unit == "flat":
            return ceil_div(self.local(elements), self.data)
        if self.tensor > 1 or self.pipeline > 1:
            raise InputError("sharding by parameter with tensor or pipeline parallelism: give each rank's own parameters instead")
        return sum(ceil_div(shape[0], self.data) * prod(shape[1:]) if shape else 1 for shape in shapes)

    def formula(self, elements: int, stage: int) -> str:
        """Return :meth:`shard` of one number of elements in words: ``"⌈7,500,000,000 / 64⌉"``."""
        text = f"{elements:,}"
        degree = self.tensor * self.pipeline
        if degree > 1:
            text = f"⌈{text} / {degree:,}⌉" if not self.whole else f"({self.whole:,} + ⌈{elements - self.whole:,} / {degree:,}⌉)"
        if self.stage < stage or self.data == 1:
            return text
        return f"⌈{text} / {self.data:,}⌉" if self.unit == "flat" else f"{text} / {self.data:,} by rows"
