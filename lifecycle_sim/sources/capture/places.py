"""Where the program is: phase, module and step, told by hooks of modules and optimizers and by the autograd engine."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lifecycle_sim.sources.capture.ledger import Ledger, Phase, Where

if TYPE_CHECKING:
    from lifecycle_sim.sources.capture.graphing import GraphRecorder

graph_task = torch._C._current_graph_task_id
NO_GRAPH_TASK = -1


class Places:
    """Follows the program through modules, backward passes and optimizer steps.

    A backward operator belongs to the module in whose forward its node was made: nodes have rising sequence numbers, and those at the
    entries and exits of modules are kept.

    Args:
        ledger: told when a backward pass begins.
        after_step: called with an optimizer after its step.

    Attributes:
        counts_on_host: whether the optimizer that steps counts its steps on the host.
        graph: told of calls of modules with their arguments; None if nobody asks.
    """

    def __init__(self, ledger: Ledger, after_step: Any = None) -> None:
        self._ledger = ledger
        self._after_step = after_step
        self._names: dict[int, str] = {}
        self._stack: list[tuple[int, tuple[str, ...], bool]] = []
        self._optimizer: str | None = None
        self.counts_on_host = True
        self.graph: GraphRecorder | None = None
        self._called: list[tuple[Any, dict[str, Any]]] = []
        self._call: Any = None
        self._recomputing = 0
        self._between = True
        self._task = NO_GRAPH_TASK
        self._sequence: list[int] = []
        self._marks: list[tuple[str, ...]] = []
        self._places: dict[tuple[Phase, tuple[str, ...]], Where] = {}
        self._hooks: list[Any] = []

    def name(self, model: Any) -> None:
        """Call the modules of *model* by their paths; the root has its class's name."""
        root = type(model).__name__
        for path, module in model.named_modules():
            self._names[id(module)] = path or root

    def path(self, module: Any) -> str:
        """Return what *module* is called."""
        return self._names.get(id(module)) or type(module).__name__

    def begin_step(self) -> None:
        """A step begins: no phase until a module is entered."""
        self._between = True

    def now(self) -> Where:
        """Return the place in the program."""
        phase = self._phase()
        if phase is Phase.OPTIMIZER:
            modules: tuple[str, ...] = (f"optimizer {self._optimizer}",)
        elif self._stack:
            modules = self._stack[-1][1]
        else:
            modules = self._owner_of_node() if phase is Phase.BACKWARD else ()
        found = self._places.get((phase, modules))
        if found is None:
            found = self._places[phase, modules] = Where(phase, modules)
        return found

    def _phase(self) -> Phase:
        task = graph_task()
        if task != NO_GRAPH_TASK:
            if task != self._task:
                self._task = task
                self._ledger.backward_begins()
            self._between = True
        if self._optimizer is not None:
            return Phase.OPTIMIZER
        if task != NO_GRAPH_TASK:
            return Phase.RECOMPUTE if self._recomputing else Phase.BACKWARD
        return Phase.NONE if self._between and not self._stack else Phase.FORWARD

    def _owner_of_node(self) -> tuple[str, ...]:
        node = torch._C._current_autograd_node()
        at = -1 if node is None else bisect_right(self._sequence, node._sequence_nr()) - 1
        return self._marks[at] if at >= 0 else ()

    def _mark(self) -> None:
        number, modules = torch._C._autograd._get_sequence_nr(), self._stack[-1][1] if self._stack else ()
        if self._sequence and self._sequence[-1] >= number:
            self._marks[-1] = modules
        else:
            self._sequence.append(number)
            self._marks.append(modules)

    def _enter(self, module: Any, inputs: Any) -> None:
        recomputing = graph_task() != NO_GRAPH_TASK
        around = self._stack[-1][1] if self._stack else ()
        self._stack.append((id(module), (self.path(module), *around), recomputing))
        if recomputing:
            self._recomputing += 1
        else:
            self._between = False
        if self.graph is not None:
            none: dict[str, Any] = {}
            named = next((kwargs for called, kwargs in reversed(self._called) if called is module), none)
            self.graph.enter(self.path(module), inputs, named, recomputing)
        self._mark()

    def _leave(self, module: Any, _inputs: Any, _output: Any) -> None:
        if not any(entered == id(module) for entered, _, _ in self._stack):
            return
        while self._stack:  # an exception may have skipped the exits of inner modules
            entered, _, recomputing = self._stack.pop()
            self._recomputing -= recomputing
            if self.graph is not None:
                self.graph.leave(recomputing)
            if entered == id(module):
                break
        self._mark()

    def _before_optimizer(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._optimizer = type(optimizer).__name__
        self.counts_on_host = not any(group.get("capturable") or group.get("fused") for group in optimizer.param_groups)

    def _after_optimizer(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._after_step is not None:
            self._after_step(optimizer)
        self._optimizer = None

    def follow(self) -> None:
        """Begin to follow every module and optimizer of the process."""
        modules = torch.nn.modules.module
        self._hooks = [
            modules.register_module_forward_pre_hook(self._enter),
            modules.register_module_forward_hook(self._leave, always_call=True),
            register_optimizer_step_pre_hook(self._before_optimizer),
            register_optimizer_step_post_hook(self._after_optimizer),
        ]
        if self.graph is not None:
            self._follow_names()

    def _follow_names(self) -> None:
        """Keep the arguments by name of each call under way, which hooks of all modules are not told of."""
        call = self._call = torch.nn.Module.__call__
        called = self._called

        def kept(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not kwargs:
                return call(module, *args)
            called.append((module, kwargs))
            try:
                return call(module, *args, **kwargs)
            finally:
                called.pop()

        torch.nn.Module.__call__ = kept

    def unfollow(self) -> None:
        """Undo :meth:`follow`."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self._call is not None:
            torch.nn.Module.__call__ = self._call
            self._call = None


def modules_inside_out(module: Any) -> Iterable[Any]:
    """Yield *module* and all inside it, children first: the order in which ``module.to(device)`` moves them."""
    for child in module.children():
        yield from modules_inside_out(child)
    yield module
