"""Ask PyTorch's compiled allocator whether what `--why` says of its failures is true.

    LIFECYCLE_SIM_GHOST="GHOST_RUN PYTHON" python -m benchmarks.ghost.failures [--each 40] [--seed 0]

Random programs run into their first failure on a small device. Each failure is explained, and then every remedy is really tried: the same
program under the other settings, on the larger device and on one that is 2 MiB smaller than that, with an empty_cache() before the request,
and with that request made smaller, to the byte and one byte more. GHOST_RUN is as in check.py.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.ghost.check import record
from lifecycle_sim.events import Trace
from lifecycle_sim.replay import replay_device
from lifecycle_sim.replay.allocator.requests import Action, Requests
from lifecycle_sim.replay.allocator.rerun import Failure
from lifecycle_sim.study.what_if import ask
from lifecycle_sim.study.why import Why, why_out_of_memory
from tests.ghost_traces import trace_of

MIB = 1 << 20
SETTINGS = ("", "expandable_segments:True", "max_split_size_mb:32", "large_segment_size_mb:32,roundup_power2_divisions:4")
SOME_FAILURE = -1


class Trial(NamedTuple):
    """A program, and which of its mallocs should fail first: None is none of them, ``SOME_FAILURE`` any."""

    what: str
    program: dict[str, Any]
    expected: int | None


def program(seed: str, settings: str) -> dict[str, Any]:
    """Return a program of ragged sizes that tends to run out of memory."""
    rng = random.Random(f"{settings}/{seed}")
    total, streams, style = rng.choice([192, 224, 256]) * MIB, rng.choice([1, 1, 2]), rng.choice(["grow", "mix", "ragged"])
    ops: list[list[Any]] = []
    live: list[int] = []
    for step in range(400):
        draw = rng.random()
        if live and draw < 0.46:
            ops.append(["free", live.pop(rng.randrange(len(live)))])
            continue
        if draw < 0.48:
            ops.append(["sync", rng.randrange(streams)])
        elif draw < 0.482:
            ops.append(["empty"])
        size = int(2 ** rng.uniform(9, 24.2))
        if style == "grow":
            size = int(rng.uniform(1.1, 2) * MIB * (1 + step / 30))
        elif style == "ragged":
            size = rng.choice([3 * MIB, 7 * MIB, 11 * MIB, 13 * MIB, 19 * MIB, 1_536_000, 204_800]) + rng.randrange(4096)
        live.append(step)
        ops.append(["malloc", step, size, rng.randrange(streams)])
        if streams > 1 and rng.random() < 0.08:
            ops.append(["use", rng.choice(live), rng.randrange(streams)])
    return {"name": f"{settings or 'default'}/{seed}", "settings": settings, "total": total, "policy": 0, "ops": ops}


def first_failure(recording: dict[str, Any]) -> int | None:
    """Return which malloc failed first."""
    return next((at for at, address in enumerate(recording["addresses"]) if address is None), None)


def cut(recording: dict[str, Any]) -> dict[str, Any] | None:
    """Return the program up to its first failure, None if it has none."""
    failed = first_failure(recording)
    if failed is None:
        return None
    mallocs = [at for at, op in enumerate(recording["ops"]) if op[0] == "malloc"]
    return {key: recording[key] for key in ("name", "settings", "total", "policy")} | {"ops": recording["ops"][: mallocs[failed] + 1]}


def trials(recording: dict[str, Any]) -> list[Trial]:
    """Explain the failure of a recording; return what the compiled allocator should then do."""
    settings: dict[str, Any] = {"PYTORCH_CUDA_ALLOC_CONF": recording["settings"]}
    if "expandable_segments:True" in recording["settings"]:
        settings["expandable_segments"] = True
    trace: Trace = replace(trace_of(recording), settings=settings, release=recording["torch"])
    found = why_out_of_memory(replay_device(trace))
    if not isinstance(found, Why):
        raise SystemExit(f"{recording['name']}: the model does not fail")
    requests = ask(replay_device(trace)).requests
    plain = {key: recording[key] for key in ("name", "settings", "total", "policy", "ops")}
    last, made = plain["ops"][-1], [Trial("as recorded", plain, _malloc(requests, found.failure))]
    for remedy in found.remedies:
        expected = None if remedy.fits else _malloc(requests, remedy.failure)
        if remedy.means == "flush":
            flushed = [*plain["ops"][:-1], ["empty"], last]
            made.append(Trial(remedy.name, plain | {"ops": flushed}, None if remedy.fits else first_failure(recording)))
        elif remedy.means == "settings":
            made.append(Trial(remedy.name, plain | {"settings": _options(recording["settings"], remedy.name)}, expected))
        elif remedy.total is not None and remedy.means == "capacity":
            made.append(Trial("more of the device", plain | {"total": remedy.total}, expected))
            made.append(Trial("2 MiB less than that", plain | {"total": remedy.total - 2 * MIB}, SOME_FAILURE))
        elif remedy.total is not None:
            for extra, outcome in ((0, None), (1, SOME_FAILURE)):
                smaller = [*plain["ops"][:-1], [*last[:2], remedy.total + extra, last[3]]]
                made.append(Trial(f"the largest request{' and a byte' if extra else ''}", plain | {"ops": smaller}, outcome))
    return made


def _malloc(requests: Requests, failure: Failure | None) -> int | None:
    """Which malloc a failure is."""
    if failure is None:
        return None
    made = requests.action[: failure.request]
    return int(((made == Action.ALLOC) | (made == Action.ATTEMPT)).sum())


def _options(settings: str, remedy: str) -> str:
    key = remedy.removeprefix("no ").split(":")[0]
    kept = [option for option in settings.split(",") if option and not option.startswith(key)]
    return ",".join(kept if remedy.startswith("no ") else [*kept, remedy])


def main() -> int:
    """Record, explain, try; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--each", type=int, default=40, help="programs for each group of settings")
    parser.add_argument("--seed", type=int, default=0, help="number of the first program")
    arguments = parser.parse_args()
    ghost = shlex.split(os.environ.get("LIFECYCLE_SIM_GHOST", ""))
    if not ghost:
        parser.error('set LIFECYCLE_SIM_GHOST to "GHOST_RUN PYTHON"')
    by_settings: dict[str, list[Trial]] = defaultdict(list)
    failing = 0
    for settings in SETTINGS:
        seeds = range(arguments.seed, arguments.seed + arguments.each)
        shortened = [short for each in record([program(str(seed), settings) for seed in seeds], ghost) if (short := cut(each))]
        failing += len(shortened)
        for recording in record(shortened, ghost) if shortened else []:
            for trial in trials(recording):
                by_settings[trial.program["settings"]].append(trial)
    count: Counter[str] = Counter()
    for group in by_settings.values():
        for trial, real in zip(group, record([trial.program for trial in group], ghost), strict=True):
            failed = first_failure(real)
            right = failed is not None if trial.expected == SOME_FAILURE else failed == trial.expected
            count["right" if right else "wrong"] += 1
            if not right:
                late = sum(op[0] == "use" for op in trial.program["ops"])
                print(f"{trial.program['name']}, {trial.what}: expected {trial.expected}, was {failed}; {late} record_stream calls")
    print(f"{failing} failures, {count['right'] + count['wrong']} trials: {count['right']} as told, {count['wrong']} not")
    return int(count["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
