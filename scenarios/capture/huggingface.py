"""Models of Hugging Face's transformers, made from a config: no hub, no weights, no tokenizer. ``pip install transformers`` beside torch.

It shows four families as they are trained: ``gpt2`` and ``llama`` (decoders), ``bert`` (an encoder), ``t5`` (both). Shapes are those of
their configs; with ``--param layers=…`` and ``--param width=…`` they are others.

Look for the logits: at a vocabulary of 50,257 they hold more than all blocks of a small GPT-2.

    lifecycle-sim capture scenarios/capture/huggingface.py:gpt2 --batch 4 --seq 1024 -o gpt2.jsonl
    lifecycle-sim capture scenarios/capture/huggingface.py:llama --device a100-80g --batch 1 --seq 2048 -o llama.jsonl
    lifecycle-sim capture scenarios/capture/huggingface.py:bert --batch 32 --seq 256 --autocast bf16 -o bert.jsonl
    lifecycle-sim capture scenarios/capture/huggingface.py:t5 --batch 16 --seq 512 -o t5.jsonl
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers


def program(
    build: Callable[[], torch.nn.Module], vocabulary: int, batch: int, seq: int, dtype: str | None = None
) -> dict[str, Callable[..., Any] | str | None]:
    """Return the functions of a training run: every token is a label, and the model itself returns the loss."""

    def make_batch() -> dict[str, torch.Tensor]:
        ids = torch.randint(0, vocabulary, (batch, seq))
        return {"input_ids": ids, "labels": ids.clone()}

    return {
        "build_model": lambda: build().train(),
        "make_batch": make_batch,
        "make_optimizer": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-4),
        "dtype": dtype,
    }


def gpt2(batch: int = 4, seq: int = 1024, layers: int = 12, width: int = 768) -> dict[str, Any]:
    """Make GPT-2 in float32."""
    config = transformers.GPT2Config(n_layer=layers, n_embd=width, n_head=width // 64, n_positions=max(seq, 1024), use_cache=False)
    return program(lambda: transformers.GPT2LMHeadModel(config), config.vocab_size, batch, seq)


def llama(batch: int = 1, seq: int = 2048, layers: int = 16, width: int = 2048) -> dict[str, Any]:
    """Make a Llama in bfloat16, with eight groups of heads and a head of its own."""
    config = transformers.LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=4 * width,
        num_attention_heads=width // 64,
        num_key_value_heads=min(8, width // 64),
        vocab_size=32_000,
        use_cache=False,
    )
    return program(lambda: transformers.LlamaForCausalLM(config), config.vocab_size, batch, seq, "bf16")


def bert(batch: int = 32, seq: int = 256, layers: int = 12, width: int = 768) -> dict[str, Any]:
    """Make BERT with its head for masked words, in float32."""
    config = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        max_position_embeddings=max(seq, 512),
    )
    return program(lambda: transformers.BertForMaskedLM(config), config.vocab_size, batch, seq)


def t5(batch: int = 16, seq: int = 512, layers: int = 6, width: int = 512) -> dict[str, Any]:
    """Make T5, whose decoder reads the labels, in float32."""
    config = transformers.T5Config(num_layers=layers, d_model=width, d_ff=4 * width, decoder_start_token_id=0, use_cache=False)
    return program(lambda: transformers.T5ForConditionalGeneration(config), config.vocab_size, batch, seq)
