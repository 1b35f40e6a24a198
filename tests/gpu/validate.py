"""Runs jobs for real on a CUDA device, records their memory, predicts it, and prints how the two differ. Under ten minutes on any card.

    python tests/gpu/validate.py                     # from the project's root, with torch and this project installed
    python tests/gpu/validate.py --only gpt --keep snapshots/

Each job is a program of ``scenarios/capture``; it runs in a process of its own, so that each begins with an empty allocator: two steps of
warm-up, then the one that is told of. Recorded are torch's own statistics of that step and a snapshot of all steps. The prediction is made
on fake tensors, for a profile with the figures that the device itself reports. The exit code is 0 if every requested peak is exact, or
within the interval of a term that has no value; else 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import lifecycle_sim as ls  # noqa: E402

WARMUP = 2
LEVELS = {"requested": "requested_bytes", "allocated": "allocated_bytes", "reserved": "reserved_bytes"}
HISTORY = 2_000_000
MOST_SIZES = 6


@dataclass(frozen=True)
class Job:
    """A program of ``scenarios/capture``, its function, and the sizes it is given."""

    program: str
    function: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    autocast: str | None = None
    dtype: str | None = None


JOBS = {
    "mlp": Job("mlp.py", None, {"batch": 256}),
    "mlp_bf16_autocast": Job("mlp.py", None, {"batch": 256}, autocast="bf16"),
    "gpt_small": Job("gpt.py", "small", {"batch": 8, "seq": 256}),
    "gpt_fp32": Job("gpt.py", None, {"batch": 2, "seq": 512}),
    "gpt_bf16_autocast": Job("gpt.py", None, {"batch": 4, "seq": 1024}, autocast="bf16"),
    "gpt_fp16_autocast": Job("gpt.py", None, {"batch": 4, "seq": 512}, autocast="fp16"),
    "gpt_bf16": Job("gpt.py", None, {"batch": 4, "seq": 1024}, dtype="bf16"),
    "gpt_checkpointed": Job("gpt.py", "checkpointed", {"batch": 4, "seq": 1024}),
    "reference_fp32": Job("reference.py", "full", {"batch": 4, "seq": 128}),
    "reference_mixed": Job("reference.py", "mixed", {"batch": 4, "seq": 512}),
    "resnet": Job("resnet.py", None, {"batch": 16, "seq": 128}),
    "shared_linear": Job("shared_linear.py", None, {"batch": 4096}),
}


# ── on the device, in a process of its own ──────────────────────────────────────────────────────────────────────────────────────────


def run_on_device(job: Job, folder: Path, cudnn: bool) -> None:
    """Run *job* and write ``recorded.json`` and ``snapshot.pickle`` into *folder*."""
    import torch

    from lifecycle_sim.sources.capture.launch import unset
    from lifecycle_sim.sources.capture.plan import Plan, PlanFile, dtype_name
    from lifecycle_sim.sources.capture.profiles import find_profile
    from lifecycle_sim.sources.capture.stepping import inference_step, training_step

    torch.backends.cudnn.enabled = cudnn
    if not cudnn:
        torch.backends.cuda.enable_cudnn_sdp(False)
    low, kind = dtype_name(job.autocast, "autocast"), dtype_name(job.dtype, "dtype")
    settings = Plan(unset, unset, None, None, find_profile("h100"), kind, low, WARMUP, 1)
    plan = PlanFile(str(ROOT / "scenarios" / "capture" / job.program), job.function, job.sizes, settings).load()
    torch.manual_seed(0)
    model = plan.build_model()
    if plan.dtype is not None:
        model = model.to(getattr(torch, plan.dtype))
    torch.cuda.memory._record_memory_history(max_entries=HISTORY, stacks="python")
    model = model.to("cuda")
    optimizer = None if plan.make_optimizer is None else plan.make_optimizer(model)
    low_type = None if plan.autocast is None else getattr(torch, plan.autocast)

    def step(batch: Any) -> Any:
        if plan.step is not None:
            return plan.step(model, optimizer, batch)
        return (inference_step if optimizer is None else training_step)(model, optimizer, batch, low_type)

    kept = None
    for _ in range(WARMUP + 1):
        torch.cuda.reset_peak_memory_stats()
        batch = torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to("cuda"), plan.make_batch())
        kept = step(batch)  # as a variable of a training loop: it lives until the next step returns
        del batch
        torch.cuda.synchronize()
        found = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(str(folder / "snapshot.pickle"))
    del kept
    card = torch.cuda.get_device_properties(0)
    recorded = {
        "levels": {level: {"peak": found[f"{key}.all.peak"], "end": found[f"{key}.all.current"]} for level, key in LEVELS.items()},
        "card": {
            "name": card.name,
            "architecture": 10 * card.major + card.minor,
            "processors": card.multi_processor_count,
            "threads": card.max_threads_per_multi_processor,
            "capacity": card.total_memory,
        },
        "torch": str(torch.__version__),
        "driver": torch.version.cuda,
    }
    (folder / "recorded.json").write_text(json.dumps(recorded))


# ── predicted, and compared ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Outcome:
    """A job's recorded and predicted levels, and what stands for the difference.

    Attributes:
        recorded, predicted: peak of the told step by level.
        upper: the requested peak if every term without a value took its most.
        besides: sizes that were live at the recorded peak and not at the predicted one, with how many more; negative the other way.
        terms: the named terms in the prediction: how often, and their most bytes at a time.
    """

    recorded: Mapping[str, int]
    predicted: Mapping[str, int]
    upper: int
    besides: Mapping[int, int]
    terms: Mapping[str, tuple[int, int]]

    @property
    def within(self) -> bool:
        """Whether the recorded requested peak is the predicted one, or between it and its upper bound."""
        return self.predicted["requested"] <= self.recorded["requested"] <= max(self.upper, self.predicted["requested"])


def compare(job: Job, recorded: Mapping[str, Any], snapshot: Path) -> Outcome:
    """Predict *job* for the card it ran on, and hold it against what was recorded."""
    card = recorded["card"]
    profile = ls.DeviceProfile(card["name"], card["architecture"], card["processors"], card["threads"], card["capacity"])
    captured = ls.capture_file(
        str(ROOT / "scenarios" / "capture" / job.program),
        job.function,
        job.sizes,
        device=profile,
        dtype=job.dtype,
        autocast=job.autocast,
        warmup=WARMUP,
        release=".".join(recorded["torch"].split(".")[:2]),
    )
    step = ls.predict(captured.trace).steps[-1]
    (ours,) = captured.steps
    simulated = ls.replay_device(captured.trace)
    real = ls.replay_device(ls.read_trace(snapshot), 0)
    besides = Counter(live_at(real, real.peak.event))
    besides.subtract(Counter(live_at(simulated, simulated.span_peak(ours).event)))
    return Outcome(
        {level: recorded["levels"][level]["peak"] for level in LEVELS},
        {level: getattr(step, level) for level in LEVELS},
        captured.upper[-1],
        {size: count for size, count in sorted(besides.items(), reverse=True) if count},
        {use.term.name: (use.count, use.most if use.term.upper is None else use.term.upper) for use in captured.terms if use.count},
    )


def live_at(replayed: ls.DeviceReplay, event: int) -> list[int]:
    """Return the sizes of the storages that are live after *event*."""
    found = replayed.identified_lifetimes()
    live = (found.alloc <= event) & ((found.free > event) | found.leaked)
    return [int(size) for size in found.size[live]]


def told(outcomes: Mapping[str, Outcome | str]) -> Iterable[str]:
    """The table, and below it what stands for the differences."""
    yield f"{'job':<20}{'level':<11}{'predicted':>17}{'recorded':>17}{'error':>11}"
    for name, outcome in outcomes.items():
        if isinstance(outcome, str):
            yield f"{name:<20}{outcome}"
            continue
        for level in LEVELS:
            predicted, recorded = outcome.predicted[level], outcome.recorded[level]
            yield f"{name:<20}{level:<11}{predicted:>17,}{recorded:>17,}{100 * (predicted / recorded - 1):>+10.3f} %"
            name = ""
    yield ""
    for name, outcome in outcomes.items():
        if isinstance(outcome, str):
            continue
        counted = ", ".join(f"{term} ({count:,} times, at most {most:,} B)" for term, (count, most) in outcome.terms.items())
        yield f"{name}: named terms: {counted or 'none'}"
        if outcome.predicted["requested"] != outcome.recorded["requested"]:
            sizes = [f"{count:+} x {size:,} B" for size, count in outcome.besides.items()]
            more = f" and {len(sizes) - MOST_SIZES} further sizes" if len(sizes) > MOST_SIZES else ""
            yield f"  live at the recorded peak and not at the predicted one: {', '.join(sizes[:MOST_SIZES]) or 'nothing'}{more}"
            if outcome.within:
                yield f"  within the interval of the terms without a value, which end at {outcome.upper:,} B"


def main() -> int:
    """Run, record, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", metavar="JOB", help=f"of {', '.join(JOBS)}; a part of a name is enough")
    parser.add_argument("--minutes", type=float, default=9, help="begin no further job after this time (9)")
    parser.add_argument("--no-cudnn", action="store_true", help="switch cuDNN and its attention off in the real runs")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep snapshots and figures here")
    parser.add_argument("--run", nargs=2, metavar=("JOB", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run_on_device(JOBS[given.run[0]], Path(given.run[1]), not given.no_cudnn)
        return 0
    chosen = [name for name in JOBS if not given.only or any(part in name for part in given.only)]
    if not chosen:
        parser.error(f"no job is called {' or '.join(given.only)}: they are {', '.join(JOBS)}")
    began = time.monotonic()
    outcomes: dict[str, Outcome | str] = {}
    card = ""
    with tempfile.TemporaryDirectory() as temporary:
        for name in chosen:
            if time.monotonic() - began > 60 * given.minutes:
                outcomes[name] = "not begun: no time was left"
                continue
            folder = (given.keep or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, __file__, "--run", name, str(folder), *(["--no-cudnn"] if given.no_cudnn else [])]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()
                outcomes[name] = f"failed: {lines[-1]}"
                continue
            recorded = json.loads((folder / "recorded.json").read_text())
            card = f"{recorded['card']['name']}, torch {recorded['torch']}, CUDA {recorded['driver']}"
            print(f"{name}: ran, {time.monotonic() - began:.0f} s", file=sys.stderr)
            try:
                outcomes[name] = compare(JOBS[name], recorded, folder / "snapshot.pickle")
            except ls.LifecycleError as error:
                outcomes[name] = f"not predicted: {error}"
    print(f"{card or 'no job ran'}{', without cuDNN' if given.no_cudnn else ''}; peaks of step {WARMUP + 1}, in bytes\n")
    print("\n".join(told(outcomes)))
    return 0 if all(isinstance(outcome, Outcome) and outcome.within for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
