"""Strategies joined, one at a time, and from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import lifecycle_sim as ls
from lifecycle_sim.cli import captured, main
from lifecycle_sim.study.strategies import Strategies, ladder, read_strategies, what_if_strategies
from tests.cli_support import json_of
from tests.conftest import ROOT

GPT = ROOT / "scenarios" / "capture" / "gpt_step.jsonl.gz"


@pytest.fixture(scope="module")
def gpt() -> ls.Trace:
    return ls.read_trace(GPT)


def invoke(*arguments: Any) -> Any:
    return CliRunner(catch_exceptions=False).invoke(main, ["whatif", *map(str, arguments)])


def test_a_ladder_adds_one_at_a_time(gpt: ls.Trace) -> None:
    strategies = Strategies(checkpoint=("blocks.*",), optimizer="sgd", shard="zero3:4")
    rungs = ladder(gpt, strategies)
    assert [rung.name for rung in rungs] == ["as captured", "optimizer sgd", "shard zero3:4", "recompute blocks.*"]
    assert rungs[0].found.edited == rungs[0].found.base
    assert rungs[-1].found.edited == what_if_strategies(gpt, strategies).edited
    peaks = [rung.found.edited.requested for rung in rungs]
    assert peaks == sorted(peaks, reverse=True)
    assert not any(rung.trains_otherwise for rung in rungs)
    assert [rung.found.communication is None for rung in rungs] == [True, True, False, False]


def test_what_changes_the_program_captures_it_again_and_freezing_is_marked(gpt: ls.Trace) -> None:
    asked = []

    def recapture(strategies: Strategies) -> ls.Trace:
        asked.append(strategies.variant())
        return gpt

    strategies = Strategies(accumulate=2, freeze=("tokens",), optimizer="adamw-fused", checkpoint=("blocks.0",))
    rungs = ladder(gpt, strategies, recapture)
    assert [rung.trains_otherwise for rung in rungs] == [False, False, False, True, False]
    assert asked[0] == ls.Variant(accumulate=2)
    assert asked[-1] == ls.Variant(optimizer="adamw-fused", accumulate=2, freeze=("tokens",))
    assert rungs[-1].found.edited_by == ("optimizer adamw-fused", "2 micro-batches accumulated", "frozen: tokens")


def test_strategies_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "edits.toml"
    path.write_text('checkpoint = "blocks.*"\nshard = "zero2:8"\noffload = ["optimizer"]\nlink = "25 GB/s"\nahead = 3\n')
    expected = Strategies(checkpoint=("blocks.*",), shard="zero2:8", offload=("optimizer",), link="25 GB/s", ahead=3)
    assert read_strategies(path) == expected
    by_flags = invoke(GPT, "--checkpoint", "blocks.*", "--shard", "zero2:8", "--offload", "optimizer", "--link", "25 GB/s", "--ahead", 3)
    assert by_flags.exit_code == 0
    assert invoke(GPT, "--edits", path).stdout == by_flags.stdout
    path.write_text("chekpoint = 1\nahead = true\nfreeze = [1]\n")
    with pytest.raises(ls.InputError) as caught:
        read_strategies(path)
    assert [problem.partition(": ")[2] for problem in caught.value.problems] == [
        "unknown key 'chekpoint': did you mean 'checkpoint'?",
        "ahead is True: give a whole number",
        "freeze is [1]: give a list of texts",
    ]
    assert invoke(GPT, "--edits", tmp_path / "absent.toml").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "nothing is to be done"),
        (["--offload", "saved"], 3, "offload: over what?"),
        (["--link", "25 GB/s"], 3, "link: nothing goes to the host"),
        (["--shard", "zero1:2", "--ahead", "5", "--wait"], 3, "ahead, wait: nothing goes to the host"),
        (["--checkpoint", "blocks.*", "--kind", "lifecycle"], 2, "--kind lifecycle says what is drawn, and nothing is"),
        (["--checkpoint", "blocks.*", "--kind", "timeline", "-o", "x.jsonl"], 2, "add -o with a .png, .svg or .pdf"),
        (["--drop", "model.py", "--batch", "4", "--conf", "backend:native"], 2, "leave --batch, --conf out"),
        (["--offload", "weights", "--link", "1 GB/s"], 3, "offload 'weights' is not known: choose of saved, optimizer"),
        (["--offload", "saved", "--link", "25 GB"], 3, "'25 GB' is no rate: write bytes a second, such as '25 GB/s'"),
        (["--save", "aten.mm.default"], 3, "save: no module is recomputed"),
        (["--freeze", "tokens", "--accumulate", "2"], 3, "ask about the FILE.py"),
        (["--in-backward"], 3, "in-backward: a capture does not tell when each gradient is whole"),
        (["--to-dtype", "bf16"], 3, "dtype: a capture does not tell which kernels run in another type"),
        (["--optimizer", "adam"], 3, "optimizer 'adam' is not known"),
        (["--optimizer", "sgd", "--offload", "optimizer", "--link", "1 GB/s"], 3, "sgd keeps no state"),
        (["--checkpoint", "blocks.*", "--offload", "saved", "--link", "1 GB/s"], 3, "not both"),
        (["--shard", "zero2:2", "--ladder", "-o", "x.jsonl"], 2, "a ladder has a trace for each rung"),
    ],
)
def test_what_cannot_be_joined_or_told(arguments: list[str], code: int, says: str) -> None:
    made = invoke(GPT, *arguments)
    assert made.exit_code == code
    assert says in made.output


def test_the_command_on_a_program(monkeypatch: pytest.MonkeyPatch, gpt: ls.Trace) -> None:
    """The program is captured as it is, and once more as it is changed."""
    asked: list[Any] = []

    def stand_in(source: str, parameters: Any, options: Any, variant: Any = None) -> ls.Trace:
        asked.append((source, parameters, options, variant))
        return gpt

    monkeypatch.setattr("lifecycle_sim.cli.whatif.captured_trace", stand_in)
    made = invoke("train.py", "--batch", 8, "--accumulate", 4, "--to-autocast", "bf16", "--device", "l4", "--dtype", "fp16", "--json")
    assert made.exit_code == 0, made.output
    assert asked == [
        ("train.py", {"batch": 8}, {"device": "l4", "autocast": None, "dtype": "fp16"}, None),
        ("train.py", {"batch": 8}, {"device": "l4", "autocast": "bf16", "dtype": "fp16"}, ls.Variant(accumulate=4)),
    ]
    assert json_of(made)["devices"][0]["edits"] == ["4 micro-batches accumulated", "autocast to bf16"]
    assert captured.captured_trace.__name__ == "captured_trace"


def test_the_ladder_of_the_command() -> None:
    made = invoke(GPT, "--shard", "zero3:8", "--checkpoint", "blocks.*", "--ladder")
    assert made.exit_code == 0
    for words in ("as captured", "shard zero3:8", "recompute blocks.*", "At the peak of requested bytes, by category", "time, at least"):
        assert words in made.stdout
