"""The dispatch mode that sees every operator, and through it every storage that a step allocates, changes and frees.

It works on fake tensors and on real ones. Operators answer as on a device without a mode (:mod:`corrections`), values that are asked for
but not there are assumed (:mod:`answers`), and what kernels take for themselves is added (:mod:`terms`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from lifecycle_sim.events import Category
from lifecycle_sim.sources.capture import answers as asked
from lifecycle_sim.sources.capture.answers import Answers
from lifecycle_sim.sources.capture.corrections import in_backward
from lifecycle_sim.sources.capture.graphing import GraphRecorder
from lifecycle_sim.sources.capture.identity import NOTHING, Identities
from lifecycle_sim.sources.capture.ledger import Ledger, Phase, Where
from lifecycle_sim.sources.capture.places import NO_GRAPH_TASK, Places, graph_task, modules_inside_out
from lifecycle_sim.sources.capture.record import OperatorRow
from lifecycle_sim.sources.capture.terms import KernelTerms

aten = torch.ops.aten
DEVICE_QUERY = torch.ops.prim.device.default
COMPOSITE = "CompositeImplicitAutograd"
LIFTED = (aten.lift_fresh.default, aten.lift_fresh_copy.default)
FACTORIES = (aten.zeros.default, aten.ones.default, aten.full.default, aten.empty.memory_format, aten.scalar_tensor.default)
MADE_IN_ORDER = {
    aten.native_dropout.default: (1, 0),
    aten._scaled_dot_product_efficient_attention.default: (2, 3, 0, 1),
    aten._embedding_bag.default: (2, 1, 0, 3),
    aten._embedding_bag_forward_only.default: (2, 1, 0, 3),
}
"""The order in which a kernel makes its outputs, where it is not the order in which it returns them."""
Run = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Tracker(TorchDispatchMode):
    """Follows the storages of everything that runs inside the block it opens.

    Args:
        answers: what to answer where values are needed; None on real tensors, which have them.
        terms: makes the kernel terms of a ledger; None for none.
        run: runs an operator, in place of calling it: where a device's operators differ from those of the tensors at hand.
        scalars_on_host: tells of an operator and its arguments whether its scalar outputs are on the host.
        composites: what runs for operators that are made of others, where the tensors at hand have no rules of autograd.
        graph: whether to record the graph of each step; on fake tensors alone.

    Attributes:
        ledger: the storages and their events.
        places: the place in the program.
        rows: the operators that ran while ``keeps_rows`` was set.
        graph: records the graph of each step; None for not.
    """

    def __init__(
        self,
        answers: Answers | None = None,
        terms: Callable[[Ledger, Callable[[], Where]], KernelTerms] | None = None,
        run: Run | None = None,
        scalars_on_host: Callable[[Any, tuple[Any, ...]], bool] | None = None,
        composites: Mapping[Any, Callable[..., Any]] | None = None,
        graph: bool = False,
    ) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.places = Places(self.ledger, self._label_state)
        self.identities = Identities(self.ledger, self.places.now)
        self.answers = answers
        self.terms = None if terms is None else terms(self.ledger, self.places.now)
        self.rows: list[OperatorRow] = []
        self.keeps_rows = False
        self.graph = GraphRecorder(self.ledger, self.identities, self.places.now) if graph else None
        self.places.graph = self.graph
        self._run = run
        self._scalars_on_host = scalars_on_host
        self._composites = {} if composites is None else composites
        self._grad_hooks: list[Any] = []
        self._names: dict[int, str] = {}
        self._packing: Any = None

    # ── what is known of storages ───────────────────────────────────────────────────────────────────────────────────────────────────

    def label(self, tensor: Any, category: Category, name: str | None = None, where: Where | None = None) -> None:
        """Say what the storage of *tensor* is for."""
        number = self.identities.see(tensor, "external", where)
        if number != NOTHING:
            record = self.ledger.storages[number]
            record.category = category
            record.name = name or record.name

    def watch_model(self, model: Any) -> None:
        """Take note of the parameters and buffers of *model*, in the order in which ``.to(device)`` moves them, and of its gradients."""
        self.places.name(model)
        phase = self.places.now().phase
        paths = {id(module): path for path, module in model.named_modules()}
        for module in modules_inside_out(model):
            where = Where(phase, (self.places.path(module),))
            prefix = f"{paths[id(module)]}." if paths.get(id(module)) else ""
            for kind, tensors in ((Category.PARAMETER, module._parameters), (Category.BUFFER, module._buffers)):
                for name, tensor in tensors.items():
                    if tensor is not None:
                        self.label(tensor, kind, self._names.setdefault(id(tensor), f"{prefix}{name}"), where)
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.is_leaf:
                self._grad_hooks.append(parameter.register_post_accumulate_grad_hook(self._label_gradient))

    def watch_inputs(self, batch: Any) -> None:
        """Take note of the tensors of *batch*."""
        for leaf in tree_leaves(batch):
            if isinstance(leaf, torch.Tensor):
                self.label(leaf, Category.INPUT)

    def _label_gradient(self, parameter: Any) -> None:
        if parameter.grad is not None:
            name = self._names.get(id(parameter))
            self.label(parameter.grad, Category.GRADIENT, None if name is None else f"{name}.grad")

    def _label_state(self, optimizer: Any) -> None:
        for parameter, state in optimizer.state.items():
            name = self._names.get(id(parameter))
            for key, leaves in state.items() if isinstance(state, dict) else (("state", state),):
                for leaf in tree_leaves(leaves):
                    if isinstance(leaf, torch.Tensor) and not self.identities.is_on_host(leaf):
                        self.label(leaf, Category.OPTIMIZER_STATE, None if name is None else f"{name}.{key}")

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin_step(self) -> int:
        """A step begins; return its first event."""
        self.places.begin_step()
        if self.graph is not None:
            self.graph.begin_step()
        return len(self.ledger.events)

    def end_step(self, start: int) -> None:
        """The step that began at the event *start* ends."""
        self.ledger.steps.append((start, len(self.ledger.events)))

    # ── operators ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Run *func*, and record what it allocated."""
        if func is DEVICE_QUERY:
            return func(*args)
        kwargs = kwargs or {}
        if self.answers is not None:
            answer = self._answer(func, args, kwargs)
            if answer is not None:
                return answer
        backward = graph_task() != NO_GRAPH_TASK
        if backward:
            func = in_backward(func, args, kwargs)
        if torch.is_inference_mode_enabled() and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE):
            with self:
                result = self._composites.get(func, func.decompose)(*args, **kwargs)
            if result is not NotImplemented:
                return result
        start = len(self.ledger.events)
        at = 0 if self.graph is None else self.graph.begin()
        unvalued = 0 if self.terms is None else len(self.terms.intervals)
        try:
            result = func(*args, **kwargs) if self._run is None else self._run(func, args, kwargs)
        except (asked.UNKNOWN_SHAPE, asked.UNKNOWN_VALUE) as error:
            raise asked.refuse(func, error) from None
        name = str(func)
        course = None if self.terms is None else self.terms.course(func, args, kwargs, backward)
        writes = self._see(func, name, args, result, course)
        if self.keeps_rows or self.graph is not None:
            count = flop_registry.get(func._overloadpacket)
            flops = int(count(*args, **kwargs, out_val=result)) if count else 0
            if self.keeps_rows:
                self._row(name, args, flops, start, writes)
            if self.graph is not None:
                upper = 0 if self.terms is None else max((most for _, most in self.terms.intervals[unvalued:]), default=0)
                self.graph.operator(at, func, name, args, kwargs, result, writes, flops, upper)
        return result

    def _see(self, func: Any, name: str, args: Any, result: Any, course: Any) -> list[int]:
        """Take note of the outputs in the order in which the kernel makes them, and in between of what its *course* takes."""
        leaves = tree_leaves(result) if isinstance(result, (tuple, list)) else (result,)
        outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if func in MADE_IN_ORDER and len(outputs) == len(MADE_IN_ORDER[func]):
            outputs = [outputs[place] for place in MADE_IN_ORDER[func]]
        writes = []
        wanted = None if course is None else next(course, None)
        for count, output in enumerate(outputs):
            while wanted is not None and wanted <= count:
                wanted = next(course, None)
            if output.dim() == 0 and self._on_host(func, args):
                self.identities.on_host(output)
            else:
                writes.append(self.identities.see(output, name))
        while wanted is not None:
            wanted = next(course, None)
        return writes

    def _on_host(self, func: Any, args: Any) -> bool:
        """Whether a scalar that *func* makes is on the host, where its bytes do not count."""
        if func in LIFTED:
            return True
        if self._scalars_on_host is not None and self._scalars_on_host(func, args):
            return True
        if func in FACTORIES:
            return self.places.counts_on_host and self.places.now().phase is Phase.OPTIMIZER
        inputs = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        return bool(inputs) and all(self.identities.is_on_host(leaf) for leaf in inputs)

    def _answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answers = self.answers
        if answers is None:
            return None
        if func is asked.READ_SCALAR:
            return answers.read(args[0], self.identities.is_on_host(args[0]))
        if func is asked.EQUAL:
            answers.given["read_bool"] += 1
            return True
        if func is asked.NONZERO:
            found = answers.nonzero(args[0])
            self.identities.see(found, str(func))
            return found
        if func is asked.MASKED_SELECT:
            with self:
                return aten.index.Tensor(args[0], [args[1].expand_as(args[0])])
        if func is asked.INDEX and any(isinstance(index, torch.Tensor) and index.dtype in asked.MASKS for index in args[1]):
            with self:
                return aten.index.Tensor(args[0], [place for index in args[1] for place in self._places_of(index)])
        return None

    def _places_of(self, index: Any) -> Iterable[Any]:
        if index is None or index.dtype not in asked.MASKS:
            return (index,)
        return tuple(aten.nonzero.default(index).unbind(1))

    def _row(self, name: str, args: Any, flops: int, start: int, writes: list[int]) -> None:
        if not flops and len(self.ledger.events) == start:
            return
        leaves = tree_leaves(args)
        reads = [self.identities.known(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        place = self.places.now()
        self.rows.append(
            OperatorRow(
                name,
                place.phase.value,
                place.modules[0] if place.modules else "",
                flops,
                start,
                len(self.ledger.events),
                tuple(dict.fromkeys(number for number in reads if number != NOTHING)),
                tuple(dict.fromkeys(number for number in writes if number != NOTHING)),
            )
        )

    # ── saved tensors ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _pack(self, tensor: Any) -> Any:
        number = self.identities.known(tensor)
        if number != NOTHING:
            self.ledger.storages[number].saved = True
        return tensor if self.graph is None else self.graph.pack(tensor)

    def __enter__(self) -> Any:
        """Begin to follow; entered again by a decomposition, it goes on."""
        if self._packing is None:
            self._packing = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack if self.graph is None else self.graph.unpack)
            self._packing.__enter__()
            self.places.follow()
            self.identities.follow_resizes()
            self._depth = 0
        self._depth += 1
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        """End to follow, at the outermost exit."""
        left = super().__exit__(*error)
        self._depth -= 1
        if not self._depth:
            self.identities.unfollow_resizes()
            self.places.unfollow()
            self._packing.__exit__(*error)
            self._packing = None
            for hook in self._grad_hooks:
                hook.remove()
            self._grad_hooks = []
        return left


def _unpack(tensor: Any) -> Any:
    return tensor
