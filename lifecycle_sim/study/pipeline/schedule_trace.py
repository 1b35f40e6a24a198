"""The bytes of a schedule's ranks as a Trace: a device a rank, so that whatever reads a trace reads a schedule."""

from __future__ import annotations

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Category, DeviceTrace, Events, Evidence, Kind, Span, Trace
from lifecycle_sim.study.pipeline.schedule import Work
from lifecycle_sim.study.pipeline.schedule_costs import Layer
from lifecycle_sim.study.pipeline.schedule_result import ScheduleRun

LARGEST = 2**63 - 1
PARTS = {
    "static": Category.PARAMETER,
    "resident": Category.WORKSPACE,
    "activation": Category.ACTIVATION,
    "weight input": Category.ACTIVATION,
    "output gradient": Category.GRADIENT,
    "temporary": Category.TEMPORARY,
}
"""The storages of a stage, with their categories: two that are there throughout, and what there is for each micro-batch or action."""


def schedule_trace(run: ScheduleRun, capacity: int | None = None) -> Trace:
    """Return the allocations and frees of each rank of *run*, in the order in which they happen.

    A rank is the device ``rank:0``, ``rank:1`` …; a storage is the part of a stage's bytes for one micro-batch that lives equally long, and
    its label says which; each action is a span. Sizes of 0 are left out.

    Args:
        run: what was run.
        capacity: bytes of each rank, to compare with.

    Raises:
        InputError: no bytes are known, or more than a trace can count.
    """
    schedule, basis = run.schedule, run.costs.basis
    if basis is None:
        raise InputError(f"{schedule.name}: no bytes are known, so there is nothing to trace: give costs with sizes, or a model")
    if (run.peak or 0) > LARGEST:
        raise InputError(
            f"{schedule.name}: a rank holds {run.peak:,} B, and a trace counts to 2**63 - 1: take smaller layers or fewer of them"
        )
    labels: dict[str, int] = {}
    devices = tuple(_Rank(run, rank, labels).trace(basis, capacity) for rank in range(schedule.ranks))
    title = f"{schedule.name}, {schedule.ranks} ranks, {schedule.microbatches} micro-batches"
    return Trace(
        devices,
        "schedule",
        Evidence.SIMULATED,
        run.costs.clock,
        labels=tuple(labels),
        settings={"title": title, "makespan": run.makespan},
    )


class _Rank:
    """The events of one rank while they are made."""

    def __init__(self, run: ScheduleRun, rank: int, labels: dict[str, int]) -> None:
        self._run, self._rank, self._labels = run, rank, labels
        self._columns: list[tuple[int, int, int, int, int, int]] = []
        self._live: dict[tuple[int, int, str], tuple[int, int, int]] = {}
        self._numbers = 0

    def trace(self, basis: Basis, capacity: int | None) -> DeviceTrace:
        """Return the record of the rank."""
        run, rank = self._run, self._rank
        stages, spans = run.costs.stages, []
        self._alloc(-1, -1, "resident", run.costs.resident, 0)
        for stage in run.schedule.stages_of(rank):
            self._alloc(stage, -1, "static", stages[stage].static, 0)
        times = zip(run.schedule.lists[rank], run.times.starts[rank], run.times.ends[rank], strict=True)
        for action, start, end in times:
            stage, work, microbatch = action
            first, layer = len(self._columns), stages[stage]
            added, within, taken = _parts(work, layer)
            for part, size in added:
                self._alloc(stage, microbatch, part, size, start)
            self._alloc(stage, microbatch, "temporary", within, start)
            self._free(stage, microbatch, "temporary", end)
            for part in taken:
                self._free(stage, microbatch, part, end)
            spans.append(Span("operator", str(action), first, len(self._columns)))
        kinds, numbers, sizes, at, labels, categories = zip(*self._columns, strict=True) if self._columns else ((),) * 6
        events = Events.of(kinds, numbers, sizes, time=at, label=labels, category=categories)
        return DeviceTrace(f"rank:{rank}", events, basis, start=0, spans=tuple(spans), capacity=capacity)

    def _alloc(self, stage: int, microbatch: int, part: str, size: int, time: int) -> None:
        if size:
            label = self._labels.setdefault(part if stage < 0 else f"stage {stage} {part}", len(self._labels))
            self._live[stage, microbatch, part] = (self._numbers, size, label)
            self._columns.append((Kind.ALLOC, self._numbers, size, time, label, PARTS[part]))
            self._numbers += 1

    def _free(self, stage: int, microbatch: int, part: str, time: int) -> None:
        found = self._live.pop((stage, microbatch, part), None)
        if found is not None:
            number, size, label = found
            self._columns.append((Kind.FREE, number, size, time, label, PARTS[part]))


def _parts(work: Work, layer: Layer) -> tuple[tuple[tuple[str, int], ...], int, tuple[str, ...]]:
    """What an action allocates, what lives only within it, and what it frees."""
    if work is Work.FORWARD:
        return (("activation", layer.activation), ("weight input", layer.weight_input)), layer.forward_temporary, ()
    if work is Work.BACKWARD:
        return (), layer.backward_temporary, ("activation", "weight input")
    if work is Work.INPUT_GRADIENT:
        return (("output gradient", layer.output_gradient),), layer.apart, ("activation",)
    return (), layer.weight_temporary, ("weight input", "output gradient")
