"""What if these modules were recomputed, tensors were divided among ranks, or lay on the host: from one capture without any of it.

The edits themselves are in :mod:`lifecycle_sim.program.remat` and :mod:`lifecycle_sim.program.edits`; here their trace is given to the
replay and to the allocator's model, beside the trace as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Category, DeviceTrace, Kind, Span, Trace
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.program.edits.offload import Offload, Transfers
from lifecycle_sim.program.edits.sharding import Communication, Sharding
from lifecycle_sim.program.remat import Edit, chosen_policy, edit
from lifecycle_sim.program.remat.holds import Happens
from lifecycle_sim.program.remat.policies import Policy
from lifecycle_sim.program.step_graph import NO_STORAGE, StepGraph, StepOperator
from lifecycle_sim.program.stored_steps import graphs_of
from lifecycle_sim.replay import DeviceReplay, replay_device
from lifecycle_sim.replay.attribution import Share, attribute
from lifecycle_sim.study.prediction import Prediction, StepLevels, predict
from lifecycle_sim.study.roofline import Rates, Seconds, rates_of, time_of
from lifecycle_sim.study.step_edits import CPU_RNG_STATE as CPU_RNG_STATE
from lifecycle_sim.study.step_edits import Asked, edited
from lifecycle_sim.units import format_exact

HOLDERS = 5
SLICES = 100
REENTRANT = (
    "reentrant checkpointing (use_reentrant=True) runs the whole call again, keeps its output, and re-enters autograd: its schedule is "
    "another, and this answer would not be exact for it. Ask without it, or capture the step with it"
)


class Captured(Protocol):
    """What was captured."""

    @property
    def trace(self) -> Trace:
        """Its trace."""


@dataclass(frozen=True)
class Cost:
    """What operators cost.

    Attributes:
        operators: how many.
        flops: floating-point operations, of those that torch's registry knows.
        moved: bytes that they read and write.
        seconds: as given, or at least, by the card's roofline; None where neither is known.
    """

    operators: int
    flops: int
    moved: int
    seconds: float | None


@dataclass(frozen=True)
class Binding:
    """The event that binds: where the peak is.

    Attributes:
        event: its number in the trace.
        operator: the operator that runs then, None before the first.
        phase: forward, backward, recompute or optimizer, or "".
        module: the operator's module.
        holders: who holds the bytes there: owners, the largest first.
    """

    event: int
    operator: str | None
    phase: str
    module: str
    holders: tuple[Share, ...]


@dataclass(frozen=True)
class Change:
    """One thing that recomputation changes, or does not: in bytes or floating-point operations."""

    what: str
    unit: str
    base: int
    edited: int


@dataclass(frozen=True)
class Recompute(Shown):
    """A step as it was captured, and as it would be with modules recomputed.

    Attributes:
        modules: the modules, each once.
        calls: how many calls of them are checkpointed in the step.
        early_stop: whether recomputation stops at the last tensor needed.
        saved: names of the operators whose outputs a policy saves.
        step: the step's name.
        base, edited: its levels.
        base_binding, binding: where its requested peak is.
        cost: the step's operators as they were.
        extra: those that run again.
        bound: whether the seconds are a lower bound, by the roofline.
        changes: what changes and what does not.
        base_trace, trace: the traces; all steps of ``trace`` are edited.
        edits: the edit of each step.
        upper: the most requested bytes, as captured and edited, if every kernel term without a value took its most.
        prediction: what the allocator makes of ``trace`` on the device with its capacity.
        notes: what differs in values, and what is not counted.
        ran: what all operators of the edited step cost.
        edited_by: the edits beside recomputation, in words.
        communication: what a rank exchanges with the others in the step; None without sharding.
        transfers: what the copies to the host and back come to; None without any.
    """

    modules: tuple[str, ...]
    calls: int
    early_stop: bool
    saved: tuple[str, ...]
    step: str
    base: StepLevels
    edited: StepLevels
    base_binding: Binding
    binding: Binding
    cost: Cost
    extra: Cost
    bound: bool
    changes: tuple[Change, ...]
    base_trace: Trace
    trace: Trace
    edits: tuple[Edit, ...]
    upper: tuple[int, int]
    prediction: Prediction
    notes: tuple[str, ...]
    ran: Cost
    edited_by: tuple[str, ...] = ()
    communication: Communication | None = None
    transfers: Transfers | None = None

    @property
    def saves(self) -> int:
        """The requested bytes by which the peak goes down."""
        return self.base.requested - self.edited.requested

    @property
    def why(self) -> str:
        """One sentence on what binds: why the peak is no lower."""
        bound, was = self.binding, self.base_binding
        where = (
            f"{bound.operator or 'the beginning of the step'}{f' of {bound.module}' if bound.module else ''} in {bound.phase or 'no phase'}"
        )
        if self.saves <= 0:
            return f"the peak does not go down: it is at {where}, where what the plan lets go is not held"
        if (bound.operator, bound.module, bound.phase) == (was.operator, was.module, was.phase):
            return f"the peak stays at {where}, lower by {format_exact(self.saves)}"
        if bound.phase == "optimizer":
            return f"the peak moved to {where}, where no activation is held: more recomputation does not lower it"
        return f"the peak moved to {where}"

    @cached_property
    def categories(self) -> tuple[tuple[str, int, int], ...]:
        """For each category its bytes at the base's peak and at the edited peak."""
        shares = [_categories(trace, binding) for trace, binding in ((self.base_trace, self.base_binding), (self.trace, self.binding))]
        keys = dict.fromkeys([*shares[0], *shares[1]])
        return tuple((key, shares[0].get(key, 0), shares[1].get(key, 0)) for key in keys)

    @cached_property
    def curves(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The highest requested bytes in each of equal parts of the step's events, as it was and edited."""
        return _curve(self.base_trace, self.step), _curve(self.trace, self.step)

    def __repr__(self) -> str:
        return (
            f"Recompute({len(self.modules)} modules, peak {self.base.requested:,} B → {self.edited.requested:,} B requested, "
            f"{self.extra.operators:,} operators again)"
        )

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        return [
            ("recomputed", f"{self.calls:,} calls of {len(self.modules):,} modules"),
            *(
                (f"peak {level}", f"{format_exact(getattr(self.base, level))} → {format_exact(getattr(self.edited, level))}")
                for level in ("requested", "allocated", "reserved")
            ),
            ("runs again", f"{self.extra.operators:,} operators, {self.extra.flops:,} FLOPs"),
            ("binding", self.why),
        ]


def what_if(
    captured: Captured | Trace,
    checkpoint: str | Iterable[str] = (),
    policy: Policy | None = None,
    early_stop: bool = True,
    preserve_rng: bool = True,
    *,
    optimizer: str | None = None,
    sharding: Sharding | str | None = None,
    offloaded: Offload | None = None,
    base: Captured | Trace | None = None,
    reentrant: bool = False,
    capacity: int | None = None,
    settings: str = "",
    rates: Rates | None = None,
    seconds: Seconds | None = None,
) -> Recompute:
    """Return what *captured* would be if torch checkpointed modules of it, or it were edited otherwise: every allocation and free.

    Args:
        captured: a capture of training steps without checkpointing of these modules, or its trace.
        checkpoint: paths of modules, or patterns such as ``"blocks.*"`` and ``"blocks.[0-5].mlp"``; see docs/whatif.md.
        policy: operators whose outputs are saved all the same: their names, a policy by name, or a function of an operator.
        early_stop: whether recomputation stops at the last tensor needed, as is torch's default.
        preserve_rng: whether each call keeps the state of the random number generators.
        optimizer: ``"sgd"``: plain SGD in place of the capture's optimizer.
        sharding: what is divided among ranks, such as ``"zero3:8"``.
        offloaded: what lies on the host for a while.
        base: what to compare with, in place of *captured*: a capture of the program before it was changed.
        reentrant: refused: its schedule is another.
        capacity: bytes of the device, in place of the card's own.
        settings: allocator options in PyTorch's syntax.
        rates: what the card does at most, in place of what is known of the card of the capture.
        seconds: the time of operators, by name or as a function, in place of the roofline.

    Raises:
        InputError: the capture holds no operators; nothing is chosen; or the answer would not be exact, and why.
    """
    if reentrant:
        raise InputError(REENTRANT)
    trace = captured if isinstance(captured, Trace) else captured.trace
    graphs = graphs_of(trace)
    patterns = [checkpoint] if isinstance(checkpoint, str) else list(checkpoint)
    if not patterns and optimizer is None and sharding is None and offloaded is None and base is None:
        raise InputError("no module is named, and no other edit: give paths or patterns, such as 'blocks.*'")
    before = trace if base is None else base if isinstance(base, Trace) else base.trace
    known = _rates(trace) if rates is None and seconds is None else rates
    divided = Sharding.parse(sharding) if isinstance(sharding, str) else sharding
    asked = Asked(tuple(patterns), policy, early_stop, preserve_rng, optimizer, divided, offloaded)
    made = edited(trace, graphs, asked, known, seconds)
    edits, last = made.edits, graphs[-1]
    old = last if base is None else graphs_of(before)[-1]
    levels = [predict(_unlimited(each), settings=settings) for each in (before, made.trace)]
    steps = [_levels_of(prediction, graph.name) for prediction, graph in zip(levels, (old, last), strict=True)]
    replays = [replay_device(each) for each in (before, made.trace)]
    ran = [last.operators[number] for number in edits[-1].again]
    as_it_was = edit(old)
    return Recompute(
        modules=tuple(dict.fromkeys(last.calls[number].module for number in sorted(edits[-1].calls))),
        calls=len(edits[-1].calls),
        early_stop=early_stop,
        saved=tuple(sorted({last.operators[number].name for number in (chosen_policy(last, policy) if policy is not None else ())})),
        step=last.name,
        base=steps[0],
        edited=steps[1],
        base_binding=_binding(replays[0], old.name, as_it_was),
        binding=_binding(replays[1], last.name, edits[-1]),
        cost=_cost(old.operators, known, seconds),
        extra=_cost(ran, known, seconds),
        bound=seconds is None,
        changes=_changes(before, made.trace, old, edits[-1]),
        base_trace=before,
        trace=made.trace,
        edits=edits,
        upper=(_upper(before, as_it_was), _upper(made.trace, edits[-1])),
        prediction=_within(made.trace, levels[1], capacity, settings),
        notes=made.notes,
        ran=_cost(list(_operators(edits[-1])), known, seconds),
        edited_by=asked.told(),
        communication=made.communication,
        transfers=made.transfers,
    )


def _operators(edited: Edit) -> Iterable[StepOperator]:
    for event in edited.events:
        if event.happens in (Happens.OPERATOR, Happens.AGAIN):
            yield edited.graph.operators[event.value]


def _levels_of(prediction: Prediction, step: str) -> StepLevels:
    return next(levels for levels in prediction.steps if levels.name == step)


def _unlimited(trace: Trace) -> Trace:
    return replace(trace, devices=(replace(trace.devices[0], capacity=None),))


def _within(trace: Trace, unlimited: Prediction, capacity: int | None, settings: str) -> Prediction:
    """What the allocator makes of *trace* with what the device has; that of one without a limit if it never asks for more."""
    room = trace.devices[0].capacity if capacity is None else capacity
    if room is None or unlimited.peak("reserved") <= room:
        return unlimited
    return predict(trace, capacity=room, settings=settings)


def _upper(trace: Trace, edited: Edit) -> int:
    """The most requested bytes of the step if every kernel term without a value took its most."""
    recorded = trace.devices[0]
    start = _span(recorded, edited.graph.name).start
    level = highest = int(_signed(recorded)[:start].sum())
    pending = 0
    for event in edited.events:
        if event.happens is not Happens.ALLOC:
            highest = max(highest, level + pending)
            pending = 0
        if event.happens is Happens.ALLOC:
            level += edited.size(event.value)
            highest = max(highest, level)
        elif event.happens is Happens.FREE:
            level -= edited.size(event.value)
        else:
            pending = edited.graph.operators[event.value].upper
    return max(highest, level + pending)


def _rates(trace: Trace) -> Rates | None:
    header = trace.settings.get("capture", {})
    card = header.get("device", {}).get("name") if isinstance(header, dict) else None
    try:
        return rates_of(str(card))
    except InputError:
        return None


def _cost(operators: Sequence[StepOperator], rates: Rates | None, seconds: Seconds | None) -> Cost:
    return Cost(
        len(operators), sum(row.flops for row in operators), sum(row.moved for row in operators), time_of(operators, rates, seconds)
    )


def _span(recorded: DeviceTrace, step: str) -> Span:
    return next(span for span in recorded.spans if span.kind == "step" and span.name == step)


def _binding(replayed: DeviceReplay, step: str, edited: Edit) -> Binding:
    """Where the requested peak of *step* is, and who holds it there."""
    span = _span(replayed.recorded, step)
    peak = replayed.span_peak(span)
    operator, again = None, False
    at = span.start
    for event in edited.events:
        if event.happens in (Happens.OPERATOR, Happens.AGAIN):
            operator, again = event.value, event.happens is Happens.AGAIN
        elif at == peak.event:
            break
        else:
            at += 1
    row = None if operator is None else edited.graph.operators[operator]
    holders = attribute(replayed, "owner", peak.event, HOLDERS).shares
    return Binding(
        peak.event,
        None if row is None else row.name,
        "recompute" if again else "" if row is None else row.phase,
        "" if row is None else row.module,
        tuple(holders),
    )


def _categories(trace: Trace, binding: Binding) -> dict[str, int]:
    return {share.key: share.size for share in attribute(replay_device(trace), "category", binding.event, None).shares}


def _signed(recorded: DeviceTrace) -> Int64:
    events = recorded.events
    return np.where(events.kind == Kind.ALLOC, events.size, -events.size)


def _curve(trace: Trace, step: str) -> tuple[int, ...]:
    recorded = trace.devices[0]
    span = _span(recorded, step)
    levels = np.cumsum(_signed(recorded))[span.start : span.stop]
    return tuple(int(part.max()) for part in np.array_split(levels, min(SLICES, max(1, len(levels)))) if len(part))


def _most(trace: Trace, step: str, category: Category) -> int:
    """The most bytes of *category* at a time in *step*."""
    recorded = trace.devices[0]
    span = _span(recorded, step)
    levels = np.cumsum(np.where(recorded.events.category == category, _signed(recorded), 0))
    return int(levels[max(span.start - 1, 0) : span.stop].max(initial=0))


def _changes(base: Trace, changed: Trace, graph: StepGraph, edited: Edit) -> tuple[Change, ...]:
    """What the edit changes, and what it does not; *graph* is the step before it."""
    kinds = (
        ("parameters", Category.PARAMETER),
        ("buffers", Category.BUFFER),
        ("gradients", Category.GRADIENT),
        ("optimizer state", Category.OPTIMIZER_STATE),
        ("activations", Category.ACTIVATION),
    )
    rows = [Change(f"{name}, at most", "B", *(_most(trace, graph.name, kind) for trace in (base, changed))) for name, kind in kinds]
    after = edited.graph
    inputs = {storage for number in edited.calls for storage in (*after.calls[number].inputs, *after.calls[number].others)} - {NO_STORAGE}
    rows.append(Change("inputs held at the boundary", "B", 0, sum(after.sizes[storage] for storage in inputs)))
    flops = [sum(row.flops for row in each.operators) for each in (graph, after)]
    rows.append(Change("FLOPs of the model, forward and backward", "FLOPs", *flops))
    rows.append(Change("FLOPs run again", "FLOPs", 0, sum(after.operators[number].flops for number in edited.again)))
    return tuple(rows)
