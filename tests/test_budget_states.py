"""What is there whatever the batch: against published tables, torch's own states, and other tools' figures."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.events import Category, Kind
from lifecycle_sim.study.budget import Part, Quantised, Sharding, estimators, find_optimizer, lora_parameters, shapes, state_budget
from lifecycle_sim.study.budget.activations import ends, layer_activations, scores_share, selective_work, stage_layers
from lifecycle_sim.study.budget.optimizers import scalar_bytes

GIB = 2**30

COUNTS = {
    "bert-base-cased": shapes.bert(12, 768, 3072, 28_996),
    "gpt2 124M": shapes.gpt2(12, 768),
    "gpt2-xl": shapes.gpt2(48, 1600),
    "llama-7b": shapes.llama(32, 4096, 11_008, 32),
    "llama-2-13b": shapes.llama(40, 5120, 13_824, 40),
    "llama-3.1-8b": shapes.llama(32, 4096, 14_336, 32, 8, 128_256),
    "t5-large": shapes.t5(24, 1024, 4096, 16, 64),
    "t5-3b": shapes.t5(24, 1024, 16_384, 32, 128),
}


def rows_of(shared: Path, name: str) -> list[dict[str, str]]:
    with (shared / "data" / "reference" / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


# ── plain counts ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_thousand_parameters_in_fp32_with_adam_take_16_bytes_each():
    budget = state_budget(1000)
    assert budget.total == 16_000
    assert [(row.name, row.size) for row in budget.rows] == [
        ("weights", 4000),
        ("gradients", 4000),
        ("exp_avg", 4000),
        ("exp_avg_sq", 4000),
    ]
    assert budget.before_first_step == 8000
    assert ls.state_budget is state_budget


def test_a_billion_weights_alone_are_four_gigabytes_and_not_four_gibibytes():
    budget = state_budget(10**9, optimizer="none")
    assert budget.total == 4 * 10**9
    assert f"{budget.total / GIB:.2f}" == "3.73"
    assert [row.name for row in budget.rows] == ["weights"]


def test_amsgrad_adds_four_bytes_and_what_is_frozen_has_weights_only():
    assert state_budget(1000, optimizer="adamw+amsgrad").total - state_budget(1000, optimizer="adamw").total == 4000
    assert state_budget(1000, trainable=0).total == 4000
    assert state_budget(1000, trainable=100).total == 4000 + 100 * 12
    frozen = state_budget([Part((10, 10), trainable=False), Part((7,))])
    assert (frozen.total, frozen.trainable, frozen.counters) == (400 + 7 * 16, 7, 4)


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ((-1,), {}, "parameters is -1"),
        ((1.5,), {}, "1.5"),
        ((True,), {}, "True"),
        ((10,), {"trainable": -3}, "trainable parameters is -3"),
        ((10,), {"trainable": 11}, "11 trainable parameters of 10"),
        ((10,), {"weights": 0}, "a width is 1 or more"),
        ((10,), {"gradients": -2}, "a width is 1 or more"),
        ((10,), {"weights": "bf61"}, "did you mean 'bf16'"),
        ((10,), {"weights": "tf32"}, "the elements are fp32"),
        ((10,), {"optimizer": "adamm"}, "did you mean"),
        ((10,), {"optimizer": "sgd+amsgrad"}, "known are momentum"),
        ((10,), {"optimizer": "adagrad+momentum"}, "has no switch"),
        ((10,), {"optimizer": "adafactor"}, "give the shapes"),
        ((10,), {"buffers": -1}, "bytes of buffers is -1"),
        (([Part((2,))],), {"trainable": 1}, "trainable goes with a plain count"),
        (([Part((-2,))],), {}, "a size of a parameter is -2"),
        ((10,), {"trainable": 5, "sharding": Sharding(tensor=2, whole=1)}, "one plain count"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, options, says):
    with pytest.raises(ls.InputError, match=says):
        state_budget(*arguments, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stage": 4}, "stages are 0, 1, 2 and 3"),
        ({"data": 0}, "data-parallel degree is 0"),
        ({"unit": "row"}, "known are flat, parameter"),
        ({"data": 8, "tensor": 2, "devices": 8}, "divides by the data-parallel degree alone"),
    ],
)
def test_a_sharding_that_makes_no_sense_is_refused(options, says):
    with pytest.raises(ls.InputError, match=says):
        Sharding(**options)


def test_recipes_of_sixteen_bytes_differ_in_everything_but_the_sum():
    plain = state_budget(10**9)
    autocast = state_budget(10**9, weights="fp32")
    pure = state_budget(10**9, weights="bf16")
    masters = state_budget(10**9, weights="bf16", master="fp32")
    megatron = state_budget(10**9, weights="bf16", gradients="fp32", master="fp32")
    assert [each.total // 10**9 for each in (plain, autocast, pure, masters, megatron)] == [16, 16, 8, 16, 18]


def test_the_state_comes_with_the_first_step_but_adagrad_has_it_before():
    assert state_budget(1000, optimizer="adagrad").before_first_step == 12_000 == state_budget(1000, optimizer="adagrad").total
    assert state_budget(1000, optimizer="sgd+momentum").before_first_step == 8000


# ── sharding ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.integers(1, 10**13),
    st.integers(1, 5000),
    st.integers(0, 3),
    st.integers(1, 64),
    st.integers(1, 16),
)
def test_shards_hold_everything_with_less_than_a_whole_element_of_padding_each(parameters, data, stage, tensor, pipeline):
    division = Sharding(stage, data, tensor, pipeline)
    whole, sharded = (
        state_budget(parameters, weights="bf16", master="fp32"),
        state_budget(parameters, weights="bf16", master="fp32", sharding=division),
    )
    for row, mine in zip(whole.rows, sharded.rows, strict=True):
        degree = tensor * pipeline * (data if stage >= {"parameter": 3, "gradient": 2, "optimizer_state": 1}[row.category] else 1)
        assert mine.whole == row.size
        assert mine.size * degree >= row.size > (mine.elements - 3) * degree * (row.size // row.elements)


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=6), st.integers(1, 7))
def test_by_parameter_each_is_divided_by_its_rows(sizes, data):
    parts = [Part(tuple(shape)) for shape in sizes]
    sharded = state_budget(parts, sharding=Sharding(3, data, unit="parameter"))
    expected = sum(len(range(0, shape[0], data)) * prod(shape[1:]) for shape in sizes)
    assert sharded.total == 16 * expected >= 16 * -(-sum(map(prod, sizes)) // data)


def test_a_shard_is_rounded_up_and_accumulation_without_synchronising_keeps_gradients_whole():
    assert [row.elements for row in state_budget(10, sharding=Sharding(3, 4)).rows] == [3, 3, 3, 3]
    kept = state_budget(10, sharding=Sharding(3, 4, whole_gradients=True))
    assert [row.elements for row in kept.rows] == [3, 10, 3, 3]
    assert state_budget(100, optimizer="none", sharding=Sharding(tensor=4, whole=20)).total == 4 * (20 + 20)


def test_the_table_of_the_zero_paper(shared):
    for row in rows_of(shared, "zero_table"):
        parameters = {"7.5B": 7_500_000_000, "128B": 128 * 10**9, "1T": 10**12}[row["params"]]
        for stage, column in enumerate(("baseline", "Pos", "Pos_g", "Pos_g_p")):
            budget = state_budget(parameters, weights="fp16", master="fp32", sharding=Sharding(stage, int(row["Nd"])))
            assert round(budget.total / 1e9, 3) == pytest.approx(float(row[f"{column}_GB"]), abs=1e-9)
            assert round(budget.total / GIB, 3) == pytest.approx(float(row[f"{column}_GiB"]), abs=1e-9)


def test_the_bytes_a_parameter_of_megatron(shared):
    recipes = {
        "bytes/param fp16 params+fp16 grads": {"weights": "fp16", "master": "fp32", "main_gradients": "fp32"},
        "bytes/param bf16 params+fp32 grads": {"weights": "bf16", "gradients": "fp32", "master": "fp32"},
        "bytes/param fp32 params+fp32 grads": {"weights": "fp32"},
    }
    table = rows_of(shared, "megatron_bytes_per_param")
    assert {row["item"] for row in table} == set(recipes)
    for row in table:
        recipe: dict[str, Any] = recipes[row["item"]]
        assert state_budget(10**6, **recipe).total == int(row["replicated"]) * 10**6
        fixed, divided = (int(part.split("/")[0]) for part in row["distributed"].split("+"))
        for data in (1, 2, 8, 64):
            assert state_budget(10**6, **recipe, sharding=Sharding(1, data)).total == fixed * 10**6 + divided * 10**6 // data


# ── parameters and adapters ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_parameters_of_eight_models_by_their_sizes(shared):
    table = rows_of(shared, "param_counts")
    for row in table:
        (counted,) = [value for name, value in COUNTS.items() if row["model"].startswith(name + " ") or row["model"] == name]
        assert counted.unique == int(row["params_unique"])
        assert counted.by_name == int(row["params_naive_no_dedup"])
        assert counted.buffers == int(row["buffers_bytes"])
        assert state_budget(counted.unique, optimizer="none", buffers=counted.buffers).total == int(row["fp32_params_plus_buffers"])
        assert int(row["dedup_by_data_ptr_on_meta"]) < counted.unique // 10
    assert len(table) == len(COUNTS)


def test_what_n_counts_is_said():
    gpt2 = COUNTS["gpt2 124M"]
    table, positions = 50_257 * 768, 1024 * 768
    assert gpt2.count("all") == 124_439_808
    assert gpt2.count("non-embedding") == 124_439_808 - table - positions
    assert gpt2.count("with-head") == 124_439_808 - positions
    llama = COUNTS["llama-7b"]
    assert llama.count("all") - llama.count("with-head") == 32_000 * 4096 == llama.count("with-head") - llama.count("non-embedding")
    with pytest.raises(ls.InputError, match="known are all, non-embedding, with-head"):
        gpt2.count("6ND")
    with pytest.raises(ls.InputError, match="not divided evenly"):
        shapes.llama(1, 10, 10, 3)


def test_low_rank_adapters_and_quantised_weights():
    added = lora_parameters([(4096, 4096)] * 64, 8)
    assert added == 4_194_304  # rank 8 on queries and values of Llama-2-7B
    whole = 6_738_415_616 + added
    plain = state_budget(whole, weights="bf16", trainable=added, optimizer="adamw")
    assert plain.total == 2 * whole + added * 3 * 2
    small = state_budget(whole, weights="bf16", trainable=added, frozen_weights=Quantised("nf4", 64, "fp32", second=256))
    bits = 8 * sum(row.size for row in small.rows if row.name.startswith("quantised")) / 6_738_415_616
    assert bits == pytest.approx(4 + 0.127, abs=5e-4)  # QLoRA: 0.127 bits a parameter for the scales
    once = Quantised("nf4", 64, "fp32").sizes(6_738_415_616)
    assert 8 * once["scales"] / 6_738_415_616 == pytest.approx(0.5)
    assert Quantised("int8", None, "fp32").sizes(400, rows=20) == {"weights": 400, "scales": 80}
    assert Quantised("int4", 128, "fp16", zero="int4").sizes(1001) == {"weights": 501, "scales": 16, "zero points": 4}
    assert state_budget(0, frozen_weights=Quantised()).total == 0
    with pytest.raises(ls.InputError, match="8 bits or fewer"):
        Quantised("bf16")
    with pytest.raises(ls.InputError, match="rank is 0"):
        lora_parameters([(1, 1)], 0)


# ── optimizers ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = {
    "SGD_momentum": "sgd+momentum",
    "AdamW_amsgrad": "adamw+amsgrad",
    "RMSprop_centered_mom": "rmsprop+centered+momentum",
}
SHAPES = ((300, 400), (100, 50))


def test_states_of_sixteen_optimizers_in_two_types(shared):
    table = json.loads((shared / "data" / "reference" / "optimizer_state_bytes_torch213.json").read_text(encoding="utf-8"))
    assert len(table) == 32
    for row in table:
        name, kind = NAMES.get(row["optimizer"], row["optimizer"].lower()), row["param_dtype"]
        budget = state_budget([Part(shape) for shape in SHAPES], weights=kind, optimizer=name)
        states = [each for each in budget.rows if each.category == "optimizer_state"]
        assert budget.parameters == row["n_params"]
        assert budget.of("optimizer_state") + budget.counters == row["state_bytes_after_step"]
        scalars = {key for key, (_, _, held) in row["detail"].items() if key in find_optimizer(name).scalars and held == "torch.float32"}
        assert scalars == set(find_optimizer(name).scalars)
        assert {each.name: each.size for each in states} == {key: size for key, (size, _, _) in row["detail"].items() if key not in scalars}
        before = sum(each.size for each in states if each.eager) + (budget.counters if find_optimizer(name).eager else 0)
        assert before == row["state_bytes_before_step"]


def make_optimizers(torch: Any) -> dict[str, Any]:
    optim = torch.optim
    made = {
        "sgd": lambda given: optim.SGD(given, 0.1),
        "sgd+momentum": lambda given: optim.SGD(given, 0.1, momentum=0.9),
        "adamw+amsgrad": lambda given: optim.AdamW(given, amsgrad=True),
        "rmsprop+centered+momentum": lambda given: optim.RMSprop(given, centered=True, momentum=0.9),
    }
    plain = ("Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD", "Adafactor", "Muon")
    return made | {name.lower(): getattr(optim, name) for name in plain if hasattr(optim, name)}


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_states_captured_from_torch_are_the_closed_forms(kind):
    torch = pytest.importorskip("torch", reason="torch is not installed: its optimizers' states are counted with it")

    compared = 0
    for name, make in make_optimizers(torch).items():
        model = torch.nn.Module()
        for number, shape in enumerate(SHAPES):
            setattr(model, f"p{number}", torch.nn.Parameter(torch.empty(shape, dtype=getattr(torch, kind))))
        model.unused = torch.nn.Parameter(torch.empty(7, 3, dtype=getattr(torch, kind)))
        optimizer = make(list(model.parameters()))
        for parameter in (model.p0, model.p1):
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        table = ls.params(model, optimizer)
        expected = state_budget([Part(shape) for shape in SHAPES], weights=kind, optimizer=name)
        eager = 7 * 3 * (4 if kind == "float32" else 2) if find_optimizer(name).eager else 0  # made before any gradient is known
        assert table.state == expected.of("optimizer_state") + eager, name
        assert table.counters == expected.counters + (4 if eager else 0), name
        assert [row.state for row in table.rows if row.names == ("unused",)] == [eager], name
        compared += 1
    assert compared >= 15


def test_scalars_are_four_bytes_a_tensor():
    assert scalar_bytes(find_optimizer("asgd"), 10) == 120
    assert find_optimizer("adafactor").elements((3, 4, 5)) == {"row_var": 12, "col_var": 15}
    assert find_optimizer("adafactor").elements((9,)) == {"variance": 9}


# ── activations ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_activations_of_four_published_models(shared):
    for row in rows_of(shared, "korthikanti_activation"):
        heads, width, sequence, batch, degree = (int(row[key]) for key in ("a", "h", "s", "b", "t"))
        columns = {
            "no_parallel_bytes_per_layer": {},
            "tp_bytes": {"tensor": degree},
            "tp_sp_bytes": {"tensor": degree, "sequence_parallel": True},
            "tp_selective_bytes": {"tensor": degree, "recompute": "selective"},
            "tp_sp_selective_bytes": {"tensor": degree, "sequence_parallel": True, "recompute": "selective"},
            "full_recompute_bytes": {"recompute": "full"},
        }
        for column, options in columns.items():
            assert layer_activations(sequence, batch, width, heads, **options).total == int(row[column]), column
        assert float(scores_share(sequence, width, heads)) == pytest.approx(float(row["saved_frac_selective"]), abs=5e-5)
        assert float(selective_work(sequence, width)) == pytest.approx(float(row["attention_core_share_of_fwd_flops"]), abs=5e-5)
    assert round(float(scores_share(2048, 12_288, 96)), 2) == 0.70


def test_the_closed_form_and_earlier_captures_of_a_layer(shared):
    with (shared / "data" / "recompute" / "megatron_formula_check_native_dropout.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            width, heads, sequence, batch = (int(row[key]) for key in "hasb")
            layer = layer_activations(sequence, batch, width, heads)
            assert layer.total == round(float(row["formula_bytes"]))
            assert int(row["captured_bytes"]) == layer.total + layer.statistics // 2  # captured with 2-byte statistics of norms
            assert abs(int(row["captured_bytes"]) / layer.total - 1) < 1e-4


@pytest.mark.parametrize(("width", "heads", "sequence", "batch"), [(1024, 16, 1024, 4), (2048, 16, 2048, 2), (12_288, 96, 2048, 1)])
def test_a_captured_layer_keeps_what_the_closed_form_says(width, heads, sequence, batch):
    torch = pytest.importorskip("torch", reason="torch is not installed: captures need it")
    functional = torch.nn.functional

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
            self.parts = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(4))
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, stream: Any) -> Any:
            normed = self.norms[0](stream)
            query, key, value = (part(normed).unflatten(-1, (heads, -1)).transpose(1, 2) for part in self.parts[:3])
            scores = functional.dropout(torch.softmax(query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5, -1), 0.1)
            stream = stream + functional.dropout(self.parts[3]((scores @ value).transpose(1, 2).flatten(2)), 0.1)
            return stream + functional.dropout(self.down(functional.gelu(self.up(self.norms[1](stream)))), 0.1)

    def step(model: Any, _optimizer: Any, batch: Any) -> None:
        model(*batch).sum().backward()

    captured = ls.capture(
        Layer,
        lambda: (torch.randn(batch, sequence, width, dtype=torch.bfloat16, requires_grad=True),),
        None,
        step,
        dtype="bf16",
        warmup=0,
    )
    events = captured.trace.devices[0].events
    made = events.kind == Kind.ALLOC
    held = {
        int(number): (int(size), Category(category))
        for number, size, category in zip(events.address[made], events.size[made], events.category[made], strict=True)
    }
    kept = sum(held[number][0] for number in captured.saved if held[number][1] != Category.PARAMETER)
    layer = layer_activations(sequence, batch, width, heads)
    assert kept == layer.total + layer.statistics
    assert layer.statistics / layer.total == pytest.approx(16 / (34 + 5 * heads * sequence / width) / width)
    assert width < 1500 or abs(kept / layer.total - 1) < 1e-4


def test_parts_of_a_layer_add_up_and_a_fused_kernel_keeps_no_scores():
    layer = layer_activations(1024, 4, 1024, 16)
    sbh = 1024 * 4 * 1024
    assert (layer.attention, layer.scores, layer.forward, layer.norms) == (11 * sbh, 80 * sbh, 19 * sbh, 4 * sbh)
    assert layer.total == 114 * sbh
    assert layer_activations(1024, 4, 1024, 16, fused_attention=True).total == 34 * sbh
    assert layer_activations(1024, 4, 1024, 16, element=4).total == (4 * 16 + 2 + 16 * 9) * sbh
    assert "sbh(34 + 5as/h)" in dict(layer.facts())["formula"]


def test_layers_of_a_pipeline_stage():
    assert stage_layers(48, 4, 16) == 48  # one forward and one backward in turn: p micro-batches of L/p layers
    assert stage_layers(48, 4, 2) == 24  # with fewer micro-batches than stages there are only those
    assert stage_layers(48, 4, 16, interleaved=2) == 66  # 48 · (1 + 3/8)
    assert stage_layers(48, 4, 4, interleaved=2) == 48  # capped by the micro-batches there are
    sbh = 2048 * 1024
    assert ends(2048, 1, 1024, 32_000, 4) == 4 * sbh
    assert ends(2048, 1, 1024, 32_000) == sbh + 4 * sbh + 4 * 2048 * 32_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tensor": 3}, "not divided evenly"),
        ({"sequence_parallel": True}, "give a degree above 1"),
        ({"recompute": "some"}, "known are none, selective, full"),
        ({"batch": 0}, "batch is 0"),
    ],
)
def test_activations_that_make_no_sense_are_refused(options, says):
    sizes: dict[str, Any] = {"sequence": 1024, "batch": 1, "width": 1024, "heads": 16}
    with pytest.raises(ls.InputError, match=says):
        layer_activations(**sizes | options)


# ── other tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_figures_of_deepspeeds_estimators(shared):
    t5, largest = COUNTS["t5-3b"].unique, 32_899_072
    assert largest == COUNTS["t5-3b"].embeddings
    for row in rows_of(shared, "deepspeed_estimators"):
        options = row["options"]
        if row["stage"] == "zero2":
            gpu, host = estimators.deepspeed_zero2(t5, 8, offload="cpu" in options)
        else:
            gpu, host = estimators.deepspeed_zero3(
                t5, largest, 8, offload="opt=cpu" in options, offload_weights="param=cpu" in options, zero_init="zero_init=1" in options
            )
        assert gpu == int(row["per_gpu_bytes_formula"])
        assert f"{gpu / GIB:.2f}" == row["per_gpu_printed_GB"]
        assert f"{host / GIB:.2f}" == row["per_cpu_printed_GB"]
    divided = state_budget(t5, weights="fp16", gradients="fp16", master="fp32", main_gradients="fp32", sharding=Sharding(2, 8))
    assert divided.total == 2 * t5 + -(-t5 // 8) * 18  # what stage 2 needs once gradients are divided: 4.25 bytes a parameter, not 6


def printed(size: int) -> str:
    for unit, power in (("TB", 4), ("GB", 3), ("MB", 2)):
        if size >= 1024**power:
            return f"{size / 1024**power:.2f} {unit}"
    return str(size)


def test_the_figures_of_accelerate(shared):
    counted = COUNTS["bert-base-cased"]
    assert counted.unique * 4 + counted.buffers == 433_249_280
    words = 4 * counted.embeddings
    module = words + 4 * (counted.positions + 2 * 768) + counted.buffers
    compared = 0
    for row in rows_of(shared, "accelerate_estimate_memory"):
        if not row["total_bytes_fp32"]:  # the 80-billion model: bytes are not published, so those of its fp32 row are taken
            told = estimators.accelerate_estimate(round(297.12 * GIB), round(3.02 * GIB), row["dtype"])
            assert [printed(told[key]) for key in ("largest", "total", "training")] == [
                row[key] for key in ("largest_layer", "total", "training_adam")
            ]
            compared += 1
            continue
        # its documentation prints the table of words as the largest layer, its unit test expects the whole embeddings module
        assert module == int(row["largest_layer_bytes_fp32"])
        told = estimators.accelerate_estimate(int(row["total_bytes_fp32"]), words, row["dtype"])
        assert printed(told["largest"]) == row["largest_layer"]
        assert printed(told["total"]) == row["total"]
        assert "N/A (code)" in row["training_adam"] if told["training"] is None else printed(told["training"]) == row["training_adam"]
        compared += 1
    assert compared == 6
    assert printed(433_249_280) == "413.18 MB"  # and not the 418.18 MB that the documentation prints once
    exact = state_budget(counted.unique, buffers=counted.buffers)
    assert exact.total == 16 * counted.unique + 8192  # what Adam needs in sum; the tool says 4 × the model, and of int64 buffers too
    half = state_budget(counted.unique, weights="fp16", buffers=counted.buffers, optimizer="none")
    assert half.total - estimators.accelerate_estimate(433_249_280, 0, "float16")["total"] == 4096


def test_the_figures_of_the_eleuther_cookbook(shared):
    table = {row["example"]: row for row in rows_of(shared, "eleuther_cookbook_outputs")}
    runs = {
        "pythia 6.9B": ((32, 4096), {}, (32, 2048, 8), {"devices": 128, "tensor": 2, "partitioned": True}),
        "pythia 12B": ((36, 5120), {}, (40, 2048, 8), {"devices": 256, "tensor": 4, "partitioned": True}),
        "default 20B": ((44, 6144), {}, (64, 2048, 1), {}),
        "llama 7B": ((32, 4096), {"ffn": Fraction(7, 2), "sequence": 4096}, (32, 4096, 1), {"checkpointing": False}),
    }
    columns = {"activations": "activation", "model": "model", "gradients": "grad", "optimizer": "optimizer", "buckets": "comm"}
    for name, (sizes, more, (heads, sequence, batch), options) in runs.items():
        (row,) = [each for example, each in table.items() if example.startswith(name)]
        parameters = estimators.cookbook_parameters(*sizes, **more)
        assert f"{parameters / 1e9:.2f} B" == row["params"]
        told = estimators.cookbook_memory(parameters, *sizes, heads, sequence, batch, **options)
        for key, column in columns.items():
            assert told[key] / GIB == pytest.approx(float(row[f"{column}_GiB"]), abs=0.0051), (name, key)
        assert sum(told.values()) / GIB == pytest.approx(float(row["per_gpu_total_GiB"]), abs=0.0051)
    for name, options in (
        ("-l 96 -hs 12288 (", {}),
        ("-l 96 -hs 12288 -ca", {"checkpointing": False}),
        ("-l 12", {"experts": 512}),
    ):
        (row,) = [each for example, each in table.items() if example.startswith(name) and each["flops"]]
        layers, width = (12, 768) if "experts" in options else (96, 12_288)
        assert estimators.cookbook_flops(layers, width, 300 * 10**9, **options) == pytest.approx(float(row["flops"]), rel=5e-5)
