"""What-ifs against PyTorch's own CUDA code: jobs with modules really checkpointed, from captures of the same jobs without. To the byte.

The two largest kinds of jobs take long: they run if ``LIFECYCLE_SIM_ALL_JOBS`` is set.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

import lifecycle_sim as ls  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.test_capture_recordings import stub_job, tool  # noqa: E402

JOBS = json.loads((ROOT / "tests" / "data" / "checkpointed_jobs.json").read_text(encoding="utf-8"))["jobs"]
QUICK = ("every second block of a ResNet",)


@pytest.mark.parametrize("name", JOBS)
def test_a_checkpointed_job_is_told_from_a_capture_without(name: str, shared: Path) -> None:
    if name not in QUICK and not os.environ.get("LIFECYCLE_SIM_ALL_JOBS"):
        pytest.skip("takes long: set LIFECYCLE_SIM_ALL_JOBS to run it")
    recorded = JOBS[name]
    jobs = tool(shared, "stub_jobs")
    captured = stub_job(jobs, recorded["job"], len(recorded["steps"]))
    found = ls.what_if(captured, recorded["checkpoint"], recorded["save"] or None, recorded["early_stop"])
    for edited, told in zip(ls.predict(found.trace, capacity=80 * 2**30).steps, recorded["steps"], strict=True):
        for level in ("requested", "allocated", "reserved"):
            assert {"peak": getattr(edited, level), "after": getattr(edited, f"{level}_after")} == told[f"{level}_bytes"], level
