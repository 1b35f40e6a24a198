"""How long operators take at least: arithmetic at the card's peak rate, or memory at its bandwidth, whichever is longer.

A lower bound. It ranks plans by what they cost; no operator reaches it, and it tells no date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.step_graph import StepOperator
from lifecycle_sim.spelling import closest

HALVES = ("float16", "bfloat16")
TERA, GIGA = 10**12, 10**9
Seconds = Mapping[str, float] | Callable[[StepOperator], float]


@dataclass(frozen=True)
class Rates:
    """What a card does at most.

    Attributes:
        half: floating-point operations a second in float16 and bfloat16, on dense matrices.
        single: the same in float32, without TF32.
        bandwidth: bytes a second from and to its memory.
    """

    half: float
    single: float
    bandwidth: float

    def __post_init__(self) -> None:
        wrong = [name for name in ("half", "single", "bandwidth") if not getattr(self, name) > 0]
        if wrong:
            raise InputError(f"rates: {name} is {getattr(self, name)!r}: give a number above 0" for name in wrong)

    def seconds(self, operator: StepOperator) -> float:
        """Return the least seconds that *operator* takes."""
        rate = self.half if operator.dtype in HALVES else self.single
        return max(operator.flops / rate, operator.moved / self.bandwidth)


def _card(half: float, single: float, bandwidth: float) -> Rates:
    return Rates(half * TERA, single * TERA, bandwidth * GIGA)


RATES = {
    "v100": _card(125, 15.7, 900),
    "v100-16g": _card(125, 15.7, 900),
    "t4": _card(65, 8.1, 320),
    "a100-40g": _card(312, 19.5, 1555),
    "a100-80g": _card(312, 19.5, 2039),
    "a40": _card(149.7, 37.4, 696),
    "a6000": _card(154.8, 38.7, 768),
    "rtx3090": _card(71, 35.6, 936),
    "l4": _card(121, 30.3, 300),
    "l40s": _card(362, 91.6, 864),
    "rtx4090": _card(165.2, 82.6, 1008),
    "h100": _card(989.4, 66.9, 3350),
    "h100-pcie": _card(756, 51.2, 2000),
    "h200": _card(989.4, 66.9, 4800),
}
"""Peak rates and bandwidths of the vendor's data sheets, without sparsity; of GeForce cards with accumulation in float32."""


def rates_of(card: str) -> Rates:
    """Return the rates of the card called *card*.

    Raises:
        InputError: they are not known.
    """
    if card not in RATES:
        close = closest(card, RATES)
        hint = f"did you mean {close!r}? " if close else ""
        raise InputError(f"the rates of the card {card!r} are not known: {hint}give Rates, or the seconds of operators")
    return RATES[card]


def time_of(operators: Iterable[StepOperator], rates: Rates | None, seconds: Seconds | None) -> float | None:
    """Return the seconds of *operators* together: as given, else at least by *rates*; None where neither is known.

    Raises:
        InputError: *seconds* are given by name and lack one.
    """
    if seconds is None:
        return None if rates is None else sum(map(rates.seconds, operators))
    if callable(seconds):
        return sum(map(seconds, operators))
    rows = list(operators)
    lacking = sorted({row.name for row in rows} - seconds.keys())
    if lacking:
        raise InputError(
            f"seconds are given for operators by name, and {', '.join(lacking[:5])} {'is' if len(lacking) == 1 else 'are'} not among them"
        )
    return sum(seconds[row.name] for row in rows)
