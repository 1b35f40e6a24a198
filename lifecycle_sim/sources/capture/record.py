"""The records of a capture: the named terms it applied, the parameters it found, and the capture itself. They need no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lifecycle_sim.display import Shown
from lifecycle_sim.events import Span, Trace
from lifecycle_sim.sources.capture.profiles import DeviceProfile
from lifecycle_sim.units import format_bytes


@dataclass(frozen=True)
class Term:
    """Memory that kernels take for themselves.

    Attributes:
        name: what it is called in labels and switches.
        rule: how its bytes follow.
        source: where the rule is from, and what it was held against.
        upper: for a term without a value, the most bytes it adds at a time; the least are none.
    """

    name: str
    rule: str
    source: str
    upper: int | None = None


@dataclass(frozen=True)
class TermUse:
    """How often a term was met, and its most bytes at a time."""

    term: Term
    count: int
    most: int


@dataclass(frozen=True)
class ParameterRow:
    """A parameter or buffer: its first name, all its names, and its bytes, which count once.

    Attributes:
        name: the first name in the model.
        names: all names that refer to it.
        shape: its sizes.
        dtype: torch's name of its type, without ``torch.``.
        size: its bytes.
        trainable: whether it wants a gradient.
        buffer: whether it is a buffer.
    """

    name: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    size: int
    trainable: bool
    buffer: bool


@dataclass(frozen=True)
class OperatorRow:
    """An operator that ran: its name, phase, innermost module, FLOPs, events ``[start, stop)``, and the storages it read and wrote.

    Storages are the numbers in the address column of the trace; FLOPs are 0 where torch's registry knows none.
    """

    name: str
    phase: str | None
    module: str
    flops: int
    start: int
    stop: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class Capture(Shown):
    """A training or inference step, captured: the trace, and what it rests on.

    Attributes:
        trace: all storage events from the model's first parameter on, in requested bytes, simulated.
        profile: the card it was captured for.
        warmup: steps before the measured ones.
        terms: the named terms that applied.
        parameters: parameters and buffers, each once.
        operators: the operators of the measured steps.
        saved: numbers of the storages that autograd saved for backward.
        upper: for each measured step the requested bytes that terms without a value may raise its peak to.
        seconds: how long the capture took.
        rss: the most bytes its process held.
        versions: of torch and Python.
    """

    trace: Trace
    profile: DeviceProfile
    warmup: int
    terms: tuple[TermUse, ...] = ()
    parameters: tuple[ParameterRow, ...] = ()
    operators: tuple[OperatorRow, ...] = ()
    saved: frozenset[int] = frozenset()
    upper: tuple[int, ...] = ()
    seconds: float = 0.0
    rss: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> tuple[Span, ...]:
        """The spans of the measured steps."""
        return tuple(span for span in self.trace.devices[0].spans if span.kind == "step")[self.warmup :]

    def __repr__(self) -> str:
        return f"Capture({self.profile.name!r}, {len(self.trace):,} events, {len(self.steps)} measured steps after {self.warmup})"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        return [
            ("device", self.profile.name),
            ("events", f"{len(self.trace):,}"),
            ("steps", f"{len(self.steps)} after {self.warmup} of warm-up"),
            *((use.term.name, f"{use.count:,} times, at most {format_bytes(use.most)}") for use in self.terms if use.count),
            *((assumption.code, f"{assumption.count:,} times: {assumption.text}") for assumption in self.trace.assumptions),
            ("captured in", f"{self.seconds:.1f} s with {format_bytes(self.rss)}"),
            *(("version of " + name, version) for name, version in self.versions.items()),
        ]

    def settings(self) -> dict[str, Any]:
        """Return the header's settings of the trace."""
        return dict(self.trace.settings)
