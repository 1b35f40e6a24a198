"""What the work on one micro-batch takes: time, and bytes and for how long. Layers are cut into stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Clock
from lifecycle_sim.study.pipeline.schedule_cut import Balance, Cut, balanced, even, given

MOST_SIZES = 16


@dataclass(frozen=True)
class Layer:
    """What a layer of a model, or a whole stage, takes for one micro-batch; times in the clock of the costs, sizes in bytes.

    ::

                             F ........... I ........... W
        activation           +--------------               freed with the input's gradient
        weight_input         +----------------------------  freed with the weights' gradients
        output_gradient                    +--------------  there only where the two are done apart

    In a whole backward (``B``) input's and weights' gradients are one, and end together.

    Attributes:
        forward, input_gradient, weight_gradient: how long each takes; a whole backward takes the latter two together.
        activation: what forward leaves for the gradient of the input alone.
        weight_input: what forward leaves for the gradients of the weights, and perhaps of the input too.
        output_gradient: what a gradient of the input that is done alone leaves for the gradients of the weights.
        input: the layer's input: the first layer of a stage holds its own copy of it until the gradient of the input is done. Where
            layers are recomputed, each keeps its input, and forward leaves nothing else.
        forward_temporary: the most bytes that live only within a forward, beside what it leaves.
        backward_temporary: the same within a whole backward, beside what forward left.
        input_temporary: the same within a gradient of the input that is done alone, beside what it leaves too; by default
            ``backward_temporary`` without ``output_gradient``.
        weight_temporary: the same within a gradient of the weights that is done alone.
        static: parameters, gradients, optimizer states: there throughout.
        name: what it is called.
    """

    forward: int = 1
    input_gradient: int = 1
    weight_gradient: int = 1
    activation: int = 0
    weight_input: int = 0
    output_gradient: int = 0
    input: int = 0
    forward_temporary: int = 0
    backward_temporary: int = 0
    input_temporary: int | None = None
    weight_temporary: int = 0
    static: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        for each in (*TIMES, *BYTES):
            value = getattr(self, each)
            if not (each == "input_temporary" and value is None) and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise InputError(f"layer {self.name or '?'}: {each} is {value!r}: give a whole number, 0 or more")

    @property
    def held(self) -> int:
        """Bytes that forward leaves."""
        return self.activation + self.weight_input

    @property
    def apart(self) -> int:
        """Bytes that live only within a gradient of the input that is done alone."""
        return max(0, self.backward_temporary - self.output_gradient) if self.input_temporary is None else self.input_temporary


TIMES = ("forward", "input_gradient", "weight_gradient")
KEPT = ("activation", "weight_input", "output_gradient", "input", "static")
BYTES = (*KEPT, "forward_temporary", "backward_temporary", "input_temporary", "weight_temporary")


@dataclass(frozen=True)
class Costs:
    """What each stage takes for one micro-batch.

    Attributes:
        stages: one for each stage, in the order of the model.
        resident: bytes that are on each rank throughout beside what its stages have there.
        communication: how long a result takes from a rank to another; neither rank is busy with it.
        clock: what times count.
        basis: what the bytes count; None if there are none.
        assumptions: what was assumed, a line each.
        title: one line for people.
    """

    stages: tuple[Layer, ...]
    resident: int = 0
    communication: int = 0
    clock: Clock = Clock.TICKS
    basis: Basis | None = None
    assumptions: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Model:
    """Layers that can be cut into any number of stages up to their own.

    Attributes:
        layers: in the order of the model.
        resident, communication, clock, basis, assumptions, title: as in :class:`Costs`.
        capacity: bytes of a card, where the source states them.
        ticks: where no layers are known, how many ticks all stages together take for each kind of work; 0 for one tick each.
        recomputes: whether each layer keeps only its input, and its forward runs again before its backward.
        cut: how the layers are cut into stages: what is to be as equal as can be, or each stage's number of layers.
    """

    layers: tuple[Layer, ...] = ()
    resident: int = 0
    communication: int = 0
    clock: Clock = Clock.TICKS
    basis: Basis | None = None
    assumptions: tuple[str, ...] = ()
    title: str = ""
    capacity: int | None = None
    ticks: int = 0
    recomputes: bool = False
    cut: Cut = Balance.LAYERS

    def costs(self, stages: int, in_flight: Sequence[int] | None = None) -> Costs:
        """Return the costs with the layers cut into *stages*.

        Args:
            stages: how many.
            in_flight: for each stage the most micro-batches that are in flight in it, where bytes are to be equal; 1 by default.

        Raises:
            InputError: there are fewer layers than stages, or no stages, or the cut is not one of these layers into so many.
        """
        if stages < 1:
            raise InputError(f"{stages} stages: there must be 1 at least")
        if not self.layers:
            each = self.ticks // stages or 1
            stage = Layer(each, each, each)
            made = (recomputed(stage) if self.recomputes else stage,) * stages
            return Costs(made, communication=self.communication, clock=self.clock)
        count = len(self.layers)
        if stages > count:
            raise InputError(
                f"{self.title or 'the model'} has {count} layers, which do not make {stages} stages: take at most {count} stages"
            )
        rows = [recomputed(layer) for layer in self.layers] if self.recomputes else self.layers
        sizes = self._sizes(rows, stages, in_flight)
        cut, first = [], 0
        for size in sizes:
            stage = joined(rows[first : first + size])
            cut.append(stage if self.recomputes else received(stage))
            first += size
        told = [f"the {count} layers are cut into {stages} stages of {_said(sizes)}{self.aim}"] if 1 < stages < count else []
        return Costs(tuple(cut), self.resident, self.communication, self.clock, self.basis, (*self.assumptions, *told), self.title)

    @property
    def aim(self) -> str:
        """What the cut is for, as the end of a sentence; empty where it goes by number or is given."""
        return _AIM.get(self.cut, "") if isinstance(self.cut, Balance) else ""

    def _sizes(self, rows: Sequence[Layer], stages: int, in_flight: Sequence[int] | None) -> tuple[int, ...]:
        """How many of the layers each stage has."""
        if isinstance(self.cut, tuple):
            return given(self.cut, len(rows), stages)
        if self.cut is Balance.TIME:
            return balanced([sum(getattr(row, name) for name in TIMES) for row in rows], [0] * len(rows), [0] * stages)
        if self.cut is Balance.BYTES:
            return balanced([row.static for row in rows], [row.held for row in rows], in_flight or [1] * stages)
        return even(len(rows), stages)


_AIM = {
    Balance.TIME: ", so that the stage that takes longest takes as little as can be",
    Balance.BYTES: ", so that the stage with the most bytes, static and left by its micro-batches in flight, has as few as can be",
}
UNIT = Model()
"""Nothing known: every stage takes one tick for its forward, for its input's and for its weights' gradient; no bytes."""


def _said(sizes: tuple[int, ...]) -> str:
    first = sizes.count(sizes[0])
    if first == len(sizes):
        return f"{sizes[0]} each"
    if sizes == even(sum(sizes), len(sizes)):
        return f"{sizes[0]} (the first {first}) and {sizes[-1]}"
    shown = ", ".join(map(str, sizes[:MOST_SIZES]))
    return f"{shown} …" if len(sizes) > MOST_SIZES else shown


def recomputed(layer: Layer) -> Layer:
    """Return *layer* with its forward run again before its backward, so that forward leaves only its input.

    What it left is then temporary in a whole backward. Where the gradients are done apart, the forward runs again for that of the input,
    and what the weights' needs is there from then on.
    """
    again = max(layer.backward_temporary, layer.forward_temporary)
    return replace(
        layer,
        input_gradient=layer.forward + layer.input_gradient,
        activation=layer.input,
        weight_input=0,
        output_gradient=layer.output_gradient + layer.weight_input,
        forward_temporary=layer.held + layer.forward_temporary,
        backward_temporary=layer.held + again,
        input_temporary=layer.activation + max(layer.apart, layer.forward_temporary),
    )


def received(stage: Layer) -> Layer:
    """Return *stage* with the input that it is sent among what its forward leaves."""
    return replace(stage, activation=stage.activation + stage.input, input=0)


def joined(layers: Sequence[Layer]) -> Layer:
    """Return what *layers* take one after another, as one.

    Times and what is kept add up. All that a forward leaves counts from its start on and all that a backward frees until its end, so
    what is temporary in one of the layers counts only as far as it reaches above that.
    """
    if len(layers) == 1:
        return layers[0]
    sums = {name: sum(getattr(layer, name) for layer in layers) for name in (*TIMES, *KEPT)} | {"input": layers[0].input}
    left = list(accumulate(layer.held for layer in layers))
    freed = _behind(layer.held for layer in layers)
    freed_apart = _behind(layer.activation for layer in layers)
    made = list(accumulate(layer.output_gradient for layer in reversed(layers)))[::-1]
    ends = (layers[0].name, layers[-1].name)
    return Layer(
        **sums,
        forward_temporary=_most(here + layer.forward_temporary - left[-1] for here, layer in zip(left, layers, strict=True)),
        backward_temporary=_most(layer.backward_temporary - gone for gone, layer in zip(freed, layers, strict=True)),
        input_temporary=_most(here + layer.apart - gone - made[0] for here, gone, layer in zip(made, freed_apart, layers, strict=True)),
        weight_temporary=max(layer.weight_temporary for layer in layers),
        name=ends[0] if ends[0] == ends[1] else " … ".join(ends),
    )


def _behind(sizes: Iterable[int]) -> list[int]:
    """For each layer the sizes of all layers behind it, added up."""
    return list(accumulate(list(sizes)[:0:-1], initial=0))[::-1]


def _most(above: Iterable[int]) -> int:
    return max(0, *above)
