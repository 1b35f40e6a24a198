"""What happened: event kinds, stacks, the Trace, and its checks."""

from lifecycle_sim.events.check import check, check_structure
from lifecycle_sim.events.findings import Finding
from lifecycle_sim.events.kinds import Basis, BlockState, Category, Clock, Evidence, Kind
from lifecycle_sim.events.stacks import NO_STACK, Frame, StackBuilder, StackTable
from lifecycle_sim.events.trace import (
    NO_LABEL,
    Assumption,
    Blocks,
    DeviceTrace,
    Events,
    MemoryState,
    Segments,
    Span,
    Trace,
)

__all__ = [
    "NO_LABEL",
    "NO_STACK",
    "Assumption",
    "Basis",
    "BlockState",
    "Blocks",
    "Category",
    "Clock",
    "DeviceTrace",
    "Events",
    "Evidence",
    "Finding",
    "Frame",
    "Kind",
    "MemoryState",
    "Segments",
    "Span",
    "StackBuilder",
    "StackTable",
    "Trace",
    "check",
    "check_structure",
]
