"""Recorded snapshots: sound by the checker, and unchanged by the native formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle_sim.events import check
from lifecycle_sim.sources.native import read_jsonl, read_npz, write_jsonl, write_npz

RECORDINGS = (
    "complete_small",
    "lm_medium_ctx512_train",
    "lm_train_midrun",
    "rl_pools_state_only",
    "torch20_after_oom",
    "torch214_stub_train_expandable",
)


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_snapshots(shared: Path, name: str) -> None:
    detect = pytest.importorskip("lifecycle_sim.sources.detect", reason="this checkout has no snapshot reader")
    trace = detect.read_trace(shared / f"data/snapshots/{name}.pickle")
    assert check(trace) == ()
    assert read_jsonl(write_jsonl(trace)) == trace
    assert read_npz(write_npz(trace)) == trace
