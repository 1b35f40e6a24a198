"""Parameters of the usual transformers from their sizes: each tensor once, apart by what it is for, and naively by name.

Counted from the models' own definitions; eight published configurations come out exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.study.budget.widths import count, one_of


@dataclass(frozen=True)
class Parameters(Shown):
    """How many parameters a model has, by what they are for.

    Attributes:
        blocks: in its layers.
        embeddings: in tables of tokens.
        positions: in tables of positions and kinds, and in biases by distance.
        rest: in norms outside of the layers, poolers and the like.
        head: in an output matrix of its own; 0 if it is tied to the embeddings.
        tied: elements that names share, counted once above: what a count by name adds.
        buffers: bytes of buffers.
    """

    blocks: int
    embeddings: int
    positions: int = 0
    rest: int = 0
    head: int = 0
    tied: int = 0
    buffers: int = 0

    @property
    def unique(self) -> int:
        """All parameters, each once."""
        return self.blocks + self.embeddings + self.positions + self.rest + self.head

    @property
    def by_name(self) -> int:
        """All parameters if every name had its own."""
        return self.unique + self.tied

    def count(self, definition: str) -> int:
        """Return N as a publication defines it.

        Args:
            definition: ``"all"`` (PaLM: embeddings included); ``"non-embedding"`` (Kaplan: without tables of tokens and positions and
                without an output matrix); ``"with-head"`` (Chinchilla: the output matrix counts, tied or not, tables do not).

        Raises:
            InputError: it is none of these.
        """
        one_of("definition of N", definition, DEFINITIONS)
        inner = self.blocks + self.rest
        return {"all": self.unique, "non-embedding": inner, "with-head": inner + (self.head or self.embeddings)}[definition]

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        return [(name, f"{self.count(name):,}") for name in DEFINITIONS]


DEFINITIONS = {
    "all": "every parameter once, embeddings included (PaLM)",
    "non-embedding": "without tables of tokens and positions and without the output matrix (Kaplan)",
    "with-head": "without tables, with the output matrix (Chinchilla)",
}
"""What N can mean, and who means it."""


def gpt2(layers: int, width: int, vocabulary: int = 50_257, positions: int = 1024) -> Parameters:
    """GPT-2: biases everywhere, a feed-forward layer four times as wide, the output matrix tied."""
    _sizes(layers=layers, width=width, vocabulary=vocabulary, positions=positions)
    block = _linear(width, 3 * width) + _linear(width, width) + _linear(width, 4 * width) + _linear(4 * width, width) + 4 * width
    table = vocabulary * width
    return Parameters(layers * block, table, positions * width, 2 * width, tied=table)


def llama(
    layers: int,
    width: int,
    ffn: int,
    heads: int,
    kv_heads: int | None = None,
    vocabulary: int = 32_000,
    tied: bool = False,
) -> Parameters:
    """Llama: no biases, a gated feed-forward layer, grouped heads, rotary positions (two buffers of half a head's size, fp32)."""
    groups = heads if kv_heads is None else kv_heads
    _sizes(layers=layers, width=width, ffn=ffn, heads=heads, kv_heads=groups, vocabulary=vocabulary)
    if width % heads:
        raise InputError(f"a width of {width:,} is not divided evenly by {heads:,} heads")
    size = width // heads
    block = 2 * width * width + 2 * width * size * groups + 3 * width * ffn + 2 * width
    table = vocabulary * width
    return Parameters(layers * block, table, 0, width, 0 if tied else table, table if tied else 0, 2 * (size // 2) * 4)


def bert(layers: int, width: int, ffn: int, vocabulary: int, positions: int = 512, kinds: int = 2) -> Parameters:
    """BERT without a head: biases everywhere, learned positions and kinds, a pooler; two int64 buffers of a position each."""
    _sizes(layers=layers, width=width, ffn=ffn, vocabulary=vocabulary, positions=positions, kinds=kinds)
    block = 4 * _linear(width, width) + _linear(width, ffn) + _linear(ffn, width) + 4 * width
    rest = 2 * width + _linear(width, width)
    return Parameters(layers * block, vocabulary * width, (positions + kinds) * width, rest, buffers=2 * positions * 8)


def t5(layers: int, width: int, ffn: int, heads: int, head_size: int, vocabulary: int = 32_128, buckets: int = 32) -> Parameters:
    """T5: as many layers in the decoder, no biases, one table for tokens under four names, a bias by distance in each half."""
    _sizes(layers=layers, width=width, ffn=ffn, heads=heads, head_size=head_size, vocabulary=vocabulary, buckets=buckets)
    attention, forward = 4 * width * heads * head_size + width, 2 * width * ffn + width
    table = vocabulary * width
    return Parameters(layers * (3 * attention + 2 * forward), table, 2 * buckets * heads, 2 * width, tied=3 * table)


FAMILIES: dict[str, Callable[..., Parameters]] = {"gpt2": gpt2, "llama": llama, "bert": bert, "t5": t5}
"""The models that are known by their sizes."""


def _linear(rows: int, columns: int) -> int:
    return rows * columns + columns


def _sizes(**sizes: int) -> Iterable[int]:
    return [count(name, value, 1) for name, value in sizes.items()]
