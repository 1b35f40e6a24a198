"""Selective checkpointing: the operators whose outputs are saved inside of a region, so that they are not run again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.step_graph import StepGraph, StepOperator
from lifecycle_sim.spelling import closest

SAVED = ("must_save", "prefer_save")
POLICIES = (*SAVED, "prefer_recompute", "must_recompute")
"""torch's ``CheckpointPolicy`` in lower case. Without a compiler that may think otherwise, ``prefer`` and ``must`` are the same."""
Policy = Mapping[str, str] | Iterable[str] | Callable[[StepOperator], str]


def chosen_policy(graph: StepGraph, policy: Policy | None) -> frozenset[int]:
    """Return the numbers of the forward operators whose outputs *policy* saves.

    Args:
        graph: the step.
        policy: a policy by operator name, with ``prefer_recompute`` for all others; or the names of the operators to save, as torch takes
            them; or a function of an operator.

    Raises:
        InputError: a policy or an operator is not known, or a name lacks its overload, which torch would match with nothing.
    """
    if policy is None:
        return frozenset()
    forward = [(number, each) for number, each in enumerate(graph.operators) if each.phase in ("forward", "")]
    problems = []
    if callable(policy):
        told = {number: policy(each) for number, each in forward}
        problems += [
            f"policy {name!r} is not known: the policies are {', '.join(POLICIES)}" for name in sorted({*told.values()} - {*POLICIES})
        ]
    else:
        by_name = dict(policy) if isinstance(policy, Mapping) else dict.fromkeys([policy] if isinstance(policy, str) else policy, SAVED[0])
        names = dict.fromkeys(each.name for _, each in forward)
        for name, kind in by_name.items():
            if kind not in POLICIES:
                problems.append(f"policy {kind!r} of {name} is not known: the policies are {', '.join(POLICIES)}")
            if name not in names:
                problems.append(f"policy: no forward operator is called {name!r}{_meant(name, names)}")
        told = {number: by_name.get(each.name, POLICIES[2]) for number, each in forward}
    if problems:
        raise InputError(problems)
    return frozenset(number for number, kind in told.items() if kind in SAVED)


def _meant(name: str, names: Iterable[str]) -> str:
    whole = name if name.startswith("aten.") else f"aten.{name}"
    overloads = [known for known in names if known == whole or known.startswith(whole + ".")]
    if overloads:
        return f": it is an overload that is meant, such as {overloads[0]!r}"
    close = closest(whole, names)
    return f": did you mean {close!r}?" if close else ""
