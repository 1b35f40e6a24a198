"""Fits L(N, D) = E + A/N^α + B/D^β to runs of one's own, with intervals, and says how far it may be trusted.

For each α and β the other three constants follow from linear least squares on relative errors, none below 0; α and β are found on grids
that close in. Intervals come from refits (bootstrap): to the law's own losses, relative residuals drawn anew are added, widened for the
constants that were fitted. The check that decides is made at an intermediate scale: the runs with the most work are held out and predicted
from the smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.allocation import Law
from lifecycle_sim.study.budget.widths import count, positive

Floats = NDArray[np.float64]

LEAST_RUNS = 6
"""Five constants are fitted; with fewer runs than this nothing is left to judge them by."""
LEAST_SIZES = 3
"""Different N, and different D, without which a curve in them is not determined."""
REACH = 10.0
"""How many times the fitted range of N, D or work a prediction may go beyond it."""
LEVEL = 0.95
"""The share that an interval covers."""
CHECK_LEVEL = 1.0
"""The share of the draws that an interval of the intermediate-scale check covers: all, as several runs are held to it at once."""
DRAWS = 200
MOST_DRAWS = 10_000
SMALLEST, LARGEST = 1e-6, 1e6
SEED = 0

_GRID = 13
_ROUNDS = 7
_EXPONENTS = (0.02, 1.5)


@dataclass(frozen=True)
class Run:
    """A run that was made: N, D, and the loss it reached."""

    parameters: int
    tokens: int
    loss: float

    @property
    def work(self) -> int:
        """6ND."""
        return 6 * self.parameters * self.tokens


@dataclass(frozen=True)
class Interval:
    """A value and the interval around it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ScaleCheck:
    """The intermediate-scale check.

    Attributes:
        fitted: how many smaller runs the law was fitted to.
        most_fitted: the most work of these.
        held: the larger runs, each with its prediction.
        worst: the largest relative error of a prediction.
        passed: whether every held-out loss lies in its interval.
    """

    fitted: int
    most_fitted: int
    held: tuple[tuple[Run, Interval], ...]
    worst: float
    passed: bool


@dataclass(frozen=True)
class Forecast:
    """What the fit says of an N and D.

    Attributes:
        parameters, tokens: N and D.
        interval: the loss, or None if it is refused.
        beyond: how many times beyond the fitted range it lies, 1 inside.
        text: "inside the fitted range", the warning, or why it is refused.
    """

    parameters: int
    tokens: int
    interval: Interval | None
    beyond: float
    text: str


@dataclass(frozen=True)
class Fit(Shown):
    """A law fitted to runs.

    Attributes:
        law: the constants.
        intervals: of ``E``, ``A``, ``B``, ``alpha``, ``beta``.
        runs: what it was fitted to.
        residual: the largest relative residual.
        check: the intermediate-scale check; None if there are too few runs to hold any out.
        drawn: the laws of the runs drawn anew.
        residuals: the relative residuals, widened for the constants fitted.
    """

    law: Law
    intervals: dict[str, Interval]
    runs: tuple[Run, ...]
    residual: float
    check: ScaleCheck | None
    drawn: tuple[Law, ...]
    residuals: tuple[float, ...]

    def range_of(self, what: str) -> tuple[int, int]:
        """Return the least and the most ``parameters``, ``tokens`` or ``work`` of the runs."""
        values = [getattr(run, what) for run in self.runs]
        return min(values), max(values)

    def interval(self, parameters: int, tokens: int, level: float = LEVEL) -> Interval:
        """Return the loss predicted for a run of N and D, wherever it lies, with the interval for a share of *level* of such runs."""
        return _interval(self.law, self.drawn, self.residuals, parameters, tokens, level)

    def forecast(self, parameters: int, tokens: int) -> Forecast:
        """Return the loss predicted for N and D, with a warning outside of the fitted range, or refuse it."""
        run = Run(count("parameters", parameters, 1), count("tokens", tokens, 1), 1.0)
        beyond = 1.0
        for what in ("parameters", "tokens", "work"):
            low, high = self.range_of(what)
            beyond = max(beyond, getattr(run, what) / high, low / getattr(run, what))
        if beyond == 1.0:
            return Forecast(parameters, tokens, self.interval(parameters, tokens), beyond, "inside the fitted range")
        reason = None
        if self.check is None:
            reason = "there are too few runs for an intermediate-scale check"
        elif not self.check.passed:
            reason = f"the intermediate-scale check failed by up to {100 * self.check.worst:.2f} %"
        elif beyond > REACH:
            reason = f"more than {REACH:g} times is too far for any interval to mean much"
        if reason is not None:
            return Forecast(parameters, tokens, None, beyond, f"refused: {beyond:.3g} times beyond the fitted range, and {reason}")
        text = f"extrapolated: {beyond:.3g} times beyond the fitted range; the interval holds only if the law goes on"
        return Forecast(parameters, tokens, self.interval(parameters, tokens), beyond, text)

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        rows = [(name, f"{each.value:.4g} ({each.low:.4g} to {each.high:.4g})") for name, each in self.intervals.items()]
        check = "not possible" if self.check is None else "passed" if self.check.passed else "failed"
        return [("runs", f"{len(self.runs):,}"), *rows, ("intermediate-scale check", check)]


