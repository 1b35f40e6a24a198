"""Parameters, gradients and optimizer state divided among ranks: what one rank holds (ZeRO, arXiv 1910.02054; FSDP).

Each tensor is divided by itself into equal parts, rounded up to whole elements of 4 bytes.

* Stage 1: a rank keeps the optimizer state of its part, and updates that part. What the optimizer takes meanwhile is divided likewise.
* Stage 2: and of each gradient its part. A gradient is made whole; when it is complete, its sum over the ranks is scattered to the parts,
  and the whole goes.
* Stage 3: and of each parameter its part. The parameters of a unit (a block of a list of blocks, else a module) are gathered before the
  first operator that reads one of them, and go after the unit's last operator before another unit's turn, or before the backward pass.

      parameter part   ├──────────────────────────────────────────────────────────────────────────┤
      gathered                  ├─ forward of the unit ─┤        ├─ backward of the unit ─┤
      gradient whole                                                        ├──┤
      gradient part                                                            ├─── to zero_grad ───┤

Nothing is gathered ahead, and each tensor is sent by itself: what a library does to overlap or join transfers comes on top.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Category
from lifecycle_sim.program.edits.storages import OPTIMIZER, StorageFacts
from lifecycle_sim.program.remat.editing import Edit
from lifecycle_sim.program.remat.holds import Event, Happens
from lifecycle_sim.program.step_graph import Mark, StepGraph

ELEMENT = 4
GATHERED, PART = "gathered", "gradient part"
_SHARDING = re.compile(r"zero([123]):([0-9]+)")
_Insertions = dict[int, list[Event]]


@dataclass(frozen=True)
class Sharding:
    """What is divided, and among how many.

    Attributes:
        stage: 1 optimizer state, 2 and gradients, 3 and parameters.
        ranks: how many ranks share them.
    """

    stage: int
    ranks: int

    def __post_init__(self) -> None:
        if self.stage not in (1, 2, 3) or self.ranks < 1:
            raise InputError(f"shard: stage {self.stage} over {self.ranks} ranks is not known: give a stage from 1 to 3 and 1 rank or more")

    @classmethod
    def parse(cls, text: str) -> Sharding:
        """Read ``"zero3:8"``.

        Raises:
            InputError: it is none.
        """
        match = _SHARDING.fullmatch(text.strip())
        if match is None:
            raise InputError(f"shard {text!r} is not known: write the stage and the number of ranks, such as zero3:8")
        return cls(int(match[1]), int(match[2]))

    def part(self, size: int) -> int:
        """Return the bytes of one rank's part of *size* bytes."""
        each = -(-size // self.ranks)
        return min(size, -(-each // ELEMENT) * ELEMENT)

    def __str__(self) -> str:
        return f"zero{self.stage}:{self.ranks}"


@dataclass(frozen=True)
class Communication:
    """What a rank exchanges with the others in a step.

    Attributes:
        gathers: how many tensors it gathers.
        gathered: bytes that it receives for them.
        reductions: how many gradients are summed over the ranks and scattered.
        reduced: bytes that it sends for them.
    """

    gathers: int = 0
    gathered: int = 0
    reductions: int = 0
    reduced: int = 0


def sharded_sizes(sizes: Mapping[int, int], facts: Mapping[int, StorageFacts], sharding: Sharding) -> dict[int, int]:
    """Return *sizes* with those that a rank holds a part of: state, what the optimizer takes, and, of stage 3, parameters."""
    found = dict(sizes)
    for number, storage in facts.items():
        state = storage.category is Category.OPTIMIZER_STATE or (
            storage.phase == OPTIMIZER and storage.category in (Category.TEMPORARY, Category.UNKNOWN)
        )
        if state or (sharding.stage == 3 and storage.category is Category.PARAMETER):
            found[number] = sharding.part(sizes[number])
    return found


def shard(edit: Edit, facts: Mapping[int, StorageFacts], sharding: Sharding, whole: Mapping[int, int]) -> tuple[Edit, Communication]:
    """Return *edit*, whose graph has the sizes of :func:`sharded_sizes`, with what is gathered and scattered, and what that exchanges.

    Args:
        edit: the step.
        facts: what is known of its storages.
        sharding: what is divided.
        whole: the sizes before anything was.

    Raises:
        InputError: gradients are divided, and add up over several backward passes.
    """
    work = _Work(edit, facts, sharding, whole)
    if sharding.stage >= 2:
        work.scatter_gradients()
    elif sharding.stage == 1:
        work.count_gradients()
    if sharding.stage == 3:
        work.gather_parameters()
    else:
        work.count_parameters()
    return work.edit(), Communication(work.gathers, work.gathered, work.reductions, work.reduced)


class _Work:
    def __init__(self, edit: Edit, facts: Mapping[int, StorageFacts], sharding: Sharding, whole: Mapping[int, int]) -> None:
        self._edit, self._facts, self._sharding, self._whole = edit, facts, sharding, whole
        self._copies, self._sizes, self._own = list(edit.copies), list(edit.sizes), dict(edit.own)
        self._before: _Insertions = {}
        self._replaced: dict[int, int] = {}
        self.gathers = self.gathered = self.reductions = self.reduced = 0

    def edit(self) -> Edit:
        events = list(self._merged())
        return replace(self._edit, events=tuple(events), copies=tuple(self._copies), sizes=tuple(self._sizes), own=self._own)

    def _merged(self) -> Iterator[Event]:
        for place, event in enumerate(self._edit.events):
            yield from self._before.get(place, ())
            if event.happens is Happens.FREE and event.value in self._replaced:
                event = event._replace(value=self._replaced[event.value])
            yield event
        yield from self._before.get(len(self._edit.events), ())

    def _new(self, source: int, size: int, label: str, category: Category) -> int:
        number = self._edit.first_new + len(self._copies)
        self._copies.append(source)
        self._sizes.append(size)
        self._own[number] = (label, category)
        return number

    def _insert(self, place: int, happens: Happens, storage: int) -> None:
        events = self._edit.events
        near = events[min(place, len(events) - 1)]
        self._before.setdefault(place, []).append(Event(happens, storage, near.mark, near.again))

    def _next_operator(self, place: int) -> int:
        """The place of the first operator after *place*, or the end."""
        events = self._edit.events
        return next((at for at in range(place + 1, len(events)) if events[at].happens in (Happens.OPERATOR, Happens.AGAIN)), len(events))

    # ── gradients ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _gradients(self) -> list[int]:
        graph = self._edit.graph
        found = [number for number, storage in self._facts.items() if storage.category is Category.GRADIENT]
        return [number for number in found if number in graph.made]

    def count_gradients(self) -> None:
        """Of stage 1, each gradient is summed and scattered where it lies: nothing is allocated."""
        for number in self._gradients():
            self._reduce(number)

    def _reduce(self, number: int) -> None:
        self.reductions += 1
        self.reduced += self._whole[number] - self._sharding.part(self._whole[number])

    def scatter_gradients(self) -> None:
        graph = self._edit.graph
        _must_have_one_pass(graph, self._facts)
        complete: dict[int, int] = {}
        gradients = set(self._gradients())
        for place, event in enumerate(self._edit.events):
            if event.happens is Happens.OPERATOR and graph.operators[event.value].phase == "backward":
                row = graph.operators[event.value]
                for storage in gradients.intersection((*row.reads, *row.writes)):
                    complete[storage] = place
        root = _root_gradient(graph)
        for storage, place in sorted(complete.items(), key=lambda pair: pair[1]):
            stop = self._next_operator(place)
            ends = (at for at in range(place + 1, stop) if self._edit.events[at][:2] == (Happens.FREE, root))
            at = next(ends, stop)  # the engine lets go what the pass began with when all gradients are there
            part = self._new(storage, self._sharding.part(self._whole[storage]), PART, Category.GRADIENT)
            self._insert(at, Happens.ALLOC, part)
            self._insert(at, Happens.FREE, storage)
            self._replaced[storage] = part
            self._reduce(storage)

    # ── parameters ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def count_parameters(self) -> None:
        """Of stages 1 and 2, the parts are gathered after the optimizer's step where the parameter lies: nothing is allocated."""
        trained = {storage.label.removesuffix(".grad") for storage in self._facts.values() if storage.category is Category.GRADIENT}
        for number, storage in self._facts.items():
            if storage.category is Category.PARAMETER and storage.label in trained:
                self._gather(number)

    def _gather(self, number: int) -> None:
        self.gathers += 1
        self.gathered += self._whole[number] - self._sharding.part(self._whole[number])

    def gather_parameters(self) -> None:
        units: dict[str, list[int]] = {}
        unit_of: dict[int, str] = {}
        for number, storage in self._facts.items():
            if storage.category is Category.PARAMETER:
                unit_of[number] = unit_named(storage.label)
                units.setdefault(unit_of[number], []).append(number)
        operators = self._edit.graph.operators
        held: dict[str, tuple[list[int], int]] = {}
        forward = True

        def let_go(unit: str) -> None:
            buffers, last = held.pop(unit)
            for buffer in buffers:
                self._insert(self._next_operator(last), Happens.FREE, buffer)

        for place, event in enumerate(self._edit.events):
            if event.happens not in (Happens.OPERATOR, Happens.AGAIN):
                continue
            row = operators[event.value]
            if row.phase == OPTIMIZER:
                continue
            now_forward = row.phase == "forward" and event.happens is Happens.OPERATOR
            read = {unit_of[storage] for storage in (*row.reads, *row.mutates) if storage in unit_of}
            for unit in [unit for unit in held if now_forward != forward or (read and unit not in read)]:
                let_go(unit)
            forward = now_forward
            inside = {unit for unit in held if row.module == unit or row.module.startswith(f"{unit}.")}
            for unit in sorted(read | inside):
                buffers = held[unit][0] if unit in held else [self._gathered_here(place, number) for number in units[unit]]
                held[unit] = (buffers, place)
        for unit in list(held):
            let_go(unit)

    def _gathered_here(self, place: int, number: int) -> int:
        buffer = self._new(number, self._whole[number], GATHERED, Category.TEMPORARY)
        self._insert(place, Happens.ALLOC, buffer)
        self._gather(number)
        return buffer


def unit_named(parameter: str) -> str:
    """Return the unit of a parameter: the outermost element of a list of modules, else the module that owns it."""
    parts = parameter.split(".")
    for place, part in enumerate(parts[:-1]):
        if part.isdigit() and place:
            return ".".join(parts[: place + 1])
    return ".".join(parts[:-1])


def _root_gradient(graph: StepGraph) -> int | None:
    """The gradient of the loss with which the engine begins a backward pass, None if it makes none."""
    found = None
    for row in graph.operators:
        if row.phase == "backward":
            break
        if row.name == "aten.ones_like.default" and row.writes:
            found = row.writes[0]
    return found


def _must_have_one_pass(graph: StepGraph, facts: Mapping[int, StorageFacts]) -> None:
    if sum(kind == Mark.BACKWARD for kind in graph.kinds) > 1:
        raise InputError(
            f"{graph.name}: shard: it has several backward passes, whose gradients add up, and divided gradients are known for one pass "
            "alone: divide the optimizer state (zero1), or capture a step with one"
        )
    gradients = {number for number, storage in facts.items() if storage.category is Category.GRADIENT}
    kept = [number for number in gradients & graph.changes.keys() if number not in graph.made]
    if kept:
        raise InputError(
            f"{graph.name}: shard: the gradient {facts[kept[0]].label!r} is kept from one step to the next (zero_grad(set_to_none=False)), "
            "and divided gradients are known only where they are made anew"
        )
