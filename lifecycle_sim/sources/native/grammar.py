"""The words of the native formats: what a header and each kind of line may hold.

A line of JSON lines is told by its verb, the key that says what it is: ``alloc``, ``free``, ``span``, ``segment``, …
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from lifecycle_sim.errors import TraceFormatError, TraceInvariantError
from lifecycle_sim.events import Assumption, Basis, BlockState, Category, Clock, Evidence, Kind, Trace, check_structure

SCHEMA = "lifecycle-sim/trace/1"
DEFAULT_POOLS = ((0, 0),)

KINDS = {kind.name.lower(): kind for kind in Kind}
CATEGORIES = {category.word: category for category in Category}
STATES = {state.name.lower(): state for state in BlockState}
EVENT_KEYS = {verb: frozenset({verb, "size", "time", "device", "stream", "stack", "label", "category", "pool"}) for verb in KINDS}

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Size = Int64 | str
"""Bytes: an integer, or text with a unit."""
Reference = int | str
StackReference = int | list[Any]
PoolReference = int | tuple[Int64, Int64]


APART = ("capture", "graph")
"""The setting that is written on a line of its own."""


class Header(msgspec.Struct, omit_defaults=True):
    """What holds for the whole trace; the first line of JSON lines, and part of the header of ``.npz``."""

    schema: str
    format: str = "native"
    evidence: Evidence = Evidence.SIMULATED
    clock: Clock | None = None
    release: str | None = None
    pools: tuple[tuple[Int64, Int64], ...] | None = None
    settings: dict[str, Any] = {}
    assumptions: list[Assumption] = []

    @classmethod
    def of(cls, trace: Trace) -> Header:
        """Return the header of *trace*."""
        header = cls(SCHEMA, trace.format, trace.evidence, trace.clock, trace.release)
        header.pools = None if trace.pools == DEFAULT_POOLS else trace.pools
        header.settings, header.assumptions = dict(trace.settings), list(trace.assumptions)
        return header


class SettingLine(msgspec.Struct):
    """``setting``: a value of the header's settings that is too long for its line, by the keys that lead to it."""

    setting: list[str]
    value: Any


class DeviceLine(msgspec.Struct):
    """``device``: the lines that follow are about this device."""

    device: str
    basis: Basis = Basis.PAYLOAD
    start: int | None = 0
    identified: bool | None = None
    capacity: int | str | None = None
    final: bool = False


class FrameLine(msgspec.Struct):
    """``frame``: the next entry of the table of frames, ``[name, filename, line]``."""

    frame: tuple[str, str, int]


class StackLine(msgspec.Struct):
    """``stack``: the next entry of the table of stacks, frame numbers, innermost first."""

    stack: list[int]


class LabelLine(msgspec.Struct):
    """``label``: the next entry of the table of labels."""

    label: str


class SpanLine(msgspec.Struct):
    """``span``: a named range of events of a device, by their numbers."""

    span: str
    start: int
    stop: int
    kind: str = "annotation"
    closed: bool = True
    device: str | None = None


class BeginLine(msgspec.Struct):
    """``begin``: a span begins with the next event."""

    begin: str
    kind: str = "annotation"
    device: str | None = None


class EndLine(msgspec.Struct):
    """``end``: the innermost open span of this name ended with the last event."""

    end: str
    device: str | None = None


class SegmentLine(msgspec.Struct):
    """``segment``: a segment held at the end of the recording."""

    segment: Int64
    size: Size
    stream: Int64 = 0
    pool: PoolReference = 0
    small: bool = False
    expandable: bool = False
    allocated: Int64 = -1
    active: Int64 = -1
    requested: Int64 = -1
    stack: StackReference = -1
    device: str | None = None


class BlockLine(msgspec.Struct):
    """``block``: a block of a segment; of the last segment above it unless ``within`` gives another by its number."""

    block: Int64
    size: Size
    requested: Size = 0
    state: str = "allocated"
    stack: StackReference = -1
    category: str = "unknown"
    within: int | None = None
    device: str | None = None


LINES: dict[str, type[msgspec.Struct]] = {
    "setting": SettingLine,
    "span": SpanLine,
    "begin": BeginLine,
    "end": EndLine,
    "segment": SegmentLine,
    "block": BlockLine,
    "frame": FrameLine,
    "stack": StackLine,
    "label": LabelLine,
    "device": DeviceLine,
}
VERBS = (*KINDS, *LINES)
"""All verbs. The first of this list that is a key of a line is its verb: the last four are also keys of other lines."""
SHARED_KEYS = VERBS[-4:]


def encoder() -> msgspec.json.Encoder:
    """Return the encoder of both formats."""
    return msgspec.json.Encoder(enc_hook=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a trace with a {type(value).__name__} in its settings or texts cannot be written")


def must_be_sound(trace: Trace, error: type[TraceFormatError | TraceInvariantError], doing: str) -> None:
    """Raise *error* if columns of *trace* differ in length or refer to nothing, with one line for each such finding."""
    found = [finding for finding in check_structure(trace) if finding.severity == "error"]
    if found:
        raise error(f"{doing} {finding.device or 'the trace'}: {finding.text} ({finding.count} times)" for finding in found)
