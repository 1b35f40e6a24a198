"""Records the graph of each step while it runs: operators, calls of modules, and what autograd saves, apart from what the program holds.

What the pack hook hands to autograd refers to no memory, so that a storage dies when the program lets it go: its natural lifetime. When
a node asks for what was saved, the unpack hook makes a tensor of the same kind on a storage of its own, which stands for the saved one;
that storage's death is the end of the node's work. So it goes on fake tensors alone, whose bytes are not there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from lifecycle_sim.events import Category
from lifecycle_sim.program.step_graph import NO_CALL, Call, Hold, Mark, StepGraph, StepOperator
from lifecycle_sim.sources.capture.autocast import Casts
from lifecycle_sim.sources.capture.identity import NOTHING, Identities
from lifecycle_sim.sources.capture.ledger import Ledger, Where
from lifecycle_sim.sources.capture.terms import PRODUCTS

aten = torch.ops.aten
DETACH = aten.detach.default
CAST = aten._to_copy.default
LASTING = (Category.PARAMETER, Category.BUFFER)
MOST_DEPTH = 3
"""How deep tensors are looked for in the objects that a module is called with."""


class Facts(NamedTuple):
    """What an operator's schema tells: places of the arguments it changes, names of those given by name, and whether it is random."""

    places: tuple[int, ...]
    names: tuple[str, ...]
    random: bool


class Packed:
    """What autograd holds in place of a saved tensor: all that it takes to make one like it."""

    __slots__ = ("__weakref__", "conj", "dtype", "fake_mode", "hold", "neg", "offset", "plain", "size", "storage", "stride")

    def __init__(self, hold: int, tensor: Any, plain: bool) -> None:
        self.hold = hold
        self.plain = tensor if plain else None
        if not plain:
            self.fake_mode, self.dtype, self.storage = tensor.fake_mode, tensor.dtype, tensor.untyped_storage().nbytes()
            self.size, self.stride, self.offset = tensor.size(), tensor.stride(), tensor.storage_offset()
            self.conj, self.neg = tensor.is_conj(), tensor.is_neg()

    def tensor(self) -> Any:
        """Return a tensor like the one that was saved, on a storage of its own."""
        with _disable_current_modes(), torch.no_grad():
            storage = torch.empty(self.storage, dtype=torch.uint8, device="meta").untyped_storage()
            like = torch.empty(0, dtype=self.dtype, device="meta").set_(storage, self.offset, self.size, self.stride)
            like = like.conj() if self.conj else like
            like = torch._neg_view(like) if self.neg else like
            return FakeTensor(self.fake_mode, like, torch.device("cpu"))


