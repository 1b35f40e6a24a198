"""Floating-point operations of training and inference, in exact integers.

6ND is the work that matrix products with parameters need: 2N a token forward, 4N backward. What N counts is said by whoever uses it, see
``shapes.DEFINITIONS``; attention is another term, recomputation a factor, and of a mixture of experts only what a token meets is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.widths import count, one_of


def training_flops(parameters: int, tokens: int) -> int:
    """Return 6·N·D.

    Args:
        parameters: N, the parameters that a token meets in products; of a mixture of experts see :class:`Experts`.
        tokens: D, the tokens processed, repeated ones included.

    Raises:
        InputError: a count is negative.
    """
    return 6 * count("parameters", parameters) * count("tokens", tokens)


def inference_flops(parameters: int, tokens: int) -> int:
    """Return 2·N for each of *tokens* tokens read or written, attention left out."""
    return 2 * count("parameters", parameters) * count("tokens", tokens)


def attention_flops(layers: int, width: int, sequence: int, *, causal: bool = False) -> int:
    """Return the work a token that attention adds to 6N in training: 12·L·d·s, for scores and their products with values.

    Args:
        layers: L.
        width: d, heads times their size.
        sequence: s.
        causal: count only what a causal mask leaves, half of it; published MFU figures count all.

    Source: arXiv:2204.02311, appendix B.
    """
    work = 12 * count("layers", layers) * count("width", width) * count("sequence", sequence)
    return work // 2 if causal else work


def recompute_factor(recompute: str, sequence: int | None = None, width: int | None = None) -> Fraction:
    """Return the work that the hardware does for each operation that the model needs.

    Args:
        recompute: ``"none"`` is 1; ``"full"`` 4/3, a second forward pass; ``"selective"`` 1 + s/(6h + s)/3, the scores again.
        sequence: s, for selective.
        width: h, for selective.

    Raises:
        InputError: it is none of these, or a size is missing.
    """
    one_of("recomputation", recompute, ("none", "full", "selective"))
    if recompute != "selective":
        return Fraction(4, 3) if recompute == "full" else Fraction(1)
    if sequence is None or width is None:
        raise InputError("selective recomputation does the scores again: give sequence and width")
    return 1 + Fraction(count("sequence", sequence, 1), 6 * count("width", width, 1) + sequence) / 3


@dataclass(frozen=True)
class SequenceWork:
    """Operations of one sequence, by what they are for (arXiv:2203.15556, appendix F): forward ones, and all.

    Attributes:
        embeddings: looking tokens up as a product, 2·s·V·d. No kernel does it; the appendix's text counts it, its table does not.
        attention: of all layers: queries, keys and values, scores, softmax, values, output.
        dense: of all layers.
        logits: 2·s·d·V; in the appendix's text as well and not in its table.
    """

    embeddings: int
    attention: int
    dense: int
    logits: int

    def total(self, *, ends: bool = False) -> int:
        """Return forward and backward together: three times the forward pass; with embeddings and logits if *ends*."""
        return 3 * (self.attention + self.dense + (self.embeddings + self.logits if ends else 0))


def sequence_work(layers: int, width: int, ffn: int, heads: int, head_size: int, sequence: int, vocabulary: int) -> SequenceWork:
    """Return the operations of one sequence as appendix F of arXiv:2203.15556 counts them.

    The ratios to 6N that its table A4 prints come out only without embeddings and logits.
    """
    sizes = {"layers": layers, "width": width, "ffn": ffn, "heads": heads, "head size": head_size, "sequence": sequence}
    for name, size in (*sizes.items(), ("vocabulary", vocabulary)):
        count(name, size, 1)
    inner = heads * head_size
    attention = 6 * sequence * width * inner + 4 * sequence**2 * inner + 3 * heads * sequence**2 + 2 * sequence * inner * width
    ends = 2 * sequence * vocabulary * width
    return SequenceWork(ends, layers * attention, layers * 4 * sequence * width * ffn, ends)


@dataclass(frozen=True)
class Experts:
    """A mixture of experts.

    Attributes:
        shared: parameters that every token meets: attention, dense layers, shared experts, norms.
        router: parameters of the routers, which every token meets too.
        expert: parameters of one expert, all layers together.
        experts: how many there are.
        active: how many of them a token goes to.
    """

    shared: int
    router: int
    expert: int
    experts: int
    active: int

    def __post_init__(self) -> None:
        count("shared parameters", self.shared)
        count("router parameters", self.router, 1)
        count("parameters of an expert", self.expert, 1)
        count("experts", self.experts, 1)
        if count("active experts", self.active, 1) > self.experts:
            raise InputError(f"{self.active:,} active experts of {self.experts:,}: there are not so many")

    @property
    def total(self) -> int:
        """All parameters: what memory holds."""
        return self.shared + self.router + self.expert * self.experts

    @property
    def activated(self) -> int:
        """The parameters that a token meets: what 6ND counts."""
        return self.shared + self.router + self.expert * self.active


def experts_of(**sizes: int | None) -> Experts:
    """Return the mixture of experts of *sizes*, the attributes of :class:`Experts`.

    Raises:
        InputError: something is missing; total parameters alone never do.
    """
    names = ("shared", "router", "expert", "experts", "active")
    missing = [name for name in names if sizes.get(name) is None]
    if missing:
        alone = "total parameters alone do not tell what a token meets: " if sizes.get("total") is not None else ""
        raise InputError(
            f"mixture of experts: {alone}give {', '.join(missing)} "
            "(6ND counts shared layers, the router, and the experts that a token goes to)"
        )
    made = Experts(**{name: sizes[name] for name in names})  # type: ignore[arg-type]
    total = sizes.get("total")
    if total is not None and total != made.total:
        raise InputError(f"mixture of experts: {total:,} parameters in all, but shared, router and experts add up to {made.total:,}")
    return made
