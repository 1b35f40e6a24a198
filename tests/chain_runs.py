"""Schedules of a chain written as runs of layers, as the chain scenarios have them: from the planners, not from the files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lifecycle_sim.program.remat.chen import square_root_segments
from lifecycle_sim.program.remat.moves import Act
from lifecycle_sim.program.remat.revolve import binomial_schedule


class LayerRun(NamedTuple):
    """A run of one layer: ``forward``, ``keep`` (forward, keeping what backward needs), ``loss`` or ``backward``; what it frees."""

    what: str
    layer: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    frees: tuple[str, ...]


def _forward(layer: int, kept: set[int]) -> LayerRun:
    return LayerRun("forward", layer, (f"x{layer}",), (f"x{layer + 1}",), () if layer in kept else (f"x{layer}",))


def _keep(layer: int, kept: set[int], output: bool) -> LayerRun:
    written = (f"data{layer}", f"x{layer + 1}") if output else (f"data{layer}",)
    return LayerRun("keep", layer, (f"x{layer}",), written, () if layer in kept else (f"x{layer}",))


def _backward(layer: int) -> LayerRun:
    return LayerRun("backward", layer, (f"data{layer}", f"grad{layer + 1}"), (f"grad{layer}",), (f"data{layer}", f"grad{layer + 1}"))


def _loss(layers: int) -> LayerRun:
    return LayerRun("loss", layers, (f"x{layers}",), (f"grad{layers}",), (f"x{layers}",))


def revolve_runs(layers: int, slots: int) -> Iterator[LayerRun]:
    kept: set[int] = set()
    for move in binomial_schedule(layers, slots):
        if move.act is Act.SAVE:
            kept.add(move.at)
        elif move.act is Act.DROP:
            kept.discard(move.at)
        elif move.act is Act.ADVANCE:
            for layer in range(move.at, move.to):
                yield _forward(layer, kept)
        elif move.act is Act.REVERSE:
            last = move.at == layers - 1
            yield _keep(move.at, kept, last)
            if last:
                yield _loss(layers)
            yield _backward(move.at)


def segment_runs(layers: int) -> Iterator[LayerRun]:
    starts = square_root_segments(layers).starts
    for layer in range(layers):
        yield _forward(layer, set(starts))
    yield _loss(layers)
    for start, stop in reversed(list(zip(starts, (*starts[1:], layers), strict=True))):
        for layer in range(start, stop):
            yield _keep(layer, set(), layer + 1 < stop)
        for layer in reversed(range(start, stop)):
            yield _backward(layer)


def keep_all_runs(layers: int) -> Iterator[LayerRun]:
    for layer in range(layers):
        yield _keep(layer, set(), True)
    yield _loss(layers)
    for layer in reversed(range(layers)):
        yield _backward(layer)


def peak_of(runs: list[LayerRun], sizes: dict[str, int]) -> int:
    """The peak of *runs*: outputs begin with a run, what it frees goes with its end; ``x0`` is there from the start."""
    live = {"x0"}
    peak = 0
    for run in runs:
        assert live >= set(run.reads), run
        live |= set(run.writes)
        peak = max(peak, sum(sizes[name.rstrip("0123456789")] for name in live))
        live -= set(run.frees)
    assert live == {"grad0"}
    return peak
