"""The table of parameters: each storage once, under all its names; and what ``lifecycle-sim params`` says of a file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from tests.conftest import ROOT

torch: Any = pytest.importorskip("torch", reason="torch is not installed: counting a model's parameters needs it")
from torch import nn  # noqa: E402

from tests.capture_models import JOBS  # noqa: E402

SHARED_LINEAR = str(ROOT / "scenarios" / "capture" / "shared_linear.py")


def ask(*arguments: str, exit_code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["params", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


def told(*arguments: str) -> dict[str, Any]:
    return json.loads(ask(*arguments, "--json").stdout)


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("job", JOBS)
def test_a_table_is_what_a_plain_count_of_distinct_pointers_finds(job):
    build, _, make_optimizer, _ = JOBS[job]
    model = build()
    table = ls.params(model, make_optimizer(model))
    pointers = {parameter.data_ptr(): parameter for parameter in model.parameters()}
    assert table.elements == sum(parameter.numel() for parameter in pointers.values())
    assert table.size == table.gradients == sum(parameter.numel() * parameter.element_size() for parameter in pointers.values())
    assert table.buffers == sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    names = [name for row in table.rows if not row.buffer for name in row.names]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters(remove_duplicate=False))
    assert (table.state, table.counters, table.stepped) == (0, 0, False)


def test_every_way_to_share_a_storage_gives_one_row():
    class Sharing(nn.Module):
        def __init__(self):
            super().__init__()
            flat = torch.zeros(100)
            self.first = nn.Parameter(flat[:60].view(6, 10))
            self.second = nn.Parameter(flat[60:])
            self.third = self.first
            self.register_buffer("seen", flat.detach())
            self.register_buffer("other", torch.zeros(7, dtype=torch.int64))

    table = ls.params(Sharing())
    shared, other = table.rows
    assert shared.names == ("first", "second", "third", "seen")
    assert (shared.shape, shared.references, shared.objects, shared.elements, shared.size) == ((6, 10), 4, 3, 100, 400)
    assert (shared.gradient, shared.buffer, shared.trainable) == (400, False, True)
    assert (other.names, other.size, other.buffer, other.gradient) == (("other",), 56, True, 0)
    assert (table.size, table.buffers, table.by_name) == (400, 56, 240 + 160 + 240 + 400 + 56)


def test_frozen_parameters_have_no_gradient_and_gradients_that_are_there_are_counted_as_they_are():
    model = nn.Linear(8, 4)
    model.weight.requires_grad_(False)
    model.bias.grad = torch.zeros(4, 2)[:, 0]
    table = ls.params(model)
    assert [(row.trainable, row.gradient) for row in table.rows] == [(False, 0), (True, 32)]


def test_an_optimizers_own_copies_of_parameters_are_its_state():
    model = nn.Linear(8, 4, bias=False).to(torch.bfloat16)
    masters = [parameter.detach().float().requires_grad_() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(masters)
    masters[0].grad = torch.zeros(4, 8)
    optimizer.step()
    table = ls.params(model, optimizer)
    assert table.by_key == {"exp_avg": 128, "exp_avg_sq": 128, "parameters of its own": 128}
    assert (table.rows[0].state, table.own, table.state, table.counters) == (0, 384, 384, 4)
    assert table.total == 64 + 64 + 384


def test_states_that_share_a_storage_count_once():
    model = nn.Linear(8, 4, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    flat = torch.zeros(64)
    optimizer.state[model.weight] = {"first": flat[:32], "second": flat[32:], "more": [flat.view(8, 8)]}
    table = ls.params(model, optimizer)
    assert (table.by_key, table.state) == ({"first": 256}, 256)


def test_the_state_of_a_scalar_parameter_is_no_counter():
    model = nn.Module()
    model.scale = nn.Parameter(torch.tensor(1.0))
    optimizer = torch.optim.AdamW(model.parameters())
    model.scale.grad = torch.tensor(1.0)
    optimizer.step()
    table = ls.params(model, optimizer)
    assert (table.state, table.counters) == (8, 4)


def test_what_is_no_model_is_told():
    with pytest.raises(ls.CaptureError, match="model is a dict: give a module of torch"):
        ls.params({})
    with pytest.raises(ls.CaptureError, match="optimizer is a dict: give an optimizer of torch"):
        ls.params(nn.Linear(1, 1), {})
    assert "together" in ls.params(nn.Linear(1, 1))._repr_html_()


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "weight", "state", "total"),
    [
        ((SHARED_LINEAR,), 32_768, 65_536, 131_072),
        ((SHARED_LINEAR, "--dtype", "bf16"), 16_384, 32_768, 65_536),
        ((f"{SHARED_LINEAR}:with_master",), 16_384, 98_304, 131_072),
    ],
)
def test_the_shared_linear_layers(arguments, weight, state, total):
    document = told(*arguments)
    (row,) = document["shown"]
    assert (row["names"], row["references"], row["objects"], row["elements"]) == (["query.weight", "key.weight"], 2, 1, 8_192)
    assert (row["bytes"], row["gradient"], row["optimizer_state"]) == (weight, weight, state)
    assert (document["total"], document["by_name"]) == (total, 2 * weight)
    assert f"{total:,} B" in ask(*arguments).stdout
    assert document["basis"] == "payload"


def test_every_key_is_named_in_the_docs():
    text = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    section = text[text.index("## `lifecycle-sim/params/1`") :]

    def keys(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield key
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    assert {key for key in keys(told(SHARED_LINEAR)) if f"`{key}`" not in section} == {"schema"}


BIG = """
import torch
from torch import nn

