"""Reads the header of a safetensors file: names, types and sizes of its tensors, and nothing of their values.

The format: 8 bytes, little-endian, with the length of the header; the header in JSON, a table of tensors with ``dtype``, ``shape`` and
``data_offsets``; then the bytes of the tensors, without gaps. Source: huggingface/safetensors, README, "Format". The header alone, as a
partial download has it, is enough here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from lifecycle_sim.errors import InputError

LARGEST_HEADER = 100_000_000
"""The format allows no longer header."""
BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
}


@dataclass(frozen=True)
class WeightHeader:
    """What the header says.

    Attributes:
        tensors: how many.
        elements: elements of all of them.
        size: bytes of all of them.
        types: the types of their elements, as the format names them, sorted.
        file_size: bytes of the file with all tensors in it: 8, the header, and :attr:`size`.
        complete: whether the file has them; false of a header alone.
    """

    tensors: int
    elements: int
    size: int
    types: tuple[str, ...]
    file_size: int
    complete: bool


def read_weight_header(path: str) -> WeightHeader:
    """Return what the header of the safetensors file *path* says.

    Raises:
        InputError: it cannot be read, is no such file, or contradicts itself.
    """
    try:
        with Path(path).open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or not 2 <= length <= LARGEST_HEADER:
                raise InputError(f"{path} is no safetensors file: it does not begin with the length of a header")
            text = file.read(length)
        there = Path(path).stat().st_size
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror or error}") from None
    if len(text) < length:
        raise InputError(f"{path} ends inside its header, after {8 + len(text):,} of {8 + length:,} bytes: fetch all of the header")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{path} is no safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise InputError(f"{path} is no safetensors file: its header is no table of tensors")
    tensors = {name: each for name, each in header.items() if name != "__metadata__"}
    problems = [problem for name, each in tensors.items() if (problem := _problem(name, each))]
    if problems:
        raise InputError(f"{path}: {problem}" for problem in problems)
    size = _end(path, tensors)
    elements = sum(prod(each["shape"]) for each in tensors.values())
    types = tuple(sorted({each["dtype"] for each in tensors.values()}))
    whole = 8 + length + size
    if 8 + length < there != whole:
        raise InputError(f"{path} has {there:,} bytes, but its header tells of {whole:,}: the download broke off, or the file is another")
    return WeightHeader(len(tensors), elements, size, types, whole, there == whole)


def _problem(name: str, each: Any) -> str | None:
    """What is wrong with a tensor's entry."""
    if not isinstance(each, dict) or not {"dtype", "shape", "data_offsets"} <= each.keys():
        return f"tensor {name!r} has no dtype, shape or data_offsets"
    shape, offsets = each["shape"], each["data_offsets"]
    counts = isinstance(shape, list) and all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in shape)
    if not counts or not isinstance(offsets, list) or len(offsets) != 2 or not all(isinstance(place, int) for place in offsets):
        return f"tensor {name!r} has a shape or offsets that are no whole numbers"
    if each["dtype"] not in BITS:
        return f"tensor {name!r} is of the type {each['dtype']!r}, which is not known: known are {', '.join(BITS)}"
    wanted = prod(shape) * BITS[each["dtype"]] // 8
    if offsets[1] - offsets[0] != wanted:
        return f"tensor {name!r} should take {wanted:,} B, but has {offsets[1] - offsets[0]:,}"
    return None


def _end(path: str, tensors: dict[str, Any]) -> int:
    """The bytes of all tensors, which must lie one behind the other."""
    place = 0
    for start, end in sorted(each["data_offsets"] for each in tensors.values()):
        if start != place:
            raise InputError(f"{path}: tensors leave a gap or overlap at byte {place:,} of the data")
        place = int(end)
    return place
