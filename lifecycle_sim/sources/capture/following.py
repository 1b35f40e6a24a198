"""Follows the storages of a model that is there already: real tensors, some of them older than the recording."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from lifecycle_sim.events import Category
from lifecycle_sim.sources.capture.identity import NOTHING, Identities
from lifecycle_sim.sources.capture.ledger import Ledger, Phase, Where
from lifecycle_sim.sources.capture.parameters import is_counter, parts_of, state_leaves
from lifecycle_sim.sources.capture.tracker import LIFTED, Tracker

BEFORE = "before the recording"
NOWHERE = Where(Phase.NONE, ())


class DeviceIdentities(Identities):
    """Identities of the storages of one device; what lies on others, and scalars of the host, is counted apart.

    Args:
        ledger: where allocations and frees are recorded.
        where: tells the place in the program.
        device: the device.
        addressed: whether to note the address of each storage's memory.

    Attributes:
        scalars: how many scalars of the host there were.
        elsewhere: how many storages on other devices there were.
    """

    def __init__(self, ledger: Ledger, where: Callable[[], Where], device: Any, addressed: bool = False) -> None:
        super().__init__(ledger, where)
        self._device = device
        self._addressed = addressed
        self.scalars = 0
        self.elsewhere = 0

    def see(self, tensor: Any, operator: str, where: Where | None = None) -> int:
        """Return the number of the storage of *tensor*; ``NOTHING`` if it is on another device or has no bytes.

        A sparse tensor has several storages; the number is that of the last, its values.
        """
        if tensor.layout is not torch.strided:
            return ([NOTHING] + [self.see(part, operator, where) for part in parts_of(tensor)])[-1]
        if tensor.device == self._device:
            number = super().see(tensor, operator, where)
            if self._addressed and number != NOTHING and not self._ledger.storages[number].pointer:
                self._ledger.storages[number].pointer = tensor.untyped_storage().data_ptr()
            return number
        if id(tensor.untyped_storage()) not in self._numbers:
            self.elsewhere += 1
            super().on_host(tensor)
        return NOTHING

    def known(self, tensor: Any) -> int:
        """Return the number of the storage of *tensor*, of its values if it is sparse; ``NOTHING`` if it has none."""
        if tensor.layout is not torch.strided:
            return ([NOTHING] + [super(DeviceIdentities, self).known(part) for part in parts_of(tensor)])[-1]
        return super().known(tensor)

    def on_host(self, tensor: Any) -> None:
        """Take note that *tensor* is a scalar of the host."""
        if id(tensor.untyped_storage()) not in self._numbers:
            self.scalars += 1
            super().on_host(tensor)

    def is_new(self, tensor: Any) -> bool:
        """Whether a storage of *tensor* was never seen."""
        if tensor.layout is not torch.strided:
            return any(self.is_new(part) for part in parts_of(tensor))
        return id(tensor.untyped_storage()) not in self._numbers


class Follower(Tracker):
    """A tracker for a program that is under way: what an operator reads and nothing allocated is from before.

    Args:
        model: the module whose tensors it names.
        optimizers: those whose state may be there already, and whose steps end a step of the program.
        device: the device whose storages count.
        addressed: whether to note the address of each storage's memory.

    Attributes:
        before: the numbers of the storages that were there before.
        apart: the numbers of scalars that only a step of the optimizer told to be counters of the host.
        began: the event at which the program's own begin.
        marks: the events at which steps ended, as the program said.
        optimizer_steps: the events at which the last of the optimizers had stepped.
        operators: how many operators were seen.
    """

    def __init__(self, model: Any, optimizers: tuple[Any, ...], device: Any, addressed: bool = False) -> None:
        super().__init__(run=self._operate)
        self._device_identities = DeviceIdentities(self.ledger, self.places.now, device, addressed)
        self.identities = self._device_identities
        self.before: list[int] = []
        self.apart: set[int] = set()
        self.began = 0
        self.marks: list[int] = []
        self.optimizer_steps: list[int] = []
        self.operators = 0
        self._model = model
        self._optimizers = optimizers
        self._handles: list[Any] = []

    @property
    def scalars(self) -> int:
        """How many scalars of the host there were."""
        return self._device_identities.scalars + len(self.apart)

    @property
    def elsewhere(self) -> int:
        """How many storages on other devices there were."""
        return self._device_identities.elsewhere

    def begin(self) -> None:
        """Take note of what is there, and begin to follow. Hooks that are set here are removed by :meth:`end`."""
        self.watch_model(self._model)
        for parameter in self._model.parameters():
            self._label_gradient(parameter)
        for optimizer in self._optimizers:
            self._label_own(optimizer)
            for parameter, key, leaf in state_leaves(optimizer):
                if is_counter(parameter, key, leaf):
                    self.identities.on_host(leaf)
            self._label_state(optimizer)
        self.before.extend(range(len(self.ledger.storages)))
        self.began = len(self.ledger.events)
        self._handles = [self._model.register_forward_pre_hook(self._label_inputs, with_kwargs=True)]
        if self._optimizers:
            last, ended = self._optimizers[-1], weakref.ref(self)
            self._handles.append(last.register_step_post_hook(lambda *_: _optimizer_stepped(ended)))
        self.__enter__()

    def end(self, *error: Any) -> None:
        """End to follow."""
        self.__exit__(*error)
        self.identities.forget()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def mark(self) -> None:
        """A step of the program ends."""
        self.marks.append(len(self.ledger.events))
        self.places.begin_step()

    def _operate(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take note of what *func* reads and was there before, then run it."""
        self.operators += 1
        if func in LIFTED:  # what a program makes of Python or numpy data: its argument is the new tensor itself
            return func(*args, **kwargs)
        self._anchor(args)
        if kwargs:
            self._anchor(kwargs.values())
        return func(*args, **kwargs)

    def _anchor(self, values: Iterable[Any]) -> None:
        for value in values:
            if isinstance(value, torch.Tensor):
                if self._device_identities.is_new(value):
                    self._found(value)
            elif isinstance(value, (list, tuple)):
                self._anchor(value)

    def _found(self, tensor: Any) -> None:
        """An operator reads *tensor*, which no operator of the recording made."""
        if not tensor.dim() and not tensor.requires_grad and tensor.device.type == "cpu":
            self.identities.on_host(tensor)
            return
        number = self.identities.see(tensor, BEFORE, NOWHERE)
        if number != NOTHING:
            self.before.append(number)
            self.ledger.storages[number].category = Category.INPUT if tensor.is_leaf else None

    def _label_state(self, optimizer: Any) -> None:
        super()._label_state(optimizer)
        for parameter, key, leaf in state_leaves(optimizer):
            if is_counter(parameter, key, leaf):
                number = self.identities.known(leaf)
                if number != NOTHING:
                    self.apart.add(number)

    def _label_own(self, optimizer: Any) -> None:
        """The parameters that an optimizer has and the model has not are copies of the optimizer's own."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if self._device_identities.is_new(parameter):
                    self.label(parameter, Category.OPTIMIZER_STATE, None, NOWHERE)

    def _label_inputs(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The tensors that the model is called with are its input, unless there is evidence of something else."""
        for leaf in torch.utils._pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor) and leaf.is_leaf:
                if self._device_identities.is_new(leaf):
                    self._found(leaf)
                number = self.identities.known(leaf)
                if number != NOTHING and self.ledger.storages[number].category is None:
                    self.ledger.storages[number].category = Category.INPUT


def _optimizer_stepped(follower: Callable[[], Follower | None]) -> None:
    found = follower()
    if found is not None:
        found.optimizer_steps.append(len(found.ledger.events))
        found.places.begin_step()
