"""Tokens are counted in four ways, and samples are no tokens."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.widths import ceil_div, count


@dataclass(frozen=True)
class TokenCount(Shown):
    """The tokens of a run.

    Attributes:
        positions: places in the batches, padding included: what the hardware computes.
        processed: effective (unpadded) tokens, each time they were met: the D of 6ND.
        distinct: different tokens among them; None if the size of the data is not known.
        samples: sequences processed.
        steps: optimizer steps.
    """

    positions: int
    processed: int
    distinct: int | None
    samples: int
    steps: int

    @property
    def epochs(self) -> Fraction | None:
        """How often each distinct token was met on average."""
        return Fraction(self.processed, self.distinct) if self.distinct else None

    @property
    def padding(self) -> Fraction:
        """The share of places that hold no token."""
        return Fraction(self.positions - self.processed, self.positions) if self.positions else Fraction(0)

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        distinct = "not known" if self.distinct is None else f"{self.distinct:,}"
        return [
            ("positions", f"{self.positions:,}"),
            ("processed", f"{self.processed:,}"),
            ("distinct", distinct),
            ("samples", f"{self.samples:,}"),
        ]


def token_count(
    steps: int,
    *,
    batch: int,
    sequence: int,
    effective: int | None = None,
    distinct: int | None = None,
) -> TokenCount:
    """Count the tokens of *steps* optimizer steps.

    Args:
        steps: optimizer steps.
        batch: samples of a step, over all ranks and micro-batches.
        sequence: places of a sample.
        effective: unpadded tokens of a step; by default every place holds one.
        distinct: different tokens in the data.

    Raises:
        InputError: a count is negative, or there are more effective tokens than places.
    """
    count("steps", steps)
    places = count("batch", batch) * count("sequence", sequence)
    met = places if effective is None else count("effective tokens", effective)
    if met > places:
        raise InputError(f"{met:,} effective tokens in {places:,} places: a step of {batch:,} × {sequence:,} has no room for them")
    processed = met * steps
    known = None if distinct is None else min(processed, count("distinct tokens", distinct))
    return TokenCount(places * steps, processed, known, batch * steps, steps)


def steps_for(tokens: int, effective: int) -> int:
    """Return how many steps of *effective* tokens process *tokens*, the last one filled up."""
    return ceil_div(count("tokens", tokens), count("effective tokens", effective, 1))
