"""Memory that kernels take for themselves, which no hook sees: named terms, each with its rule, its source and a switch.

A term's storages are recorded like tensors, in the category workspace and under the term's name, where the operator takes them. What a
library chooses at run time has no value but an interval, and is not recorded: only bounds of the peak follow from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from lifecycle_sim.sources.capture import kernels
from lifecycle_sim.sources.capture.ledger import Ledger, Where
from lifecycle_sim.sources.capture.named import TERMS
from lifecycle_sim.sources.capture.profiles import DeviceProfile
from lifecycle_sim.sources.capture.record import TermUse
from lifecycle_sim.sources.capture.reduction import VECTOR, reduction_scratch

aten = torch.ops.aten
INDEX_BYTES = 8
EMBEDDING_SORTS_ABOVE = 3072
EMBEDDING_ROWS = 10
NORM_CHUNK = 65_536
LAST = 1 << 30
"""Stands for "after all outputs" where a kernel says when it goes on."""
Course = Iterator[int]
"""What a kernel takes, in order: it goes on once as many outputs as it yields are there."""


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


CONTIGUOUS_AFTER: dict[Any, tuple[int, ...]] = {
    aten._softmax_backward_data.default: (0, 1),
    aten._log_softmax_backward_data.default: (0, 1),
    aten.native_layer_norm_backward.default: (0,),
    aten.max_pool2d_with_indices_backward.default: (0,),
    aten.avg_pool2d_backward.default: (0,),
    aten._adaptive_avg_pool2d_backward.default: (0,),
    aten.upsample_nearest2d_backward.default: (0,),
    aten.upsample_bilinear2d_backward.default: (0,),
    aten.reflection_pad2d_backward.default: (0,),
    aten.roll.default: (0,),
}
"""Operands that a kernel copies if they are not contiguous, once its outputs are there."""
if hasattr(aten, "_fused_rms_norm_backward"):
    CONTIGUOUS_AFTER[aten._fused_rms_norm_backward.default] = (0,)
SUMS = (aten.sum.default, aten.sum.dim_IntList)


class KernelTerms:
    """Records what kernels take beside their outputs.

    Args:
        ledger: where it is recorded.
        where: tells the place in the program.
        profile: the card.
        chosen: the names of the terms that apply.
    """

    def __init__(self, ledger: Ledger, where: Callable[[], Where], profile: DeviceProfile, chosen: Collection[str]) -> None:
        self._ledger = ledger
        self._where = where
        self._profile = profile
        self._chosen = frozenset(chosen)
        self._threads: set[bool] = set()
        self._counts: Counter[str] = Counter()
        self._most: Counter[str] = Counter()
        self.intervals: list[tuple[int, int]] = []
        """At which events a term with an interval adds up to how many bytes."""

    def course(self, func: Any, args: tuple[Any, ...], backward: bool) -> Course | None:
        """Return what the kernel of *func* takes and gives back while its outputs appear, None if nothing."""
        if func in PRODUCTS:
            return self._matrix_product(args, backward)
        if func in REDUCTIONS:
            return self._reduction(func, args)
        if func in CONTIGUOUS_AFTER:
            return self._contiguous_after([args[place] for place in CONTIGUOUS_AFTER[func]])
        kernel = _KERNELS.get(func)
        return None if kernel is None else kernel(self, args, backward)

    def uses(self) -> tuple[TermUse, ...]:
        """Return how often each term that applies was met, and its largest bytes at one time."""
        return tuple(TermUse(term, self._counts[name], self._most[name]) for name, term in TERMS.items() if name in self._chosen)

    # ── taking and giving back ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, term: str, *sizes: int) -> list[int]:
        if term not in self._chosen:
            return []
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

    def _copies(self, *tensors: Any) -> list[int]:
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors if not tensor.is_contiguous()]
        return self._take("contiguous_copy", *sizes) if self._counted("contiguous_copy", sum(sizes)) else []

    # ── products and reductions ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _handle(self, backward: bool) -> None:
        size = self._profile.cublas_workspace
        if backward not in self._threads and self._counted("cublas_workspace", size):
            self._take("cublas_workspace", size)
        self._threads.add(backward)

    def _matrix_product(self, args: tuple[Any, ...], backward: bool) -> Course:
        yield LAST
        self._handle(backward)
        operands = [arg for arg in args if isinstance(arg, torch.Tensor)][-2:]
        sizes = [operand.numel() * operand.element_size() for operand in operands if not kernels.takes_layout(operand)]
        self._scratch("contiguous_copy", *sizes)

    def _reduction(self, func: Any, args: tuple[Any, ...]) -> Course:
        tensor, reduction = args[0], REDUCTIONS[func]
        cast: list[int] = []
        shape, strides, dtype = tuple(tensor.shape), tensor.stride(), tensor.dtype
        yield LAST
        if func in SUMS and not dtype.is_floating_point and not dtype.is_complex and dtype != torch.int64:
            size = INDEX_BYTES * tensor.numel()
            cast = self._take("integer_sum", size) if self._counted("integer_sum", size) else []
            dtype = torch.int64
        dims = args[reduction.dims] if reduction.dims is not None and len(args) > reduction.dims else None
        dims = [] if dims is None else [dims] if isinstance(dims, int) else list(dims)
        scratch = reduction_scratch(shape, strides, dims, reduction.partial(dtype), self._profile, reduction.vector)
        self._scratch("reduce_scratch", scratch.partials, scratch.counters)
        self._give_back(cast)

    def _contiguous_after(self, tensors: list[Any]) -> Course:
        yield LAST
        self._give_back(self._copies(*tensors))

    def _foreach_norm(self, args: tuple[Any, ...], _backward: bool) -> Course:
        tensors = args[0]
        size = 4 * len(tensors) * max((-(-tensor.numel() // NORM_CHUNK) for tensor in tensors), default=0)
        taken = self._take("foreach_norm", size) if self._counted("foreach_norm", size) else []
        yield LAST
        self._give_back(taken)

    # ── indices ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _sort(self, count: int, largest: int) -> int:
        return kernels.sort_bytes(count, largest) if self._profile.architecture in kernels.SORTS_KNOWN_FOR else 1

    def _index_put(self, args: tuple[Any, ...], _backward: bool) -> Course:
        yield LAST
        accumulates = len(args) > 3 and args[3]
        count = max((index.numel() for index in args[1] if index is not None), default=0)
        size = INDEX_BYTES * count
        own = self._sort(count, prod(length for length, index in zip(args[0].shape, args[1], strict=False) if index is not None))
        if not accumulates or not self._counted("index_put_sort", 4 * size + own):
            return
        copies = self._copies(args[2])
        linear, first = self._take("index_put_sort", size, size)
        self._ledger.free(linear, self._where().phase)
        self._give_back([*copies, first, *self._take("index_put_sort", size, size, size, own)])

    def _embedding(self, args: tuple[Any, ...], _backward: bool) -> Course:
        gradient, indices, rows = args[:3]
        count, width = indices.numel(), gradient.shape[-1]
        copies = self._copies(gradient)
        if count <= EMBEDDING_SORTS_ABOVE:
            yield LAST
            self._give_back(copies)
            return
        term, size, held = "embedding_sort", INDEX_BYTES * count, min(count, rows)
        partial = count // EMBEDDING_ROWS + held
        if not self._counted(term, 3 * size + 2 * INDEX_BYTES * held + partial * (INDEX_BYTES + 4 * width) + 2 * INDEX_BYTES):
            return
        outer = self._take(term, size, size)
        self._give_back(self._take(term, size, self._sort(count, rows)))
        yield LAST
        inner = self._take(term, size, INDEX_BYTES)
        self._give_back(self._take(term, size, kernels.SELECT_BYTES))
        inner += self._take(term, INDEX_BYTES * held, INDEX_BYTES * held)
        self._give_back(self._take(term, kernels.SELECT_BYTES))
        inner += self._take(term, INDEX_BYTES, INDEX_BYTES * partial, 4 * partial * width)
        self._give_back([*copies, *outer, *inner])

    # ── attention ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _flash_forward(self, args: tuple[Any, ...], _backward: bool) -> Course:
        dropout = args[3] if len(args) > 3 else 0.0
        sizes = kernels.flash_forward(args[0].shape, args[1].shape, self._profile.processors) if not dropout else ()
        yield 2
        taken = self._take("flash_forward", *sizes) if self._counted("flash_forward", sum(sizes)) else []
        yield LAST
        self._give_back(taken[::-1])

    def _flash_backward(self, args: tuple[Any, ...], _backward: bool) -> Course:
        query, key = args[1], args[2]
        copies = self._copies(args[0].transpose(1, 2), args[4].transpose(1, 2))
        yield LAST
        expanded = 0 if query.shape[1] == key.shape[1] else query.shape[1] * key.numel() // key.shape[1] * key.element_size()
        self._scratch("flash_backward", *kernels.flash_backward(query.shape), expanded, expanded)
        self._give_back(copies[::-1])

    def _efficient_backward(self, args: tuple[Any, ...], _backward: bool) -> Course:
        yield LAST
        copies = self._copies(args[0].transpose(1, 2))
        query, term = args[1], "efficient_backward"
        product, sums, blocks = kernels.efficient_backward(query.shape, query.dtype == torch.float32)
        if self._counted(term, max(product + 2 * sums, sums + blocks)):
            if product:
                first, second, kept = self._take(term, product, sums, sums) or (0, 0, 0)
                phase = self._where().phase
                self._ledger.free(second, phase)
                self._ledger.free(first, phase)
                taken = [kept, *self._take(term, blocks)]
            else:
                taken = self._take(term, sums, blocks)
            self._give_back(taken[::-1])
        self._give_back(copies)

    # ── convolutions ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _convolution(self, args: tuple[Any, ...], backward: bool) -> Course:
        yield LAST
        if torch.backends.cudnn.enabled:
            self._interval("convolution_workspace")
            return
        size = kernels.columns(args[0], args[1], *args[3:9], forward=True)
        taken = self._take("convolution_columns", size) if self._counted("convolution_columns", size) else []
        if size or args[8] == 1:
            self._handle(backward)
        self._give_back(taken)

    def _convolution_backward(self, args: tuple[Any, ...], backward: bool) -> Course:
        gradient, image, weight = args[:3]
        if torch.backends.cudnn.enabled:
            yield LAST
            for wanted in args[10][:2]:
                if wanted:
                    self._interval("convolution_workspace")
            return
        copies = self._copies(gradient)
        size = kernels.columns(image, weight, *args[4:10], forward=False)
        yield 1
        taken = self._take("convolution_columns", size) if self._counted("convolution_columns", size) else []
        yield LAST
        if size:
            self._handle(backward)
        self._give_back([*copies, *taken])

    def _interval(self, term: str) -> None:
        upper = TERMS[term].upper or 0
        if self._counted(term, upper):
            self.intervals.append((len(self._ledger.events) - 1, upper))


_KERNELS: dict[Any, Callable[[KernelTerms, tuple[Any, ...], bool], Course]] = {
    aten.index_put.default: KernelTerms._index_put,
    aten.index_put_.default: KernelTerms._index_put,
    aten.embedding_dense_backward.default: KernelTerms._embedding,
    aten._scaled_dot_product_flash_attention.default: KernelTerms._flash_forward,
    aten._scaled_dot_product_flash_attention_backward.default: KernelTerms._flash_backward,
    aten._scaled_dot_product_efficient_attention_backward.default: KernelTerms._efficient_backward,
    aten._foreach_norm.Scalar: KernelTerms._foreach_norm,
    aten.convolution.default: KernelTerms._convolution,
    aten.convolution_backward.default: KernelTerms._convolution_backward,
}
