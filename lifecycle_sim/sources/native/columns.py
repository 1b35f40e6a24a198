"""Reads and writes a Trace as ``.npz``: a zip of numpy columns, and a header of JSON in one of them.

``numpy.load(path, allow_pickle=False)`` opens it too. Members:

==========================  ==========================================================================================
``header``                  JSON in bytes: what holds for the whole trace, the tables, and each device without its columns
``stack_frames``            the frame numbers of all stacks, one after another
``stack_stops``             where each stack ends in it
``0.kind``, ``0.size`` …    the columns of events of the first device (a column that is neutral throughout is left out)
``0.segment.address`` …     the columns of its recorded segments, likewise ``0.block.…``
==========================  ==========================================================================================

Columns are stored in the narrowest integer type that holds them, not compressed, so that the bytes depend on nothing but the trace.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Container, Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.errors import TraceFormatError, TraceInvariantError
from lifecycle_sim.events import Basis, Blocks, Clock, DeviceTrace, Events, Frame, MemoryState, Segments, Span, StackTable, Trace
from lifecycle_sim.sources.native.grammar import DEFAULT_POOLS, SCHEMA, Header, encoder, must_be_sound

Array = NDArray[Any]

_TYPES: dict[type[Events | Segments | Blocks], dict[str, Any]] = {
    Events: dict.fromkeys(("address", "size", "stream", "time"), np.int64)
    | dict.fromkeys(("stack", "label", "pool"), np.int32)
    | dict.fromkeys(("kind", "category"), np.uint8),
    Segments: dict.fromkeys(("address", "size", "stream", "allocated", "active", "requested"), np.int64)
    | dict.fromkeys(("pool", "stack"), np.int32)
    | dict.fromkeys(("small", "expandable"), np.bool_),
    Blocks: dict.fromkeys(("address", "size", "requested"), np.int64)
    | dict.fromkeys(("segment", "stack"), np.int32)
    | dict.fromkeys(("state", "category"), np.uint8),
}
_NEUTRAL = {"stream": 0, "time": 0, "stack": -1, "label": -1, "category": 0, "pool": 0}
_RATIO = 200
_FLOOR = 16 * 2**20


class _Device(msgspec.Struct):
    device: str
    basis: Basis
    final: bool
    start: int | None
    identified: bool
    capacity: int | None
    spans: list[Span]


class _Header(Header, kw_only=True):
    devices: list[_Device]
    labels: list[str]
    frames: list[Frame]


def write_npz(trace: Trace) -> bytes:
    """Return *trace* as the bytes of an ``.npz`` file.

    Raises:
        TraceInvariantError: columns differ in length or refer to nothing.
        TraceFormatError: a text that is not Unicode, or settings that JSON cannot hold.
    """
    must_be_sound(trace, TraceInvariantError, "cannot write")
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, column in _members(trace):
            member = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, whenever it is written
            member.create_system = 3
            member.external_attr = 0o644 << 16
            content = io.BytesIO()
            np.lib.format.write_array(content, column, version=(1, 0), allow_pickle=False)
            archive.writestr(member, content.getbuffer())
    return target.getvalue()


def _members(trace: Trace) -> Iterator[tuple[str, Array]]:
    devices = [_Device(d.device, d.basis, d.final is not None, d.start, d.identified, d.capacity, list(d.spans)) for d in trace]
    shared = {name: getattr(Header.of(trace), name) for name in Header.__struct_fields__}
    header = _Header(**shared, devices=devices, labels=list(trace.labels), frames=list(trace.stacks.frames))
    try:
        yield "header", np.frombuffer(encoder().encode(header), np.uint8)
    except (UnicodeEncodeError, TypeError) as error:
        raise TraceFormatError(f"cannot write the trace: {error}") from None
    stacks = trace.stacks.stacks
    yield "stack_frames", _narrow(np.array([frame for stack in stacks for frame in stack], np.int64))
    yield "stack_stops", _narrow(np.cumsum([len(stack) for stack in stacks], dtype=np.int64))
    for number, device in enumerate(trace):
        yield from _table(f"{number}.", device.events)
        if device.final is not None:
            yield from _table(f"{number}.segment.", device.final.segments)
            yield from _table(f"{number}.block.", device.final.blocks)


def _table(prefix: str, table: Events | Segments | Blocks) -> Iterator[tuple[str, Array]]:
    for name in _TYPES[type(table)]:
        column = getattr(table, name)
        if not isinstance(table, Events) or name not in _NEUTRAL or (column != _NEUTRAL[name]).any():
            yield prefix + name, _narrow(column)


def _narrow(column: Array) -> Array:
    """Return *column* in the narrowest little-endian integer type that holds its values."""
    if column.dtype == np.bool_ or not len(column):
        return column
    low, high = int(column.min()), int(column.max())
    for kind in ("u1", "<u2", "<u4") if low >= 0 else ("i1", "<i2", "<i4"):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return column.astype(kind)
    return column.astype("<i8")


def read_npz(data: bytes) -> Trace:
    """Return the trace in the ``.npz`` bytes *data*. Nothing is unpickled, and sizes are checked before anything is unpacked.

    Raises:
        TraceFormatError: not such a file, a member that is missing, malformed or unreasonably large, references into nothing.
    """
    members = _Members(data)
    header = members.header()
    frames, stops = members.column("stack_frames", np.int64).tolist(), members.column("stack_stops", np.int64).tolist()
    if sorted(stops) != stops or (stops[-1] if stops else 0) != len(frames) or (stops and stops[0] < 0):
        raise TraceFormatError("stack_stops.npy does not divide stack_frames.npy")
    stacks = tuple(tuple(frames[start:stop]) for start, stop in zip([0, *stops], stops, strict=False))
    shared = {name: getattr(header, name) for name in ("format", "evidence", "release", "settings")}
    trace = Trace(
        tuple(_read_device(members, number, device) for number, device in enumerate(header.devices)),
        clock=header.clock or Clock.NONE,
        stacks=StackTable(tuple(header.frames), stacks),
        labels=tuple(header.labels),
        pools=DEFAULT_POOLS if header.pools is None else header.pools,
        assumptions=tuple(header.assumptions),
        **shared,
    )
    must_be_sound(trace, TraceFormatError, "in the file,")
    return trace


def _read_device(members: _Members, number: int, device: _Device) -> DeviceTrace:
    events = Events.of(**members.table(f"{number}.", Events, _NEUTRAL))
    final = None
    if device.final:
        segments = Segments(**members.table(f"{number}.segment.", Segments))
        final = MemoryState(segments, Blocks(**members.table(f"{number}.block.", Blocks)))
    facts = (device.start, device.identified, tuple(device.spans), device.capacity)
    return DeviceTrace(device.device, events, device.basis, final, *facts)


class _Members:
    """The columns in a zip archive, each checked before it is unpacked."""

    def __init__(self, data: bytes) -> None:
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise TraceFormatError(f"not an .npz file: {error}") from None
        self._members = {info.filename.removesuffix(".npy"): info for info in self._archive.infolist()}
        unpacked = sum(info.file_size for info in self._archive.infolist())
        if unpacked > max(_FLOOR, _RATIO * len(data)):
            raise TraceFormatError(f"the .npz file unpacks to {unpacked:,} bytes, over {_RATIO} times its size: it is not read")

    def header(self) -> _Header:
        """Return the header, once its schema is known to be right."""
        if "header" not in self._members:
            raise TraceFormatError("the .npz file holds no header.npy: it is not a trace written by lifecycle-sim")
        raw = self.column("header", np.uint8).tobytes()
        try:
            schema = msgspec.json.decode(raw, type=dict[str, Any]).get("schema")
            if schema != SCHEMA:
                raise TraceFormatError(f"header.npy has the schema {schema!r}: this release reads {SCHEMA!r}")
            return msgspec.json.decode(raw, type=_Header)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TraceFormatError(f"header.npy is not the header of a trace: {error}") from None

    def table(self, prefix: str, table: type[Events | Segments | Blocks], optional: Container[str] = ()) -> dict[str, Array]:
        """Return the columns of *table* whose names begin with *prefix*, except *optional* ones that are not there."""
        wanted = {name: kind for name, kind in _TYPES[table].items() if name not in optional or prefix + name in self._members}
        return {name: self.column(prefix + name, kind) for name, kind in wanted.items()}

    def column(self, name: str, kind: Any) -> Array:
        """Return the one-dimensional column *name* as the type *kind*, which must hold its values."""
        where = f"{name}.npy"
        if name not in self._members:
            raise TraceFormatError(f"{where} is missing in the .npz file")
        try:
            content = self._archive.read(self._members[name])
            stream = io.BytesIO(content)
            version = np.lib.format.read_magic(stream)
            if version != (1, 0):
                raise TraceFormatError(f"{where} has version {version} of the .npy format: columns of traces have (1, 0)")
            shape, _, stored = np.lib.format.read_array_header_1_0(stream)
            if len(shape) != 1 or stored.kind not in "iub" or shape[0] * stored.itemsize != len(content) - stream.tell():
                raise TraceFormatError(f"{where} is not one column of integers of the length it says")
            column: Array = np.frombuffer(content, stored, offset=stream.tell())
        except TraceFormatError:
            raise
        except Exception as error:  # zipfile and numpy raise many kinds on damaged members
            raise TraceFormatError(f"{where} is damaged: {str(error)[:200]}") from None
        converted: Array = column.astype(kind)
        if not np.array_equal(converted, column):
            raise TraceFormatError(f"{where} holds values beyond {np.dtype(kind).name}")
        return converted
