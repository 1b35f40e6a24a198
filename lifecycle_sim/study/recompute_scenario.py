"""What a scenario's operator program costs and peaks at with ranges of it recomputed, beside what it does as it stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lifecycle_sim.display import Shown
from lifecycle_sim.events import Trace
from lifecycle_sim.program.engine import run
from lifecycle_sim.program.graph import Program
from lifecycle_sim.program.recompute import AGAIN, RecomputedRange, ranges_of, recomputed
from lifecycle_sim.replay import replay_device
from lifecycle_sim.units import format_exact


@dataclass(frozen=True)
class ProgramCost:
    """What a run of a program comes to.

    Attributes:
        peak: bytes of payload.
        operators: how many run in a step.
        busy: their durations together, in the program's clock.
        makespan: from the first to the last.
    """

    peak: int
    operators: int
    busy: int
    makespan: int


@dataclass(frozen=True)
class RecomputedProgram(Shown):
    """A program as it stands, and with ranges recomputed.

    Attributes:
        program: the program with the ranges recomputed.
        ranges: the names of the operators of each range, of those that run again, of the operator before which they do, of what is saved.
        base, edited: what each comes to.
        trace: what happens in the edited one.
    """

    program: Program
    ranges: tuple[tuple[tuple[str, ...], tuple[str, ...], str, tuple[str, ...]], ...]
    base: ProgramCost
    edited: ProgramCost
    trace: Trace

    def __repr__(self) -> str:
        return f"RecomputedProgram({len(self.ranges)} ranges, peak {self.base.peak:,} B → {self.edited.peak:,} B payload)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        return [
            ("peak", f"{format_exact(self.base.peak)} → {format_exact(self.edited.peak)} payload"),
            ("operators", f"{self.base.operators:,} → {self.edited.operators:,}"),
            ("runs for", f"{self.base.makespan:,} → {self.edited.makespan:,} {self.trace.clock}"),
        ]


def what_if_program(program: Program, ranges: Iterable[str]) -> RecomputedProgram:
    """Return *program* as it stands and with *ranges* recomputed; see :func:`~lifecycle_sim.program.recompute.recomputed`.

    Raises:
        InputError: a range chooses nothing, or cannot be computed again.
    """
    texts = tuple(ranges)
    found = ranges_of(program, texts)
    edited = recomputed(program, texts)
    traces = [run(each) for each in (program, edited)]
    costs = [_cost(each, trace) for each, trace in zip((program, edited), traces, strict=True)]
    return RecomputedProgram(edited, tuple(_named(program, each) for each in found), costs[0], costs[1], traces[1])


def _named(program: Program, found: RecomputedRange) -> tuple[tuple[str, ...], tuple[str, ...], str, tuple[str, ...]]:
    names = [operator.name for operator in program.operators]
    return (
        tuple(names[place] for place in found.operators),
        tuple(names[place] + AGAIN for place in found.again),
        names[found.before],
        found.saved,
    )


def _cost(program: Program, trace: Trace) -> ProgramCost:
    busy = sum(operator.duration for operator in program.operators)
    return ProgramCost(replay_device(trace).peak.size, len(program.operators), busy, int(trace.settings["makespan"]))
