"""What is there whatever the batch: weights, gradients, master weights, moments and buffers, in exact bytes.

Three published figures for "bytes a parameter with bf16 and Adam" differ because their recipes do, so a recipe is always an input: the
types of weights, gradients, master weights and moments, and the optimizer with its switches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.adapters import Quantised
from lifecycle_sim.study.budget.optimizers import Optimizer, find_optimizer, scalar_bytes
from lifecycle_sim.study.budget.sharding import Sharding
from lifecycle_sim.study.budget.widths import Type, bytes_of, count, type_name, width_text
from lifecycle_sim.units import format_exact

WEIGHTS, GRADIENTS, STATES = 3, 2, 1
"""From which ZeRO stage on a kind is divided."""


@dataclass(frozen=True)
class Part:
    """Some parameters of a model.

    Attributes:
        shape: the sizes of a tensor; of a plain count, the count alone.
        kind: the type of its elements; None: that of the recipe.
        trainable: whether it gets a gradient; without one it has no state either.
        counted: whether it is a count of parameters whose tensors are not known.
    """

    shape: tuple[int, ...]
    kind: str | None = None
    trainable: bool = True
    counted: bool = False

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return prod(self.shape)


@dataclass(frozen=True)
class StateRow:
    """One line of a budget.

    Attributes:
        category: ``parameter``, ``buffer``, ``gradient`` or ``optimizer_state``.
        name: what it is.
        kind: the type of its elements.
        elements: how many elements one rank holds.
        size: their bytes on one rank.
        whole: the bytes of all, not divided.
        formula: how the bytes follow.
        eager: whether it is there before the first step.
    """

    category: str
    name: str
    kind: str
    elements: int
    size: int
    whole: int
    formula: str
    eager: bool = True


@dataclass(frozen=True)
class StateBudget(Shown):
    """The bytes of one rank that do not depend on the batch: payload, from closed forms.

    Attributes:
        rows: one for each kind.
        parameters: elements of all parameters, each once.
        trainable: those of them that are trained.
        optimizer: its name with its switches.
        counters: bytes of scalars that the optimizer keeps on the host for each tensor, 0 of a plain count; in no total.
        sharding: how it is divided.
        notes: what was assumed.
    """

    rows: tuple[StateRow, ...]
    parameters: int
    trainable: int
    optimizer: str
    counters: int
    sharding: Sharding
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Bytes of one rank once the first step is done and the next step's gradients are there."""
        return sum(row.size for row in self.rows)

    @property
    def before_first_step(self) -> int:
        """Bytes of one rank before the optimizer's first step, gradients included."""
        return sum(row.size for row in self.rows if row.eager)

    def of(self, category: str) -> int:
        """Return the bytes of one rank in *category*."""
        return sum(row.size for row in self.rows if row.category == category)

    def __repr__(self) -> str:
        return f"StateBudget({self.parameters:,} parameters, {self.trainable:,} trainable, {self.total:,} B)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        rows = [(row.name, f"{format_exact(row.size)}: {row.formula}") for row in self.rows]
        return [*rows, ("before the first step", format_exact(self.before_first_step)), ("total", format_exact(self.total))]


@dataclass(frozen=True)
class Recipe:
    """The types that a training run keeps, and its optimizer.

    Attributes:
        weights: type of the weights that the model computes with.
        gradients: type of the gradients; None: that of the weights.
        master: type of a second copy of the trained weights; None without one.
        main_gradients: type of a second copy of the gradients, beside the masters; None without one. Megatron has one with fp16 gradients.
        moments: type of the moments; None: that of the master weights, else of the weights, as PyTorch does.
        optimizer: its name, with switches such as ``"adamw+amsgrad"``.
    """

    weights: Type = "fp32"
    gradients: Type | None = None
    master: Type | None = None
    main_gradients: Type | None = None
    moments: Type | None = None
    optimizer: str | Optimizer = "adam"


def state_budget(
    parameters: int | Iterable[Part],
    *,
    weights: Type = "fp32",
    gradients: Type | None = None,
    master: Type | None = None,
    main_gradients: Type | None = None,
    moments: Type | None = None,
    optimizer: str | Optimizer = "adam",
    trainable: int | None = None,
    frozen_weights: Type | Quantised | None = None,
    buffers: int = 0,
    sharding: Sharding | None = None,
) -> StateBudget:
    """Return what weights, gradients and states take on one rank.

    Args:
        parameters: how many parameters there are, each once however many names it has; or the parts they are made of.
        weights: type of the weights, or its width in bytes.
        gradients: type of the gradients, by default that of the weights.
        master: type of the optimizer's own copy of the weights, by default none.
        main_gradients: type of the optimizer's own copy of the gradients, by default none.
        moments: type of the moments, by default that of the master weights if there are any, else of the weights.
        optimizer: ``"adam"``, ``"adamw+amsgrad"``, ``"sgd+momentum"``, …; ``"none"`` for inference: no gradients and no states.
        trainable: how many of a plain count are trained, by default all; gradients and states are for these alone.
        frozen_weights: type of the weights that are not trained, or how they are quantised; by default as the others.
        buffers: bytes of buffers, which are never divided.
        sharding: how it is divided over ranks, by default not at all.

    Raises:
        InputError: a count is negative, a width not positive, or a name not known.
    """
    recipe = Recipe(weights, gradients, master, main_gradients, moments, optimizer)
    chosen = find_optimizer(optimizer)
    parts = _parts(parameters, trainable)
    if chosen.name == "none":
        parts = tuple(replace(part, trainable=False) for part in parts)
    learned = [part for part in parts if part.trainable]
    division = sharding or Sharding()
    if division.whole and len(parts) > 1:
        raise InputError("elements kept whole go with one plain count of trained parameters: give each rank's own parameters instead")
    if chosen.factored and any(part.counted for part in learned):
        raise InputError(f"{chosen.name} keeps sums over rows and columns: give the shapes of the parameters, not their count")
    rows = [*_weights(parts, recipe, frozen_weights, division)]
    if count("bytes of buffers", buffers):
        rows.append(StateRow("buffer", "buffers", "", 0, buffers, buffers, "as given, on every rank"))
    rows += _trained(learned, recipe, chosen, division)
    return StateBudget(
        tuple(rows),
        sum(part.elements for part in parts),
        sum(part.elements for part in learned),
        chosen.name,
        scalar_bytes(chosen, sum(not part.counted for part in learned)),
        division,
    )


