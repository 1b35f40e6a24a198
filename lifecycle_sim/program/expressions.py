"""Checked integer arithmetic over named parameters, and quantities made of an expression and a unit.

An expression knows integers, parameters, ``+ - * // % **``, ``/`` where it leaves no remainder, parentheses, ``min``, ``max`` and
``ceildiv``. It is parsed with :mod:`ast` against a short list of allowed nodes and never evaluated by Python itself. Every result, the
ones in between too, stays below 2**63 in magnitude.

A quantity is an expression followed by one unit that applies to the whole of it: ``"batch * seq * 4 B"``, ``"3 * gap ms"``. A plain
decimal number may stand before a unit as well: ``"1.5 GiB"``.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from lifecycle_sim.errors import InputError, ScenarioError
from lifecycle_sim.events import Clock
from lifecycle_sim.units import BYTE_UNITS, TIME_UNITS, parse_bytes, parse_duration

LIMIT = 2**63
LONGEST = 500
MOST_WORDS = 500
FUNCTIONS = ("min", "max", "ceildiv")
TICK_UNITS = {"tick": 1, "ticks": 1}

_ALLOWED = re.compile(r"[A-Za-z0-9_+\-*/%(), \t]+")
_GLUED = re.compile(r"(?<![A-Za-z0-9_])[0-9][0-9_]*[A-Za-z]")
_PLAIN = re.compile(r"\s*[+-]?[0-9][0-9_]*(\.[0-9]+)?\s*[A-Za-zµ]*\s*")
_WITH_UNIT = re.compile(r"(.*(?:\s|[)0-9]))([A-Za-zµ]+)\s*", re.DOTALL)
_WORD = re.compile(r"(?<![A-Za-z_])[A-Za-zµ]+(?![A-Za-z0-9_])")
_GLUED_UNIT = re.compile(r"([0-9])([A-Za-zµ]+)")
_BRACES = re.compile(r"\{([^{}]*)\}")


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word closest to *word*, or None when none is close or there are too many to compare them all."""
    words = list(known)
    if len(words) > MOST_WORDS:
        return None
    same = [candidate for candidate in words if candidate.lower() == word.lower()]
    return next(iter(same or difflib.get_close_matches(word, words, n=1, cutoff=0.6)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known word closest to *word*, or nothing when none is close."""
    found = closest(word, known)
    return "" if found is None else f"; did you mean {found!r}?"


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """Return the integer that the expression *text* stands for, with *names* as its parameters.

    Raises:
        ScenarioError: not such an expression, an unknown parameter, a remainder, a division by zero, or a result of 2**63 or more.
    """
    if len(text) > LONGEST:
        raise ScenarioError(f"expression of {len(text)} characters: write at most {LONGEST}, in several parameters if need be")
    try:
        if not _ALLOWED.fullmatch(text) or _GLUED.search(text):
            raise SyntaxError
        return _value(ast.parse(text.strip(), mode="eval").body, names, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise ScenarioError(
            f"{text!r} is not an integer expression: use whole numbers, parameters, + - * / // % **, (), {', '.join(FUNCTIONS)}"
        ) from None


def evaluate_size(text: str, names: Mapping[str, int]) -> int:
    """Return the bytes of a size such as ``"1.5 MiB"`` or ``"batch * seq * 4 B"``.

    Raises:
        ScenarioError: as :func:`evaluate`; no unit or not at the end, an unknown unit, or a negative size.
    """
    if _PLAIN.fullmatch(text):
        size = _plain(text, parse_bytes)
    else:
        size, _ = _quantity(text, names, BYTE_UNITS, "size", "B")
    return _in_range(size, f"size {text!r}", "B", names)


def evaluate_time(value: int | str, names: Mapping[str, int]) -> tuple[int, Clock]:
    """Return a time or duration with what it counts: a bare integer is ticks; ``"3 ticks"``, ``"1.5 ms"``, ``"i * gap us"`` say it.

    Zero is the same in every unit, and needs none: its clock is ``Clock.NONE``.

    Raises:
        ScenarioError: as :func:`evaluate_size`.
    """
    if isinstance(value, int):
        count, clock = value, Clock.TICKS
    elif value.strip() == "0":
        return 0, Clock.NONE
    elif _PLAIN.fullmatch(value) and value.split()[-1] not in TICK_UNITS:
        count, clock = _plain(value, parse_duration), Clock.NANOSECONDS
    else:
        count, unit = _quantity(value, names, TIME_UNITS | TICK_UNITS, "time", "us")
        clock = Clock.TICKS if unit in TICK_UNITS else Clock.NANOSECONDS
    count = _in_range(count, f"time {value!r}", clock.value, names)
    return count, clock if count else Clock.NONE


def fill(text: str, names: Mapping[str, int]) -> str:
    """Return *text* with every ``{expression}`` replaced by its value: ``"layer{i + 1}"`` becomes ``"layer3"`` where i is 2."""
    filled = _BRACES.sub(lambda match: str(evaluate(match[1], names)), text)
    if "{" in filled or "}" in filled:
        raise ScenarioError(f"{text!r} has a brace without its partner: write {{expression}}")
    return filled


def _plain(text: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except InputError as error:
        raise ScenarioError(error.problems) from None


def _in_range(value: int, what: str, unit: str, names: Mapping[str, int]) -> int:
    if value < 0:
        values = [f"{word} = {names[word]}" for word in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", what)) if word in names]
        raise ScenarioError(f"{what} is negative ({value} {unit}{' with ' if values else ''}{', '.join(values)}): give zero or more")
    if value >= LIMIT:
        raise ScenarioError(f"{what} is 2**63 {unit} or more: too large")
    return value


def _quantity(text: str, names: Mapping[str, int], units: Mapping[str, int], what: str, example: str) -> tuple[int, str]:
    """Split *text* into expression and unit; return the product and the unit."""
    match = _WITH_UNIT.fullmatch(text)
    midst = [word for word in _WORD.findall(match[1] if match and match[2] in units else text) if word in units and word not in names]
    if text.strip() in units:
        raise ScenarioError(f"{what} {text!r} has no number before its unit")
    if midst:
        raise ScenarioError(f"{what} {text!r} has {midst[0]!r} in its midst: {_unit_last(text, midst, names, units)}")
    if match and match[2] in units:
        return evaluate(match[1].strip(), names) * units[match[2]], match[2]
    if match and match[2] not in names and not match[1].rstrip().endswith(("+", "-", "*", "/", "%", "(", ",")):
        hint = did_you_mean(match[2], units) or f": known are {', '.join(units)}"
        raise ScenarioError(f"{what} {text!r} has the unit {match[2]!r}, which is not known{hint}")
    if text.strip():
        evaluate(text, names)
    raise ScenarioError(f"{what} {text!r} has no unit: write for example {f'{text.strip()} {example}'!r}")


def _unit_last(text: str, midst: list[str], names: Mapping[str, int], units: Mapping[str, int]) -> str:
    """How to write *text* with its one unit last; the example is given where moving the unit changes nothing else."""
    mend = "one unit stands last and applies to the whole"
    rest = " ".join(re.sub(rf"(?<![A-Za-z0-9_]){midst[0]}(?![A-Za-z0-9_])", " ", _GLUED_UNIT.sub(r"\1 \2", text)).split())
    if len(midst) == 1 and not set(rest) & set("+-,") and not any(word in units for word in _WORD.findall(rest)):
        with suppress(ScenarioError):
            evaluate(rest, names)
            return f"{mend}, write {f'{rest} {midst[0]}'!r}"
    return f"{mend}, as in '(2 + 1) * 4 {midst[0]}'"


def _value(node: ast.expr, names: Mapping[str, int], text: str) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            result = number
        case ast.Name(id=name):
            if name not in names:
                known = f"known are {', '.join(names)}" if names else "there are none"
                raise ScenarioError(f"unknown parameter {name!r} in {text!r}{did_you_mean(name, names) or f': {known}'}")
            result = names[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            result = _value(operand, names, text) * (-1 if isinstance(sign, ast.USub) else 1)
        case ast.BinOp(left=left, op=operator, right=right):
            result = _apply(operator, _value(left, names, text), _value(right, names, text), text)
        case ast.Call(func=ast.Name(id=function), args=[_, *_] as arguments, keywords=[]) if function in FUNCTIONS:
            values = [_value(argument, names, text) for argument in arguments]
            if function == "ceildiv":
                if len(values) != 2:
                    raise ScenarioError(f"ceildiv in {text!r} takes two values, not {len(values)}")
                result = -_apply(ast.FloorDiv(), -values[0], values[1], text)
            else:
                result = min(values) if function == "min" else max(values)
        case _:
            raise SyntaxError
    if abs(result) >= LIMIT:
        raise ScenarioError(f"{text!r} reaches 2**63: too large")
    return result


def _apply(operator: ast.operator, left: int, right: int, text: str) -> int:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Pow():
            if right < 0:
                raise ScenarioError(f"{text!r} has the negative exponent {right}: the result would not be whole")
            if abs(left) > 1 and right >= 64:
                raise ScenarioError(f"{text!r} reaches 2**63: too large")
            return int(left**right) if abs(left) > 1 else left ** (right % 2 if left < 0 else min(right, 1))
        case ast.Div() | ast.FloorDiv() | ast.Mod():
            if right == 0:
                raise ScenarioError(f"{text!r} divides by zero")
            if isinstance(operator, ast.Mod):
                return left % right
            if isinstance(operator, ast.Div) and left % right:
                raise ScenarioError(f"{left} / {right} in {text!r} is not whole: use // to round down or ceildiv to round up")
            return left // right
        case _:
            raise SyntaxError
