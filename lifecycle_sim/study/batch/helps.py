"""What could help where no batch fits: in bytes, from what a step with the smallest batch holds."""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle_sim.study.batch.measured import StepPeaks

CARDS = (2, 4, 8)
"""Over how many cards states are divided to see what is left on each."""


@dataclass(frozen=True)
class Help:
    """A means, and its bytes.

    Attributes:
        means: ``"freeze"``, ``"shard"``, ``"optimizer"`` or ``"recompute"``.
        text: what is done.
        saves: the most bytes that it takes off, by the states and activations that were seen.
        enough: whether that is as much as is missing.
    """

    means: str
    text: str
    saves: int
    enough: bool


def what_could_help(peaks: StepPeaks, missing: int) -> tuple[Help, ...]:
    """Return what takes bytes off a step that does not fit, each means by itself.

    Savings are upper bounds: another peak may lie below the one that goes. Sharding divides parameters, gradients and optimizer state,
    rounded up, and does not count the buffers that gather them again.

    Args:
        peaks: the step with the smallest batch.
        missing: bytes that are missing.
    """
    states = peaks.states
    gradients, optimizer = states.get("gradient", 0), states.get("optimizer_state", 0)
    divided = states.get("parameter", 0) + gradients + optimizer
    kept = peaks.held.get("activation", 0)
    found = []
    if gradients or optimizer:
        found.append(("freeze", "freeze all parameters but a few: no gradients and no optimizer state for them", gradients + optimizer))
    if optimizer > peaks.trainable > 0:
        found.append(("optimizer", "an optimizer with one state a parameter, such as SGD with momentum", optimizer - peaks.trainable))
    if optimizer:
        found.append(("optimizer", "an optimizer without state, such as plain SGD", optimizer))
    found += [
        ("shard", f"parameters, gradients and optimizer state divided over {cards} cards", divided - -(-divided // cards))
        for cards in CARDS
    ]
    if kept:
        found.append(("recompute", "recompute all activations held at the peak", kept))
    return tuple(Help(means, text, saves, saves >= missing) for means, text, saves in found if saves > 0)
