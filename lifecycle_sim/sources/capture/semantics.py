"""Makes fake tensors, which say they are on the CPU, behave as they would on CUDA, for as long as a block lasts.

Operators are overridden at the dispatcher, not by a function mode, which backward passes and recomputation would not see.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer as optimizers
from torch.utils import _foreach_utils as foreach

from lifecycle_sim.events import Assumption
from lifecycle_sim.sources.capture import autocast, recurrent
from lifecycle_sim.sources.capture.attention import attention
from lifecycle_sim.sources.capture.profiles import DeviceProfile
from lifecycle_sim.sources.capture.redirect import here, moved_here, replace
from lifecycle_sim.sources.capture.scratch import bound

aten = torch.ops.aten
CPU = torch.device("cpu")
EFFICIENT = aten._scaled_dot_product_efficient_attention.default
EFFICIENT_BACKWARD = aten._scaled_dot_product_efficient_attention_backward.default
SEEDS_ON_DEVICE_SINCE = (2, 14)
"""The release since which memory-efficient attention keeps its seed and offset on the device, without a graph capture too."""
HALVES = (torch.float16, torch.bfloat16)
COPY = aten._to_copy.default
LOSSES = {aten.mse_loss.default: 2, aten.smooth_l1_loss.default: 2, aten.binary_cross_entropy.default: 3}
"""Losses that reduce into the storage of what they reduce, and keep it; with the place of their reduction (0 for none)."""
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
OWN = ("aten", "prim", "prims", "profiler")
"""Where torch's own operators are; what is elsewhere brought kernels of its own."""
IN_LIBRARIES = ("_fft_", "linalg_", "_linalg_", "cholesky", "geqrf", "ormqr", "lu_unpack", "triangular_solve")
"""How the names of operators begin that cuFFT, cuSOLVER or MAGMA carry out, in work areas of their own."""
OF_TORCH = ("linalg_vector_norm", "linalg_cross")
"""Those that begin so and have kernels of torch."""
UNSEEN = {
    "foreign_operators": "operators that are not torch's own ran ({}): what they return counts, what their kernels take for themselves is "
    "not known",
    "library_workspaces": "operators of cuFFT, cuSOLVER or MAGMA ran ({}): what they return counts, those libraries' work areas don't",
}
"""What is said of operators whose kernels take what is not known."""
WITH_FLOAT_STATISTICS = (aten.native_layer_norm.default,)


