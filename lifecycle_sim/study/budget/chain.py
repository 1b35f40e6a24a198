"""The report on a file: its parameters as they were counted, a step of it as it was captured, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Category, Events, Kind, Span
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.attribution import attribute
from lifecycle_sim.sources.capture.record import Capture
from lifecycle_sim.sources.capture.table import ParameterTable, StorageRow
from lifecycle_sim.study.batch.decision import Binding
from lifecycle_sim.study.batch.verified import Verified
from lifecycle_sim.study.budget.compute import training_flops
from lifecycle_sim.study.budget.links import missing_of, not_counted_of, planned_time, types_of
from lifecycle_sim.study.budget.optimizers import OPTIMIZERS, SWITCHES, find_optimizer
from lifecycle_sim.study.budget.report import BudgetReport, LargestBatch, Opening, PlannedWork, StepMemory, WeightFile, sharding_text
from lifecycle_sim.study.budget.sharding import Sharding
from lifecycle_sim.study.budget.states import GRADIENTS, STATES, WEIGHTS, Part, StateBudget, StateRow, state_budget
from lifecycle_sim.study.budget.widths import ceil_div, type_name
from lifecycle_sim.study.prediction import Prediction

STATIC = (Category.PARAMETER, Category.BUFFER, Category.GRADIENT, Category.OPTIMIZER_STATE)


@dataclass(frozen=True)
class Step:
    """A captured step: the capture, its replay, and what the allocator's model makes of it."""

    captured: Capture
    replayed: DeviceReplay
    prediction: Prediction


@dataclass(frozen=True)
class Given:
    """What is told beside the file.

    Attributes:
        batch, sequence: samples of a step and places of a sample.
        tokens: D, the tokens to be processed.
        capacity, margin: bytes of the device, and bytes to set aside.
        throughput: measured tokens a second, of all devices.
        peak, devices, device: operations a second of a device, how many, and its name.
        autocast: the low type of autocast.
    """

    batch: int | None = None
    sequence: int | None = None
    tokens: int | None = None
    capacity: int | None = None
    margin: int = 0
    throughput: Fraction | None = None
    peak: int | None = None
    devices: int = 1
    device: str | None = None
    autocast: str | None = None


def table_budget(table: ParameterTable, sharding: Sharding | None = None) -> StateBudget:
    """Return the budget of what *table* counted: each storage once, states as the optimizer made them in its first step.

    A note says whether the states are those of the optimizer's closed form.

    Raises:
        InputError: the sharding does not go with counted tensors.
    """
    division = sharding or Sharding()
    rows = [*_weights(table, division)]
    if table.buffers:
        count = sum(row.buffer for row in table.rows)
        rows.append(StateRow("buffer", "buffers", "", 0, table.buffers, table.buffers, f"counted: {count:,} storages, on every rank"))
    trained = [row for row in table.rows if row.trainable and not row.buffer]
    elements = sum(row.elements for row in trained)
    stage = WEIGHTS + 1 if division.whole_gradients else GRADIENTS
    rows += _by_kind("gradient", "gradients", {row: row.gradient for row in trained}, division, stage)
    eager = optimizer_of(table).split("+")[0] == "adagrad"
    rows += [_state(key, size, elements, division, eager) for key, size in table.by_key.items()]
    return StateBudget(
        tuple(rows),
        table.elements,
        elements,
        optimizer_of(table),
        table.counters,
        division,
        tuple(_against_closed_form(table, trained)),
    )


def _weights(table: ParameterTable, division: Sharding) -> list[StateRow]:
    made = []
    for trained in (True, False):
        chosen = {row: row.size for row in table.rows if not row.buffer and row.trainable is trained}
        made += _by_kind("parameter", "weights" if trained else "frozen weights", chosen, division, WEIGHTS)
    return made


def _by_kind(category: str, name: str, sizes: Mapping[StorageRow, int], division: Sharding, stage: int) -> list[StateRow]:
    kinds: dict[str, list[StorageRow]] = {}
    for row in sizes:
        kinds.setdefault(row.dtype, []).append(row)
    made = []
    for dtype, rows in kinds.items():
        whole = sum(sizes[row] for row in rows)
        shapes = [(row.elements,) if division.unit == "flat" else row.shape for row in rows]
        elements = sum(row.elements for row in rows)
        width = ceil_div(whole, elements) if elements else 0
        mine = division.shard(shapes, stage) if division.divides else elements
        size = mine * width if division.divides else whole
        formula = f"counted: {len(rows):,} storage{'' if len(rows) == 1 else 's'} of {elements:,} elements"
        formula += f", of which {mine:,} here" if mine != elements else ""
        made.append(StateRow(category, name, _short_type(dtype), mine, size, whole, formula))
    return made


def _state(key: str, size: int, trained: int, division: Sharding, eager: bool) -> StateRow:
    width = size // trained if trained and size % trained == 0 else 1
    elements = size // width
    mine = division.shard([(elements,)], STATES) if division.divides and division.unit == "flat" else elements
    if division.divides and division.unit != "flat" and division.stage >= STATES:
        mine = ceil_div(elements, division.data)
    formula = "counted after a first step" + (f", {mine:,} of {elements:,} elements here" if mine != elements else "")
    return StateRow("optimizer_state", key, f"{width}-byte" if width > 1 else "", mine, mine * width, size, formula, eager)


def _short_type(dtype: str) -> str:
    try:
        return type_name(dtype)
    except InputError:
        return dtype


