"""The records of ``params``: a row for each storage of a model's parameters and buffers, and the totals. They need no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lifecycle_sim.display import Shown
from lifecycle_sim.units import format_exact


@dataclass(frozen=True)
class StorageRow:
    """One storage of parameters or buffers, under all its names.

    Attributes:
        names: every name that refers to it, in the model's order.
        shape: the sizes of the tensor with the first name.
        dtype: torch's name of its type, without ``torch.``.
        objects: how many tensors are views of it; two names of one parameter are one object.
        elements: how many elements the storage holds.
        size: bytes of the storage.
        trainable: whether a gradient is wanted.
        buffer: whether it is a buffer.
        gradient: bytes of its gradients: of those there are, else of those that a backward pass makes.
        state: bytes of optimizer state that is kept for it.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    objects: int
    elements: int
    size: int
    trainable: bool
    buffer: bool
    gradient: int
    state: int

    @property
    def references(self) -> int:
        """How many names refer to it."""
        return len(self.names)


@dataclass(frozen=True)
class ParameterTable(Shown):
    """Parameters and buffers of a model, each storage once, in the model's order; and what gradients and optimizer add to them.

    Attributes:
        model: the name of the model's class.
        rows: the storages.
        by_name: bytes if every name had a storage of its own.
        optimizer: the names of the optimizers' classes; empty if none was given.
        own: bytes of optimizer state that belongs to no row: copies of parameters that the optimizer has for its own, and their state.
        by_key: bytes of optimizer state by its key, such as ``exp_avg``; they add up to :attr:`state`.
        counters: bytes of scalars on the host, such as step counters: apart from all totals.
        stepped: whether the optimizer holds any state or counters.
    """

    model: str
    rows: tuple[StorageRow, ...]
    by_name: int = 0
    optimizer: tuple[str, ...] = ()
    own: int = 0
    by_key: Mapping[str, int] = field(default_factory=dict)
    counters: int = 0
    stepped: bool = False

    @property
    def elements(self) -> int:
        """Elements of the parameters, each storage once."""
        return sum(row.elements for row in self.rows if not row.buffer)

    @property
    def size(self) -> int:
        """Bytes of the parameters, each storage once."""
        return sum(row.size for row in self.rows if not row.buffer)

    @property
    def buffers(self) -> int:
        """Bytes of the buffers, each storage once."""
        return sum(row.size for row in self.rows if row.buffer)

    @property
    def gradients(self) -> int:
        """Bytes of the gradients."""
        return sum(row.gradient for row in self.rows)

    @property
    def state(self) -> int:
        """Bytes of optimizer state, without counters."""
        return self.own + sum(row.state for row in self.rows)

    @property
    def total(self) -> int:
        """Bytes of parameters, buffers, gradients and optimizer state together."""
        return self.size + self.buffers + self.gradients + self.state

    def __repr__(self) -> str:
        return f"ParameterTable({self.model!r}, {len(self.rows):,} storages, {self.elements:,} elements, {self.size:,} B)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        rows = [
            (", ".join(row.names), f"{list(row.shape)} {row.dtype}, {row.references} × referred to, {format_exact(row.size)}")
            for row in self.rows
        ]
        return [
            *rows,
            ("parameters", f"{self.elements:,} elements, {format_exact(self.size)}"),
            ("buffers", format_exact(self.buffers)),
            ("gradients", format_exact(self.gradients)),
            *((f"optimizer {key}", format_exact(size)) for key, size in self.by_key.items()),
            ("counters, apart", format_exact(self.counters)),
            ("together", format_exact(self.total)),
        ]
