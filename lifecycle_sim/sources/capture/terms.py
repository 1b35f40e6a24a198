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

from lifecycle_sim.sources.capture import convolutions, kernels
from lifecycle_sim.sources.capture.ledger import Ledger, Where
from lifecycle_sim.sources.capture.named import TERMS
from lifecycle_sim.sources.capture.profiles import DeviceProfile
from lifecycle_sim.sources.capture.record import TermUse
from lifecycle_sim.sources.capture.reduction import VECTOR, reduction_scratch
from lifecycle_sim.sources.capture.scratch import FIRST, LAST, SCRATCH, Course, Nested, bound, most

aten = torch.ops.aten
INDEX_BYTES = 8
EMBEDDING_SORTS_ABOVE = 3072
EMBEDDING_ROWS = 10
EMBEDDING_CROWD, EMBEDDING_BLOCKS = 4, 4
"""Above so many partial sums for a row, and below so many rows for each processor, the partial sums of gradients are not kept."""
FLOAT_BYTES = 4
MAXIMA = 2
NORM_CHUNK = 65_536
SEED_BYTES = 16


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
    aten._softmax.default: (0,),
    aten._log_softmax.default: (0,),
    aten._log_softmax_backward_data.default: (0, 1),
    aten.native_layer_norm_backward.default: (0,),
    aten.max_pool2d_with_indices_backward.default: (0,),
    aten.avg_pool2d_backward.default: (0,),
    aten._adaptive_avg_pool2d_backward.default: (0,),
    aten.upsample_nearest2d_backward.default: (0,),
    aten.upsample_bilinear2d_backward.default: (0,),
    aten.reflection_pad2d_backward.default: (0,),
    aten.roll.default: (0,),
    aten.col2im.default: (0,),
}
"""Operands that a kernel copies if they are not contiguous, once its outputs are there."""
if hasattr(aten, "_fused_rms_norm_backward"):
    CONTIGUOUS_AFTER[aten._fused_rms_norm_backward.default] = (0,)
