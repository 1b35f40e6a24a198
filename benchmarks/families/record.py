"""Run jobs with PyTorch's own CUDA code and write down the memory of each step.

    GHOST_RUN PYTHON record.py STEPS FILE.py:FUNCTION … [--events]

Each job runs in a process of its own, forked after torch was imported: what one leaves in the cache moves the reserved bytes of the next.
A line of JSON a job goes to standard output: its steps' levels, with ``--events`` also the requests of its allocator, or why it failed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from lifecycle_sim.sources.capture.plan import dtype_name, run_file
from lifecycle_sim.sources.capture.stepping import inference_step, training_step

torch.amp.GradScaler._maybe_opt_step = lambda _scaler, optimizer, _state, *args, **kwargs: optimizer.step(*args, **kwargs)
"""Values are garbage: whether gradients are finite is not to be asked of them. A capture takes them to be."""
LEVELS = ("requested_bytes", "allocated_bytes", "reserved_bytes")


def record(path: str, function: str, count: int, events: bool) -> dict[str, Any]:
    """Run *count* steps of a job; return the peak of each level in each step, and the level after it."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    gc.disable()
    if events:
        torch.cuda.memory._record_memory_history(max_entries=10_000_000, stacks="python")
    job = getattr(run_file(path), function)()
    torch.backends.cudnn.enabled = False
    model = job["build_model"]().to("cuda")
    optimizer = job["make_optimizer"](model) if "make_optimizer" in job else None
    step = job.get("step")
    if step is None:
        low = None if job.get("autocast") is None else getattr(torch, dtype_name(job["autocast"], "autocast"))
        default = inference_step if optimizer is None else training_step

        def step(model: Any, optimizer: Any, batch: Any) -> Any:
            return default(model, optimizer, batch, low)

    steps, marks = [], []
    kept = None
    for _ in range(count):
        torch.cuda.reset_peak_memory_stats()
        batch = job["make_batch"]()
        kept = step(model, optimizer, batch)  # noqa: F841
        del batch
        gc.collect()
        found = torch.cuda.memory_stats()
        steps.append({level: [found[f"{level}.all.peak"], found[f"{level}.all.current"]] for level in LEVELS})
        if events:
            marks.append(len(torch.cuda.memory._snapshot()["device_traces"][0]))
    said: dict[str, Any] = {"steps": steps}
    if events:
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        sizes = [
            0 if e["action"] not in ("alloc", "free_completed") else e["size"] if e["action"] == "alloc" else -e["size"] for e in trace
        ]
        said["events"] = [[size for size in sizes[a:b] if size] for a, b in zip([0, *marks], marks, strict=False)]
    return said


def apart(job: str, count: int, events: bool) -> dict[str, Any]:
    """Do :func:`record` in a process of its own."""
    receiving, sending = os.pipe()
    process = os.fork()
    if not process:
        os.close(receiving)
        try:
            said = record(*job.rsplit(":", 1), count, events)
        except Exception:
            said = {"error": traceback.format_exc()}
        with os.fdopen(sending, "w") as file:
            json.dump(said, file)
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as file:
        text = file.read()
    _, status = os.waitpid(process, 0)
    return json.loads(text) if text else {"error": f"ended with status {status}"}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        if not name.startswith("--"):
            print(json.dumps({"job": name, **apart(name, int(sys.argv[1]), "--events" in sys.argv)}), flush=True)
