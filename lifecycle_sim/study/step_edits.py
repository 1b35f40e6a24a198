"""The edits of all steps of a capture that a what-if asks for, joined in one order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Trace
from lifecycle_sim.program.edits.offload import Offload, Transfers, offload
from lifecycle_sim.program.edits.optimizer import must_leave_gradients, optimizer_storages, without
from lifecycle_sim.program.edits.sharding import Communication, Sharding, shard, sharded_sizes
from lifecycle_sim.program.edits.storages import OPTIMIZER, storages_of
from lifecycle_sim.program.remat import Edit, chosen_policy, chosen_regions, edit
from lifecycle_sim.program.remat.policies import Policy
from lifecycle_sim.program.remat.trace import edited_trace
from lifecycle_sim.program.step_graph import StepGraph, StepOperator
from lifecycle_sim.study.roofline import Rates, Seconds, time_of

CPU_RNG_STATE = 5056
"""Bytes of the state of the CPU's random number generator, a Mersenne Twister: ``torch.get_rng_state().nbytes``."""


@dataclass(frozen=True)
class Made:
    """The edits of all steps, their trace, and what the last of them comes to."""

    edits: tuple[Edit, ...]
    trace: Trace
    notes: tuple[str, ...]
    communication: Communication | None
    transfers: Transfers | None


@dataclass(frozen=True)
class Asked:
    """What is asked: see :func:`~lifecycle_sim.study.recompute.what_if`."""

    checkpoint: tuple[str, ...] = ()
    policy: Policy | None = None
    early_stop: bool = True
    preserve_rng: bool = True
    optimizer: str | None = None
    sharding: Sharding | None = None
    offloaded: Offload | None = None

    def told(self) -> tuple[str, ...]:
        """Return the edits beside recomputation, in words."""
        found = [] if self.optimizer is None else [f"optimizer {self.optimizer}"]
        found += [] if self.sharding is None else [f"shard {self.sharding}"]
        return tuple(found + ([] if self.offloaded is None else [f"offload {', '.join(self.offloaded.what)}"]))


def edited(trace: Trace, graphs: Sequence[StepGraph], asked: Asked, rates: Rates | None = None, seconds: Seconds | None = None) -> Made:
    """Edit each step of *trace*: recompute, leave the optimizer out, divide, send to the host, in this order.

    Raises:
        InputError: the answer would not be exact, and why.
    """
    optimizer, divided, offloaded, policy = asked.optimizer, asked.sharding, asked.offloaded, asked.policy
    on_host = trace.devices[0].device != "cpu"
    state = CPU_RNG_STATE if asked.preserve_rng and not on_host else 0
    last = graphs[-1]
    calls = chosen_regions(last, asked.checkpoint)
    chosen = {_ordinal(last, number) for number in calls}
    facts = storages_of(trace)
    gone = optimizer_storages(facts, optimizer) if optimizer is not None else frozenset()
    whole = last.sizes
    sizes = whole if divided is None else sharded_sizes(whole, facts, divided)
    if optimizer is not None and offloaded is not None and OPTIMIZER in offloaded.what:
        raise InputError(f"offload optimizer: {optimizer} keeps no state that could lie on the host")
    edits: list[Edit] = []
    exchanged, copied = None, None
    for graph in (replace(each, sizes=sizes) for each in graphs):
        first = edits[-1].first_new + len(edits[-1].copies) if edits else None
        wanted = [number for number, call in enumerate(graph.calls) if call.grad and _ordinal(graph, number) in chosen]
        saved = chosen_policy(graph, policy) if policy is not None else ()
        made = edit(graph, wanted, saved, asked.early_stop, state, first)
        if optimizer is not None:
            must_leave_gradients(graph, facts)
            made = without(made, gone)
        if divided is not None:
            made, exchanged = shard(made, facts, divided, whole)
        if offloaded is not None:
            made, copied = offload(made, facts, offloaded, [_nanoseconds(row, rates, seconds) for row in graph.operators])
        edits.append(made)
    notes = dict.fromkeys(note for each in edits for note in each.notes)
    ran = [last.operators[number] for number in edits[-1].again]
    if not asked.preserve_rng and any(row.random for row in ran):
        notes["the state of the random number generators is not preserved: what is drawn again differs, and gradients are wrong"] = None
    if asked.preserve_rng and on_host and calls:
        notes[f"each live call keeps {CPU_RNG_STATE:,} bytes and 16 for each device as generator state, on the host: not counted"] = None
    if optimizer is not None:
        notes[f"the optimizer's own operators are left out: those of {optimizer} are not in the capture, and take no memory"] = None
    if divided is not None:
        notes["each tensor is gathered and reduced by itself, none ahead: buffers that a library joins or fetches ahead come on top"] = None
    if offloaded is not None and seconds is None:
        notes["copies run beside operators at their least time, by the card's roofline: a real card leaves them more to hide behind"] = None
    return Made(tuple(edits), edited_trace(trace, edits, gone), tuple(notes), exchanged, copied)


def _nanoseconds(row: StepOperator, rates: Rates | None, seconds: Seconds | None) -> int:
    """The time of one operator, in whole nanoseconds.

    Raises:
        InputError: it is not known.
    """
    took = time_of([row], rates, seconds)
    if took is None:
        raise InputError(
            "offload: the rates of the card are not known, and without times of operators nothing tells what copies hide behind"
        )
    return round(took * 10**9)


def _ordinal(graph: StepGraph, number: int) -> tuple[str, int]:
    """A call as its module and which call of it this is."""
    module = graph.calls[number].module
    return module, sum(call.module == module for call in graph.calls[:number])
