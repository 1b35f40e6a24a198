"""What a device's allocator would make of a trace that asks for memory: requested, allocated and reserved bytes, step by step.

A capture knows what is asked for. Which blocks that takes, and which segments are held from the device, the caching allocator decides; here
its model is given every request from the start of the process on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, DeviceTrace, Evidence, Kind, Span, Trace
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.allocator import NEWEST, Allocator, Device, Levels, OutOfMemory, Release
from lifecycle_sim.units import format_exact

LEVELS = ("requested", "allocated", "reserved")


@dataclass(frozen=True)
class StepLevels:
    """The levels of one step, in bytes: the peaks in it, and what is there after it.

    Attributes:
        name: the step's name.
        requested, allocated, reserved: the peaks.
        requested_after, allocated_after, reserved_after: the levels at its end.
    """

    name: str
    requested: int
    allocated: int
    reserved: int
    requested_after: int
    allocated_after: int
    reserved_after: int


@dataclass(frozen=True)
class Prediction(Shown):
    """What the allocator makes of a trace.

    Attributes:
        device: the device's name.
        steps: the levels of each step of the trace, or of the whole where it has none.
        levels: the levels after each of the allocator's own events.
        retries: how often the allocator had to give memory back and try again.
        failures: the requests that could not be met; what followed the first was not replayed.
        evidence: whether the requests were measured or simulated; the levels are simulated.
        marks: how many of the allocator's events there are before each event of the trace, and at its end.
    """

    device: str
    steps: tuple[StepLevels, ...]
    levels: Levels
    retries: int
    failures: tuple[OutOfMemory, ...]
    evidence: Evidence
    marks: Int64 = field(repr=False, compare=False)

    @property
    def fits(self) -> bool:
        """Whether every request was met."""
        return not self.failures

    def peak(self, level: str = "reserved") -> int:
        """Return the highest requested, allocated or reserved bytes of all steps.

        Raises:
            InputError: there is no such level.
        """
        if level not in LEVELS:
            raise InputError(f"level {level!r} is not known: the levels are {', '.join(LEVELS)}")
        return max((getattr(step, level) for step in self.steps), default=0)

    def reached(self, level: str = "reserved") -> int:
        """Return the first event of the trace after which the peak of that level is there; -1 if it is there before the first.

        Raises:
            InputError: there is no such level.
        """
        first = int(np.argmax(getattr(self.levels, level) >= self.peak(level)))
        return int(np.searchsorted(self.marks, first)) - 1

    def __repr__(self) -> str:
        return (
            f"Prediction({self.device!r}, {len(self.steps)} steps, peak {self.peak():,} B reserved{'' if self.fits else ', out of memory'})"
        )

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        told = [(f"peak {level}", format_exact(self.peak(level))) for level in LEVELS]
        return [("device", self.device), *told, ("retries", f"{self.retries:,}"), ("out of memory", f"{len(self.failures):,} times")]


def predict(
    trace: Trace,
    device: str | int | None = None,
    *,
    capacity: int | None = None,
    settings: str = "",
    release: Release | str | None = None,
) -> Prediction:
    """Give the requests of *trace* to the allocator's model and return what it makes of them.

    Args:
        trace: a trace that begins with the process: nothing is live before its first event.
        device: which of its devices; by default the only one.
        capacity: bytes of the device; by default the trace's own, or no limit.
        settings: allocator options in PyTorch's syntax, as in ``PYTORCH_CUDA_ALLOC_CONF``.
        release: the PyTorch release whose allocator it is; by default the trace's own, or the newest.

    Raises:
        InputError: there is no such device, or several and none was chosen; the trace does not begin with the process, or has no
            identities or requested bytes; the options are not known.
    """
    recorded = _chosen(trace, device)
    capacity = recorded.capacity if capacity is None else capacity
    chosen = (NEWEST if trace.release is None else trace.release.rstrip("+")) if release is None else release
    allocator = Allocator(Device() if capacity is None else Device(capacity), settings, chosen)
    marks = _replay(recorded, allocator)
    levels = allocator.levels()
    spans = [span for span in recorded.spans if span.kind == "step"] or [Span("step", "all", 0, len(recorded))]
    steps = tuple(_step(span, marks, levels) for span in spans)
    return Prediction(recorded.device, steps, levels, allocator.counters.alloc_retries, tuple(allocator.failures), trace.evidence, marks)


def _chosen(trace: Trace, device: str | int | None) -> DeviceTrace:
    if device is None and len(trace.devices) != 1:
        names = ", ".join(recorded.device for recorded in trace) or "none"
        raise InputError(f"a prediction is about one device, and the trace has {names}: name it")
    recorded = trace.devices[0] if device is None else trace.device(device)
    problems = []
    if recorded.start != 0:
        problems.append(f"{recorded.device}: the trace does not begin with the process, so the allocator's state before it is not known")
    if not recorded.identified:
        problems.append(f"{recorded.device}: its events carry no identity, so that what is freed cannot be told")
    if recorded.basis is Basis.ALLOCATED:
        problems.append(f"{recorded.device}: its bytes are blocks, and not what was asked for")
    if problems:
        raise InputError(problems)
    return recorded


def _replay(recorded: DeviceTrace, allocator: Allocator) -> Int64:
    """Ask for all and free all, and return how many events the allocator had recorded before each event of the trace, and at the end."""
    events = recorded.events
    marks = np.empty(len(events) + 1, np.int64)
    given: dict[int, int] = {}
    rows = zip(events.kind.tolist(), events.address.tolist(), events.size.tolist(), events.stream.tolist(), strict=True)
    stopped = False
    for position, (kind, address, size, stream) in enumerate(rows):
        marks[position] = len(allocator)
        if stopped:
            continue
        if kind == Kind.ALLOC:
            block = allocator.malloc(size, stream)
            if block is None:
                stopped = True
                continue
            given[address] = block
        elif kind in (Kind.FREE, Kind.FREE_REQUESTED):
            allocator.free(given.pop(address))
    marks[-1] = len(allocator)
    return marks


def _step(span: Span, marks: Int64, levels: Levels) -> StepLevels:
    first, last = int(marks[span.start]), int(marks[span.stop])
    columns = (levels.requested, levels.allocated, levels.reserved)
    peaks = [int(column[first : last + 1].max()) for column in columns]
    return StepLevels(span.name, *peaks, *(int(column[last]) for column in columns))
