"""Storages of a recording dropped and made again: the true peak lies between the bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from lifecycle_sim.study.dropped import what_if_dropped
from tests.cli_support import json_of
from tests.conftest import ROOT

GPT = ROOT / "scenarios" / "capture" / "gpt_step.jsonl.gz"
REAL = {
    # requested peak of a capture of the recorded program with torch's checkpoint around these modules of it
    (256, "model.py:38? forward"): 7_033_896_964,  # blocks.*
    (256, "model.py:399 forward"): 7_134_167_048,  # blocks.*.ffn
    (512, "model.py:38? forward"): 7_235_653_640,
    (512, "model.py:399 forward"): 10_372_395_008,
}


@pytest.mark.parametrize("context", [256, 512])
def test_real_checkpointing_lies_between_the_bounds(shared: Path, context: int) -> None:
    replayed = ls.replay_device(ls.read_trace(shared / f"data/snapshots/lm_medium_ctx{context}_train.pickle"))
    for (of, pattern), peak in REAL.items():
        if of == context:
            found = what_if_dropped(replayed, pattern)
            assert found.lower <= peak <= found.upper < found.base
            assert found.regions == 24


@pytest.fixture(scope="module")
def gpt() -> ls.Trace:
    return ls.read_trace(GPT)


@pytest.mark.parametrize("pattern", ["blocks.*", "blocks.[0-5]", "blocks.1?", "blocks.*.layers"])
def test_the_exact_answer_lies_between_the_bounds(gpt: ls.Trace, pattern: str) -> None:
    exact = ls.what_if(gpt, pattern).edited.requested
    found = what_if_dropped(ls.replay_device(gpt), f"<{pattern}>")
    assert found.lower <= exact <= found.upper
    assert found.lower < found.base == ls.replay_device(gpt).peak.size


def test_what_is_no_recording_of_a_backward_pass_is_refused(gpt: ls.Trace) -> None:
    with pytest.raises(ls.InputError, match="no frame matches"):
        what_if_dropped(ls.replay_device(gpt), "no such code")
    with pytest.raises(ls.InputError, match="what matches is <optimizer AdamW>:0 optimizer"):
        what_if_dropped(ls.replay_device(gpt), "optimizer AdamW")
    with pytest.raises(ls.InputError, match="nothing tells where the backward pass begins"):
        what_if_dropped(ls.replay_device(ls.run_scenario(ROOT / "scenarios" / "ledger.toml")), "*")


def invoke(*arguments: Any) -> Any:
    return CliRunner(catch_exceptions=False).invoke(main, ["whatif", *map(str, arguments)])


def test_the_command_tells_bounds() -> None:
    document = json_of(invoke(GPT, "--drop", "<blocks.*>", "--json"))
    told = document["devices"][0]["peak"]
    assert told["lower"] <= told["upper"] < told["base"]
    assert document["fits"] is None
    for capacity, fits, code in ((told["lower"] - 1, False, 1), (told["upper"], True, 0), (told["upper"] - 1, None, 0)):
        made = invoke(GPT, "--drop", "<blocks.*>", "--capacity", f"{capacity} B", "--json")
        assert (json_of(made)["fits"], made.exit_code) == (fits, code)
    assert "An approximation" in invoke(GPT, "--drop", "<blocks.*>").stdout
    assert invoke(GPT, "--drop", "<blocks.*>", "--shard", "zero1:2").exit_code == 2
