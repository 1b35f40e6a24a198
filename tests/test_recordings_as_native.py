"""Recorded snapshots: sound by the checker, and unchanged by the native formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle_sim.events import check
from lifecycle_sim.sources.native import read_jsonl, read_npz, write_jsonl, write_npz

OLDER_THAN_THE_WINDOW = {
    "complete_small": 0,
    "lm_medium_ctx512_train": 438,
    "lm_train_midrun": 329,
    "rl_pools_state_only": 0,
    "torch20_after_oom": 0,
    "torch214_stub_train_expandable": 0,
}


@pytest.mark.parametrize(("name", "older"), OLDER_THAN_THE_WINDOW.items())
def test_recorded_snapshots(shared: Path, name: str, older: int) -> None:
    detect = pytest.importorskip("lifecycle_sim.sources.detect", reason="this checkout has no snapshot reader")
    trace = detect.read_trace(shared / f"data/snapshots/{name}.pickle")
    found = [(finding.code, finding.severity, finding.count) for finding in check(trace)]
    assert found == ([("free_of_unknown", "warning", older)] if older else [])
    assert read_jsonl(write_jsonl(trace)) == trace
    assert read_npz(write_npz(trace)) == trace