class GraphRecorder:
    """Fills the marks, operators, holds and calls of all steps.

    Args:
        ledger: the storages; it is told of holds, so that its events stay those of the step as it runs.
        identities: which storage a tensor is a view of.
        where: tells the place in the program.
    """

    def __init__(self, ledger: Ledger, identities: Identities, where: Callable[[], Where]) -> None:
        self._ledger, self._identities, self._where = ledger, identities, where
        self._operators: list[StepOperator] = []
        self._holds: list[Hold] = []
        self._calls: list[Call] = []
        self._kinds: list[int] = []
        self._values: list[int] = []
        self._released: dict[int, weakref.ref[Any]] = {}
        self._open: dict[int, int] = {}
        self._stack: list[int] = []
        self._task = -1
        self._passes = 0
        self._facts: dict[Any, Facts] = {}
        self._recomputed: set[str] = set()
        self._unsound: str | None = None
        self._starts: list[tuple[int, int, int, int, int]] = []
        self._casts: Casts | None = None
        self._cast_by: dict[int, int] = {}
        ledger.marks = self.mark

    def mark(self, kind: int, value: int) -> None:
        """Add a mark."""
        self._kinds.append(kind)
        self._values.append(value)

    def follow(self, casts: Casts) -> None:
        """Take note of what autocast keeps in *casts*, and of when it gives it again."""
        self._casts = casts
        casts.told = self._cast_again

    def _cast_again(self, cast: Any) -> None:
        number = self._identities.known(cast)
        if number in self._cast_by:
            self.mark(Mark.CAST, self._cast_by[number])

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin_step(self) -> None:
        """A step begins."""
        self._starts.append((len(self._kinds), len(self._operators), len(self._holds), len(self._calls), self._passes))
        self._stack = []

    def graphs(self, names: Iterable[str]) -> tuple[StepGraph, ...]:
        """Return the graph of each step; *names* are the steps' names."""
        stops = [*self._starts[1:], (len(self._kinds), len(self._operators), len(self._holds), len(self._calls), self._passes)]
        sizes = {number: storage.size for number, storage in enumerate(self._ledger.storages)}
        return tuple(
            self._graph(name, span, first, last, sizes)
            for name, span, first, last in zip(names, self._ledger.steps, self._starts, stops, strict=True)
        )

    def _graph(self, name: str, span: tuple[int, int], first: tuple[int, ...], last: tuple[int, ...], sizes: dict[int, int]) -> StepGraph:
        base = {
            **dict.fromkeys((Mark.OPERATOR, Mark.CAST), first[1]),
            **dict.fromkeys((Mark.SAVE, Mark.UNPACK, Mark.APPLIED, Mark.RELEASE), first[2]),
            **dict.fromkeys((Mark.ENTER, Mark.LEAVE), first[3]),
            Mark.BACKWARD: first[4],
        }
        kinds = self._kinds[first[0] : last[0]]
        values = [value - base.get(Mark(kind), 0) for kind, value in zip(kinds, self._values[first[0] : last[0]], strict=True)]
        unsound = self._unsound
        if any(value < 0 for kind, value in zip(kinds, values, strict=True) if kind in base):
            kept = [not (kind in base and value < 0) for kind, value in zip(kinds, values, strict=True)]
            kinds = [kind for kind, keep in zip(kinds, kept, strict=True) if keep]
            values = [value for value, keep in zip(values, kept, strict=True) if keep]
            unsound = unsound or "a tensor that an earlier step saved for backward is still held in it"
        return StepGraph(
            name,
            *span,
            tuple(self._operators[first[1] : last[1]]),
            tuple(self._holds[first[2] : last[2]]),
            tuple(
                call._replace(parent=call.parent - first[3] if call.parent >= first[3] else NO_CALL)
                for call in self._calls[first[3] : last[3]]
            ),
            kinds,
            values,
            sizes,
            unsound,
            frozenset(self._recomputed),
        )

    # ── operators ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> int:
        """Return the place of the mark of an operator that is about to run."""
        return len(self._kinds)

    def operator(
        self, at: int, func: Any, name: str, args: Any, kwargs: Any, result: Any, writes: Iterable[int], flops: int, upper: int
    ) -> None:
        """An operator ran; what it allocated follows the place *at*."""
        written = _distinct(writes)
        facts = self._facts.get(func)
        if facts is None:
            facts = self._facts[func] = _facts(func)
        known, taken = self._identities.known, [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        reads = _distinct(known(leaf) for leaf in taken)
        if func is DETACH or (func is CAST and set(written) <= set(reads)):  # a copy to where it is already runs nothing on a device
            return
        changed: tuple[int, ...] = ()
        if facts.places or facts.names:
            given = [args[place] for place in facts.places if place < len(args)]
            given += [kwargs[name] for name in facts.names if name in kwargs]
            changed = _distinct(known(leaf) for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor))
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        view = not changed and bool(written) and set(written) <= set(reads)
        moved = 0 if view else sum(tensor.numel() * tensor.element_size() for tensor in (*taken, *leaves))
        place = self._where()
        kept = func is CAST and self._casts is not None and self._casts.keeping
        if kept:
            self._cast_by.update(dict.fromkeys(written, len(self._operators)))
        self._kinds.insert(at, Mark.OPERATOR)
        self._values.insert(at, len(self._operators))
        self._operators.append(
            StepOperator(
                name,
                place.phase.value or "",
                place.modules[0] if place.modules else "",
                flops,
                moved,
                str(leaves[0].dtype).removeprefix("torch.") if leaves else "",
                reads,
                written,
                changed,
                facts.random,
                kept,
                func in PRODUCTS,
                upper,
            )
        )

    # ── modules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def enter(self, module: str, args: tuple[Any, ...], kwargs: dict[str, Any], recomputing: bool) -> None:
        """A module is called."""
        if recomputing:
            self._recomputed.add(module)
            return
        known = self._identities.known
        inputs = tuple(known(value) for value in args if isinstance(value, torch.Tensor))
        rest = [*(value for value in args if not isinstance(value, torch.Tensor)), *kwargs.values()]
        others = _distinct(known(tensor) for tensor in _tensors_in(rest))
        self.mark(Mark.ENTER, len(self._calls))
        self._calls.append(Call(module, self._stack[-1] if self._stack else NO_CALL, torch.is_grad_enabled(), inputs, others))
        self._stack.append(len(self._calls) - 1)

    def leave(self, recomputing: bool) -> None:
        """The innermost call returns."""
        if not recomputing and self._stack:
            self.mark(Mark.LEAVE, self._stack.pop())

    # ── saved tensors ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def pack(self, tensor: Any) -> Packed:
        """Autograd saves *tensor*."""
        number = self._identities.known(tensor) if tensor.layout is torch.strided else NOTHING
        lasting = number != NOTHING and self._ledger.storages[number].category in LASTING
        plain = number == NOTHING or lasting or type(tensor) not in (FakeTensor, torch.Tensor)
        if plain and number != NOTHING and not lasting:
            self._unsound = f"autograd saved a {type(tensor).__name__}, whose lifetimes cannot be told apart"
        if not plain and not isinstance(tensor, FakeTensor):
            plain = True
            self._unsound = "autograd saved a tensor that has values, whose lifetimes cannot be told apart"
        if torch._C._current_graph_task_id() != -1:
            self._unsound = "autograd saves tensors in a backward pass (create_graph=True, or reentrant checkpointing)"
        hold = len(self._holds)
        self._holds.append(Hold(number, lasting or plain))
        packed = Packed(hold, tensor, plain)
        self._released[hold] = weakref.ref(packed, lambda _: self._release(hold))
        self.mark(Mark.SAVE, hold)
        if not plain:
            self._open[hold] = 1
            self._ledger.hold(number)
        return packed

    def unpack(self, packed: Packed) -> Any:
        """A node asks for what was saved."""
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task = task
            self.mark(Mark.BACKWARD, self._passes)
            self._passes += 1
        hold = packed.hold
        self.mark(Mark.UNPACK, hold)
        if packed.plain is not None:
            return packed.plain
        tensor = packed.tensor()
        self._open[hold] += 1
        self._identities.stand_in(tensor, self._holds[hold].storage, lambda: self._applied(hold))
        return tensor

    def _applied(self, hold: int) -> None:
        self.mark(Mark.APPLIED, hold)
        self._let_go(hold)

    def _release(self, hold: int) -> None:
        del self._released[hold]
        self.mark(Mark.RELEASE, hold)
        self._let_go(hold)

    def _let_go(self, hold: int) -> None:
        if hold in self._open:
            self._open[hold] -= 1
            if not self._open[hold]:
                del self._open[hold]
                self._ledger.unhold(self._holds[hold].storage, self._where().phase)

    def forget(self) -> None:
        """Stop: what autograd lets go from now on is not recorded."""
        self._released.clear()
        self._ledger.marks = None
        if self._casts is not None:
            self._casts.told = None


def _distinct(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(number for number in numbers if number != NOTHING))


def _facts(func: Any) -> Facts:
    changed = [
        (place, argument)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return Facts(
        tuple(place for place, argument in changed if not argument.kwarg_only),
        tuple(argument.name for _, argument in changed),
        torch.Tag.nondeterministic_seeded in func.tags,
    )


def _tensors_in(value: Any, depth: int = 0) -> list[Any]:
    """The tensors in *value*: in lists, tuples and mappings, and in objects that are no modules."""
    found = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif depth < MOST_DEPTH and not isinstance(leaf, (torch.nn.Module, type)):
            if is_dataclass(leaf):
                found += _tensors_in([getattr(leaf, field.name, None) for field in fields(leaf)], depth + 1)
            elif getattr(leaf, "__dict__", None) and not callable(leaf):
                found += _tensors_in(list(vars(leaf).values()), depth + 1)
    return found
