"""Predict every job of the families, and set the predictions beside what PyTorch's own CUDA code did.

    python -m benchmarks.families [JOB …] [--record] [--whole]

The recorded levels are kept in tests/data/families.json. With ``--record`` they are made anew: LIFECYCLE_SIM_GHOST names the command that
runs a Python script with a CUDA build of torch on a stub driver, as for benchmarks.ghost. ``--whole`` prints each level of each step.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lifecycle_sim as ls
from lifecycle_sim.sources.capture.launch import capture_file

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parents[1] / "tests" / "data" / "families.json"
STEPS, CAPACITY = 3, 80 * 2**30
LEVELS = ("requested", "allocated", "reserved")
JOBS: dict[str, tuple[str, ...]] = {
    "text": ("bert", "bert_amp", "translator", "llama", "llama_float32", "generation", "library_encoder"),
    "mixture": ("experts", "experts_amp"),
    "recurrent": ("lstm", "gru"),
    "pictures": ("unet", "vit", "vit_amp", "convnext", "diffusion"),
    "tables": ("recommender",),
    "ways": (
        "sgd",
        "adam_amsgrad",
        "adamw_fused",
        "adamw_loop",
        "adafactor",
        "rmsprop",
        "eight_bits",
        "in_backward",
        "half_scaled",
        "bfloat_autocast",
        "bfloat_pure",
        "checkpointed",
        "checkpointed_reentrant",
        "checkpointed_selective",
        "accumulated",
        "adapters",
        "distilled",
    ),
    "odds": (
        "sound",
        "volumes",
        "upscaled",
        "warped",
        "contrasted",
        "waves",
        "sampled",
        "gathered",
        "normed",
        "masked",
    ),
}
"""The jobs of each file."""


def recorded_by(command: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Run the jobs *names* with *command*; return their levels by name: for each step and level the peak and what is left after it."""
    places = [f"{HERE / file}.py:{job}" for file, jobs in JOBS.items() for job in jobs if job in names]
    done = subprocess.run([*command, str(HERE / "record.py"), str(STEPS), *places], stdout=subprocess.PIPE, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        said = json.loads(line)
        name = said["job"].rpartition(":")[2]
        if "error" in said:
            raise SystemExit(f"{name} was not recorded: {said['error']}")
        found[name] = [[step[f"{level}_bytes"] for level in LEVELS] for step in said["steps"]]
    return found


def predicted(name: str) -> list[list[list[int]]]:
    """Return the levels of the job *name* as a capture predicts them, in the form of the recorded ones."""
    return levels_of(capture_file(file_of(name), name, warmup=0, steps=STEPS))


def file_of(name: str) -> str:
    """Return the path of the file that has the job *name*."""
    return next(str(HERE / f"{file}.py") for file, jobs in JOBS.items() if name in jobs)


def levels_of(captured: ls.Capture) -> list[list[list[int]]]:
    """Return for each step and level of a capture the peak and what is left after it."""
    steps = ls.predict(captured.trace, capacity=CAPACITY).steps
    return [[[getattr(step, level), getattr(step, f"{level}_after")] for level in LEVELS] for step in steps]


def row(name: str, found: list[list[list[int]]], told: list[list[list[int]]], whole: bool) -> str:
    """Return a row of the table: what was recorded at the highest peak, and the largest error of each level in any step."""
    parts = [f"| {name} "]
    for level, _ in enumerate(LEVELS):
        worst = max((mine - true for a, b in zip(found, told, strict=True) for mine, true in zip(a[level], b[level], strict=True)), key=abs)
        peak = max(step[level][0] for step in told)
        parts.append(f"| {peak:,} | {worst:+,} " if whole or not level else f"| {worst:+,} ")
    return "".join(parts) + "|"


def main() -> None:
    """Print the table of the jobs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.families", description=__doc__)
    parser.add_argument("job", nargs="*", help="the jobs; by default all")
    parser.add_argument("--record", action="store_true", help="run the jobs with LIFECYCLE_SIM_GHOST first")
    parser.add_argument("--whole", action="store_true", help="with the peaks of allocated and reserved bytes")
    chosen = parser.parse_args()
    every = [job for jobs in JOBS.values() for job in jobs]
    unknown = [job for job in chosen.job if job not in every]
    if unknown:
        parser.error(f"no such job: {', '.join(unknown)}; the jobs are {', '.join(every)}")
    names = [job for job in every if not chosen.job or job in chosen.job]
    kept = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if chosen.record:
        command = shlex.split(os.environ.get("LIFECYCLE_SIM_GHOST", ""))
        if not command:
            parser.error("set LIFECYCLE_SIM_GHOST to the command that runs a Python script on the stub device")
        kept |= recorded_by(command, names)
        lines = [f" {json.dumps(name)}: {json.dumps(kept[name], separators=(',', ':'))}" for name in every if name in kept]
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    head = "| job | requested | error | allocated | reserved |"
    if chosen.whole:
        head = "| job | requested | error | allocated | error | reserved | error |"
    print(head)
    print("|---" * (head.count("|") - 1) + "|")
    exact = 0
    for name in names:
        found = predicted(name)
        exact += found == kept[name]
        print(row(name, found, kept[name], chosen.whole), flush=True)
    print(f"{exact} of {len(names)} to the byte, on every level at every peak and after every step", file=sys.stderr)


if __name__ == "__main__":
    main()
