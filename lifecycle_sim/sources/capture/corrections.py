"""What autograd does differently while a dispatch mode is on, set right.

While any dispatch mode is active, autograd takes tensors for subclasses that may not be changed in place. So the engine adds gradients
up out of place, and some backward formulas fill a copy of their zeros. On a device without a mode both happen in place.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

ADD, ADD_IN_PLACE = aten.add.Tensor, aten.add_.Tensor
IN_PLACE = {
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.index_put.default: aten.index_put_.default,
    aten.index_add.default: aten.index_add_.default,
}
FILLING_NODES = frozenset(
    {
        "GatherBackward0",
        "IndexBackward0",
        "IndexSelectBackward0",
        "KthvalueBackward0",
        "MaxBackward0",
        "MedianBackward1",
        "MinBackward0",
        "ModeBackward0",
        "NanmedianBackward1",
        "SortBackward0",
        "SortBackward1",
        "TopkBackward0",
    }
)
"""Backward nodes that fill zeros of their own."""

CHAINED = {
    aten.sub.Tensor: aten.sub_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.div.Scalar: aten.div_.Scalar,
    aten.div.Tensor: aten.div_.Tensor,
}
CHAINING_NODE = "BinaryCrossEntropyWithLogitsBackward0"
"""A backward node that goes on in the tensor that its first operator made."""


_dense = "is_non_overlapping_and_dense"
_is_dense = getattr(torch._prims_common, f"{_dense}_or_false", None) or getattr(torch._prims_common, _dense)  # the first since PyTorch 2.8


def _owners(tensor: Any) -> int:
    """How often the storage of *tensor* is referred to."""
    return int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))


OWNERS_OF_BUFFER, HOLDERS_OF_TENSOR = _owners(torch.empty(1, device="cpu")), 4
"""A gradient that only the engine holds is referred to this often at most while the operator runs: more, and it adds out of place.

A storage that one tensor has is referred to once up to PyTorch 2.9, and twice later, by its Python object too: so it is counted here.
"""


def in_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what runs instead of *func* in a backward pass without a mode: its variant in place, or *func* itself."""
    if torch.is_grad_enabled() or (func is not ADD and func not in IN_PLACE and func not in CHAINED):
        return func
    node = torch._C._current_autograd_node()
    if node is None:
        return func
    if func is ADD:
        return ADD_IN_PLACE if not kwargs and _is_accumulated(*args) else func
    if func in CHAINED:
        return CHAINED[func] if node.name() == CHAINING_NODE and _is_unshared(args[0]) else func
    return IN_PLACE[func] if node.name() in FILLING_NODES else func


def _is_accumulated(old: Any, new: Any) -> bool:
    """Whether ``old + new`` is the engine's sum of two gradients, of which it alone holds the first."""
    return (
        isinstance(old, torch.Tensor)
        and isinstance(new, torch.Tensor)
        and old.shape == new.shape
        and old.dtype == new.dtype
        and _is_unshared(old)
    )


def _is_unshared(old: Any) -> bool:
    """Whether nothing but the backward pass holds *old*."""
    return bool(_owners(old) <= OWNERS_OF_BUFFER and old._use_count() <= HOLDERS_OF_TENSOR and _is_dense(old))
