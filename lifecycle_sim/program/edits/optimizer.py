"""The optimizer of a captured step, left out or swapped for plain SGD, which needs no memory of its own.

SGD without momentum updates every parameter in place from its gradient and keeps nothing, so that a step with it is the captured step
without what the optimizer's phase allocates. Any other optimizer has temporaries and an order of its own, which the capture does not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Category
from lifecycle_sim.program.edits.storages import OPTIMIZER, StorageFacts
from lifecycle_sim.program.remat.editing import Edit
from lifecycle_sim.program.remat.holds import Happens
from lifecycle_sim.program.step_graph import StepGraph

SGD = "sgd"
KEPT = (Category.PARAMETER, Category.BUFFER, Category.GRADIENT, Category.INPUT)


def optimizer_storages(facts: Mapping[int, StorageFacts], name: str) -> frozenset[int]:
    """Return the storages that are not there if the optimizer is the one called *name*.

    Raises:
        InputError: it is not plain SGD.
    """
    if name != SGD:
        raise InputError(
            f"optimizer {name!r}: a capture tells what its own optimizer did, and not the order and the temporaries of another; of a "
            f"capture alone only {SGD!r} (without momentum) is exact, which takes nothing. Ask with the FILE.py, which is captured again"
        )
    return frozenset(
        number
        for number, storage in facts.items()
        if storage.category is Category.OPTIMIZER_STATE or (storage.phase == OPTIMIZER and storage.category not in KEPT)
    )


def must_leave_gradients(graph: StepGraph, facts: Mapping[int, StorageFacts]) -> None:
    """Check that the optimizer's phase makes nothing that stays but state.

    Raises:
        InputError: it makes a parameter or gradient, as one does that does not update in place.
    """
    made = [number for number in graph.made if facts[number].phase == OPTIMIZER and facts[number].category in KEPT]
    if made:
        raise InputError(
            f"{graph.name}: its optimizer makes {facts[made[0]].label!r} anew instead of changing it in place, so that the step without it "
            "is not known: ask with the FILE.py"
        )


def without(edit: Edit, gone: frozenset[int]) -> Edit:
    """Return *edit* without the storages *gone* and without the operators of the optimizer."""
    operators = edit.graph.operators
    events = tuple(
        event
        for event in edit.events
        if (
            event.value not in gone
            if event.happens in (Happens.ALLOC, Happens.FREE)
            else operators[event.value].phase != OPTIMIZER or event.happens is Happens.AGAIN
        )
    )
    return replace(edit, events=events)
