"""The report on a plan: one record that goes from parameters to time, each link of the chain there if there is something to rest it on.

parameters and types → states → activations and temporaries → margin → largest micro-batch → operations → time from measured throughput. It
opens with what was planned and closes with what was not counted and which evidence is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from lifecycle_sim.display import Shown
from lifecycle_sim.study.budget.allocation import Allocation
from lifecycle_sim.study.budget.experiment import Repetition
from lifecycle_sim.study.budget.planner import EVIDENCE, Candidate
from lifecycle_sim.study.budget.speed import StepTime
from lifecycle_sim.study.budget.states import StateBudget
from lifecycle_sim.study.budget.tokens import TokenCount
from lifecycle_sim.units import format_exact

NOT_COUNTED = {
    "context": "the CUDA context, library handles and NCCL: outside of the allocator, often 300 to 600 MiB a process",
    "fragmentation": "what the allocator holds beyond what was asked for (reserved above requested), where no capture was made",
    "activations": "activations and temporaries: nothing told their sizes",
    "gathered": "layers gathered whole for a moment under stage 3, and buckets of collectives",
    "casts": "low-precision copies of weights that autocast keeps during a forward pass, where no capture was made",
    "attention": "attention's own products, which 6ND leaves out",
    "overheads": "restarts, evaluation, and waiting for devices: a throughput measured over steps has none of them",
    "host": "memory of the host: loaders, pinned buffers, the optimizer's counters",
    "distributed": "communication between ranks; a captured step is that of one rank with everything on it",
    "largest": "the largest micro-batch: nothing told how the peak grows with the batch",
}
"""What a report leaves out, told where it does."""


@dataclass(frozen=True)
class Opening:
    """What was planned.

    Attributes:
        mode: ``training`` or ``inference``.
        parameters, trainable: each parameter once.
        definition: what N counts, a key of ``shapes.DEFINITIONS``; None if that was not said.
        batch, sequence: samples of a step and places of a sample, None if not told.
        tokens: D; None if not told.
        types: the types of weights, gradients, master weights and moments that there are, and of autocast.
        optimizer: its name with its switches; several are joined by a comma.
        frozen: names of what is not trained.
        sharding: in words.
        from_file: whether it was counted in a file of Python.
    """

    mode: str
    parameters: int
    trainable: int
    definition: str | None = None
    batch: int | None = None
    sequence: int | None = None
    tokens: int | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    optimizer: str = "none"
    frozen: tuple[str, ...] = ()
    sharding: str = "none"
    from_file: bool = False


@dataclass(frozen=True)
class StepMemory:
    """The memory of a step.

    Attributes:
        evidence: ``simulated`` from a capture, or ``closed form``.
        basis: ``requested``, or ``payload`` of a closed form.
        states: bytes that are there whatever the batch, at the step's peak.
        activations: bytes kept for backward at the peak; None if nothing tells them.
        most_activations: the most of these at any moment of the step; None if nothing tells them.
        temporaries: inputs, workspaces and short-lived results at the peak.
        peak: their sum.
        event: where the peak is, None in a closed form.
        inside: the phase and operator it falls into, in words; None in a closed form.
        first: the peak of the very first step, before which there is no optimizer state; None in a closed form.
        reserved: what the allocator's model holds at its peak; None in a closed form.
        margin: bytes set aside.
        capacity: bytes of the device; None if not told.
    """

    evidence: str
    basis: str
    states: int
    activations: int | None
    most_activations: int | None
    temporaries: int
    peak: int
    event: int | None
    inside: str | None
    first: int | None
    reserved: int | None
    margin: int
    capacity: int | None

    @property
    def needed(self) -> int:
        """Bytes that must be free: what is reserved, or where that is not known the peak, and the margin."""
        return (self.peak if self.reserved is None else self.reserved) + self.margin

    @property
    def fits(self) -> bool | None:
        """Whether that is within the capacity; None without one."""
        return None if self.capacity is None else self.needed <= self.capacity


@dataclass(frozen=True)
class LargestBatch:
    """The largest micro-batch.

    Attributes:
        batch: −1: not even an empty one fits; 0: nothing fits beside what is there already.
        verified: in words, how both sides were checked.
        probes: batches and the peaks that it rests on.
        text: what binds, or why there is no answer.
    """

    batch: int | None
    verified: str
    probes: tuple[tuple[int, int], ...]
    text: str


@dataclass(frozen=True)
class PlannedWork:
    """The operations of a plan.

    Attributes:
        counted: the N that 6ND takes.
        tokens: D.
        flops: 6ND.
        attention: what attention adds; None if layers and width are not known.
        factor: what recomputation does over again.
        step: operations that a capture counted in a step; None without one.
        step_tokens: tokens of that step; None if not known.
    """

    counted: int
    tokens: int | None
    flops: int | None
    attention: int | None = None
    factor: Fraction = Fraction(1)
    step: int | None = None
    step_tokens: int | None = None


@dataclass(frozen=True)
class PlannedTime:
    """The time of a plan, in nanoseconds.

    Attributes:
        theoretical: at full peak of ``devices`` devices: a bound from below and no date; None without a peak.
        peak, devices: of one device in operations a second, and how many.
        device: its name, if it is one that is known.
        throughput: measured tokens a second; None if not measured.
        samples: measured samples a second; None if a sample's tokens are not known.
        measured: how the throughput was measured, in words.
        time: from measured throughput, without saving unless ``saving`` was given; None without it.
        saving: what saving adds in all.
        utilisation: MFU; None without a peak or throughput.
        with_attention: whether attention's own products count in it.
        steps: the split of a step; None if no steps were given.
    """

    theoretical: int | None
    peak: int | None
    devices: int
    device: str | None
    throughput: Fraction | None
    samples: Fraction | None
    measured: str | None
    time: int | None
    saving: int
    utilisation: Fraction | None
    with_attention: bool
    steps: StepTime | None


@dataclass(frozen=True)
class WeightFile:
    """What the header of a file of weights says: tensors, their bytes, and the types of their elements."""

    name: str
    tensors: int
    elements: int
    size: int
    types: tuple[str, ...]
    file_size: int | None


@dataclass(frozen=True)
class BudgetReport(Shown):
    """A plan from parameters to time; each part is None or empty where nothing was given for it."""

    title: str
    opening: Opening | None = None
    states: tuple[tuple[str, StateBudget], ...] = ()
    memory: StepMemory | None = None
    largest: LargestBatch | None = None
    tokens: TokenCount | None = None
    work: PlannedWork | None = None
    time: PlannedTime | None = None
    weight_file: WeightFile | None = None
    allocations: tuple[Allocation, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    same_loss: float | None = None
    experiment: tuple[Repetition, ...] = ()
    missing: tuple[str, ...] = ()
    not_counted: tuple[str, ...] = ()

    @property
    def fits(self) -> bool | None:
        """Whether a step fits the device with its margin; None without a capacity."""
        return None if self.memory is None else self.memory.fits

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        rows = [(name, format_exact(budget.total)) for name, budget in self.states]
        return [("plan", self.title), *rows, *(("missing", EVIDENCE.get(name, name)) for name in self.missing)]


def sharding_text(budget: StateBudget) -> str:
    """Return the sharding of *budget* in words."""
    division = budget.sharding
    parts = []
    if division.data > 1 or division.stage:
        parts.append(f"ZeRO stage {division.stage} over {division.data:,} data-parallel ranks")
    for name in ("tensor", "pipeline"):
        if getattr(division, name) > 1:
            parts.append(f"{getattr(division, name):,} {name}-parallel ranks")
    return ", ".join(parts) or "none"
