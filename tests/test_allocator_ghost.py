"""The model against programs recorded with PyTorch's compiled allocator: placements, trace, final blocks, statistics with peaks.

The recordings were made by ``python -m benchmarks.ghost.check --keep``; benchmarks/ghost/README.md says how to make more.
"""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.allocator_checker import check
from tests.ghost_replay import allocator_for, carry_out, deferred_frees_apart, differences

FILES = sorted((Path(__file__).parent / "data").glob("ghost_programs_*.json.gz"))
RECORDINGS = {f"{r['torch'].split('+')[0]}/{r['name']}": r for file in FILES for r in json.loads(gzip.decompress(file.read_bytes()))}


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_model_does_what_the_compiled_allocator_did(name: str) -> None:
    recording = RECORDINGS[name]
    found = differences(recording)
    if found and deferred_frees_apart(recording):
        return  # the order of these frees is that of pointers in a hash map, which no recording holds
    assert not found


@pytest.mark.parametrize("name", [name for name in RECORDINGS if name.startswith("2.14")])
def test_an_independent_check_agrees(name: str) -> None:
    allocator = allocator_for(RECORDINGS[name])
    carry_out(RECORDINGS[name], allocator)
    check(allocator)


def test_the_recordings_exercise_what_they_are_for() -> None:
    def total(counter: str) -> int:
        return sum(recording["statistics"].get(counter, 0) for recording in RECORDINGS.values())

    def actions(action: str) -> int:
        return sum(row[0] == action for recording in RECORDINGS.values() for row in recording["trace"])

    assert len(RECORDINGS) >= 80
    assert len({recording["settings"] for recording in RECORDINGS.values()}) >= 8
    assert total("num_alloc_retries") > 100
    assert total("num_ooms") > 100
    assert total("num_oom_rejections") > 0
    for action in ("segment_free", "segment_map", "segment_unmap", "free_completed", "oom"):
        assert actions(action) > 50, action
    assert sum(late_frees(recording) for recording in RECORDINGS.values()) > 100


def late_frees(recording: dict[str, Any]) -> int:
    """How many frees were not completed at once."""
    pairs = pairwise(recording["trace"])
    return sum(row[0] == "free_completed" and before[:2] != ["free_requested", row[1]] for before, row in pairs)
