"""Types of elements and their widths, and the checks that every count in a budget goes through."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import TypeVar

from lifecycle_sim.errors import InputError
from lifecycle_sim.spelling import closest

BITS = {
    "fp64": 64,
    "fp32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "int64": 64,
    "int32": 32,
    "int16": 16,
    "int8": 8,
    "uint8": 8,
    "bool": 8,
    "complex64": 64,
    "complex128": 128,
    "int4": 4,
    "nf4": 4,
}
"""Bits of an element, by the short name of its type."""

_ALIASES = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "long": "int64",
    "int": "int32",
    "uint4": "int4",
}

Type = str | int
"""A type's name, or its width in bytes."""


def type_name(kind: Type) -> str:
    """Return the short name of the type *kind*: ``torch.float32`` and ``float32`` are ``fp32``; a width of 4 is ``4-byte``.

    Raises:
        InputError: it is not known, or a width that is not positive.
    """
    if isinstance(kind, bool) or not isinstance(kind, (str, int)):
        raise InputError(f"{kind!r} is no type of elements: give a name such as 'bf16', or a width in bytes")
    if isinstance(kind, int):
        if kind <= 0:
            raise InputError(f"an element {kind} bytes wide: a width is 1 or more")
        return f"{kind}-byte"
    plain = kind.removeprefix("torch.").lower()
    name = _ALIASES.get(plain, plain)
    if name == "tf32":
        raise InputError("'tf32' is how products are computed, and no type that is stored: the elements are fp32")
    if name not in BITS and not (name.endswith("-byte") and name[:-5].isdigit() and int(name[:-5])):
        known = closest(plain, [*BITS, *_ALIASES])
        hint = f"did you mean {known!r}?" if known else f"known are {', '.join(BITS)}"
        raise InputError(f"{kind!r} is no type of elements that is known: {hint}")
    return name


def bits_of(kind: Type) -> int:
    """Return how many bits an element of type *kind* has.

    Raises:
        InputError: as :func:`type_name`.
    """
    name = type_name(kind)
    return BITS[name] if name in BITS else 8 * int(name[:-5])


def bytes_of(elements: int, kind: Type) -> int:
    """Return the bytes that *elements* elements of type *kind* take, packed; a part of a byte counts as one."""
    return ceil_div(elements * bits_of(kind), 8)


def width_text(kind: Type) -> str:
    """Return the width of *kind* as text: ``"4 B"``, ``"0.5 B"``."""
    return f"{bits_of(kind) / 8:g} B"


def count(what: str, value: int, least: int = 0) -> int:
    """Return *value*, which must be a whole number of *least* or more.

    Raises:
        InputError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        whole = value == int(value) if isinstance(value, (float, Fraction)) and abs(value) < 2**1023 else False
        hint = f"write {int(value)}" if whole else "give a whole number"
        raise InputError(f"{what} is {value!r}: {hint}")
    if value < least:
        raise InputError(f"{what} is {value:,}: give {least:,} or more")
    return value


Number = TypeVar("Number", int, float, Fraction, int | float | Fraction)


def positive(what: str, value: Number) -> Number:
    """Return *value*, which must be a finite number above 0.

    Raises:
        InputError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)) or not 0 < value < float("inf"):
        raise InputError(f"{what} is {value!r}: give a number above 0")
    return value


def ceil_div(whole: int, parts: int) -> int:
    """Return *whole* / *parts*, rounded up."""
    return -(-whole // parts)


def one_of(what: str, value: str, known: Iterable[str]) -> str:
    """Return *value*, which must be one of *known*.

    Raises:
        InputError: it is not.
    """
    words = list(known)
    if value not in words:
        meant = closest(value, words) if isinstance(value, str) else None
        hint = f"did you mean {meant!r}?" if meant else f"known are {', '.join(words)}"
        raise InputError(f"{what} {value!r} is not known: {hint}")
    return value