class Cuda:
    """CUDA's semantics for one card.

    Args:
        profile: the card.
        release: the PyTorch release whose rules hold, where releases differ.

    Attributes:
        skipped: how often what cannot be represented was left out, by name.
        unseen: how often operators ran whose kernels take what is not known, by kind and name.
        casts: what autocast keeps.
        composites: what operators that are made of others are made of on CUDA, where it is not what they are made of on the CPU.
    """

    def __init__(self, profile: DeviceProfile, release: str) -> None:
        self._profile = profile
        self._release = tuple(int(number) for number in release.split("."))
        self.skipped: Counter[str] = Counter()
        self.unseen: dict[str, Counter[str]] = {kind: Counter() for kind in UNSEEN}
        self.casts = autocast.Casts()
        self.composites: dict[Any, Callable[..., Any]] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let CUDA's semantics hold inside the block."""
        with ExitStack() as undo, warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore",
                message=".*overriding a previously registered kernel.*|.*Warning only once for all operators.*|"
                "Accessing the data pointer of FakeTensor.*|flex_attention called without torch.compile.*",
            )
            replace(undo, logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)  # what fails is told in one line
            library = torch.library.Library("aten", "IMPL")
            undo.callback(library._destroy)
            self._operators(library)
            autocast.install(library, self.casts)
            self._autocast(undo, self.casts)
            self._foreach(undo)
            self._scaler(undo)
            self._cuda_module(undo)
            self._compile(undo)
            self._transformers(undo)
            undo.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
            torch._C._set_mkldnn_enabled(False)
            yield

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run *func* as on CUDA: ``device="cuda"`` is the device at hand, and statistics of norms are float32."""
        device = kwargs.get("device")
        if device is not None and device.type != "cpu" and device.type != "meta":
            kwargs = {**kwargs, "device": CPU}
            if func is COPY and _copies_nothing(args[0], kwargs):
                return aten.alias.default(args[0])
        unseen = _work_unseen(func)
        if unseen is not None:
            self.unseen[unseen][func.name()] += 1
        if func in recurrent.RESULTS:
            return recurrent.RESULTS[func](bound(func, args, kwargs))
        if func is EFFICIENT_BACKWARD and args[1].shape[1] != args[2].shape[1]:
            return _grouped_backward(func, args, kwargs)
        result = func(*args, **kwargs)
        if func in LOSSES and (args[LOSSES[func]] if len(args) > LOSSES[func] else 1):
            return _in_storage_of(result, torch.broadcast_shapes(args[0].shape, args[1].shape))
        if func in CONVOLUTIONS and not torch.backends.cudnn.enabled:
            return _contiguous(result)
        if func in WITH_FLOAT_STATISTICS and result[1].dtype in HALVES:
            return (result[0], result[1].float(), result[2].float())
        if func in CHANGED:
            return CHANGED[func](result, args)
        return result

    def scalars_on_host(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether the scalars that *func* returns are on the host: seeds that attention keeps, depending on dropout and release."""
        return func is EFFICIENT and (self._release < SEEDS_ON_DEVICE_SINCE or (len(args) > 5 and args[5] > 0))

    def assumptions(self) -> list[Assumption]:
        """Return what was left out, each with how often."""
        texts = {
            "compile_skipped": "torch.compile was left out: the trace is that of eager execution, without fusion",
            "recurrent_layers": "the model has recurrent layers (LSTM, GRU, RNN), which cuDNN runs: what it keeps for backward is "
            "estimated, its workspace is not known; packed sequences and projections were taken as plain cells",
            "scaler_off": "a GradScaler was made before the capture and so, without CUDA, is off (or was made with enabled=False): make "
            "it in build_model, make_optimizer or step, or in the file that is captured",
            "gradients_finite": "GradScaler asked whether gradients are finite: they were taken to be",
        }
        found = [Assumption(code, self.skipped[code], text) for code, text in texts.items() if self.skipped[code]]
        for code, names in self.unseen.items():
            if names:
                found.append(Assumption(code, names.total(), UNSEEN[code].format(", ".join(names))))
        return found

    def _operators(self, library: Any) -> None:
        architecture, release = self._profile.architecture, self._release

        def scaled_dot_product_attention(
            query: Any,
            key: Any,
            value: Any,
            attn_mask: Any = None,
            dropout_p: float = 0.0,
            is_causal: bool = False,
            *,
            scale: float | None = None,
            enable_gqa: bool = False,
        ) -> Any:
            if isinstance(query, FakeTensor):
                return attention(architecture, release, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
            operator = aten.scaled_dot_product_attention.default
            return operator.decompose(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

        def dropout(tensor: Any, p: float, train: bool) -> Any:
            if not train or p == 0 or tensor.numel() == 0:
                return tensor
            if isinstance(tensor, FakeTensor) and p < 1:
                return torch.native_dropout(tensor, p, True)[0]
            return aten.dropout.default.decompose(tensor, p, train)

        def linear(tensor: Any, weight: Any, bias: Any = None) -> Any:
            operator = aten.linear.default
            if bias is None or not isinstance(weight, FakeTensor) or tensor.dim() == 2 or (tensor.dim() == 3 and tensor.is_contiguous()):
                return operator.decompose(tensor, weight, bias)
            if tensor.dim() > 3 and tensor.is_contiguous():
                return torch.addmm(bias, tensor.view(-1, tensor.shape[-1]), weight.t()).view(*tensor.shape[:-1], weight.shape[0])
            return torch.matmul(tensor, weight.t()).add_(bias)

        def one_hot(tensor: Any, num_classes: int = -1) -> Any:
            if not isinstance(tensor, FakeTensor):
                return aten.one_hot.default.decompose(tensor, num_classes)
            if num_classes < 0:
                num_classes = int(tensor.max().item()) + 1
            hot = torch.zeros((*tensor.shape, num_classes), dtype=tensor.dtype, device=tensor.device)
            return hot.scatter_(-1, tensor.unsqueeze(-1), 1)

        def only_fake(*_args: Any, **_kwargs: Any) -> Any:
            raise RuntimeError("this operator has a kernel on CUDA only; it runs on fake tensors")

        for composite in (scaled_dot_product_attention, dropout, linear, one_hot, recurrent.lstm_cell, recurrent.gru_cell):
            library.impl(composite.__name__, composite, "AutogradCPU")
            self.composites[getattr(aten, composite.__name__).default] = composite
        for kind, operator in recurrent.OPERATORS.items():
            self.composites[operator] = recurrent.layers(kind)
            library.impl(f"{kind}.input", self.composites[operator], "AutogradCPU")
        for name in ("_fused_rms_norm", "_fused_rms_norm_backward"):
            if hasattr(aten, name) and not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CPU"):
                library.impl(name, only_fake, "CPU")

    def _autocast(self, undo: ExitStack, casts: autocast.Casts) -> None:
        begin = torch.autocast.__init__

        def init(mode: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
            if device_type == "cuda":
                device_type, dtype = "cpu", torch.float16 if dtype is None else dtype
            begin(mode, device_type, dtype, enabled, cache_enabled)

        clear = torch.clear_autocast_cache

        def clear_autocast_cache() -> None:
            casts.clear()
            clear()

        enabled, dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype
        replace(undo, torch.autocast, "__init__", init)
        replace(undo, torch, "clear_autocast_cache", clear_autocast_cache)
        replace(undo, torch, "is_autocast_enabled", lambda device_type="cuda": enabled(here(device_type)))
        replace(undo, torch, "get_autocast_dtype", lambda device_type: dtype_of(here(device_type)))
        undo.callback(casts.clear)

    def _foreach(self, undo: ExitStack) -> None:
        """Let optimizers choose as for CUDA: one kernel for all parameters unless told otherwise."""
        for module in (optimizers, foreach):
            types = module._foreach_supported_types
            types.append(FakeTensor)
            undo.callback(types.remove, FakeTensor)
        devices = foreach._get_foreach_kernels_supported_devices
        for module in (optimizers, foreach):
            replace(undo, module, "_get_foreach_kernels_supported_devices", lambda: [*devices(), "cpu"])
        for name, module in tuple(sys.modules.items()):
            if name.startswith("torch.optim.") and hasattr(module, "_get_capturable_supported_devices"):
                replace(undo, module, "_get_capturable_supported_devices", _and_here(module._get_capturable_supported_devices))

    def _scaler(self, undo: ExitStack) -> None:
        scaler = torch.amp.GradScaler
        scale = scaler.scale

        def scaled(self_: Any, outputs: Any) -> Any:
            if not self_._enabled and self_._device == "cuda":
                self.skipped["scaler_off"] += 1
            return scale(self_, outputs)

        def step(_scaler: Any, optimizer: Any, _state: Any, *args: Any, **kwargs: Any) -> Any:
            self.skipped["gradients_finite"] += 1
            return optimizer.step(*args, **kwargs)

        undo.enter_context(scalers_on())
        replace(undo, scaler, "scale", scaled)
        replace(undo, scaler, "_maybe_opt_step", step)

    def _cuda_module(self, undo: ExitStack) -> None:
        """Let the calls of ``torch.cuda`` that ask for nothing but order or figures do nothing."""
        profile = self._profile
        quiet: dict[str, Callable[..., Any]] = dict.fromkeys(
            ("synchronize", "empty_cache", "reset_peak_memory_stats", "reset_max_memory_allocated", "set_device", "manual_seed_all"),
            lambda *_args, **_kwargs: None,
        )
        quiet |= dict.fromkeys(
            ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "current_device"), lambda *_args: 0
        )
        quiet["get_device_capability"] = lambda *_args: divmod(profile.architecture, 10)
        quiet["is_bf16_supported"] = lambda *_args: profile.architecture >= 80
        for name, replacement in quiet.items():
            replace(undo, torch.cuda, name, replacement)
        replace(undo, torch.Tensor, "to", moved_here(torch.Tensor.to))
        replace(undo, torch.Tensor, "cuda", lambda tensor, *_args, **_kwargs: tensor)

    def _compile(self, undo: ExitStack) -> None:
        def compile_(model: Any = None, **_options: Any) -> Any:
            if model is None:
                return lambda function: compile_(function)
            self.skipped["compile_skipped"] += 1
            return model

        def compile_module(_module: Any, *_args: Any, **_options: Any) -> None:
            self.skipped["compile_skipped"] += 1

        replace(undo, torch, "compile", compile_)
        replace(undo, torch.nn.Module, "compile", compile_module)

    def _transformers(self, undo: ExitStack) -> None:
        """Let Hugging Face's transformers, if it is there, take a fake tensor for a real one, and not for one that is traced or exported.

        For those it builds masks that a real run leaves out, and with them other attention kernels.
        """
        module = sys.modules.get("transformers.utils.import_utils")
        if module is not None and hasattr(module, "is_fake_tensor"):
            replace(undo, module, "is_fake_tensor", lambda _tensor: False)


@contextmanager
def scalers_on() -> Iterator[None]:
    """Let a ``GradScaler`` for CUDA that is made in the block be one for fake tensors: without CUDA it would be off."""
    begin = torch.amp.GradScaler.__init__

    def init(scaler: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        begin(scaler, here(device), *args, **kwargs)

    torch.amp.GradScaler.__init__ = init
    try:
        yield
    finally:
        torch.amp.GradScaler.__init__ = begin


@cache
def _work_unseen(func: Any) -> str | None:
    """Which kind of ``UNSEEN`` the operator *func* is, if any."""
    if func.namespace not in OWN:
        return "foreign_operators"
    name = func.name().removeprefix("aten::")
    return "library_workspaces" if name.startswith(IN_LIBRARIES) and not name.startswith(OF_TORCH) else None


def _grouped_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Gradients of keys and values that several heads share."""
    gradient, query, *shared = args[:4]
    groups = query.shape[1] // shared[0].shape[1]
    result = func(gradient, query, *(part.repeat_interleave(groups, 1) for part in shared), *args[4:], **kwargs)
    own = (part.new_empty(part.transpose(1, 2).shape).transpose(1, 2) for part in shared)
    return (result[0], *own, *result[3:])


def _contiguous(result: Any) -> Any:
    """Return *result*, a tensor or several, with contiguous ones for those that are not."""
    if isinstance(result, tuple):
        return tuple(_contiguous(part) for part in result)
    return result if result is None or result.is_contiguous() else result.new_empty(result.shape)


def _statistics_kept(result: Any, args: tuple[Any, ...]) -> Any:
    """Batch norm without cuDNN keeps statistics of its own in evaluation too."""
    tensor, kept = args[0], result[1]
    if kept.numel() or torch.backends.cudnn.enabled:
        return result
    return (result[0], *(kept.new_empty(tensor.shape[1], dtype=_wide(tensor.dtype)) for _ in range(2)), *result[3:])


def _wide(dtype: Any) -> Any:
    return torch.float32 if dtype in HALVES else dtype


def _bags(result: Any, args: tuple[Any, ...]) -> Any:
    """What a bag of embeddings keeps: the bag of each index, the size of each bag, and of maxima their places."""
    indices, offsets, maximal = args[1], args[2], len(args) > 4 and args[4] == 2
    places = (result[0].numel(),) if maximal else (0,)
    found = (indices.shape, offsets.shape, places)
    return (
        result[0],
        *(offsets.new_empty(shape) for shape in found[:2]),
        offsets.new_empty(found[2]).view(result[0].shape if maximal else -1),
    )


def _folded(result: Any, args: tuple[Any, ...]) -> Any:
    """Folding grows or shrinks a tensor like its input, which keeps the larger storage."""
    size = args[0].numel()
    return result.new_empty(size).resize_(result.shape) if size > result.numel() else result


CHANGED: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: _statistics_kept,
    aten._native_batch_norm_legit.default: _statistics_kept,
    aten._native_batch_norm_legit.no_stats: _statistics_kept,
    aten._embedding_bag.default: _bags,
    aten._embedding_bag_forward_only.default: _bags,
    aten.col2im.default: _folded,
    aten.log_sigmoid_forward.default: lambda result, _args: (result[0], result[1].new_empty(0)),
}
"""Operators that return more on CUDA than on the CPU, with what makes their results so."""


def _and_here(devices: Callable[..., list[str]]) -> Callable[..., list[str]]:
    return lambda *args, **kwargs: [*devices(*args, **kwargs), "cpu"]


def _copies_nothing(tensor: Any, kwargs: dict[str, Any]) -> bool:
    dtype, layout = kwargs.get("dtype"), kwargs.get("memory_format")
    return dtype in (None, tensor.dtype) and layout in (None, torch.preserve_format)


def _in_storage_of(result: Any, shape: Any) -> Any:
    """Return a tensor like the scalar *result* in a storage large enough for *shape*."""
    return result.new_empty(shape).resize_(())
