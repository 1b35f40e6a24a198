"""Answers about lines: one with its replications, and several side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import atan, cos, sin, sqrt
from os import PathLike
from statistics import NormalDist

from lifecycle_sim.display import Shown
from lifecycle_sim.program.scenario import scenario_text
from lifecycle_sim.study.executor import Executor, run_jobs
from lifecycle_sim.study.pipeline.line import Line
from lifecycle_sim.study.pipeline.line_edits import Edit, read_edits
from lifecycle_sim.study.pipeline.line_engine import run_line
from lifecycle_sim.study.pipeline.line_figures import LineFigures, measure_line
from lifecycle_sim.study.pipeline.line_file import line_of

CONFIDENCE = 0.95
MANY = 200
"""Degrees of freedom from which the normal distribution, corrected, is as good as Student's."""


@dataclass(frozen=True)
class Estimate:
    """A figure over replications: their mean, and how far the true mean may be from it.

    Attributes:
        mean: over the replications.
        half: half the width of the 95 % confidence interval, by Student's t; None with one replication.
        least: the smallest.
        most: the largest.
    """

    mean: float
    half: float | None
    least: float
    most: float


@dataclass(frozen=True)
class LineAnswer(Shown):
    """What came of a line.

    Attributes:
        line: what was run.
        name: what was changed, ``"as written"`` if nothing.
        first: the first replication in figures.
        estimates: each figure over all replications; empty with one.
        deadlocks: how many replications deadlocked.
        unfit: how many overflowed a capacity that is compared with, or deadlocked.
    """

    line: Line
    name: str
    first: LineFigures
    estimates: Mapping[str, Estimate]
    deadlocks: int
    unfit: int

    @property
    def fits(self) -> bool | None:
        """Whether every replication stays within the capacities and gets to its end; None if no capacity is there to say."""
        return False if self.unfit else self.first.fits

    def __repr__(self) -> str:
        return f"LineAnswer({self.name!r}, {self.line.replications:,} runs, {self.first!r})"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows: the first run, and what all of them say."""
        rows = [(name, f"{each.mean:,.6g} ± {each.half or 0:,.3g}") for name, each in self.estimates.items()]
        return [("line", self.name), *self.first.facts(), *rows]


def answer_line(line: Line, name: str = "as written", workers: int | None = 1, executor: Executor | None = None) -> LineAnswer:
    """Run *line*, as often as it wants to be, and return what came of it.

    Args:
        line: the line.
        name: what to call it.
        workers: over how many processes the replications are spread; None for as many as are worth it. The answer is the same.
        executor: what to spread them with instead.
    """
    return answer_lines([(name, line)], workers, executor)[0]


def answer_lines(named: Sequence[tuple[str, Line]], workers: int | None = 1, executor: Executor | None = None) -> list[LineAnswer]:
    """Run several lines, as :func:`answer_line` does one; all their replications are spread together."""
    jobs = [(line, number) for _, line in named for number in range(1, line.replications)]
    work = sum(line.visits for line, _ in jobs)
    told = iter(run_jobs(_replicate, jobs, work, workers, executor))
    answers = []
    for name, line in named:
        first = measure_line(run_line(line))
        rest = [next(told) for _ in range(1, line.replications)]
        answers.append(_answer(line, name, first, rest))
    return answers


_Told = tuple[dict[str, float], bool, bool]
"""What a replication hands back: its key figures, whether it deadlocked, and whether it does not fit."""


def _replicate(job: tuple[Line, int]) -> _Told:
    return _told(measure_line(run_line(*job)))


def _told(figures: LineFigures) -> _Told:
    return key_figures(figures), figures.deadlock is not None, figures.fits is False


def _answer(line: Line, name: str, first: LineFigures, rest: Sequence[_Told]) -> LineAnswer:
    runs = [_told(first), *rest]
    estimates = {key: estimate([row[key] for row, _, _ in runs]) for key in runs[0][0]} if rest else {}
    return LineAnswer(line, name, first, estimates, sum(stuck for _, stuck, _ in runs), sum(unfit for _, _, unfit in runs))


def key_figures(figures: LineFigures) -> dict[str, float]:
    """Return the figures that are compared over replications."""
    return {
        "peak": float(figures.total.peak),
        "average": float(figures.total.average),
        "total_work": float(figures.total.area),
        "makespan": float(figures.run.end),
        "throughput": float(figures.throughput),
        "items_in_line": float(figures.items.average),
        "residence": float(figures.residence.mean),
        "lost": float(figures.lost),
        "bubble": float(figures.bubble),
        "above_capacity": float(figures.total.above),
        **{f"utilisation {stage.name}": float(stage.utilisation) for stage in figures.stages},
    }


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of *values*, one a replication, with its confidence interval."""
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return Estimate(mean, None, min(values), max(values))
    spread = sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    return Estimate(mean, student(count - 1, CONFIDENCE) * spread / sqrt(count), min(values), max(values))


