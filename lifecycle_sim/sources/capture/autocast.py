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
        "_convolution.deprecated",
        "_scaled_dot_product_flash_attention",
        "_thnn_fused_gru_cell",
        "_thnn_fused_lstm_cell",
        "addbmm",
        "addmm",
        "addmv",
        "addr",
        "baddbmm",
        "bmm",
        "chain_matmul",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_tbc",
        "conv_transpose1d",
        "conv_transpose2d.input",
        "conv_transpose3d.input",
        "convolution",
        "einsum",
        "gru_cell",
        "linalg_multi_dot",
        "linalg_vecdot",
        "linear",
        "lstm_cell",
        "matmul",
        "mm",
        "mv",
        "prelu",
        "rnn_relu_cell",
        "rnn_tanh_cell",
        "scaled_dot_product_attention",
    }
)
OTHER_ON_CPU = frozenset({"prod", "prod.dim_int", "grid_sampler"})
"""Operators that have a rule on both devices, but not the same. Those in the low type have the same, and share one cache of casts."""
NOT_ON_FAKE = frozenset({"cudnn_convolution", "cudnn_convolution_transpose", "norm.Scalar", "norm.ScalarOpt_dim"})

_CPU, _CUDA = "AutocastCPU", "AutocastCUDA"
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


class Casts:
    """Casts to the low type of leaves that want a gradient: kept until autocast ends, as autocast's own cache keeps them.

    Attributes:
        told: called with each cast that was kept and is wanted again; None if nobody asks.
        keeping: whether a cast is being made that will be kept.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, Any]] = {}
        self.told: Callable[[Any], None] | None = None
        self.keeping = False

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
            self.keeping = True
            try:
                kept = self._kept[id(tensor)] = (tensor, tensor.to(dtype))
            finally:
                self.keeping = False
        elif self.told is not None:
            self.told(kept[1])
        return kept[1]

    def all(self, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with their tensors in *dtype*, cast from the last to the first, as compiled code evaluates them."""

        def cast(value: Any) -> Any:
            return tree_map_only(torch.Tensor, lambda tensor: self.cast(tensor, dtype), value)

        named = {name: cast(value) for name, value in reversed(kwargs.items())}
        return tuple(cast(value) for value in args[::-1])[::-1], named

    def clear(self) -> None:
        """Let all go: the outermost autocast ended."""
        self._kept.clear()


def install(library: Any, casts: Casts) -> None:
    """Register CUDA's rules in *library*, an implementation library of ``aten``; *casts* keeps what they cast."""
    on_cuda = set(torch._C._dispatch_get_registrations_for_dispatch_key(_CUDA))
    on_cpu = set(torch._C._dispatch_get_registrations_for_dispatch_key(_CPU))
    shared = {f"aten::{name}" for name in OTHER_ON_CPU | IN_LOW} & on_cuda
    for name, operator in _operators(on_cuda - on_cpu | shared):
        if name not in NOT_ON_FAKE:
            library.impl(name, _rule(name)(operator, casts), _CPU)
    for name, _ in _operators(on_cpu - on_cuda):
        library.impl(name, torch.library.fallthrough_kernel, _CPU)


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
            args, kwargs = casts.all(args, kwargs, torch.float32)
            return operator(*args, **kwargs)

    return kernel


def _in_low(operator: Any, casts: Casts) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            args, kwargs = casts.all(args, kwargs, torch.get_autocast_dtype("cpu"))
            return operator(*args, **kwargs)

    return kernel


def _in_widest(operator: Any, casts: Casts) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            wide = any(tensor.dtype == torch.float32 for tensor in tensors)
            dtype = torch.float32 if wide else torch.get_autocast_dtype("cpu")
            args, kwargs = casts.all(args, kwargs, dtype)
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
