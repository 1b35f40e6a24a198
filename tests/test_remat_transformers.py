"""The exact edit on transformers' own models, against torch's checkpoint around modules of them: no operator and no level differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed: these are its models")

from lifecycle_sim.program.remat import chosen_regions, edit  # noqa: E402
from lifecycle_sim.program.step_graph import StepGraph  # noqa: E402
from tests import remat_models as models  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' own

SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 61}


def gpt2(attention: str) -> Any:
    config = transformers.GPT2Config(
        n_embd=32, n_layer=3, n_head=4, n_positions=32, vocab_size=61, attn_implementation=attention, use_cache=False
    )
    return transformers.GPT2LMHeadModel(config)


def llama(attention: str) -> Any:
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, attn_implementation=attention, use_cache=False)
    return transformers.LlamaForCausalLM(config)


def bert(attention: str) -> Any:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SMALL, attn_implementation=attention))


FAMILIES: dict[str, tuple[Callable[[str], Any], str, tuple[str, ...]]] = {
    "gpt2": (gpt2, "transformer.h", ("", ".attn", ".mlp", ".ln_1", ".mlp.c_fc")),
    "llama": (llama, "model.layers", ("", ".self_attn", ".mlp", ".input_layernorm", ".self_attn.q_proj")),
    "bert": (bert, "bert.encoder.layer", ("", ".attention", ".attention.self", ".intermediate", ".output")),
}
BUILDS = {(family, attention): lambda f=family, a=attention: FAMILIES[f][0](a) for family in FAMILIES for attention in ("eager", "sdpa")}


@pytest.fixture(autouse=True, scope="module")
def cuda() -> Iterator[None]:
    with models.on_cuda():
        yield


def ids() -> Any:
    return torch.randint(0, 61, (2, 16))


def step(model: Any, batch: Any) -> None:
    model(batch, labels=batch).loss.backward()


@cache
def captured(family: str, attention: str) -> StepGraph:
    return models.graph_of(BUILDS[family, attention], ids, step)


def must_be_equal(family: str, attention: str, checkpointed: list[str], early_stop: bool = True) -> None:
    graph = captured(family, attention)
    real = models.graph_of(BUILDS[family, attention], ids, step, checkpointed, early_stop=early_stop)
    assert edit(graph, chosen_regions(graph, checkpointed), early_stop=early_stop).rows() == edit(real).rows()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layers", [(0,), (0, 2), (0, 1, 2)], ids=str)
def test_layers(family: str, attention: str, layers: tuple[int, ...]) -> None:
    must_be_equal(family, attention, [f"{FAMILIES[family][1]}.{number}" for number in layers])


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(sorted(BUILDS)), st.booleans())
def test_random_sets_of_modules(data: st.DataObject, build: tuple[str, str], early_stop: bool) -> None:
    _, stem, parts = FAMILIES[build[0]]
    names = [f"{stem}.{number}{part}" for number in range(3) for part in parts]
    must_be_equal(*build, data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=6, unique=True)), early_stop)
