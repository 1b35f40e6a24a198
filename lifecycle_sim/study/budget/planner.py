"""Candidates (N, D) for a budget of operations, with what is known of each and what is missing. None is called the best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.allocation import Law
from lifecycle_sim.study.budget.compute import inference_flops, training_flops
from lifecycle_sim.study.budget.states import StateBudget
from lifecycle_sim.study.budget.widths import count

EVIDENCE = {
    "throughput": "tokens a second, measured on these devices with this batch after warm-up",
    "loss": "the loss of this size on your data: a law fitted on your own runs, or the run",
    "data": "how many distinct tokens there are: repeated ones count as work and teach less",
    "memory": "the peak of a step (capture it): states alone are not the peak",
}
"""What a plan needs before it promises anything, and where it comes from."""


@dataclass(frozen=True)
class Candidate(Shown):
    """One size and its tokens.

    Attributes:
        parameters, tokens: N and D.
        training: 6ND.
        inference: 2N for each token that is expected to be served.
        states: bytes of weights, gradients and states; None if no recipe was given.
        epochs: how often each distinct token is met; None if their number is not known.
        loss: predicted by a law; None without one.
        extrapolated: whether that law was not fitted there.
        missing: names of ``EVIDENCE`` that nothing was given for.
    """

    parameters: int
    tokens: int
    training: int
    inference: int
    states: int | None
    epochs: Fraction | None
    loss: float | None
    extrapolated: bool
    missing: tuple[str, ...]

    @property
    def total(self) -> int:
        """Training and inference together."""
        return self.training + self.inference

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        rows = [("N", f"{self.parameters:,}"), ("D", f"{self.tokens:,}"), ("training", f"{self.training:,}"), ("in all", f"{self.total:,}")]
        return [*rows, ("missing", "; ".join(EVIDENCE[name] for name in self.missing))]


def candidates(
    work: int,
    sizes: Iterable[int],
    *,
    served: int = 0,
    distinct: int | None = None,
    law: Law | None = None,
    states: Sequence[StateBudget] | None = None,
    given: Iterable[str] = (),
) -> tuple[Candidate, ...]:
    """Return a candidate for each of *sizes*, in the order given, that spends *work* operations on training.

    Args:
        work: operations for training, C.
        sizes: the N to consider.
        served: tokens that inference is expected to read and write over the model's life.
        distinct: different tokens in the data.
        law: a law to predict the loss with.
        states: the states of each size.
        given: names of ``EVIDENCE`` that there is evidence for.

    Raises:
        InputError: a count is negative, a size is so large that no token is left, or the states do not go with the sizes.
    """
    chosen = tuple(sizes)
    count("work", work, 1)
    if states is not None and len(states) != len(chosen):
        raise InputError(f"{len(states):,} budgets of states for {len(chosen):,} sizes")
    made = []
    for number, size in enumerate(chosen):
        tokens = work // (6 * count("size", size, 1))
        if not tokens:
            raise InputError(f"{size:,} parameters: {work:,} operations are not enough for a single token")
        made.append(_candidate(size, tokens, served, distinct, law, None if states is None else states[number].total, given))
    return tuple(made)


def equal_loss(
    loss: float,
    sizes: Iterable[int],
    law: Law,
    *,
    served: int = 0,
    distinct: int | None = None,
    given: Iterable[str] = (),
) -> tuple[Candidate, ...]:
    """Return, for each of *sizes* in the order given, the candidate that reaches *loss* by *law*; sizes that never do are left out.

    With many tokens to serve, a smaller model that is trained for longer may need less work in all.

    Raises:
        InputError: a count is negative, or no size reaches the loss.
    """
    chosen = tuple(sizes)
    made = []
    for size in chosen:
        tokens = law.tokens_for(count("size", size, 1), loss)
        if tokens is not None:
            made.append(_candidate(size, max(1, round(tokens)), served, distinct, law, None, given))
    if not made:
        raise InputError(f"a loss of {loss:g}: by {law.name} none of these sizes reaches it with any number of tokens")
    return tuple(made)


def _candidate(
    size: int, tokens: int, served: int, distinct: int | None, law: Law | None, states: int | None, given: Iterable[str]
) -> Candidate:
    known = set(given) | ({"data"} if distinct is not None else set())
    work = training_flops(size, tokens)
    outside = law is not None and (law.work is None or not law.work[0] <= work <= law.work[1])
    return Candidate(
        size,
        tokens,
        work,
        inference_flops(size, served),
        states,
        Fraction(tokens, count("distinct tokens", distinct, 1)) if distinct is not None else None,
        law.loss(size, tokens) if law is not None else None,
        outside,
        tuple(name for name in EVIDENCE if name not in known),
    )