def fit_law(runs: Iterable[Run], *, draws: int = DRAWS, seed: int = SEED) -> Fit:
    """Fit a law to *runs*.

    Args:
        runs: 6 at least, with 3 different N and 3 different D.
        draws: how many times runs are drawn anew for the intervals.
        seed: of the drawing; the same seed gives the same intervals.

    Raises:
        InputError: there are too few runs, or too few sizes, to determine the law.
    """
    chosen = _checked(runs)
    if count("draws", draws, 20) > MOST_DRAWS:
        raise InputError(f"{draws:,} draws: {MOST_DRAWS:,} at most")
    law, drawn, residuals = _fitted(chosen, draws, seed)
    values = {name: [getattr(each, key) for each in drawn] for name, key in _CONSTANTS.items()}
    edges = (100 * (1 - LEVEL) / 2, 100 * (1 + LEVEL) / 2)
    intervals = {name: Interval(getattr(law, key), *map(float, np.percentile(values[name], edges))) for name, key in _CONSTANTS.items()}
    worst = max(abs(law.loss(run.parameters, run.tokens) / run.loss - 1) for run in chosen)
    return Fit(law, intervals, chosen, worst, _scale_check(chosen, draws, seed), drawn, residuals)


_CONSTANTS = {"E": "e", "A": "a", "B": "b", "alpha": "alpha", "beta": "beta"}


def _checked(runs: Iterable[Run]) -> tuple[Run, ...]:
    chosen = tuple(runs)
    for number, run in enumerate(chosen, start=1):
        count(f"parameters of run {number}", run.parameters, 1)
        count(f"tokens of run {number}", run.tokens, 1)
        if not SMALLEST <= positive(f"loss of run {number}", run.loss) <= LARGEST:
            raise InputError(
                f"loss of run {number} is {run.loss:g}: give it in nats a token, or in another unit between {SMALLEST:g} and {LARGEST:g}"
            )
    problems = _too_few(chosen)
    if problems:
        raise InputError(problems)
    return chosen


def _too_few(runs: Sequence[Run]) -> str | None:
    if len(runs) < LEAST_RUNS:
        return f"{len(runs):,} runs: a law of five constants needs {LEAST_RUNS} at least"
    for what in ("parameters", "tokens"):
        different = len({getattr(run, what) for run in runs})
        if different < LEAST_SIZES:
            return f"{different:,} different {what} among {len(runs):,} runs: {LEAST_SIZES} at least determine the curve"
    return None


def _fitted(runs: Sequence[Run], draws: int, seed: int) -> tuple[Law, tuple[Law, ...], tuple[float, ...]]:
    law = _solve(runs)
    told = [law.loss(run.parameters, run.tokens) for run in runs]
    widened = (len(runs) / max(1, len(runs) - 5)) ** 0.5
    residuals = np.array([widened * (run.loss / each - 1) for run, each in zip(runs, told, strict=True)])
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(draws):
        errors = residuals[generator.integers(len(runs), size=len(runs))]
        drawn.append(
            _solve([Run(run.parameters, run.tokens, each * (1 + error)) for run, each, error in zip(runs, told, errors, strict=True)])
        )
    return law, tuple(drawn), tuple(map(float, residuals))


