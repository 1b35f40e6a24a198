"""The layers of a captured model: what each takes for one micro-batch, from one step that was captured on one device.

The operators of the step are told apart by the module in which they ran. A model has a list of layers, such as ``blocks.0``,
``blocks.1`` …; what runs before them goes with the first, what runs after them with the last. docs/schedule.md says how bytes and times are
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Category, Clock, Kind
from lifecycle_sim.sources.capture import Capture, OperatorRow
from lifecycle_sim.study.pipeline.schedule_costs import TIMES, Layer, Model

STATIC = (Category.PARAMETER, Category.BUFFER, Category.GRADIENT, Category.OPTIMIZER_STATE)
FLOPS_A_TICK = 10**6


def captured_layers(captured: Capture, cut: str | None = None, tflops: int | None = None) -> Model:
    """Return the layers of a captured training step.

    Args:
        captured: a step with forward and backward, of one micro-batch.
        cut: the module whose numbered children are the layers, such as ``"model.layers"``; by default the one in which most operators run.
        tflops: how many tera-FLOPs a second the device does, which makes nanoseconds of FLOPs; by default a tick is a million of them.

    Raises:
        InputError: the step has no forward or no backward, or no layers are found.
    """
    if tflops is not None and tflops < 1:
        raise InputError(f"{tflops} TFLOP/s: give 1 or more")
    step = _Step(captured, cut)
    counted = any(op.flops for op in (*step.forward, *step.backward))
    layers, told = step.layers(), step.assumptions()
    if counted:
        each = FLOPS_A_TICK if tflops is None else tflops * 1000  # FLOPs a tick, or a nanosecond
        layers = [
            replace(
                layer,
                forward=-(-layer.forward // each),
                input_gradient=-(-layer.input_gradient // each),
                weight_gradient=-(-layer.weight_gradient // each),
            )
            for layer in layers
        ]
        speed = "a tick is a million" if tflops is None else f"at {tflops} TFLOP/s"
        told.append(f"times are FLOPs, {speed}; operators whose FLOPs torch does not know take no time")
    else:
        layers = [replace(layer, forward=1, input_gradient=1, weight_gradient=1) for layer in layers]
        told.append("torch knows the FLOPs of none of the operators: each layer takes one tick for each kind of work")
    return Model(
        tuple(layers),
        resident=step.resident,
        clock=Clock.NANOSECONDS if counted and tflops else Clock.TICKS,
        basis=Basis.REQUESTED,
        assumptions=tuple(told),
        title=f"{_child(step.prefix, 0)} … {_child(step.prefix, step.count - 1)}",
        capacity=captured.profile.capacity,
    )


@dataclass(frozen=True)
class _Storage:
    """A storage: its bytes, what it is for, and the events at which it is allocated and freed (past the last if never)."""

    size: int
    category: Category
    born: int
    died: int

    @property
    def is_static(self) -> bool:
        return self.category in STATIC


class _Step:
    """The last step of a capture, its operators and storages told apart by layer.

    Attributes:
        prefix: the module whose numbered children are the layers.
        count: how many layers there are.
        forward, backward: the operators of these phases, in order.
        resident: bytes of the libraries' workspaces.
    """

    def __init__(self, captured: Capture, cut: str | None) -> None:
        self._captured = captured
        recorded = captured.trace.devices[0]
        self._storages = _storages(captured)
        spans = [span for span in recorded.spans if span.kind == "step"]
        first, stop = (spans[-1].start, spans[-1].stop) if spans else (0, len(recorded))
        rows = [op for op in captured.operators if first <= op.start < stop]
        self.forward = [op for op in rows if op.phase == "forward"]
        self.backward = [op for op in rows if op.phase == "backward"]
        if not self.forward or not self.backward:
            missing = "backward" if self.forward else "forward"
            raise InputError(
                f"the captured step has no {missing}: a schedule needs a training step, so the file must define make_optimizer"
            )
        self.prefix, self.count = _layers([op.module for op in self.forward], cut)
        self._layer_of_forward = self._assign(self.forward, 0)
        self._layer_of_backward = self._assign(self.backward, self.count - 1)
        self._events = {
            **self._by_event(self.forward, self._layer_of_forward, self.backward[0].start),
            **self._by_event(self.backward, self._layer_of_backward, self._end_of_backward(stop)),
        }
        self._turn = self.backward[0].start
        self.resident = sum(
            each.size for each in self._storages.values() if each.category is Category.WORKSPACE and each.died >= len(recorded)
        )

    def layers(self) -> list[Layer]:
        """Return the layers, with FLOPs in place of times."""
        weights = self._weight_operators()
        read_by_weights = [set[int]() for _ in range(self.count)]
        flops = [dict.fromkeys(TIMES, 0) for _ in range(self.count)]
        made_by_weights: set[int] = set()
        for op, layer in zip(self.forward, self._layer_of_forward, strict=True):
            flops[layer]["forward"] += op.flops
        for place, (op, layer) in enumerate(zip(self.backward, self._layer_of_backward, strict=True)):
            flops[layer]["weight_gradient" if place in weights else "input_gradient"] += op.flops
            if place in weights:
                read_by_weights[layer].update(op.reads)
                made_by_weights.update(op.writes)
        static = self._static()
        return [
            Layer(
                **flops[layer],
                **self._bytes(layer, read_by_weights, made_by_weights),
                input=self._input(layer),
                static=static[layer],
                name=_child(self.prefix, layer),
            )
            for layer in range(self.count)
        ]

    def assumptions(self) -> list[str]:
        """Return what was assumed, a line each."""
        told = [
            f"the model is cut at {self.prefix or 'its own children'}: what runs before {_child(self.prefix, 0)} goes with it, what runs "
            f"after {_child(self.prefix, self.count - 1)} with that",
            "a stage holds its output, and the next one its own copy of it, until backward is done with it, as torch's stages do",
            "gradients and optimizer states are there from the first micro-batch on",
        ]
        tied = [row.names for row in self._captured.parameters if len(self._layers_of(row.names)) > 1]
        if tied:
            told.append(f"{' and '.join(tied[0][:2])} are one parameter, and each stage that names it holds it")
        if self.resident:
            told.append("each rank has the libraries' workspaces")
        return told

    def _assign(self, operators: Sequence[OperatorRow], first: int) -> list[int]:
        """For each of *operators* its layer: that of its module, or else the layer where the operator before it ran."""
        layer, found = first, []
        for op in operators:
            number = self._numbered(op.module)
            layer = layer if number is None else number
            found.append(layer)
        return found

    def _numbered(self, module: str) -> int | None:
        """The number of the layer that *module* is in."""
        return next((number for prefix, number in _numbered_parents(module) if prefix == self.prefix), None)

    @staticmethod
    def _by_event(operators: Sequence[OperatorRow], layers: Sequence[int], stop: int) -> dict[int, int]:
        """The layer of each event from the first operator to *stop*; an event between operators goes with the one before it."""
        found = {}
        bounds = [op.start for op in operators[1:]] + [stop]
        for op, layer, end in zip(operators, layers, bounds, strict=True):
            for event in range(op.start, max(end, op.stop)):
                found[event] = layer
        return found

    def _end_of_backward(self, stop: int) -> int:
        spans = self._captured.trace.devices[0].spans
        return next((span.stop for span in reversed(spans) if span.kind == "phase" and span.name == "backward"), stop)

    def _weight_operators(self) -> set[int]:
        """The places in backward of the operators that the gradients of weights alone need.

        Nobody else reads what they make: no operator of a layer further to the front, and none that makes something for one. What no
        operator reads at all, and is no weight's gradient, autograd has added to the gradient of an input.
        """
        front: dict[int, int] = {}
        """The foremost layer that reads a storage."""
        needed: set[int] = set()
        found = set()
        for place in range(len(self.backward) - 1, -1, -1):
            op, layer = self.backward[place], self._layer_of_backward[place]
            made = [storage for storage in op.writes if not self._storages[storage].is_static]
            if any(storage in needed or front.get(storage, -1) < layer for storage in made):
                needed.update(op.reads)
            else:
                found.add(place)
            for storage in op.reads:
                front[storage] = min(front.get(storage, layer), layer)
        return found

    def _bytes(self, layer: int, read_by_weights: Sequence[set[int]], made_by_weights: set[int]) -> dict[str, int]:
        """What forward and backward of *layer* leave and what they have for a while."""
        all_read = set[int]().union(*read_by_weights)
        mine = {n: each for n, each in self._storages.items() if self._events.get(each.born) == layer and not each.is_static}
        held = {n: each for n, each in mine.items() if each.born < self._turn <= each.died}
        weight_input = sum(each.size for n, each in held.items() if n in all_read)
        kept = sum(each.size for each in held.values())
        output_gradient = sum(
            self._storages[n].size
            for n in read_by_weights[layer] - made_by_weights
            if self._storages[n].born >= self._turn and not self._storages[n].is_static
        )
        in_forward = [each for each in mine.values() if each.born < self._turn]
        in_backward = [each for n, each in self._storages.items() if each.born >= self._turn and not each.is_static]
        times = [event for event, at in self._events.items() if at == layer]
        largest = max((each.size for each in self._storages.values() if self._is_new_gradient(each, layer)), default=0)
        forward = _highest(in_forward, [event for event in times if event < self._turn])
        backward = _highest([*held.values(), *in_backward], [event for event in times if event >= self._turn])
        return {
            "activation": kept - weight_input,
            "weight_input": weight_input,
            "output_gradient": output_gradient,
            "forward_temporary": max(0, forward - kept),
            "backward_temporary": max(0, backward - kept) + largest,
            "weight_temporary": largest,
        }

    def _is_new_gradient(self, storage: _Storage, layer: int) -> bool:
        return storage.category is Category.GRADIENT and storage.born >= self._turn and self._events.get(storage.born) == layer

    def _input(self, layer: int) -> int:
        """Bytes that the forward of *layer* reads and did not allocate: what another layer made, and the batch."""
        read = {n for op, at in zip(self.forward, self._layer_of_forward, strict=True) if at == layer for n in op.reads}
        storages = [self._storages[n] for n in read if n in self._storages]
        left_out = (*STATIC, Category.WORKSPACE)
        return sum(each.size for each in storages if each.category not in left_out and self._events.get(each.born) != layer)

    def _static(self) -> list[int]:
        """Parameters, buffers, gradients and optimizer states of each layer."""
        rows = self._captured.parameters
        states = sum(each.size for each in self._storages.values() if each.category is Category.OPTIMIZER_STATE)
        trainable = sum(row.size for row in rows if row.trainable and not row.buffer)
        found = [0] * self.count
        for row in rows:
            learns = row.trainable and not row.buffer
            for layer in self._layers_of(row.names):
                found[layer] += row.size * (2 if learns else 1) + (-(-states * row.size // trainable) if learns else 0)
        return found

    def _layers_of(self, names: Iterable[str]) -> set[int]:
        """The layers that hold a parameter with these *names*."""
        return {self._layer_of_name(name) for name in names}

    def _layer_of_name(self, name: str) -> int:
        number = self._numbered(name)
        if number is not None:
            return number
        module = name.rpartition(".")[0]
        ran = zip(self.forward, self._layer_of_forward, strict=True)
        return next((layer for op, layer in ran if op.module == module or op.module.startswith(f"{module}.")), 0)


def _storages(captured: Capture) -> dict[int, _Storage]:
    events = captured.trace.devices[0].events
    rows = zip(events.kind.tolist(), events.address.tolist(), events.size.tolist(), events.category.tolist(), strict=True)
    found: dict[int, _Storage] = {}
    for event, (kind, number, size, category) in enumerate(rows):
        if kind == Kind.ALLOC:
            found[number] = _Storage(size, Category(category), event, len(events))
        elif kind == Kind.FREE and number in found:
            found[number] = replace(found[number], died=event)
    return found


def _layers(modules: Iterable[str], cut: str | None) -> tuple[str, int]:
    """Return the module whose numbered children are the layers, and how many they are."""
    ran: Counter[str] = Counter()
    numbers: dict[str, set[int]] = {}
    for module in modules:
        for found in _numbered_parents(module):
            ran[found[0]] += 1
            numbers.setdefault(found[0], set()).add(found[1])
    several = {prefix: ran[prefix] for prefix in ran if len(numbers[prefix]) > 1}
    known = (
        f"such modules are {', '.join(sorted(filter(None, several), key=lambda each: -several[each])[:5])}"
        if several
        else "the model has none"
    )
    if cut is not None and cut not in several:
        raise InputError(f"the model has no layers {_child(cut, 0)}, {_child(cut, 1)} …: {known}")
    if not several:
        raise InputError(
            "the model has no list of layers, modules with names such as blocks.0, blocks.1: put its layers into a Sequential or ModuleList"
        )
    prefix = max(several, key=lambda each: (several[each], -len(each))) if cut is None else cut
    count = max(numbers[prefix]) + 1
    if count != len(numbers[prefix]):
        raise InputError(
            f"some of {_child(prefix, 0)} … {_child(prefix, count - 1)} run no operator, so the model cannot be cut there: {known}"
        )
    return prefix, count


def _child(prefix: str, number: int) -> str:
    return f"{prefix}.{number}" if prefix else str(number)


def _numbered_parents(module: str) -> Iterable[tuple[str, int]]:
    parts = module.split(".")
    return ((".".join(parts[:place]), int(part)) for place, part in enumerate(parts) if part.isdigit())


def _highest(storages: Iterable[_Storage], times: Sequence[int]) -> int:
    """Return the most bytes of *storages* that are live after any of the events *times*."""
    if not times:
        return 0
    changes: Counter[int] = Counter()
    for each in storages:
        changes[each.born] += each.size
        changes[each.died] -= each.size
    level, highest, wanted = 0, 0, set(times)
    for event in sorted({*changes, *wanted}):
        level += changes[event]
        if event in wanted:
            highest = max(highest, level)
    return highest
