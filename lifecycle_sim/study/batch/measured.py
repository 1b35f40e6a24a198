"""Probes from traces: of recordings, of scenarios, and of captured steps with what the allocator makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Evidence, Span, Trace
from lifecycle_sim.replay import DeviceReplay, replay_device
from lifecycle_sim.replay.allocator.recording import open_loop
from lifecycle_sim.replay.attribution import attribute, levels_by
from lifecycle_sim.replay.steady import steady_state
from lifecycle_sim.study.batch.probes import Probe
from lifecycle_sim.study.prediction import Prediction
from lifecycle_sim.units import format_exact

STATES = ("parameter", "buffer", "gradient", "optimizer_state")
"""Categories whose bytes do not depend on the batch."""
OUTSIDE = "outside"
"""What the part of a step is called that lies in no phase."""


@dataclass(frozen=True)
class Moment:
    """When bytes of a basis are highest for the first time.

    Attributes:
        phase: the phase in which that is, in whatever step; None where it is in none.
        held: requested bytes by category at that time.
    """

    phase: str | None
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StepPeaks(Shown):
    """The peaks of a step with a batch, in all the ways of counting, and what makes them.

    Attributes:
        batch: samples of the micro-batch.
        seq: tokens of a sequence, None where there are none.
        levels: the highest bytes by basis, over all steps from the start of the process on.
        phases: the peak of requested bytes inside each phase of the last step.
        held: bytes by category at that step's peak.
        moments: by basis, when it is highest, where that is another time than that peak's.
        states: the most bytes of each category of ``STATES`` in that step.
        states_together: the most bytes that these hold at one time.
        trainable: bytes of the parameters that want gradients.
        fits: whether the allocator meets every request on a device of the budget's bytes, and ``retries``: how often it had to give
            memory back for that; None if that was not asked.
        evidence: whether it was measured or simulated.
    """

    batch: int
    seq: int | None
    levels: Mapping[str, int]
    phases: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, int] = field(default_factory=dict)
    states_together: int = 0
    trainable: int = 0
    fits: bool | None = None
    retries: int = 0
    evidence: Evidence = Evidence.SIMULATED
    moments: Mapping[str, Moment] = field(default_factory=dict)

    @property
    def phase(self) -> str | None:
        """The phase in which requested bytes peak, the first of the highest; None where there are none."""
        return max(self.phases, key=lambda name: self.phases[name]) if self.phases else None

    def phase_of(self, basis: str) -> str | None:
        """Return the phase in which bytes of *basis* peak; None where there is none."""
        return self.moments[basis].phase if basis in self.moments else self.phase

    def held_of(self, basis: str) -> Mapping[str, int]:
        """Return bytes by category when those of *basis* peak."""
        return self.moments[basis].held if basis in self.moments else self.held

    def category_of(self, basis: str) -> str | None:
        """Return the category that holds most when bytes of *basis* peak; None where there are none."""
        held = self.held_of(basis)
        return max(held, key=lambda name: held[name]) if held else None

    def peak(self, basis: str) -> int:
        """Return the peak in *basis* bytes.

        Raises:
            InputError: that was not told.
        """
        if basis not in self.levels:
            raise InputError(f"{basis} bytes are not told here: choose {' or '.join(self.levels)}")
        return self.levels[basis]

    def probe(self, basis: str) -> Probe:
        """Return this as a probe."""
        phases = (
            dict(self.phases) if basis in ("requested", "payload") and max(self.phases.values(), default=-1) == self.peak(basis) else {}
        )
        phase, held = self.phase_of(basis), self.held_of(basis)
        return Probe(self.batch, self.peak(basis), self.seq, basis, self.evidence, phase=phase, phases=phases, held=held)

    def __repr__(self) -> str:
        length = "" if self.seq is None else f" × {self.seq:,}"
        return f"StepPeaks({self.batch:,}{length}, {', '.join(f'{size:,} B {basis}' for basis, size in self.levels.items())})"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        told = [(f"peak {basis}", format_exact(size)) for basis, size in self.levels.items()]
        return [("batch", f"{self.batch:,}"), *told, *((f"in {name}", format_exact(size)) for name, size in self.phases.items())]


def step_peaks(
    replayed: DeviceReplay, batch: int, seq: int | None = None, *, prediction: Prediction | None = None, trainable: int = 0
) -> StepPeaks:
    """Return the peaks of a simulated run, whose last step is the one that is looked into.

    Args:
        replayed: the run, with its steps and phases as spans; where there are no steps, all of it is one.
        batch: its batch.
        seq: the length of its sequences.
        prediction: what the allocator makes of it, for allocated and reserved bytes.
        trainable: bytes of the parameters that want gradients.
    """
    spans = replayed.recorded.spans
    step = next((span for span in reversed(spans) if span.kind == "step"), Span("step", "all", 0, len(replayed.recorded)))
    peak = replayed.span_peak(step)
    phases = _phase_peaks(replayed, step)
    held = {share.key: share.size for share in attribute(replayed, "category", peak.event, None).shares}
    keys, rows = levels_by(replayed, "category", None)
    window = {key: row[step.start : step.stop + 1] for key, row in zip(keys, rows, strict=True) if key in STATES}
    basis = str(replayed.timeline.basis)
    levels = {basis: replayed.peak.size}
    moments = {}
    if prediction is not None:
        for name in ("allocated", "reserved"):
            levels[name] = prediction.peak(name)
            moments[name] = _moment(replayed, prediction.reached(name))
    return StepPeaks(
        batch,
        seq,
        levels,
        phases,
        held,
        {key: int(levels_of.max()) for key, levels_of in window.items()},
        int(sum(window.values()).max()) if window else 0,
        trainable,
        evidence=replayed.timeline.evidence,
        moments=moments,
    )


def _moment(replayed: DeviceReplay, event: int) -> Moment:
    phase = next((span.name for span in replayed.recorded.spans if span.kind == "phase" and span.start <= event < span.stop), None)
    return Moment(phase, {share.key: share.size for share in attribute(replayed, "category", event, None).shares})


def _phase_peaks(replayed: DeviceReplay, step: Span) -> dict[str, int]:
    """The peak inside each phase of *step*; what lies in none is ``OUTSIDE`` if it is higher than all of them."""
    found: dict[str, int] = {}
    for span in replayed.recorded.spans:
        if span.kind == "phase" and step.start <= span.start < step.stop:
            found[span.name] = max(found.get(span.name, 0), replayed.span_peak(span).size)
    whole = replayed.span_peak(step).size
    if found and max(found.values()) < whole:
        found[OUTSIDE] = whole
    return found


def probe_of_trace(
    trace: Trace, batch: int, seq: int | None = None, basis: str = "requested", device: str | None = None, source: str = ""
) -> Probe:
    """Return a recording's peak as a probe.

    Args:
        trace: the recording.
        batch: the batch it was made with.
        seq: the length of its sequences.
        basis: ``"requested"`` (or what the trace counts instead), ``"allocated"`` or ``"reserved"`` bytes.
        device: which of its devices; by default the one with the highest peak.
        source: what messages call it.

    Raises:
        InputError: the trace does not tell such a peak, or holds a first step alone.
    """
    named = f"{source}: " if source else ""
    replayed = replay_device(trace, device)
    if not replayed.history:
        raise InputError(f"{named}holds only a state, no history, so that its peak is not known: it is no probe")
    if replayed.relative:
        raise InputError(f"{named}its levels count from a start that is not known: it is no probe")
    steps = steady_state(replayed).steps
    if replayed.timeline.start == 0 and len(steps) == 1:
        raise InputError(f"{named}holds the first step alone, before optimizer state is there: record two steps or more")
    own = str(replayed.timeline.basis)
    if basis in (own, "requested") and own in ("requested", "payload"):
        told = own
        peak = replayed.peak.size if replayed.peak.upper is None else replayed.peak.upper
    elif basis == "reserved" and replayed.reserved is not None:
        told, peak = basis, replayed.reserved.peak_size
    elif basis == "allocated" and replayed.recorded.final is not None:
        told, peak = basis, int(open_loop(trace, replayed.device).levels.allocated.max())
    elif basis == own:
        told, peak = own, replayed.peak.size
    else:
        raise InputError(f"{named}tells {own} bytes and not {basis} ones: choose that basis, or record a snapshot")
    return Probe(batch, peak, seq, told, trace.evidence, source=source)
