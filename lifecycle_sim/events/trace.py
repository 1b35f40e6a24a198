"""The Trace: the ordered record of lifecycle events that everything else reads.

A trace holds one :class:`DeviceTrace` for each device; events of different devices never interact. Events are columns (numpy
arrays of equal length); the index of an event in its device's columns is its identity, and time is only a label. The order of the
events is never changed after reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.errors import InputError
from lifecycle_sim.events.kinds import Basis, BlockState, Clock, Evidence
from lifecycle_sim.events.stacks import NO_STACK, StackTable

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]

NO_LABEL = -1


class _Columns:
    """Equality and length for a frozen record whose every field is a numpy array of the same length."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} rows)"


@dataclass(frozen=True, eq=False, repr=False)
class Events(_Columns):
    """The events of one device, in their recorded order.

    Attributes:
        kind: :class:`~lifecycle_sim.events.kinds.Kind` of each event.
        address: where the storage, segment or range begins; in sources without addresses a number that stays with the storage.
            Together with the device and the generation it is the identity of a storage. In a device trace without identities it is -1.
        size: bytes; never negative.
        stream: the stream's raw handle, 0 for the default stream.
        time: nanoseconds or ticks, as the trace's ``clock`` says; 0 throughout when there is no clock.
        stack: number in the trace's ``stacks``, or ``NO_STACK``.
        label: number in the trace's ``labels``, or ``NO_LABEL``: a storage's name, or what the recording attached to the event.
        category: :class:`~lifecycle_sim.events.kinds.Category` of the storage.
        pool: number in the trace's ``pools``.
    """

    kind: UInt8
    address: Int64
    size: Int64
    stream: Int64
    time: Int64
    stack: Int32
    label: Int32
    category: UInt8
    pool: Int32

    @classmethod
    def of(cls, kind: Any, address: Any, size: Any, **columns: Any) -> Events:
        """Return events from columns of any sequence type; a column left out holds its neutral value throughout."""
        types = {"kind": np.uint8, "category": np.uint8, "stack": np.int32, "label": np.int32, "pool": np.int32}
        neutral = {"stream": 0, "time": 0, "stack": NO_STACK, "label": NO_LABEL, "category": 0, "pool": 0}
        values = {name: np.full(len(kind), value) for name, value in neutral.items()}
        values |= {"kind": kind, "address": address, "size": size} | columns
        return cls(**{name: np.asarray(column, types.get(name, np.int64)) for name, column in values.items()})


@dataclass(frozen=True, eq=False, repr=False)
class Segments(_Columns):
    """The segments held from the device when the recording ended.

    Attributes:
        address: first byte of the segment (or of a mapped run of an expandable one).
        size: its bytes.
        stream: the stream it belongs to.
        pool: number in the trace's ``pools``.
        small: whether it belongs to the small pool.
        expandable: whether it is a mapped run of an expandable segment.
        allocated: the recording's own sum of allocated blocks, -1 where it gives none.
        active: likewise with blocks pending free.
        requested: the recording's own sum of requested bytes of active blocks, -1 where it gives none.
        stack: number in the trace's ``stacks``, or ``NO_STACK``.
    """

    address: Int64
    size: Int64
    stream: Int64
    pool: Int32
    small: Bool
    expandable: Bool
    allocated: Int64
    active: Int64
    requested: Int64
    stack: Int32


@dataclass(frozen=True, eq=False, repr=False)
class Blocks(_Columns):
    """The blocks that tile the recorded segments.

    Attributes:
        segment: row in :class:`Segments`.
        address: first byte.
        size: bytes of the block.
        requested: bytes asked for; stale and meaningless unless the block is active.
        state: :class:`~lifecycle_sim.events.kinds.BlockState`.
        stack: number in the trace's ``stacks``, or ``NO_STACK``.
        category: :class:`~lifecycle_sim.events.kinds.Category`.
    """

    segment: Int32
    address: Int64
    size: Int64
    requested: Int64
    state: UInt8
    stack: Int32
    category: UInt8


@dataclass(frozen=True)
class MemoryState:
    """What the device held when the recording ended."""

    segments: Segments
    blocks: Blocks

    @property
    def reserved(self) -> int:
        """Bytes held from the device."""
        return int(self.segments.size.sum())

    @property
    def allocated(self) -> int:
        """Bytes of the blocks that are handed out."""
        return int(self.blocks.size[self.blocks.state == BlockState.ALLOCATED].sum())

    @property
    def active(self) -> int:
        """Bytes of the blocks that are handed out or await their free."""
        return int(self.blocks.size[self.blocks.state > 0].sum())

    @property
    def requested(self) -> int:
        """Requested bytes of the active blocks."""
        return int(self.blocks.requested[self.blocks.state > 0].sum())


