"""Counts a model's parameters and buffers by the storage behind them, and the bytes that an optimizer holds for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from lifecycle_sim.errors import CaptureError
from lifecycle_sim.sources.capture.table import ParameterTable, StorageRow

COUNTERS = frozenset({"step", "mu_product", "mu", "eta"})
"""Keys of optimizer state that PyTorch's optimizers keep as scalars of the host."""
OWN = "parameters of its own"
HOST = ("cpu", "meta")


def parameter_table(model: Any, optimizer: Any = None) -> ParameterTable:
    """Return the table of *model*, as :func:`lifecycle_sim.params` tells it.

    Raises:
        CaptureError: *model* is no module, or *optimizer* no optimizer.
    """
    if not isinstance(model, torch.nn.Module):
        raise CaptureError(f"model is a {type(model).__name__}: give a module of torch")
    refuse_lazy(model)
    optimizers = optimizer if isinstance(optimizer, (list, tuple)) else () if optimizer is None else (optimizer,)
    for each in optimizers:
        if not isinstance(each, torch.optim.Optimizer):
            raise CaptureError(f"optimizer is a {type(each).__name__}: give an optimizer of torch, a list of them, or None")
    states = _States(optimizers)
    groups = _groups(model)
    rows = tuple(_row(group, states) for group in groups)
    own = states.left_over(tensor for group in groups for _, tensor, _ in group)
    return ParameterTable(
        type(model).__name__,
        rows,
        sum(tensor.numel() * tensor.element_size() for group in groups for _, tensor, _ in group),
        tuple(type(each).__name__ for each in optimizers),
        own,
        states.by_key,
        states.counters,
        bool(states.by_key or states.counters),
    )


def refuse_lazy(model: Any) -> None:
    """Refuse a model whose tensors have no sizes yet.

    Raises:
        CaptureError: some parameters or buffers are uninitialized, as those of lazy modules before their first call.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise CaptureError(f"{name} has no size yet: call the lazy module once before")


Named = tuple[str, Any, bool]


def _groups(model: Any) -> list[list[Named]]:
    """The named tensors of *model*, those of one storage together: (name, tensor, whether it is a buffer)."""
    found: dict[int, list[Named]] = {}
    for buffer, named in ((False, model.named_parameters), (True, model.named_buffers)):
        for name, tensor in named(remove_duplicate=False):
            found.setdefault(id(tensor.untyped_storage()), []).append((name, tensor, buffer))
    return list(found.values())


def _row(group: list[Named], states: _States) -> StorageRow:
    first, buffer = group[0][1], all(is_buffer for _, _, is_buffer in group)
    objects = {id(tensor): tensor for _, tensor, _ in group}
    storage = first.untyped_storage()
    return StorageRow(
        tuple(name for name, _, _ in group),
        tuple(first.shape),
        str(first.dtype).removeprefix("torch."),
        len(objects),
        storage.nbytes() // first.element_size(),
        storage.nbytes(),
        any(tensor.requires_grad for tensor in objects.values()),
        buffer,
        _gradients(objects.values()),
        sum(states.of.get(key, 0) for key in objects),
    )


def _gradients(tensors: Iterable[Any]) -> int:
    there: dict[int, int] = {}
    wanted = 0
    for tensor in tensors:
        if tensor.grad is not None:
            there.update((id(part.untyped_storage()), part.untyped_storage().nbytes()) for part in parts_of(tensor.grad))
        elif tensor.requires_grad and tensor.is_leaf:
            wanted += tensor.numel() * tensor.element_size()
    return wanted + sum(there.values())


def parts_of(tensor: Any) -> tuple[Any, ...]:
    """Return the strided tensors that *tensor* is made of: itself, or what a sparse one has, its values last. Of other layouts, none."""
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


def is_counter(parameter: Any, key: str, leaf: Any) -> bool:
    """Whether *leaf*, which an optimizer holds for *parameter* under *key*, is a scalar of the host, as step counters are."""
    return (
        not leaf.dim() and leaf.device.type in HOST and (key in COUNTERS or not isinstance(parameter, torch.Tensor) or parameter.dim() > 0)
    )


def state_leaves(optimizer: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (parameter, key, tensor) for each tensor of the state of *optimizer*."""
    for parameter, state in optimizer.state.items():
        for key, leaves in state.items() if isinstance(state, dict) else (("state", state),):
            for leaf in tree_leaves(leaves):
                if isinstance(leaf, torch.Tensor):
                    yield parameter, str(key), leaf


class _States:
    """The bytes that optimizers hold, each storage once.

    Attributes:
        of: by the id of the parameter for which they are held.
        by_key: by the key under which they are held.
        counters: those of scalars of the host.
    """

    def __init__(self, optimizers: Iterable[Any]) -> None:
        self.of: dict[int, int] = {}
        self.by_key: dict[str, int] = {}
        self.counters = 0
        self._parameters: dict[int, Any] = {}
        self._seen: set[int] = set()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                self._parameters.update((id(parameter), parameter) for parameter in group["params"])
            for parameter, key, leaf in state_leaves(optimizer):
                storage = leaf.untyped_storage()
                if id(storage) in self._seen:
                    continue
                self._seen.add(id(storage))
                if is_counter(parameter, key, leaf):
                    self.counters += storage.nbytes()
                else:
                    self._add(id(parameter), key, storage.nbytes())

    def _add(self, parameter: int, key: str, size: int) -> None:
        self.of[parameter] = self.of.get(parameter, 0) + size
        self.by_key[key] = self.by_key.get(key, 0) + size

    def left_over(self, tensors: Iterable[Any]) -> int:
        """Return the bytes of what belongs to none of *tensors*, the optimizers' own copies of parameters with it."""
        known, storages = set(), set()
        for tensor in tensors:
            known.add(id(tensor))
            storages.add(id(tensor.untyped_storage()))
        for key, parameter in self._parameters.items():
            storage = parameter.untyped_storage()
            if key not in known and id(storage) not in storages | self._seen:
                self._seen.add(id(storage))
                self._add(key, OWN, storage.nbytes())
        return sum(size for key, size in self.of.items() if key not in known)
