"""Load, exact peak and attribution of large snapshots, each in a process of its own, against a plain ``pickle.load`` of the same file.

``pickle.load`` runs with the collector on, as every script that reads a snapshot has it. User CPU seconds and peak resident memory
are those of the whole process, imports included.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recordings import write_recording

PREAMBLE = "import sys, resource, json"
REPORT = (
    "u = resource.getrusage(resource.RUSAGE_SELF); "
    "print(json.dumps({'seconds': u.ru_utime, 'mib': u.ru_maxrss / 1024, 'answer': len(repr(answer))}))"
)
PLAIN = f"{PREAMBLE}, pickle; document = pickle.load(open(sys.argv[1], 'rb')); answer = ''; {REPORT}"
WHOLE = (
    f"{PREAMBLE}; import lifecycle_sim as ls; replayed = ls.replay_device(ls.read_trace(sys.argv[1])); "
    f"answer = ls.attribute(replayed, by='owner'); {REPORT}"
)


def measure(program: str, path: Path) -> dict[str, Any]:
    """Run *program* on *path* in a fresh process and return its user CPU seconds, peak MiB and length of its answer."""
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(("events", "frames"), [(100_000, 10), (1_000_000, 10), (3_000_000, 40)])
def test_load_peak_and_attribution(benchmark: Any, tmp_path: Path, events: int, frames: int) -> None:
    path = tmp_path / "recording.pickle"
    write_recording(path, events, frames)
    plain = measure(PLAIN, path)
    whole = benchmark.pedantic(measure, (WHOLE, path), rounds=3 if events < 2_000_000 else 1)
    ratio = whole["seconds"] / plain["seconds"]
    benchmark.extra_info.update(whole, ratio=ratio)
    print(
        f"\n{events:,} events x {frames} frames, {path.stat().st_size / 2**20:.0f} MiB: {whole['seconds']:.2f} s of user CPU and "
        f"{whole['mib']:.0f} MiB; pickle.load alone {plain['seconds']:.2f} s and {plain['mib']:.0f} MiB; ratio {ratio:.2f}"
    )


def test_growth(benchmark: Any, tmp_path: Path) -> None:
    seconds, lengths = [], []
    for events in (200_000, 2_000_000):
        path = tmp_path / f"{events}.pickle"
        write_recording(path, events, 10)
        runs = [measure(WHOLE, path) for _ in range(3)]
        seconds.append(min(run["seconds"] for run in runs))
        lengths.append(runs[0]["answer"])
    benchmark.pedantic(lambda: None)
    print(
        f"\n10 times the events take {seconds[1] / seconds[0]:.1f} times the time; answers of {lengths[0]:,} and {lengths[1]:,} characters"
    )
    assert lengths[1] < 2 * lengths[0], "an answer must not grow with the number of events"