print("the file speaks")

def build_model(layers=2):
    return nn.Sequential(*(nn.Linear(8192, 8192, bias=False) for _ in range(layers)))

def make_optimizer(model):
    return torch.optim.AdamW(model.parameters())

def only_model():
    return nn.Linear(3, 3)
"""


def test_a_model_that_would_not_fit_is_counted_without_its_memory(tmp_path):
    path = tmp_path / "big.py"
    path.write_text(BIG)
    document = told(str(path), "--param", "layers=1000")
    assert document["parameters"] == {"storages": 1000, "elements": 1000 * 2**26, "bytes": 1000 * 2**28}
    assert document["total"] == 4 * 1000 * 2**28
    assert "(1000 GiB)" in ask(str(path), "--param", "layers=1000").stdout
    assert told(f"{path}:only_model")["source"]["optimizers"] == []


@pytest.mark.parametrize(
    ("text", "ending", "said"),
    [
        ("", "", "defines no function build_model()"),
        ("def build_model():\n    return 3\n", "", "build_model returned a int: return a torch.nn.Module"),
        ("def build_model():\n    raise KeyError('width')\n", "", "build_model failed with KeyError: 'width'"),
        (
            "import torch\ndef build_model():\n    return torch.nn.Linear(1, 1)\n",
            ":absent",
            "defines no function 'absent': it defines build_model",
        ),
        ("1 +\n", "", "failed with SyntaxError"),
        (
            "import torch\ndef build_model():\n    return torch.nn.Linear(1, 1)\ndef make_optimizer(model):\n    return 1\n",
            "",
            "make_optimizer returned a int: return a torch.optim.Optimizer",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, text, ending, said):
    path = tmp_path / "model.py"
    path.write_text(text)
    result = ask(f"{path}{ending}", exit_code=3)
    assert said in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_file_that_is_not_there_an_unknown_type_and_an_unknown_parameter():
    assert "there is no such file" in ask("absent.py", exit_code=3).stderr
    assert "write FILE.py or FILE.py:FUNCTION" in ask("model.txt", exit_code=3).stderr
    assert "dtype 'bf17' is not known" in ask(SHARED_LINEAR, "--dtype", "bf17", exit_code=3).stderr
    assert "no function takes 'layers'" in ask(SHARED_LINEAR, "--param", "layers=2", exit_code=3).stderr
