"""Compute-optimal sizes by the three approaches of arXiv:2203.15556, with their constants and where they hold.

Approaches 1 and 2 are power laws N ∝ C^a; the paper prints the exponents and, in tables 3 and A3, points on them; here each goes through
the row of one billion parameters. Approach 3 is L(N, D) = E + A/N^α + B/D^β, minimised under C = 6ND. The sizes in table A3 do not follow
from the constants printed for it (400M at 2.21e19 comes out as 326M), so neither tests the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.widths import count, one_of, positive


@dataclass(frozen=True)
class Law:
    """L(N, D) = E + A/N^α + B/D^β, the loss in nats a token.

    Attributes:
        name: who fitted it.
        e, a, b, alpha, beta: the constants.
        work: the range of 6ND of the runs it was fitted on; None if not known.
    """

    name: str
    e: float
    a: float
    b: float
    alpha: float
    beta: float
    work: tuple[float, float] | None = None

    def loss(self, parameters: float, tokens: float) -> float:
        """Return the loss that is predicted for N and D."""
        return float(self.e + self.a / positive("parameters", parameters) ** self.alpha + self.b / positive("tokens", tokens) ** self.beta)

    def best(self, work: float) -> tuple[float, float]:
        """Return the N and D of the least loss under 6ND = *work*."""
        scale = (self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta))
        product = positive("work", work) / 6
        parameters = scale * product ** (self.beta / (self.alpha + self.beta))
        return parameters, product / parameters

    def tokens_for(self, parameters: float, loss: float) -> float | None:
        """Return the D at which N reaches *loss*; None if no number of tokens does."""
        left = loss - self.e - self.a / positive("parameters", parameters) ** self.alpha
        return (self.b / left) ** (1 / self.beta) if left > 0 else None


FITTED_WORK = (6e18, 3e21)
"""The least and the most work of the runs that arXiv:2203.15556 fitted (70M to 16B parameters, 5 to 500 billion tokens)."""

LAWS = {
    "chinchilla": Law("approach 3 as printed (arXiv:2203.15556, D.2)", 1.69, 406.4, 410.7, 0.34, 0.28, FITTED_WORK),
    "besiroglu": Law("approach 3 refitted (arXiv:2404.10102)", 1.8172, 482.01, 2085.43, 0.3478, 0.3658, FITTED_WORK),
}
"""The laws that are known by name."""

POWERS = {"1": (0.50, 1.21e20), "2": (0.49, 1.20e20)}
"""Of approaches 1 and 2: the exponent a of N ∝ C^a (table 2), and the work for which the paper prints N = 10^9 (tables 3 and A3)."""


@dataclass(frozen=True)
class Allocation(Shown):
    """What an approach takes for the best use of a budget.

    Attributes:
        approach: ``"1"``, ``"2"``, or the name of a law.
        work: the budget in operations, 6ND.
        parameters, tokens: N and D, rounded to whole numbers.
        loss: predicted, if the approach predicts one.
        constants: in words.
        extrapolated: whether the budget lies outside of the runs that the approach was fitted on.
        fitted: their range of work; None if it is not known.
    """

    approach: str
    work: int
    parameters: int
    tokens: int
    loss: float | None
    constants: str
    extrapolated: bool
    fitted: tuple[float, float] | None

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        return [
            ("approach", f"{self.approach}: {self.constants}"),
            ("N", f"{self.parameters:,}"),
            ("D", f"{self.tokens:,}"),
            ("extrapolated", "yes" if self.extrapolated else "no"),
        ]


def allocate(work: int, approach: str | Law = "chinchilla") -> Allocation:
    """Return N and D for a budget of *work* operations.

    Args:
        work: C = 6ND.
        approach: ``"1"``, ``"2"``, ``"chinchilla"``, ``"besiroglu"``, or a law of your own.

    Raises:
        InputError: the budget is not positive, or the approach not known.
    """
    count("work", work, 6)
    if isinstance(approach, str) and approach in POWERS:
        exponent, anchor = POWERS[approach]
        parameters = 1e9 * (work / anchor) ** exponent
        fitted: tuple[float, float] | None = FITTED_WORK
        words = f"N = 10^9 · (C / {anchor:.3g})^{exponent:.2f}"
        loss = None
        tokens = work / 6 / parameters
        name = approach
    else:
        law = approach if isinstance(approach, Law) else LAWS[one_of("approach", approach, (*POWERS, *LAWS))]
        parameters, tokens = law.best(work)
        fitted, loss, name = law.work, law.loss(parameters, tokens), law.name if isinstance(approach, Law) else str(approach)
        words = f"L = {law.e:g} + {law.a:g}/N^{law.alpha:g} + {law.b:g}/D^{law.beta:g}"
    if parameters < 1 or tokens < 1:
        raise InputError(f"work of {work:,} operations is too little for a model: nothing was fitted there")
    outside = fitted is None or not fitted[0] <= work <= fitted[1]
    return Allocation(name, work, round(parameters), round(tokens), loss, words, outside, fitted)