def student(freedom: int, confidence: float) -> float:
    """Return how many standard errors a two-sided interval of *confidence* reaches, by Student's t with *freedom* degrees of freedom.

    The distribution is summed exactly (Abramowitz and Stegun, 26.7.3 and 26.7.4) and inverted by halving; from 200 degrees on the normal
    quantile is corrected by the first three terms of their 26.7.5.
    """
    if freedom >= MANY:
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
        return float(z + sum(term / freedom**power for power, term in enumerate(terms, start=1)))
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """How likely a value between -t and t is."""
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    total = term if freedom > 1 or not odd else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cos(angle) ** 2 * (k - 1) / k
        total += term
    return 2 / 3.141592653589793 * (angle + sin(angle) * total) if odd else sin(angle) * total


def what_if_line(
    scenario: str | PathLike[str],
    edits: Iterable[str | tuple[Edit, ...]] = (),
    parameters: Mapping[str, int] | None = None,
    workers: int | None = 1,
    executor: Executor | None = None,
) -> list[LineAnswer]:
    """Run the line that *scenario* describes, and again with each of *edits* made; the first answer is that of the line as written.

    What is drawn for a stage and a kind of item is the same in all of them, so what differs is what the edit does.

    Args:
        scenario: as :func:`~lifecycle_sim.study.pipeline.line_file.load_line` takes it.
        edits: each such as ``"press.machines=2"``, or several that belong together with commas between them.
        parameters: values that replace those of the scenario.
        workers: as in :func:`answer_line`.
        executor: likewise.

    Raises:
        InputError: an edit is none.
        ScenarioError: the scenario has problems, or has them with an edit made.
    """
    text, source = scenario_text(scenario)
    named = [("as written", line_of(text, source, parameters or {}))]
    for each in edits:
        made = read_edits(each) if isinstance(each, str) else each
        named.append((", ".join(map(str, made)), line_of(text, source, parameters or {}, made)))
    return answer_lines(named, workers, executor)


def undetermined(answers: Sequence[LineAnswer]) -> list[str]:
    """Return what *answers* show by example: which of total work, average and peak does not determine another.

    Each sentence names two lines of *answers* that have one figure in common and differ in the other.
    """
    figures: dict[str, list[int | Fraction]] = {
        "total work": [each.first.total.area for each in answers],
        "average": [each.first.total.average for each in answers],
        "peak": [each.first.total.peak for each in answers],
    }
    found = []
    for same, first in figures.items():
        for other, second in figures.items():
            pairs = ((a, b) for b in range(len(answers)) for a in range(b))
            pair = next(((a, b) for a, b in pairs if first[a] == first[b] and second[a] != second[b]), None)
            if same != other and pair is not None:
                found.append(f"{answers[pair[0]].name!r} and {answers[pair[1]].name!r} have the same {same} and not the same {other}")
    return found