def optimizer_of(table: ParameterTable) -> str:
    """Return the names of the optimizers of *table*, with the switches that their states give away; ``none`` without one."""
    names = []
    for each in table.optimizer:
        name = each.lower()
        if len(table.optimizer) == 1:
            name += "".join(f"+{switch}" for switch, key in SWITCHES.get(name, {}).items() if key in table.by_key)
        names.append(name)
    return ", ".join(names) or "none"


def _against_closed_form(table: ParameterTable, trained: list[StorageRow]) -> list[str]:
    """Say whether the states are those of the closed form."""
    name = optimizer_of(table)
    if name.split("+")[0] not in OPTIMIZERS or name == "none" or table.own:
        return [] if name == "none" else [f"{name} has no closed form here: its states are as counted"]
    parts = [Part(row.shape, _short_type(row.dtype)) for row in trained]
    try:
        expected = state_budget(parts, optimizer=find_optimizer(name)).of("optimizer_state")
    except InputError:
        return []
    if expected == table.state:
        return [f"the states are those of the closed form of {name}, to the byte"]
    return [f"the closed form of {name} gives {expected:,} B of states: {table.state - expected:+,} B counted beside it"]


def file_report(
    title: str,
    table: ParameterTable,
    given: Given,
    *,
    step: Step | None = None,
    largest: LargestBatch | None = None,
    sharding: Sharding | None = None,
    weight_file: WeightFile | None = None,
) -> BudgetReport:
    """Return the report on what a file defines.

    Args:
        title: what it is called.
        table: its parameters, counted.
        given: what is told beside it.
        step: a captured step.
        largest: the largest micro-batch, found by captures.
        sharding: how it is divided.
        weight_file: the header of a file with its weights.

    Raises:
        InputError: what is told does not go together.
    """
    states = table_budget(table, sharding)
    tokens = given.batch * given.sequence if given.batch and given.sequence else None
    work = PlannedWork(
        table.elements,
        given.tokens,
        None if given.tokens is None else training_flops(table.elements, given.tokens),
        step=None if step is None else sum(row.flops for row in step.captured.operators) // max(1, len(step.captured.steps)),
        step_tokens=tokens,
    )
    time = None
    if work.flops:
        time = planned_time(
            work,
            peak=given.peak,
            devices=given.devices,
            device=given.device,
            throughput=given.throughput,
            sequence=given.sequence,
            measured="as given" if given.throughput else None,
        )
    types = types_of(states) | ({"autocast": given.autocast} if given.autocast else {})
    names = tuple(row.names[0] for row in table.rows if not row.buffer and not row.trainable)
    opening = Opening(
        "training" if table.optimizer else "inference",
        table.elements,
        states.trainable,
        "all",
        given.batch,
        given.sequence,
        given.tokens,
        types,
        states.optimizer,
        names,
        sharding_text(states),
        True,
    )
    memory = None if step is None else step_memory(step, given)
    made = BudgetReport(title, opening, (("states", states),), memory, largest, work=work, time=time, weight_file=weight_file)
    return replace(made, missing=missing_of(made), not_counted=not_counted_of(made))


def largest_batch(found: Verified) -> LargestBatch:
    """Return what *found*, the largest batch by captures on both sides, is in a report."""
    probes = tuple((each.batch, each.peak(found.basis)) for each in found.runs)
    if found.value < 0:
        return LargestBatch(-1, f"{len(probes):,} captures", probes, "not even what does not depend on the batch fits")
    if found.binding == Binding.LIMIT:
        text = f"the most that was looked for: memory does not bind, {found.left or 0:,} B are left"
    else:
        text = f"the next needs {found.deficit or 0:,} B more {found.basis} than there are" + (f", in {found.phase}" if found.phase else "")
    beside = f", though {', '.join(map(str, found.sought.holes))} did not fit" if found.sought.holes else ""
    return LargestBatch(found.value, f"captured at it and at the next, {len(probes):,} captures in all{beside}", probes, text)


def step_memory(step: Step, given: Given) -> StepMemory:
    """Return the memory of the last measured step, told by category at its peak."""
    captured, replayed = step.captured, step.replayed
    last = captured.steps[-1]
    peak = replayed.span_peak(last)
    shares = {share.key: share.size for share in attribute(replayed, "category", peak.event, None).shares}
    static = sum(shares.get(category.word, 0) for category in STATIC)
    kept = shares.get(Category.ACTIVATION.word, 0)
    spans = captured.trace.devices[0].spans
    first = next(span for span in spans if span.kind == "step")
    phase = next((span.name for span in reversed(spans) if span.kind == "phase" and span.start <= peak.event < span.stop), None)
    operator = next((row.name for row in captured.operators if row.start <= peak.event < row.stop), None)
    return StepMemory(
        "simulated",
        "requested",
        static,
        kept,
        most_activations(captured.trace.devices[0].events, last),
        peak.size - static - kept,
        peak.size,
        peak.event,
        " · ".join(word for word in (phase, operator) if word) or None,
        replayed.span_peak(first).size,
        step.prediction.steps[-1].reserved,
        given.margin,
        given.capacity if given.capacity is not None else captured.profile.capacity,
    )


def most_activations(events: Events, step: Span) -> int:
    """Return the most bytes of activations live at once within *step* of a capture, where every storage has a number of its own."""
    made = events.kind == Kind.ALLOC
    sizes = np.zeros(int(events.address.max(initial=0)) + 1, dtype=np.int64)
    kept = made & (events.category == Category.ACTIVATION)
    sizes[events.address[kept]] = events.size[kept]
    change = np.where(kept, events.size, 0) - np.where(events.kind == Kind.FREE, sizes[events.address], 0)
    return int(np.cumsum(change)[step.start : step.stop].max(initial=0))
