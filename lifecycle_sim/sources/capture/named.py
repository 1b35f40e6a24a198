"""The named terms: memory that kernels take for themselves, with rule and source. It needs no torch."""

from __future__ import annotations

from collections.abc import Collection

from lifecycle_sim.errors import InputError
from lifecycle_sim.sources.capture.record import Term

CONVOLUTION_AT_MOST = 136_314_880

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
            "five index-sized arrays of a sort and the sort's own, for index_put that accumulates (the backward of indexing)",
            "ATen/native/cuda/Indexing.cu; 4 recordings, but for up to 72,191 B of the sort's own on cards other than 9.0",
        ),
        Term(
            "embedding_sort",
            "above 3,072 indices: sorted indices, segments, and float32 partial gradients of (n // 10 + min(n, rows)) rows",
            "ATen/native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu; PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "flash_forward",
            "without dropout, where batch, heads and queries are too few for the card: partial results of split keys",
            "flash_attn/flash_api.cpp; PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "flash_backward",
            "float32 row sums B·H·⌈T⌉128 and query gradients B·⌈T⌉128·H·⌈D⌉32; expanded key and value gradients if heads share keys",
            "flash_attn/flash_api.cpp; PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "efficient_backward",
            "row sums, the product they are made from (float32 only), and query gradients in blocks of 64 × 64",
            "mem_eff_attention/kernel_backward.h; PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "contiguous_copy",
            "a copy of an operand that a kernel needs contiguous, or in a layout that matrix products take",
            "the kernels' own .contiguous(); PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "integer_sum",
            "a copy in int64 of truths and small integers that are summed",
            "ATen/native/ReduceOps.cpp; PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "foreach_norm",
            "a float32 for each 65,536 elements of the longest tensor, for each tensor",
            "ATen/native/cuda/ForeachReduceOp.cu; PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "softmax_scratch",
            "softmax's backward: the product of gradient and result; safe softmax: which rows are masked; logsumexp: its steps",
            "ATen/native/cuda/SoftMax.cu, attention.cpp, ReduceOps.cpp; PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "loss_scratch",
            "losses before they are reduced, the logarithms of sigmoids, and the partial results of the reduction",
            "ATen/native/cuda/Loss.cu, native/Loss.cpp; PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "norm_scratch",
            "group norm: float32 factors for each channel of each sample, and float32 copies of statistics in 16 bits",
            "ATen/native/cuda/group_norm_kernel.cu; PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "sort_scratch",
            "sort, topk, randperm, multinomial: positions, keys and values a second time, and the radix sort's own",
            "ATen/native/cuda/Sort.cu, TensorTopK.cu, Randperm.cu; under a stub driver to the byte, on architecture 9.0",
        ),
        Term(
            "scan_scratch",
            "cumulative sums and products: the input in the type of the result, or contiguous",
            "ATen/native/cuda/ScanKernels.cpp; PyTorch's own CUDA code under a stub driver to the byte",
        ),
        Term(
            "unfold_scratch",
            "unfold and fold: a tensor like the input, which the result grows out of",
            "ATen/native/cuda/Im2Col.cu, Col2Im.cu; PyTorch's own CUDA code under a stub driver to the byte",
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
            "ATen/native/cuda/ConvolutionMM2d.cu; PyTorch's own CUDA code under a stub driver to the byte",
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


def left_after(without: Collection[str]) -> frozenset[str]:
    """Return the names of all terms but those of *without*.

    Raises:
        InputError: one is not known.
    """
    return frozenset(TERMS) - chosen_terms(without)
