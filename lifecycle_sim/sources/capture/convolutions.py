"""What convolutions take beside their outputs: with cuDNN a workspace that it chooses, without it images that are unfolded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from lifecycle_sim.sources.capture import kernels
from lifecycle_sim.sources.capture.scratch import LAST, Course

if TYPE_CHECKING:
    from lifecycle_sim.sources.capture.terms import KernelTerms

COLUMNS = "convolution_columns"
VOLUME = 5
"""Dimensions of images and kernels of three dimensions."""


def convolution(terms: KernelTerms, args: tuple[Any, ...], backward: bool) -> Course:
    """What a convolution takes."""
    if torch.backends.cudnn.enabled:
        yield LAST
        terms.interval("convolution_workspace")
        return
    groups = args[8]
    if 1 < groups < args[0].shape[1]:
        yield from _grouped_convolution(terms, args, groups)
        return
    copies = terms.copies(*args[:2])
    grown = args[0].numel() * args[0].element_size() if args[6] and args[1].dim() == VOLUME else 0
    outgrown = terms.take(COLUMNS, grown) if terms.counted(COLUMNS, grown) else []  # what the result grows out of
    yield LAST
    terms.give_back(outgrown)
    size = kernels.columns(args[0], args[1], *args[3:9], forward=True)
    taken = terms.take(COLUMNS, size) if terms.counted(COLUMNS, size) else []
    if size or args[8] == 1:
        terms.handle(backward)
    if args[6] and args[2] is not None:
        terms.scratch(COLUMNS, kernels.output_bytes(args[0], args[1], *args[3:8]))  # ones, for the bias
    terms.give_back([*copies, *taken])


def _grouped_convolution(terms: KernelTerms, args: tuple[Any, ...], groups: int) -> Course:
    """Without cuDNN each group is convolved by itself, and the results are put together."""
    image, weight = args[:2]
    part = image.numel() * image.element_size() // groups
    channels = weight.shape[1] if args[6] else weight.shape[0] // groups
    out = image.shape[0] * channels * kernels.output_bytes(image, weight, *args[3:8])
    size = kernels.columns(image, weight, args[3], args[4], args[5], args[6], args[7], 1, forward=True)
    parts = []
    if terms.counted(COLUMNS, groups * out + part + size):
        for _ in range(groups):
            given, made = terms.take(COLUMNS, part, out)
            terms.give_back([given, *terms.take(COLUMNS, size)])
            parts.append(made)
    yield LAST
    terms.give_back(parts[::-1])


def _grouped_backward(terms: KernelTerms, args: tuple[Any, ...], groups: int) -> Course:
    gradient, image, weight, bias = args[:4]
    own, part, wide = (tensor.numel() * tensor.element_size() // groups for tensor in (gradient, image, weight))
    narrow = 0 if not bias or not args[10][2] else weight.shape[0] * weight.element_size() // groups
    size = kernels.columns(image, weight, args[4], args[5], args[6], args[7], args[8], 1, forward=False)
    parts = []
    if terms.counted(COLUMNS, groups * (part + wide + narrow) + own + part + size):
        for _ in range(groups):
            given = terms.take(COLUMNS, own, part)
            parts += terms.take(COLUMNS, *([part] if args[10][0] else []))
            unfolded = terms.take(COLUMNS, size)
            parts += terms.take(COLUMNS, narrow, wide)
            terms.give_back([*given, *unfolded])
    yield LAST
    terms.give_back(parts[::-1])


def convolution_backward(terms: KernelTerms, args: tuple[Any, ...], backward: bool) -> Course:
    """What the backward of a convolution takes."""
    gradient, image, weight = args[:3]
    if torch.backends.cudnn.enabled:
        yield LAST
        for wanted in args[10][:2]:
            if wanted:
                terms.interval("convolution_workspace")
        return
    if 1 < args[9] < image.shape[1]:
        yield from _grouped_backward(terms, args, args[9])
        return
    copies = terms.copies(gradient, image)
    size = kernels.columns(image, weight, *args[4:10], forward=False)
    if not args[7] and (weight.dim() == VOLUME or any(step > 1 for step in args[6])):
        yield LAST
        taken = terms.take(COLUMNS, size) if terms.counted(COLUMNS, size) else []
        terms.handle(backward)
        if args[10][2]:
            for _ in range(image.shape[0]):
                terms.scratch(COLUMNS, weight.shape[0] * weight.element_size())  # the bias's share of an image
        terms.give_back([*copies, *taken])
        return
    yield 1
    taken = terms.take(COLUMNS, size) if terms.counted(COLUMNS, size) else []
    yield LAST
    if size:
        terms.handle(backward)
    terms.give_back([*copies, *taken])