@dataclass(frozen=True)
class Span:
    """A named range of events ``[start, stop)`` of one device: an annotation, a step, a phase or an operator.

    ``closed`` is False where the recording holds only one end of it; the other is then the end of the window.
    """

    kind: str
    name: str
    start: int
    stop: int
    closed: bool = True


@dataclass(frozen=True)
class Assumption:
    """Something the recording does not say and that had to be assumed, with how often.

    Attributes:
        code: a stable short name, such as ``"live_before_window"``.
        count: how many events or storages it concerns.
        text: one sentence for people.
        size: the bytes it concerns, where that can be said.
    """

    code: str
    count: int
    text: str
    size: int | None = None


@dataclass(frozen=True)
class DeviceTrace:
    """All that was recorded on one device.

    Attributes:
        device: torch's notation: ``"cuda:0"``, ``"cpu"``; ``"pinned"`` for the pinned host allocator; scenarios name their own.
        events: the events, in order.
        basis: what the sizes count.
        final: what the device held at the end, where it was recorded.
        start: level in bytes before the first event, where the source states it (0 for a complete record); None if it must be derived.
        identified: False if events carry no identity, only amounts: levels can be told, lifetimes cannot.
        spans: named ranges of events, by start.
        capacity: the device's bytes to compare with, where the source states them.
    """

    device: str
    events: Events
    basis: Basis
    final: MemoryState | None = None
    start: int | None = None
    identified: bool = True
    spans: tuple[Span, ...] = ()
    capacity: int | None = None

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        return f"DeviceTrace({self.device!r}, {len(self.events):,} events, {self.basis} bytes)"


@dataclass(frozen=True)
class Trace:
    """The ordered record of lifecycle events, one :class:`DeviceTrace` for each device.

    Attributes:
        devices: one record a device, in the source's order.
        format: what it was made from: ``"cuda-snapshot"``, ``"profiler"``, ``"memory-timeline"``, ``"profile-plot"``, ``"minimalloc"``,
            ``"native"`` or ``"scenario"``.
        evidence: whether it was measured or simulated.
        clock: what event times count.
        stacks: the distinct stacks.
        labels: the distinct labels.
        pools: the distinct memory pools, as (a, b); entry 0 is the default pool.
        release: the PyTorch releases that may have written it, such as ``"2.14+"``, where it can be told.
        settings: allocator settings that were recorded with it.
        assumptions: what had to be assumed while reading.
    """

    devices: tuple[DeviceTrace, ...]
    format: str
    evidence: Evidence
    clock: Clock
    stacks: StackTable = field(default_factory=StackTable)
    labels: tuple[str, ...] = ()
    pools: tuple[tuple[int, int], ...] = ((0, 0),)
    release: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()

    def __iter__(self) -> Iterator[DeviceTrace]:
        return iter(self.devices)

    def __len__(self) -> int:
        return sum(len(device) for device in self.devices)

    def __repr__(self) -> str:
        names = ", ".join(f"{d.device}: {len(d):,}" for d in self.devices)
        return f"Trace({self.format}, {self.evidence}, events {{{names}}})"

    @property
    def times_from_zero(self) -> bool:
        """Whether times count from a zero of the source's own, as ticks and simulated times do; measured ones count from an epoch."""
        return self.clock is Clock.TICKS or (self.clock is Clock.NANOSECONDS and self.evidence is Evidence.SIMULATED)

    def device(self, name: str | int) -> DeviceTrace:
        """Return the record of the device called *name*; ``1`` and ``"1"`` stand for ``"cuda:1"``.

        Raises:
            InputError: there is no such device.
        """
        wanted = f"cuda:{name}" if str(name).isdigit() else str(name)
        for device in self.devices:
            if device.device == wanted:
                return device
        known = ", ".join(d.device for d in self.devices) or "none"
        raise InputError(f"no device {wanted!r} in the trace: it has {known}")

    def label(self, number: int) -> str | None:
        """Return label number *number*, or None for ``NO_LABEL``."""
        return None if number < 0 else self.labels[number]
