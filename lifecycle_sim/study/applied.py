"""A plan applied: torch's own checkpoint around the modules that it names, and the step captured again to hold against what was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Trace
from lifecycle_sim.program.remat import edit
from lifecycle_sim.program.remat.plans import Plan
from lifecycle_sim.program.remat.regions import paths_of
from lifecycle_sim.program.stored_steps import graphs_of
from lifecycle_sim.sources.capture.launch import capture, capture_file
from lifecycle_sim.sources.capture.plan import Recomputed
from lifecycle_sim.spelling import closest
from lifecycle_sim.study.plan import RegionPlan
from lifecycle_sim.study.prediction import LEVELS, StepLevels, predict
from lifecycle_sim.study.recompute import Captured, Recompute, what_if
from lifecycle_sim.units import format_exact

Applied = Recompute | RegionPlan | Plan | str | Iterable[str]
"""What can be applied: an answer of ``what_if`` or ``plan``, a point of a frontier, paths and patterns of modules."""


@dataclass(frozen=True)
class VerifiedPlan(Shown):
    """What was told of a plan, held against a capture of the step with torch's checkpoint in it.

    Attributes:
        modules: the modules that torch checkpointed.
        steps: for each step of the captures the levels as told, and as captured with the plan applied.
        operators: how many operators of the last step were compared.
        difference: the first operator that differs in place, high-water or level after it; None if none does.
        trace: the capture with the plan applied.
    """

    modules: tuple[str, ...]
    steps: tuple[tuple[StepLevels, StepLevels], ...]
    operators: int
    difference: str | None
    trace: Trace

    @property
    def predicted(self) -> StepLevels:
        """The levels of the last step, as told."""
        return self.steps[-1][0]

    @property
    def captured(self) -> StepLevels:
        """The levels of the last step, as captured with the plan applied."""
        return self.steps[-1][1]

    @property
    def exact(self) -> bool:
        """Whether nothing differs: no level of any step, and no operator."""
        return self.difference is None and all(told == found for told, found in self.steps)

    def __repr__(self) -> str:
        return (
            f"VerifiedPlan({len(self.modules):,} modules, peak {self.predicted.requested:,} B requested as told, "
            f"{self.captured.requested:,} B as captured, {'exact' if self.exact else 'not exact'})"
        )

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        return [
            ("recomputed", f"{len(self.modules):,} modules"),
            *(
                (
                    f"peak {level}",
                    f"{format_exact(getattr(self.predicted, level))} told, {format_exact(getattr(self.captured, level))} captured",
                )
                for level in LEVELS
            ),
            ("operators", f"{self.operators:,} compared"),
            ("first difference", self.difference or "none"),
        ]


def apply(
    model: Any, plan: Applied, *, early_stop: bool | None = None, preserve_rng: bool = True, saved: Iterable[str] | None = None
) -> Any:
    """Let torch checkpoint the modules of *model* that *plan* chooses, and return the model.

    A plan that was applied before is taken off: of an empty plan nothing is left. Parameters, names of modules and hooks stay as they were.

    Args:
        model: a ``torch.nn.Module``, changed in place.
        plan: an answer of ``ls.what_if`` or ``ls.plan``, a point of ``ls.frontier``, or paths and patterns of modules.
        early_stop: whether recomputation stops at the last tensor needed; by default as the plan says, else True.
        preserve_rng: whether each call keeps the state of the random number generators.
        saved: operators, with their overload, whose outputs are saved all the same; by default as the plan says.

    Raises:
        InputError: the plan chooses nothing that can be applied, or modules that the model does not have.
        MissingExtraError: torch is not installed.
    """
    recomputed = recomputed_by(plan, early_stop, preserve_rng, saved)
    modules = getattr(model, "named_modules", None)
    if modules is None:
        raise InputError(f"a plan is applied to a torch.nn.Module, not to a {type(model).__name__}")
    paths = [path for path, _ in modules()]
    chosen: list[str] = []
    problems = []
    for pattern in recomputed.modules:
        found = paths_of(pattern, paths)
        if not found:
            close = closest(pattern, paths)
            problems.append(f"{pattern!r} chooses no module of the model{f': did you mean {close!r}?' if close else ''}")
        chosen += found
    if problems:
        raise InputError(problems)
    from lifecycle_sim.sources.capture.checkpointing import checkpoint_modules

    checkpoint_modules(model, Recomputed(tuple(dict.fromkeys(chosen)), recomputed.early_stop, recomputed.preserve_rng, recomputed.saved))
    return model


def recomputed_by(
    plan: Applied, early_stop: bool | None = None, preserve_rng: bool = True, saved: Iterable[str] | None = None
) -> Recomputed:
    """Return what *plan* lets torch checkpoint; its modules may still be patterns.

    Raises:
        InputError: there is no plan, it recomputes some calls of a module and not the others, or does more than recompute.
    """
    stop = True
    kept: tuple[str, ...] = ()
    if isinstance(plan, RegionPlan):
        if plan.plan is None:
            raise InputError(f"there is no plan to apply: none was found within {format_exact(plan.budget)}")
        names: Sequence[str] = plan.plan.chosen
    elif isinstance(plan, Plan):
        names = plan.chosen
    elif isinstance(plan, Recompute):
        _all_calls(plan)
        if plan.edited_by:
            raise InputError(f"{', '.join(plan.edited_by)}: only recomputation can be applied; to apply that alone, give its modules")
        names, stop, kept = plan.modules, plan.early_stop, plan.saved
    else:
        names = [plan] if isinstance(plan, str) else list(plan) if isinstance(plan, Iterable) else []
        if not all(isinstance(name, str) for name in names) or not isinstance(plan, Iterable):
            raise InputError(f"there is no plan in {plan!r}: give an answer of ls.what_if, ls.plan or ls.frontier, or paths of modules")
    some = [f"{name!r} is one call of a module: torch's checkpoint is applied to all of them" for name in names if "@" in name]
    if some:
        raise InputError(some)
    return Recomputed(tuple(names), stop if early_stop is None else early_stop, preserve_rng, kept if saved is None else tuple(saved))


def _all_calls(found: Recompute) -> None:
    """Refuse a what-if that recomputes only some of the calls of its modules."""
    last = found.edits[-1]
    wanted = Counter(last.graph.calls[number].module for number in last.calls)
    made = Counter(call.module for call in last.graph.calls if call.grad)
    some = [name for name in found.modules if wanted[name] < made[name]]
    if some:
        raise InputError(
            f"{wanted[name]:,} of {made[name]:,} calls of {name} are recomputed: torch's checkpoint is applied to all of them"
            for name in some
        )


Functions = Mapping[str, Callable[..., Any] | None]


def verify(
    program: str | Functions,
    plan: Applied,
    captured: Captured | Trace | None = None,
    *,
    early_stop: bool | None = None,
    preserve_rng: bool = True,
    saved: Iterable[str] | None = None,
    **options: Any,
) -> VerifiedPlan:
    """Capture a step again with *plan* applied, and hold what was told of it against what torch's own checkpoint makes of it.

    Args:
        program: ``"model.py"`` or ``"model.py:function"`` as for ``ls.capture_file``, or a mapping of the functions that ``ls.capture``
            takes: ``build_model``, ``make_batch``, ``make_optimizer``, ``step``.
        plan: as for :func:`apply`.
        captured: the capture of the program that the plan was made for; made anew by default.
        early_stop: as for :func:`apply`.
        preserve_rng: as for :func:`apply`.
        saved: as for :func:`apply`.
        options: those of ``ls.capture_file`` or ``ls.capture``, such as device, parameters, autocast: the same as for *captured*.

    Raises:
        InputError: what :func:`apply` and ``ls.what_if`` raise; *captured* is of another number of steps.
        CaptureError: the program failed.
        MissingExtraError: torch is not installed.
    """
    asked = recomputed_by(plan, early_stop, preserve_rng, saved)
    base = captured if captured is not None else _capture(program, None, options)
    trace = base if isinstance(base, Trace) else base.trace
    modules: tuple[str, ...] = ()
    edits, predicted = tuple(edit(graph) for graph in graphs_of(trace)), trace
    if asked.modules:
        told = what_if(trace, asked.modules, asked.saved or None, asked.early_stop, asked.preserve_rng)
        edits, predicted, modules = told.edits, told.trace, told.modules
    exactly = Recomputed(modules, asked.early_stop, asked.preserve_rng, asked.saved)
    real = _capture(program, exactly, options).trace
    steps = [predict(each).steps for each in (predicted, real)]
    if len(steps[0]) != len(steps[1]):
        raise InputError(
            f"the plan was made for a capture of {len(steps[0])} steps and verified with {len(steps[1])}: give the same options"
        )
    rows = edits[-1].rows()
    return VerifiedPlan(
        modules=modules,
        steps=tuple(zip(*steps, strict=True)),
        operators=len(rows),
        difference=_difference(rows, edit(graphs_of(real)[-1]).rows()),
        trace=real,
    )


def _capture(program: str | Functions, recomputed: Recomputed | None, options: Mapping[str, Any]) -> Captured:
    if not isinstance(program, str):
        return capture(**program, **options, recomputed=recomputed)  # type: ignore[arg-type]
    path, colon, function = program.rpartition(":") if ".py:" in program else (program, "", "")
    return capture_file(path, function if colon else None, recomputed=recomputed, **options)


def _difference(told: Sequence[tuple[str, int, int]], found: Sequence[tuple[str, int, int]]) -> str | None:
    """The first place at which two steps differ, in words."""
    for place, (one, other) in enumerate(zip(told, found, strict=False)):
        if one[0] != other[0]:
            return f"operator {place:,} was told as {one[0]} and is {other[0]}"
        for what, left, right in (("high-water", one[1], other[1]), ("level after it", one[2], other[2])):
            if left != right:
                return f"operator {place:,}, {one[0]}: its {what} was told as {left:,} B and is {right:,} B"
    if len(told) != len(found):
        return f"{len(told):,} operators were told, and there are {len(found):,}"
    return None