def _interval(law: Law, drawn: Sequence[Law], residuals: Sequence[float], parameters: int, tokens: int, level: float) -> Interval:
    curves = np.array([each.loss(parameters, tokens) for each in drawn])
    spread = (curves[:, None] * (1 + np.array(residuals)[None, :])).ravel()
    low, high = np.percentile(spread, (50 * (1 - level), 50 * (1 + level)))
    value = law.loss(parameters, tokens)
    return Interval(value, min(float(low), value), max(float(high), value))


def _scale_check(runs: Sequence[Run], draws: int, seed: int) -> ScaleCheck | None:
    """Hold out the third of the runs with the most work, or as many of these as leave enough, and predict them from the rest."""
    by_work = sorted(runs, key=lambda run: run.work)
    for held in range(len(runs) // 3, 0, -1):
        small, large = by_work[:-held], by_work[-held:]
        if small[-1].work < large[0].work and _too_few(small) is None:
            law, drawn, residuals = _fitted(small, draws, seed)
            told = tuple((run, _interval(law, drawn, residuals, run.parameters, run.tokens, CHECK_LEVEL)) for run in large)
            worst = max(abs(each.value / run.loss - 1) for run, each in told)
            return ScaleCheck(len(small), small[-1].work, told, worst, all(each.low <= run.loss <= each.high for run, each in told))
    return None


def _solve(runs: Sequence[Run]) -> Law:
    """The law with the least sum of squared relative errors."""
    losses = np.array([run.loss for run in runs])
    sizes = np.log(np.array([float(run.parameters) for run in runs]))
    tokens = np.log(np.array([float(run.tokens) for run in runs]))
    middle = sizes.mean(), tokens.mean()
    ranges = [_EXPONENTS, _EXPONENTS]
    best: tuple[float, Floats, float, float] = (np.inf, np.zeros(3), 0.0, 0.0)
    for _ in range(_ROUNDS):
        alphas, betas = (np.linspace(low, high, _GRID) for low, high in ranges)
        pairs = np.stack(np.meshgrid(alphas, betas, indexing="ij"), axis=-1).reshape(-1, 2)
        columns = np.stack(
            [
                np.ones((len(pairs), len(runs))),
                np.exp(-pairs[:, :1] * (sizes - middle[0])),
                np.exp(-pairs[:, 1:] * (tokens - middle[1])),
            ],
            axis=-1,
        )
        costs, constants = _linear(columns / losses[None, :, None])
        index = int(np.argmin(costs))
        if costs[index] <= best[0]:
            best = float(costs[index]), constants[index], float(pairs[index, 0]), float(pairs[index, 1])
        ranges = [_around(value, low, high) for value, (low, high) in zip(best[2:], ranges, strict=True)]
    _, (e, a, b), alpha, beta = best
    return Law("fitted to your runs", float(e), float(a * np.exp(alpha * middle[0])), float(b * np.exp(beta * middle[1])), alpha, beta)


def _around(value: float, low: float, high: float) -> tuple[float, float]:
    step = 1.5 * (high - low) / (_GRID - 1)
    return max(_EXPONENTS[0], value - step), min(_EXPONENTS[1], value + step)


def _linear(columns: Floats) -> tuple[Floats, Floats]:
    """For each design of *columns*, shape (designs, runs, 3), the least squares to ones with no constant below 0: costs and constants."""
    products = np.matmul(columns.transpose(0, 2, 1), columns)
    sums = columns.sum(axis=1)
    costs = np.full(len(columns), np.inf)
    constants = np.zeros((len(columns), 3))
    left = np.arange(len(columns))
    for size in (3, 2, 1):  # where all three are 0 or more, that is the least; elsewhere one or two of them are 0
        for chosen in combinations(range(3), size):
            part = products[left][:, chosen][:, :, chosen]
            ridge = 1e-13 * np.trace(part, axis1=1, axis2=2)[:, None, None] * np.eye(size)
            wanted = sums[left][:, chosen]
            found = np.linalg.solve(part + ridge, wanted[:, :, None])[:, :, 0]
            cost = columns.shape[1] - (found * wanted).sum(axis=1)
            better = (found >= 0).all(axis=1) & (cost < costs[left])
            where = left[better]
            costs[where] = cost[better]
            constants[where] = 0.0
            constants[np.ix_(where, chosen)] = found[better]
        if size == 3:
            left = np.flatnonzero(np.isinf(costs))
        if not len(left):
            break
    return costs, constants
