"""Record random programs with PyTorch's compiled allocator and compare the model with it, in everything.

    LIFECYCLE_SIM_GHOST="GHOST_RUN PYTHON" python -m benchmarks.ghost.check [--each 12] [--seed 0] [--group default] [--keep OUT.json.gz]

GHOST_RUN is a wrapper that runs PYTHON (with a CUDA build of torch 2.14.1) on a stub CUDA runtime whose device has FAKE_TOTAL bytes,
gives ever new addresses (FAKE_POLICY=0) or the lowest that fits (1), and completes a stream's events at its synchronisation.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.ghost.programs import SETTINGS, program
from lifecycle_sim.errors import InputError
from lifecycle_sim.replay.allocator import Release, parse_options
from tests.ghost_replay import deferred_frees_apart, differences

RECORDER = Path(__file__).with_name("record.py")


def record(programs: list[dict[str, Any]], ghost: list[str]) -> list[dict[str, Any]]:
    """Carry out programs that share their settings with the compiled allocator."""
    environment = {key: value for key, value in os.environ.items() if not key.endswith("ALLOC_CONF")}
    if programs[0]["settings"]:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = programs[0]["settings"]
    with tempfile.TemporaryDirectory() as folder:
        source, answer = Path(folder, "programs.json"), Path(folder, "recordings.json")
        source.write_text(json.dumps(programs))
        subprocess.run([*ghost, str(RECORDER), str(source), str(answer)], env=environment, check=True, stderr=subprocess.DEVNULL)
        recordings: list[dict[str, Any]] = json.loads(answer.read_text())
    return recordings


def _known(options: str, release: str) -> bool:
    try:
        parse_options(options, release)
    except InputError:
        return False
    return True


def main() -> int:
    """Record, compare, print; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--each", type=int, default=12, help="programs for each group of settings")
    parser.add_argument("--seed", type=int, default=0, help="number of the first program")
    parser.add_argument("--length", type=int, default=260, help="operations in a program")
    parser.add_argument("--group", action="append", choices=sorted(SETTINGS), help="only this group")
    parser.add_argument("--keep", type=Path, help="write the recordings there, as gzip JSON")
    parser.add_argument("--verbose", action="store_true", help="show every difference, not the first of each program")
    arguments = parser.parse_args()
    ghost = shlex.split(os.environ.get("LIFECYCLE_SIM_GHOST", ""))
    if not ghost:
        parser.error("set LIFECYCLE_SIM_GHOST to the command that runs a Python script on the stub device")
    differing = 0
    kept: list[dict[str, Any]] = []
    total = {"programs": 0, "identical": 0, "identical but for the order of frees deferred by a diversion": 0, "mallocs": 0, "events": 0}
    release = subprocess.check_output([*ghost, "-c", "import torch; print(torch.__version__)"], text=True).strip()
    holds_pools = Release.parse(release) < Release(2, 13)
    for group in arguments.group or SETTINGS:
        if not _known(SETTINGS[group], release):
            print(f"{group}: left out, PyTorch {release} does not know its options")
            continue
        seeds = range(arguments.seed, arguments.seed + arguments.each)
        for recording in record([program(group, seed, arguments.length, holds_pools) for seed in seeds], ghost):
            total["programs"] += 1
            if "error" in recording:
                print(f"{recording['name']}: not recorded: {recording['error'].strip().splitlines()[-1]}")
                continue
            found = differences(recording)
            total["identical"] += not found
            if found and deferred_frees_apart(recording):
                total["identical but for the order of frees deferred by a diversion"] += 1
                found = []
            total["mallocs"] += len(recording["addresses"])
            total["events"] += len(recording["trace"])
            kept.append(recording)
            differing += bool(found)
            for line in found if arguments.verbose else found[:1]:
                print(f"{recording['name']}: {line[:400]}")
    print(f"PyTorch {release}: " + ", ".join(f"{count:,} {name}" for name, count in total.items()))
    if arguments.keep:
        arguments.keep.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), 9, mtime=0))
        print(f"{arguments.keep}: {arguments.keep.stat().st_size:,} bytes")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
