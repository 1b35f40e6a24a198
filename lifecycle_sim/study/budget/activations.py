"""What a transformer layer keeps for backward, as a closed form: a cross-check of captures, which see what the code really keeps.

Source: arXiv:2205.05198, equations 1 to 6 and table 2, in bytes of a layer with 2-byte activations::

    attention  11 sbh + 5 as²b      the feed-forward layer  19 sbh      two norms  4 sbh

It holds for dropout with masks of one byte, a GELU layer four times as wide, and attention that keeps its scores; a fused attention kernel
keeps no scores, and the term with a s² goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.widths import ceil_div, count, one_of
from lifecycle_sim.units import format_exact

RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True)
class LayerActivations(Shown):
    """Bytes that one layer keeps on one rank.

    Attributes:
        attention: of the attention block without its scores.
        scores: of scores, their dropout mask and what dropout gives.
        forward: of the feed-forward layer.
        norms: of the two norms.
        statistics: of the norms' means and deviations, fp32, 16sb: the published formula leaves them out, and so does the total.
        total: of the layer, which under full recomputation is its input alone.
        formula: the rule, as published.
    """

    attention: int
    scores: int
    forward: int
    norms: int
    statistics: int
    total: int
    formula: str

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        parts = ("attention", "scores", "forward", "norms", "statistics", "total")
        return [*((part, format_exact(getattr(self, part))) for part in parts), ("formula", self.formula)]


_FORMULAS = {
    ("none", False, False): "sbh(34 + 5as/h)",
    ("none", True, False): "sbh(10 + 24/t + 5as/(ht))",
    ("none", True, True): "sbh/t(34 + 5as/h)",
    ("selective", False, False): "34sbh",
    ("selective", True, False): "sbh(10 + 24/t)",
    ("selective", True, True): "34sbh/t",
    ("full", False, False): "2sbh",
    ("full", True, False): "2sbh",
    ("full", True, True): "2sbh/t",
}


def layer_activations(
    sequence: int,
    batch: int,
    width: int,
    heads: int,
    *,
    tensor: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
    fused_attention: bool = False,
    element: int = 2,
) -> LayerActivations:
    """Return the bytes that a layer keeps.

    Args:
        sequence: tokens of a sequence, s.
        batch: sequences of a micro-batch, b.
        width: the model's width, h.
        heads: attention heads, a.
        tensor: the tensor-parallel degree, t.
        sequence_parallel: whether norms and dropout are divided along the sequence too.
        recompute: ``"none"``, ``"selective"`` (the scores), or ``"full"`` (all but the layer's input; published as 2sbh with and without
            tensor parallelism, as the input is whole unless it is divided along the sequence).
        fused_attention: whether the kernel of attention keeps no scores.
        element: bytes of an activation; masks stay at 1.

    Raises:
        InputError: a size is not positive, does not divide, or *recompute* is not known.
    """
    sizes = {"sequence": sequence, "batch": batch, "width": width, "heads": heads, "tensor-parallel degree": tensor, "element": element}
    for name, size in sizes.items():
        count(name, size, 1)
    one_of("recomputation", recompute, RECOMPUTE)
    if sequence_parallel and tensor == 1:
        raise InputError("sequence parallelism divides over the tensor-parallel ranks: give a degree above 1")
    for name, size in (("width", width), ("heads", heads)) + ((("sequence", sequence),) if sequence_parallel else ()):
        if size % tensor:
            raise InputError(f"{name} {size:,} is not divided evenly by the tensor-parallel degree {tensor:,}")
    sbh, along = sequence * batch * width, tensor if sequence_parallel else 1
    # inputs of the blocks and masks at their ends are whole without sequence parallelism; what lies inside is divided
    attention = (element + 1) * sbh // along + 4 * element * sbh // tensor
    forward = (element + 1) * sbh // along + 8 * element * sbh // tensor
    norms = 2 * element * sbh // along
    kept = 0 if fused_attention or recompute == "selective" else (2 * element + 1) * heads * sequence * sequence * batch // tensor
    total = attention + kept + forward + norms if recompute != "full" else element * sbh // along
    statistics = 16 * sequence * batch // along if recompute != "full" else 0
    return LayerActivations(attention, kept, forward, norms, statistics, total, _FORMULAS[recompute, tensor > 1, sequence_parallel])


def scores_share(sequence: int, width: int, heads: int) -> Fraction:
    """Return the share of a layer's activations that the scores are, and that selective recomputation saves: (5as/h) / (34 + 5as/h)."""
    scores = Fraction(5 * heads * sequence, width)
    return scores / (34 + scores)


def selective_work(sequence: int, width: int) -> Fraction:
    """Return what selective recomputation adds to the work of a forward pass, as a share: s / (6h + s)."""
    return Fraction(sequence, 6 * width + sequence)


def stage_layers(layers: int, stages: int, microbatches: int, interleaved: int = 1) -> int:
    """Return for how many layers the first pipeline stage keeps activations at its peak.

    With one forward and one backward in turn (1F1B) it has min(m, p) micro-batches of L/p layers; interleaved over v chunks, min(mv, pv +
    p − 1) chunks of L/(pv): Megatron's factor 1 + (p − 1)/(pv), which is not capped by m there. Rounded up.

    Raises:
        InputError: a count is not positive.
    """
    for name, value in (("layers", layers), ("stages", stages), ("micro-batches", microbatches), ("chunks", interleaved)):
        count(name, value, 1)
    chunks = min(microbatches * interleaved, stages if interleaved == 1 else stages * interleaved + stages - 1)
    return ceil_div(layers * chunks, stages * interleaved)


def ends(sequence: int, batch: int, width: int, vocabulary: int, stages: int = 1) -> int:
    """Return the bytes at the model's ends on the first stage, with 2-byte activations: the embeddings' dropout, sbh for each of p
    micro-batches, and with one stage the output layer, 4sbh(1 + V/h).

    Source: arXiv:2205.05198, section 4.3.
    """
    for name, value in (("sequence", sequence), ("batch", batch), ("width", width), ("vocabulary", vocabulary), ("stages", stages)):
        count(name, value, 1)
    sbh = sequence * batch * width
    return sbh * stages + (4 * sbh + 4 * sequence * batch * vocabulary if stages == 1 else 0)
