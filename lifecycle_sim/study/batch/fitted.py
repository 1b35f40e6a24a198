"""Fits a model to probes: for each sequence length, or in tokens, a maximum of phases that are lines in the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Evidence
from lifecycle_sim.study.batch.curve import Curve, Line, Shape, curve, falls
from lifecycle_sim.study.batch.probes import ROUNDED, Probe, check_probes
from lifecycle_sim.units import format_bytes, format_exact

IN_TOKENS, BY_SEQUENCE = "tokens", "sequence"
UNNAMED = "all"
"""What the one curve is called where peaks are not told by phase."""


@dataclass(frozen=True)
class Segment:
    """The model of one sequence length, or of all of them in tokens.

    Attributes:
        seq: tokens of a sequence; None where there are none, or the count is of tokens.
        probes: the probes, by rising count.
        whole: the curve of the peaks.
        curves: the curve of each phase by its name; one alone where peaks are not told by phase.
        unit: what is counted: ``"batch"`` or ``"tokens"``.
    """

    seq: int | None
    probes: tuple[Probe, ...]
    whole: Curve
    curves: Mapping[str, Curve]
    unit: str = "batch"

    @property
    def shape(self) -> Shape:
        """How peaks go."""
        return self.whole.shape

    @property
    def verified(self) -> bool:
        """Whether there are probes enough to say yes: three at least."""
        return self.shape is not Shape.UNVERIFIED

    @property
    def lines(self) -> tuple[tuple[str, Line], ...]:
        """The phases: a name and a line each; bytes are those of the highest."""
        return tuple((name, line) for name, each in self.curves.items() for line in each.lines)

    @property
    def margin(self) -> int:
        """The most bytes that the bound is above the estimate in the calibrated range."""
        counts = {count for count, _ in self.whole.points} | {count + 1 for count, _ in self.whole.points[:-1]}
        most = max(self.upper(count) - self.estimate(count) for count in counts)
        return max(most, self.whole.margin) if len(self.curves) == 1 else most

    def estimate(self, count: int) -> int:
        """Return the estimated bytes at *count*, rounded up: exact where the step goes through the phases as the probes did."""
        return max(each.estimate(count) for each in self.curves.values())

    def upper(self, count: int) -> int:
        """Return a bound of the bytes at *count*, up to the largest that was probed."""
        return max(each.upper(count) for each in self.curves.values())

    def beyond(self, count: int) -> int:
        """Return a bound above the largest count that was probed, see :meth:`Curve.beyond`."""
        return max(each.beyond(count) for each in self.curves.values())

    def probed(self, count: int) -> int:
        """Return the highest peak that was seen at *count*, which was probed."""
        return dict(self.whole.points)[count]

    def phase(self, count: int) -> str | None:
        """Return the name of the phase that is highest at *count*; None where peaks are not told by phase."""
        highest = max(self.curves, key=lambda name: self.curves[name].estimate(count))
        return None if highest == UNNAMED else highest


@dataclass(frozen=True)
class Fitted(Shown):
    """A model of peaks over batches and sequence lengths, fitted to probes.

    Attributes:
        segments: one for each sequence length that was probed, rising; or one alone.
        basis: what its bytes count.
        evidence: whether the probes were measured or simulated; the model's own figures are fitted.
        by: ``"sequence"``: a model for each length; ``"tokens"``: only batch × length matters.
    """

    segments: tuple[Segment, ...]
    basis: str
    evidence: Evidence
    by: str = BY_SEQUENCE

    def __repr__(self) -> str:
        shapes = ", ".join(dict.fromkeys(str(segment.shape) for segment in self.segments))
        return f"Fitted({self.basis}, by {self.by}, {len(self.segments)} segments, {shapes})"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        told = [("basis", f"{self.basis} bytes, fitted to {self.evidence} peaks"), ("by", self.by)]
        for segment in self.segments:
            name = "all lengths" if segment.seq is None else f"{segment.seq:,} tokens"
            told.append((name, f"{segment.shape}, batches {segment.whole.first:,} to {segment.whole.last:,}"))
            told += [(phase, f"{format_exact(line.fixed)} + {format_exact(line.per_unit)} a sample") for phase, line in segment.lines]
        return told

    @property
    def probes(self) -> tuple[Probe, ...]:
        """All probes."""
        return tuple(probe for segment in self.segments for probe in segment.probes)

    def segment(self, seq: int | None = None) -> tuple[Segment, int]:
        """Return the segment that bounds sequences of *seq* tokens, and how many units of it a sample is.

        Longer sequences do not need less: between two calibrated lengths it is the segment of the longer one.

        Raises:
            InputError: no length that was probed is long enough, or *seq* is missing.
        """
        if self.segments[0].seq is None and self.by == BY_SEQUENCE:
            return self.segments[0], 1
        if seq is None:
            if self.by == BY_SEQUENCE and len(self.segments) == 1:
                return self.segments[0], 1
            raise InputError("the probes are of several sequence lengths: say which one is asked about")
        if self.by == IN_TOKENS:
            return self.segments[0], seq
        for segment in self.segments:
            if segment.seq is not None and segment.seq >= seq:
                return segment, 1
        raise InputError(
            f"sequences of {seq:,} tokens are longer than the longest that was probed, {self.segments[-1].seq:,}: measure with them"
        )

    def upper(self, batch: int, seq: int | None = None, widen: int | Fraction = 1) -> int:
        """Return a bound of the bytes at *batch*.

        Args:
            batch: samples, 0 or more.
            seq: tokens of a sequence.
            widen: how many times the largest batch that was probed *batch* may be. Beyond that batch the bound grows in proportion.

        Raises:
            InputError: the batch is outside of the calibrated range, widened, or only two probes are there.
        """
        segment, units = self.segment(seq)
        count, reach = batch * units, segment.whole.last
        if not segment.verified:
            raise InputError(f"{_named(segment)}two probes give a line that nothing could contradict: probe a third batch to have a bound")
        if count > reach * Fraction(widen):
            times = "" if widen == 1 else f"{float(widen):g} times "
            raise InputError(
                f"{_named(segment)}batch {batch:,} is beyond {times}the largest that was probed, {reach // units:,}: "
                "measure again nearer to it, or widen the range"
            )
        if count <= reach:
            return segment.upper(count)
        if any(line.fixed < 0 for _, line in segment.lines):
            raise InputError(
                f"{_named(segment)}the peaks grow faster than the batch, so that nothing bounds them beyond {reach:,}: measure there"
            )
        return segment.beyond(count)

    def estimate(self, batch: int, seq: int | None = None) -> int:
        """Return the bytes that are to be expected at *batch*: an estimate, not a bound, beyond the calibrated range."""
        segment, units = self.segment(seq)
        return segment.estimate(batch * units)

    def excludes(self, batch: int, budget: int, seq: int | None = None) -> bool:
        """Return whether *batch* is predicted not to fit into *budget*: all that two probes can tell.

        Beyond the probes the last line is drawn out. A maximum of phases is never below it.
        """
        return self.estimate(batch, seq) > budget


def fit(probes: Iterable[Probe], by: str = "auto") -> Fitted:
    """Fit a model to *probes*: for each sequence length, or in tokens, the maximum of phases that are lines in the batch.

    No probe is left out, whatever it says; the model's bound is nowhere below one.

    Args:
        probes: at least two batches for each sequence length; three to get more than a lower estimate.
        by: ``"sequence"``, ``"tokens"``, or ``"auto"``: in tokens where the probes of all lengths lie on one line in tokens.

    Raises:
        InputError: the probes cannot be fitted; each reason is told. Peaks that fall while the batch grows, and peaks that do not grow,
            decide nothing.
    """
    given = sorted(probes, key=lambda probe: (probe.seq or 0, probe.batch, probe.peak))
    check_probes(given)
    if not given:
        raise InputError("there are no probes: give the peaks of three batches or more")
    if by not in ("auto", BY_SEQUENCE, IN_TOKENS):
        raise InputError(f"by is {by!r}: choose auto, {BY_SEQUENCE} or {IN_TOKENS}")
    exact = given[0].evidence is Evidence.SIMULATED and given[0].basis not in ROUNDED
    if by == IN_TOKENS or (by == "auto" and _only_tokens_matter(given, exact)):
        if given[0].seq is None:
            raise InputError("the probes do not tell the length of their sequences, so that tokens cannot be counted: add it")
        segments = [_segment(None, given, exact, lambda probe: probe.tokens or 0, IN_TOKENS)]
        by = IN_TOKENS
    else:
        lengths = dict.fromkeys(probe.seq for probe in given)
        segments = [_segment(seq, [probe for probe in given if probe.seq == seq], exact) for seq in lengths]
        by = BY_SEQUENCE
    problems = [problem for segment in segments if not isinstance(segment, Segment) for problem in segment]
    made = [segment for segment in segments if isinstance(segment, Segment)]
    problems += [] if problems else _shorter_needs_more(made)
    if problems:
        raise InputError(problems)
    return Fitted(tuple(made), given[0].basis, given[0].evidence, by)


def _segment(
    seq: int | None, probes: Sequence[Probe], exact: bool, count: Callable[[Probe], int] = lambda probe: probe.batch, unit: str = "batch"
) -> Segment | list[str]:
    """The segment of *probes*, or why there is none."""
    named = "" if seq is None else f"at {seq:,} tokens: "
    ordered = sorted(probes, key=lambda probe: (count(probe), probe.peak))
    if len({count(probe) for probe in ordered}) < 2:
        return [f"{named}all probes are of {unit} {count(ordered[0]):,}: two are needed to say no, and three to say yes"]
    jump = 0 if ordered[0].basis not in ROUNDED else 1 if unit == "batch" else max(probe.seq or 1 for probe in ordered)
    whole = curve(((count(probe), probe.peak) for probe in ordered), exact, jump)
    if whole.shape is Shape.NON_MONOTONE:
        pairs = falls(whole.points)
        (low, before), (high, after) = max(pairs, key=lambda pair: pair[0][1] - pair[1][1])
        more = f" (and {len(pairs) - 1} times more)" if len(pairs) > 1 else ""
        return [
            f"{named}the peaks are non-monotone: from {unit} {low:,} to {high:,} they fall from {format_exact(before)} to "
            f"{format_exact(after)}{more}. Something other than the batch decides them, and no batch "
            "can be told from them: fit allocated or requested bytes, each probe in a process of its own, in steps after the first"
        ]
    if whole.shape is Shape.FLAT:
        return [
            f"{named}the peaks are flat: they do not grow from {unit} {whole.first:,} to {whole.last:,} "
            f"({format_exact(whole.points[-1][1])}), so that what limits the batch was not met: probe larger batches"
        ]
    return Segment(seq, tuple(ordered), whole, curves_by_phase(ordered, exact, count, jump) or {UNNAMED: whole}, unit)


def curves_by_phase(probes: Sequence[Probe], exact: bool, count: Callable[[Probe], int], jump: int) -> dict[str, Curve]:
    """Return a curve for each phase, if all probes tell the peaks of the same phases and none of them falls; else none."""
    names = list(probes[0].phases)
    if not names or any(set(probe.phases) != set(names) or max(probe.phases.values()) != probe.peak for probe in probes):
        return {}
    curves = {name: curve(((count(probe), probe.phases[name]) for probe in probes), exact, jump) for name in names}
    return {} if any(each.shape is Shape.NON_MONOTONE for each in curves.values()) else curves


def _only_tokens_matter(probes: Sequence[Probe], exact: bool) -> bool:
    """Whether the probes of several lengths, whose ranges of tokens overlap, lie on one line in tokens."""
    lengths = {probe.seq for probe in probes}
    if len(lengths) < 2 or None in lengths:
        return False
    tokens = {seq: [probe.tokens or 0 for probe in probes if probe.seq == seq] for seq in lengths}
    spans = sorted((min(each), max(each)) for each in tokens.values())
    if any(after[0] > before[1] for before, after in pairwise(spans)) or len({t for each in tokens.values() for t in each}) < 3:
        return False
    lowest = {count: min(p.peak for p in probes if p.tokens == count) for count in {p.tokens or 0 for p in probes}}
    whole = curve(((probe.tokens or 0, probe.peak) for probe in probes), exact)
    growth = whole.points[-1][1] - whole.points[0][1]
    spread = max(peak - lowest[count] for count, peak in whole.points)
    return whole.shape in (Shape.AFFINE, Shape.CONVEX) and 100 * max(spread, whole.raised) <= growth


def _shorter_needs_more(segments: Sequence[Segment]) -> list[str]:
    """Say which lengths need less than shorter ones at the same batch: then a longer one bounds nothing."""
    problems = []
    for short, long in pairwise(segments):
        peaks = dict(long.whole.points)
        for count, peak in short.whole.points:
            if peaks.get(count, peak) < peak:
                problems.append(
                    f"batch {count:,} needs less with {long.seq:,} tokens ({format_bytes(peaks[count])}) than with {short.seq:,} "
                    f"({format_bytes(peak)}): the lengths cannot be fitted together"
                )
                break
    return problems


def _named(segment: Segment) -> str:
    return "" if segment.seq is None else f"at {segment.seq:,} tokens: "
