"""Quantised weights, and the parameters that low-rank adapters add."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.widths import Type, bits_of, bytes_of, ceil_div, count, type_name, width_text


@dataclass(frozen=True)
class Quantised:
    """Weights in few bits, with a scale for each group of them.

    Attributes:
        kind: the type of the weights, such as int8, int4 or nf4.
        group: elements that share a scale; None: one scale for each row of a matrix, or one for a plain count of elements.
        scale: the type of a scale.
        zero: the type of a zero point for each group, None without one.
        second: groups whose scales share a second scale of 4 bytes while they themselves take 1 byte (double quantisation, as in QLoRA);
            None without it.
    """

    kind: Type = "int4"
    group: int | None = 64
    scale: Type = "fp16"
    zero: Type | None = None
    second: int | None = None

    def __post_init__(self) -> None:
        if bits_of(self.kind) > 8:
            raise InputError(f"weights quantised to {type_name(self.kind)}: give a type of 8 bits or fewer, such as int8 or int4")
        bits_of(self.scale)
        if self.group is not None:
            count("group of a scale", self.group, 1)
        if self.second is not None:
            count("groups of a second scale", self.second, 1)
        if self.zero is not None:
            bits_of(self.zero)

    def groups(self, elements: int, rows: int = 1) -> int:
        """Return how many groups *elements* weights in *rows* rows have; a group does not go over the end of the count given."""
        return rows if self.group is None else ceil_div(elements, self.group)

    def sizes(self, elements: int, rows: int = 1) -> dict[str, int]:
        """Return the bytes of *elements* weights: packed, their scales, and their zero points."""
        groups = self.groups(elements, rows)
        if not elements:
            return {"weights": 0}
        sizes = {"weights": bytes_of(elements, self.kind)}
        if self.second is None:
            sizes["scales"] = bytes_of(groups, self.scale)
        else:
            sizes |= {"scales": groups, "second scales": 4 * ceil_div(groups, self.second)}
        if self.zero is not None:
            sizes["zero points"] = bytes_of(groups, self.zero)
        return sizes

    def formula(self) -> str:
        """Return the rule in words."""
        each = "row" if self.group is None else f"{self.group:,}"
        scale = width_text(self.scale) if self.second is None else f"1 B and 4 B for each {self.second:,} of these"
        zero = f", {width_text(self.zero)} a zero point" if self.zero is not None else ""
        return f"{width_text(self.kind)} each, {scale} a scale for each {each}{zero}"


def lora_parameters(shapes: Iterable[tuple[int, int]], rank: int) -> int:
    """Return how many parameters low-rank adapters of *rank* add to matrices of *shapes*: rank · (rows + columns) each.

    Source: arXiv:2106.09685, section 4.1.

    Raises:
        InputError: the rank or a size is not positive.
    """
    count("rank", rank, 1)
    return sum(rank * (count("rows", rows, 1) + count("columns", columns, 1)) for rows, columns in shapes)
