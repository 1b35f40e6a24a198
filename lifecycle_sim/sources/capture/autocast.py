"""CUDA's autocast rules, registered for the CPU, on which fake tensors say they are.

Autocast on the CPU has other lists: what CUDA runs in float32 (layer_norm, softmax, exp, sum, …) the CPU does not, and the CPU has rules
for operators that CUDA leaves alone. Which operators have rules the dispatcher tells; by which rule, ``ATen/autocast_mode.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

ACCUMULATED_IN_FLOAT32 = frozenset(
    {
        "cumprod",
        "cumsum",
        "linalg_matrix_norm",
        "linalg_matrix_norm.str_ord",
        "linalg_vector_norm",
        "log_softmax.int",
        "prod",
        "prod.dim_int",
        "softmax.int",
        "sum",
        "sum.dim_IntList",
    }
)
IN_WIDEST = frozenset(
    {
        "addcdiv",
        "addcmul",
        "atan2",
        "bilinear",
        "cross",
        "dot",
        "grid_sampler",
        "index_put",
        "scatter_add",
        "tensordot",
        "vdot",
    }
)
IN_LOW = frozenset(
    {
        "_convolution",
        "_scaled_dot_product_flash_attention",
        "_thnn_fused_gru_cell",
        "_thnn_fused_lstm_cell",
        "addmv",
        "addr",
        "chain_matmul",
        "convolution",
        "einsum",
        "gru_cell",
        "linalg_multi_dot",
        "lstm_cell",
        "mv",
        "rnn_relu_cell",
        "rnn_tanh_cell",
    }
)
OTHER_ON_CPU = frozenset({"prod", "prod.dim_int", "grid_sampler"})
"""Operators that have a rule on both devices, but not the same."""
NOT_ON_FAKE = frozenset({"cudnn_convolution", "cudnn_convolution_transpose", "norm.Scalar", "norm.ScalarOpt_dim"})

_CPU, _CUDA = "AutocastCPU", "AutocastCUDA"
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


class Casts:
    """Casts to the low type of leaves that want a gradient: kept until autocast ends, as autocast's own cache keeps them."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, Any]] = {}

    def cast(self, tensor: Any, dtype: Any) -> Any:
        """Return *tensor* in *dtype*, itself where it is not eligible."""
        if not tensor.is_floating_point() or tensor.dtype in (dtype, torch.float64):
            return tensor
        low = torch.get_autocast_dtype("cpu")
        if not (
            dtype == low
            and tensor.dtype == torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and not tensor._is_view()
            and torch.is_autocast_cache_enabled()
        ):
            return tensor.to(dtype)
        kept = self._kept.get(id(tensor))
        if kept is None:
            kept = self._kept[id(tensor)] = (tensor, tensor.to(dtype))
        return kept[1]

    def clear(self) -> None:
        """Let all go: the outermost autocast ended."""
        self._kept.clear()


def install(library: Any) -> Casts:
    """Register CUDA's rules in *library*, an implementation library of ``aten``; return the casts they keep."""
    casts = Casts()
    on_cuda = set(torch._C._dispatch_get_registrations_for_dispatch_key(_CUDA))
    on_cpu = set(torch._C._dispatch_get_registrations_for_dispatch_key(_CPU))
    for name, operator in _operators(on_cuda - on_cpu | {f"aten::{name}" for name in OTHER_ON_CPU}):
        if name not in NOT_ON_FAKE:
            library.impl(name, _rule(name)(operator, casts), _CPU)
    for name, _ in _operators(on_cpu - on_cuda):
        library.impl(name, torch.library.fallthrough_kernel, _CPU)
    return casts


def _operators(names: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield each name without its namespace, with its operator."""
    for full in sorted(names):
        name = full.removeprefix("aten::")
        packet, _, overload = name.partition(".")
        yield name, getattr(getattr(torch.ops.aten, packet), overload or "default")


def _rule(name: str) -> Callable[[Any, Casts], Callable[..., Any]]:
    if name in ACCUMULATED_IN_FLOAT32:
        return _accumulated
    return _in_widest if name in IN_WIDEST else _in_low if name in IN_LOW else _in_float32


def _in_float32(operator: Any, casts: Casts) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            args, kwargs = tree_map_only(torch.Tensor, lambda tensor: casts.cast(tensor, torch.float32), (args, kwargs))
            return operator(*args, **kwargs)

    return kernel


def _in_low(operator: Any, casts: Casts) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            low = torch.get_autocast_dtype("cpu")
            args, kwargs = tree_map_only(torch.Tensor, lambda tensor: casts.cast(tensor, low), (args, kwargs))
            return operator(*args, **kwargs)

    return kernel


def _in_widest(operator: Any, casts: Casts) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            wide = any(tensor.dtype == torch.float32 for tensor in tensors)
            dtype = torch.float32 if wide else torch.get_autocast_dtype("cpu")
            args, kwargs = tree_map_only(torch.Tensor, lambda tensor: casts.cast(tensor, dtype), (args, kwargs))
            return operator(*args, **kwargs)

    return kernel


def _accumulated(operator: Any, _casts: Casts) -> Callable[..., Any]:
    place = [argument.name for argument in operator._schema.arguments].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            given = (len(args) > place and args[place] is not None) or kwargs.get("dtype") is not None
            if not given and args[0].dtype in (torch.float16, torch.bfloat16):
                args, kwargs = args[:place], {**kwargs, "dtype": torch.float32}
            return operator(*args, **kwargs)

    return kernel