CONTIGUOUS_AROUND: dict[Any, tuple[int, ...]] = {aten.native_layer_norm.default: (0,), aten.native_layer_norm_backward.default: (1,)}
"""Operands that a kernel copies if they are not contiguous, before its outputs are there."""
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

    def course(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], backward: bool) -> Course | None:
        """Return what the kernel of *func* takes and gives back while its outputs appear, None if nothing."""
        if func in SCRATCH:
            term, when, sizes = SCRATCH[func]
            return self._nested(term, when, sizes(bound(func, args, kwargs), self._profile))
        if func in PRODUCTS:
            return self._matrix_product(args, backward)
        if func in REDUCTIONS:
            return self._reduction(func, args)
        if func in CONTIGUOUS_AFTER or func in CONTIGUOUS_AROUND:
            places = CONTIGUOUS_AROUND.get(func, ()), CONTIGUOUS_AFTER.get(func, ())
            return self._contiguous(*([args[place] for place in each] for each in places))
        kernel = _KERNELS.get(func)
        return None if kernel is None else kernel(self, args, backward)

    def uses(self) -> tuple[TermUse, ...]:
        """Return how often each term that applies was met, and its largest bytes at one time."""
        return tuple(TermUse(term, self._counts[name], self._most[name]) for name, term in TERMS.items() if name in self._chosen)

    # ── taking and giving back ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, term: str, *sizes: int) -> list[int]:
        """Record that *sizes* bytes are taken for *term*, those above 0; return the storages."""
        if term not in self._chosen:
            return []
        where = self._where()
        return [self._ledger.alloc(size, term, where, term) for size in sizes if size]

    def give_back(self, numbers: list[int]) -> None:
        """Record that the storages *numbers* are given back, the last first."""
        phase = self._where().phase
        for number in reversed(numbers):
            self._ledger.free(number, phase)

    def counted(self, term: str, most: int) -> bool:
        """Count that *term* was met, with *most* bytes at one time; return whether it applies."""
        if term not in self._chosen or not most:
            return False
        self._counts[term] += 1
        self._most[term] = max(self._most[term], most)
        return True

    def scratch(self, term: str, *sizes: int) -> None:
        """Take *sizes* for *term*, and give them back."""
        if self.counted(term, sum(sizes)):
            self.give_back(self.take(term, *sizes))

    def _nested(self, term: str, when: int, sizes: Nested) -> Course:
        if when == FIRST:
            taken = self.take(term, *sizes) if self.counted(term, most(sizes)) else []  # type: ignore[arg-type]
            yield LAST
            self.give_back(taken)
            return
        yield when
        if self.counted(term, most(sizes)):
            self._play(term, sizes)

    def _play(self, term: str, sizes: Nested) -> None:
        """Take what *sizes* lists in order, the inner lists one after another and each for itself, and give it back in reverse."""
        taken: list[int] = []
        for size in sizes:
            if isinstance(size, int):
                taken += self.take(term, size)
            else:
                self._play(term, size)
        self.give_back(taken)

    def copies(self, *tensors: Any) -> list[int]:
        """Take contiguous copies of those of *tensors* that are not contiguous."""
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors if not tensor.is_contiguous()]
        return self.take("contiguous_copy", *sizes) if self.counted("contiguous_copy", sum(sizes)) else []

    # ── products and reductions ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, backward: bool) -> None:
        """A product of matrices is made: each thread's first takes a workspace."""
        size = self._profile.cublas_workspace
        if backward not in self._threads and self.counted("cublas_workspace", size):
            self.take("cublas_workspace", size)
        self._threads.add(backward)

    def _matrix_product(self, args: tuple[Any, ...], backward: bool) -> Course:
        yield LAST
        self.handle(backward)
        operands = [arg for arg in args if isinstance(arg, torch.Tensor)][-2:]
        sizes = [operand.numel() * operand.element_size() for operand in operands if not kernels.takes_layout(operand)]
        self.scratch("contiguous_copy", *sizes)

    def _reduction(self, func: Any, args: tuple[Any, ...]) -> Course:
        tensor, reduction = args[0], REDUCTIONS[func]
        cast: list[int] = []
        shape, strides, dtype = tuple(tensor.shape), tensor.stride(), tensor.dtype
        yield LAST
        if func in SUMS and not dtype.is_floating_point and not dtype.is_complex and dtype != torch.int64:
            size = INDEX_BYTES * tensor.numel()
            cast = self.take("integer_sum", size) if self.counted("integer_sum", size) else []
            dtype = torch.int64
        dims = args[reduction.dims] if reduction.dims is not None and len(args) > reduction.dims else None
        dims = [] if dims is None else [dims] if isinstance(dims, int) else list(dims)
        scratch = reduction_scratch(shape, strides, dims, reduction.partial(dtype), self._profile, reduction.vector)
        self.scratch("reduce_scratch", scratch.partials, scratch.counters)
        self.give_back(cast)

    def _contiguous(self, before: list[Any], after: list[Any]) -> Course:
        outer = self.copies(*before)
        yield LAST
        self.give_back(self.copies(*after))
        self.give_back(outer)

    def _foreach_norm(self, args: tuple[Any, ...], _backward: bool) -> Course:
        tensors = args[0]
        size = 4 * len(tensors) * max((-(-tensor.numel() // NORM_CHUNK) for tensor in tensors), default=0)
        taken = self.take("foreach_norm", size) if self.counted("foreach_norm", size) else []
        yield LAST
        self.give_back(taken)

    # ── indices ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _sort(self, count: int, largest: int) -> int:
        return kernels.sort_bytes(count, max(largest, 1).bit_length()) if self._profile.architecture in kernels.SORTS_KNOWN_FOR else 1

    def _index_put(self, args: tuple[Any, ...], _backward: bool) -> Course:
        yield LAST
        accumulates = len(args) > 3 and args[3]
        count = max((index.numel() for index in args[1] if index is not None), default=0)
        size = INDEX_BYTES * count
        own = self._sort(count, prod(length for length, index in zip(args[0].shape, args[1], strict=False) if index is not None))
        if not accumulates or not self.counted("index_put_sort", 4 * size + own):
            return
        phase = self._where().phase
        indices = [index for index in args[1] if index is not None]
        (within, first) = self.take("index_put_sort", size, size)
        self._ledger.free(within, phase)
        for _ in indices[1:]:
            within, place = self.take("index_put_sort", size, size)
            self._ledger.free(within, phase)
            self._ledger.free(place, phase)
        copies = self.copies(args[2])
        self.give_back([first, *copies, *self.take("index_put_sort", size, size, size, own)])

    def _embedding(self, args: tuple[Any, ...], _backward: bool) -> Course:
        gradient, indices, rows = args[:3]
        copies = self.copies(gradient)
        if indices.numel() > EMBEDDING_SORTS_ABOVE:
            yield from self._sorted_rows(gradient, indices.numel(), rows)
        yield LAST
        self.give_back(copies)

    def _bags(self, args: tuple[Any, ...], _backward: bool) -> Course:
        gradient, indices, rows, mode = args[0], args[1], args[6], args[8]
        if mode == MAXIMA or not indices.numel():
            return
        copies = self.copies(gradient)
        yield from self._sorted_rows(gradient, indices.numel(), rows)
        self.give_back(copies)

    def _sorted_rows(self, gradient: Any, count: int, rows: int) -> Course:
        """The gradient of rows that are chosen by *count* indices, which are sorted to be added up."""
        width = gradient.shape[-1]
        term, size, held = "embedding_sort", INDEX_BYTES * count, min(count, rows)
        partial = count // EMBEDDING_ROWS + held
        sums = (4 * partial * width,)
        if (
            partial > EMBEDDING_CROWD * rows and rows <= EMBEDDING_BLOCKS * self._profile.processors
        ):  # each partial sum goes to its row at once, in float32
            sums = (INDEX_BYTES * partial, *([4 * rows * width] if gradient.element_size() < FLOAT_BYTES else []))
        if not self.counted(term, 3 * size + 2 * INDEX_BYTES * held + INDEX_BYTES * partial + sum(sums) + 2 * INDEX_BYTES):
            return
        outer = self.take(term, size, size)
        self.give_back(self.take(term, size, self._sort(count, rows)))
        yield LAST
        inner = self.take(term, size, INDEX_BYTES)
        self.give_back(self.take(term, size, kernels.SELECT_BYTES))
        inner += self.take(term, INDEX_BYTES * held, INDEX_BYTES * held)
        self.give_back(self.take(term, kernels.SELECT_BYTES))
        inner += self.take(term, INDEX_BYTES, INDEX_BYTES * partial, *sums)
        self.give_back([*outer, *inner])

    # ── attention ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _flash_forward(self, args: tuple[Any, ...], _backward: bool) -> Course:
        dropout = args[3] if len(args) > 3 else 0.0
        sizes = kernels.flash_forward(args[0].shape, args[1].shape, self._profile.processors) if not dropout else ()
        yield 2
        taken = self.take("flash_forward", *sizes) if self.counted("flash_forward", sum(sizes)) else []
        yield LAST
        self.give_back(taken[::-1])
        if dropout:
            self.scratch("flash_forward", SEED_BYTES)

    def _flash_backward(self, args: tuple[Any, ...], _backward: bool) -> Course:
        query, key = args[1], args[2]
        copies = self.copies(args[0].transpose(1, 2), args[4].transpose(1, 2))
        yield LAST
        expanded = 0 if query.shape[1] == key.shape[1] else query.shape[1] * key.numel() // key.shape[1] * key.element_size()
        self.scratch("flash_backward", *kernels.flash_backward(query.shape), expanded, expanded)
        self.give_back(copies[::-1])

    def _efficient_backward(self, args: tuple[Any, ...], _backward: bool) -> Course:
        copies = self.copies(args[0].transpose(1, 2))
        yield LAST
        query, key, value, term = args[1], args[2], args[3], "efficient_backward"
        product, sums, blocks = kernels.efficient_backward(query.shape, value.shape[-1], query.dtype == torch.float32)
        grouped = query.shape[1] // key.shape[1] if query.shape[1] != key.shape[1] else 0
        expanded = [grouped * part.numel() * part.element_size() for part in (key, value)]
        again = sums if min(query.shape[1:3]) > 1 else 0  # the sums the other way round
        if self.counted(term, sum(expanded) + max(product + sums + again, sums + blocks)):
            outer = self.take(term, *expanded)
            if product:
                first, *rest = self.take(term, product, sums, again)
                kept = rest.pop()
                self.give_back([first, *rest])
                taken = [kept, *self.take(term, blocks)]
            else:
                taken = self.take(term, sums, blocks)
            self.give_back(taken[::-1])
            self.give_back(outer)
        self.give_back(copies)

    def interval(self, term: str) -> None:
        """Note that the kernel at hand takes as much as *term* allows at most."""
        upper = TERMS[term].upper or 0
        if self.counted(term, upper):
            self.intervals.append((len(self._ledger.events) - 1, upper))


_KERNELS: dict[Any, Callable[[KernelTerms, tuple[Any, ...], bool], Course]] = {
    aten.index_put.default: KernelTerms._index_put,
    aten.index_put_.default: KernelTerms._index_put,
    aten.embedding_dense_backward.default: KernelTerms._embedding,
    aten._embedding_bag_backward.default: KernelTerms._bags,
    aten._scaled_dot_product_flash_attention.default: KernelTerms._flash_forward,
    aten._scaled_dot_product_flash_attention_backward.default: KernelTerms._flash_backward,
    aten._scaled_dot_product_efficient_attention_backward.default: KernelTerms._efficient_backward,
    aten._foreach_norm.Scalar: KernelTerms._foreach_norm,
    aten.convolution.default: convolutions.convolution,
    aten.convolution_backward.default: convolutions.convolution_backward,
}