def _parts(parameters: int | Iterable[Part], trainable: int | None) -> tuple[Part, ...]:
    if isinstance(parameters, Iterable) and not isinstance(parameters, str):
        if trainable is not None:
            raise InputError("trainable goes with a plain count: of parts each says itself whether it is trained")
        parts = tuple(parameters)
        for part in parts:
            for size in part.shape:
                count("a size of a parameter", size)
        return parts
    whole = count("parameters", parameters)
    trained = whole if trainable is None else count("trainable parameters", trainable)
    if trained > whole:
        raise InputError(f"{trained:,} trainable parameters of {whole:,}: there are not so many")
    learned, frozen = Part((trained,), counted=True), Part((whole - trained,), trainable=False, counted=True)
    return tuple(part for part in (learned, frozen) if part.elements) or (learned,)


Shapes = Sequence[tuple[int, ...]]


def _by_kind(parts: Iterable[Part], override: Type | None, default: Type) -> Mapping[str, Shapes]:
    """The shapes of *parts* by the type of what is kept for them: *override*, else the part's own, else *default*."""
    kinds: dict[str, list[tuple[int, ...]]] = {}
    for part in parts:
        kinds.setdefault(type_name(override if override is not None else part.kind or default), []).append(part.shape)
    return kinds


def _row(category: str, name: str, kind: Type, shapes: Shapes, division: Sharding, stage: int, eager: bool) -> StateRow:
    whole = sum(prod(shape) for shape in shapes)
    mine = division.shard(shapes, stage)
    return StateRow(
        category,
        name,
        type_name(kind),
        mine,
        bytes_of(mine, kind),
        bytes_of(whole, kind),
        f"{width_text(kind)} × {division.formula(whole, stage)}",
        eager,
    )


def _weights(parts: Sequence[Part], recipe: Recipe, frozen: Type | Quantised | None, division: Sharding) -> Iterable[StateRow]:
    for trained in (True, False):
        chosen = [part for part in parts if part.trainable is trained]
        name = "weights" if trained or all(not part.trainable for part in parts) else "frozen weights"
        if not trained and isinstance(frozen, Quantised):
            yield from _quantised(chosen, frozen, division)
            continue
        override = frozen if not trained and not isinstance(frozen, Quantised) else None
        for kind, shapes in _by_kind(chosen, override, recipe.weights).items():
            yield _row("parameter", name, kind, shapes, division, WEIGHTS, True)


def _quantised(parts: Sequence[Part], rule: Quantised, division: Sharding) -> Iterable[StateRow]:
    shapes = [part.shape for part in parts]
    whole = sum(prod(shape) for shape in shapes)
    if not whole:
        return
    mine = division.shard(shapes, WEIGHTS)
    rows = sum(prod(shape[:-1]) for shape in shapes)
    sizes, all_of = rule.sizes(mine, rows), rule.sizes(whole, rows)
    for key, size in sizes.items():
        kind = type_name(rule.kind if key == "weights" else rule.scale)
        held = mine if key == "weights" else rule.groups(mine, rows)
        yield StateRow("parameter", f"quantised {key}", kind, held, size, all_of[key], rule.formula() if key == "weights" else "see there")


def _trained(parts: Sequence[Part], recipe: Recipe, optimizer: Optimizer, division: Sharding) -> Iterable[StateRow]:
    for kind, shapes in _by_kind(parts, recipe.gradients, recipe.weights).items():
        stage = GRADIENTS if not division.whole_gradients else WEIGHTS + 1
        yield _row("gradient", "gradients", kind, shapes, division, stage, True)
    for name, copy in (("master weights", recipe.master), ("main gradients", recipe.main_gradients)):
        if copy is not None:
            for kind, shapes in _by_kind(parts, copy, recipe.weights).items():
                yield _row("optimizer_state", name, kind, shapes, division, STATES, True)
    moments = recipe.moments if recipe.moments is not None else recipe.master
    kept: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for part in parts:
        (kind,) = _by_kind([part], moments, recipe.weights)
        for key, elements in optimizer.elements(part.shape).items():
            kept.setdefault((key, kind), []).append(part.shape if elements == part.elements else (elements,))
    for (key, kind), shapes in kept.items():
        yield _row("optimizer_state", key, kind, shapes, division, STATES, optimizer.eager)
