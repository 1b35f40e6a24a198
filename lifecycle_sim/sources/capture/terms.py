"""Memory that kernels take for themselves, which no hook sees: named terms, each with its rule, its source and a switch.

A term's storages are recorded like tensors, in the category workspace and under the term's name, where the operator takes them. What a
library chooses at run time has no value but an interval, and is not recorded: only bounds of the peak follow from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from lifecycle_sim.errors import InputError
from lifecycle_sim.sources.capture.ledger import Ledger, Where
from lifecycle_sim.sources.capture.profiles import DeviceProfile
from lifecycle_sim.sources.capture.record import Term, TermUse
from lifecycle_sim.sources.capture.reduction import VECTOR, reduction_scratch

aten = torch.ops.aten
INDEX_BYTES = 8
FLASH_ROWS, FLASH_COLUMNS, EFFICIENT_ROWS = 128, 32, 64
CONVOLUTION_AT_MOST = 136_314_880
EMBEDDING_SORTS_ABOVE = 3072
EMBEDDING_ROWS = 10

TERMS: dict[str, Term] = {
    term.name: term
    for term in (
        Term(
            "cublas_workspace",
            "one for each thread that multiplies matrices (the main one and autograd's), from its first product on, for good",
            "ATen/cuda/CublasHandlePool.cpp; 8 recordings to the byte",
        ),
        Term(
            "reduce_scratch",
            "partial results and counters of reductions that are split across thread blocks",
            "ATen/native/cuda/Reduce.cuh; every reduction of 3 recordings to the byte",
        ),
        Term(
            "index_put_sort",
            "five index-sized arrays of a sort, for index_put that accumulates (the backward of indexing)",
            "ATen/native/cuda/Indexing.cu; 4 recordings, less up to 72,191 B of the sort's own",
        ),
        Term(
            "flash_backward",
            "float32 row sums B·H·⌈T⌉128 and query gradients B·⌈T⌉128·H·⌈D⌉32",
            "flash_attn/flash_api.cpp; PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "convolution_workspace",
            "chosen by cuDNN at run time, at each convolution and each of its two backward halves",
            "402 workspaces of a ResNet-50 recording: 0.95 to 136.3 MB",
            upper=CONVOLUTION_AT_MOST,
        ),
        Term(
            "convolution_columns",
            "without cuDNN: one image unfolded, C·kh·kw × oh·ow, unless the kernel is 1 × 1 with unit stride and no padding",
            "ATen/native/cuda/ConvolutionMM2d.cu",
        ),
    )
}
"""All terms. Outside of the allocator, and so in none of its levels: the CUDA context, library handles, NCCL, compiled modules."""


def chosen_terms(names: Collection[str] | None) -> frozenset[str]:
    """Return the names of the terms to apply; None stands for all.

    Raises:
        InputError: one is not known.
    """
    if names is None:
        return frozenset(TERMS)
    unknown = sorted(set(names) - set(TERMS))
    if unknown:
        raise InputError(f"term {name!r} is not known: the terms are {', '.join(TERMS)}" for name in unknown)
    return frozenset(names)


@dataclass(frozen=True)
class Reduction:
    """How an operator reduces: where its dimensions are, and what a partial result takes.

    Attributes:
        dims: place of the dimensions among the arguments; None if it reduces all.
        partial: bytes of a partial result of an input of a given dtype.
        vector: values a thread loads at once.
    """

    dims: int | None
    partial: Callable[[Any], int]
    vector: int = VECTOR


def _sum(dtype: Any) -> int:
    return 16 if dtype == torch.complex128 else 4 if dtype in (torch.float32, torch.float16, torch.bfloat16) else 8


def _with_index(_dtype: Any) -> int:
    return 16


def _same(dtype: Any) -> int:
    return int(dtype.itemsize)


def _truth(_dtype: Any) -> int:
    return 1


def _welford(dtype: Any) -> int:
    return 32 if dtype == torch.float64 else 16


REDUCTIONS: dict[Any, Reduction] = {
    aten.sum.default: Reduction(None, _sum),
    aten.sum.dim_IntList: Reduction(1, _sum),
    aten.mean.default: Reduction(None, _sum),
    aten.mean.dim: Reduction(1, _sum),
    aten.prod.default: Reduction(None, _sum),
    aten.prod.dim_int: Reduction(1, _sum),
    aten.linalg_vector_norm.default: Reduction(2, _sum),
    aten.max.dim: Reduction(1, _with_index),
    aten.min.dim: Reduction(1, _with_index),
    aten.argmax.default: Reduction(1, _with_index),
    aten.argmin.default: Reduction(1, _with_index),
    aten.amax.default: Reduction(1, _same),
    aten.amin.default: Reduction(1, _same),
    aten.max.default: Reduction(None, _same),
    aten.min.default: Reduction(None, _same),
    aten.any.default: Reduction(None, _truth),
    aten.any.dim: Reduction(1, _truth),
    aten.all.default: Reduction(None, _truth),
    aten.all.dim: Reduction(1, _truth),
    aten.var.correction: Reduction(1, _welford, 2),
    aten.std.correction: Reduction(1, _welford, 2),
    aten.var_mean.correction: Reduction(1, _welford, 2),
    aten.std_mean.correction: Reduction(1, _welford, 2),
}

PRODUCTS = frozenset(
    {
        aten.mm.default,
        aten.addmm.default,
        aten.bmm.default,
        aten.baddbmm.default,
        aten.addbmm.default,
        aten.mv.default,
        aten.addmv.default,
        aten.dot.default,
        aten.vdot.default,
        aten._scaled_mm.default,
    }
)


class KernelTerms:
    """Records what kernels take beside their outputs.

    Args:
        ledger: where it is recorded.
        where: tells the place in the program.
        profile: the card.
        chosen: the names of the terms that apply.
    """

    def __init__(self, ledger: Ledger, where: Callable[[], Where], profile: DeviceProfile, chosen: Collection[str] | None = None) -> None:
        self._ledger = ledger
        self._where = where
        self._profile = profile
        self._chosen = chosen_terms(chosen)
        self._threads: set[bool] = set()
        self._counts: Counter[str] = Counter()
        self._most: Counter[str] = Counter()
        self.intervals: list[tuple[int, int]] = []
        """At which events a term with an interval adds up to how many bytes."""

    def after(self, func: Any, args: tuple[Any, ...], backward: bool) -> None:
        """Record what the kernel of *func*, which just ran with *args*, took and gave back."""
        if func in PRODUCTS:
            self._product(backward)
        elif func in REDUCTIONS:
            self._reduction(REDUCTIONS[func], args)
        elif func in _KERNELS:
            _KERNELS[func](self, args, backward)

    def uses(self) -> tuple[TermUse, ...]:
        """Return how often each term that applies was met, and its largest bytes at one time."""
        return tuple(TermUse(term, self._counts[name], self._most[name]) for name, term in TERMS.items() if name in self._chosen)

    def _take(self, term: str, *sizes: int) -> list[int]:
        where = self._where()
        return [self._ledger.alloc(size, term, where, term) for size in sizes if size]

    def _give_back(self, numbers: list[int]) -> None:
        phase = self._where().phase
        for number in reversed(numbers):
            self._ledger.free(number, phase)

    def _counted(self, term: str, most: int) -> bool:
        if term not in self._chosen or not most:
            return False
        self._counts[term] += 1
        self._most[term] = max(self._most[term], most)
        return True

    def _scratch(self, term: str, *sizes: int) -> None:
        if self._counted(term, sum(sizes)):
            self._give_back(self._take(term, *sizes))

    def _product(self, backward: bool) -> None:
        size = self._profile.cublas_workspace
        if backward not in self._threads and self._counted("cublas_workspace", size):
            self._take("cublas_workspace", size)
        self._threads.add(backward)

    def _reduction(self, reduction: Reduction, args: tuple[Any, ...]) -> None:
        tensor = args[0]
        dims = args[reduction.dims] if reduction.dims is not None and len(args) > reduction.dims else None
        dims = [] if dims is None else [dims] if isinstance(dims, int) else list(dims)
        shape, strides = tuple(tensor.shape), tensor.stride()
        scratch = reduction_scratch(shape, strides, dims, reduction.partial(tensor.dtype), self._profile, reduction.vector)
        self._scratch("reduce_scratch", scratch.partials, scratch.counters)

    def _index_put(self, args: tuple[Any, ...], _backward: bool) -> None:
        accumulates = len(args) > 3 and args[3]
        size = INDEX_BYTES * max((index.numel() for index in args[1] if index is not None), default=0)
        if not accumulates or not self._counted("index_put_sort", 4 * size + 1):
            return
        linear, first = self._take("index_put_sort", size, size)
        phase = self._where().phase
        self._ledger.free(linear, phase)
        self._give_back([first, *self._take("index_put_sort", size, size, size, 1)])

    def _flash_backward(self, args: tuple[Any, ...], _backward: bool) -> None:
        batch, heads, rows, width = args[1].shape
        rows, width = _round_up(rows, FLASH_ROWS), _round_up(width, FLASH_COLUMNS)
        self._scratch("flash_backward", 4 * batch * heads * rows, 4 * batch * rows * heads * width)

    def _convolution(self, args: tuple[Any, ...], backward: bool) -> None:
        image, weight = args[0], args[1]
        stride, padding, transposed = args[3], args[4], args[6]
        if torch.backends.cudnn.enabled:
            self._interval("convolution_workspace")
            return
        out = [_out(*sizes) for sizes in zip(image.shape[2:], weight.shape[2:], stride, padding, args[5], strict=False)]
        if (
            not transposed
            and image.dim() == 4
            and any(k != 1 or s != 1 or p for k, s, p in zip(weight.shape[2:], stride, padding, strict=False))
        ):
            self._scratch("convolution_columns", image.element_size() * weight.shape[1] * prod(weight.shape[2:]) * prod(out))
        self._product(backward)

    def _convolution_backward(self, args: tuple[Any, ...], backward: bool) -> None:
        for wanted in args[10][:2]:
            if wanted and torch.backends.cudnn.enabled:
                self._interval("convolution_workspace")
        if not torch.backends.cudnn.enabled:
            grad, image, weight = args[:3]
            if not args[7] and image.dim() == 4:
                size = image.element_size() * weight.shape[1] * prod(weight.shape[2:]) * prod(grad.shape[2:])
                self._scratch("convolution_columns", size)
            self._product(backward)

    def _interval(self, term: str) -> None:
        upper = TERMS[term].upper or 0
        if self._counted(term, upper):
            self.intervals.append((len(self._ledger.events) - 1, upper))


def _round_up(size: int, to: int) -> int:
    return -(-size // to) * to


def _out(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return int((size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)


_KERNELS: dict[Any, Callable[[KernelTerms, tuple[Any, ...], bool], None]] = {
    aten.index_put.default: KernelTerms._index_put,
    aten.index_put_.default: KernelTerms._index_put,
    aten._scaled_dot_product_flash_attention_backward.default: KernelTerms._flash_backward,
    aten.convolution.default: KernelTerms._convolution,
    aten.convolution_backward.default: KernelTerms._convolution_backward,
}
