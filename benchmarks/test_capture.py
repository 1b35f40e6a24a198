"""What a capture costs: seconds and process RSS at 1 and 7 billion parameters; and, in one run, speed and error on the reference job of
:mod:`scenarios.capture.reference` beside torch's own MemTracker under its FakeTensorMode.

Seconds are CPU seconds of the whole process, from its start on: the import of torch, the model, all steps.

    python -m pytest benchmarks/test_capture.py --benchmark-enable -s
"""

from __future__ import annotations

import multiprocessing
import resource
from pathlib import Path
from typing import Any

import pytest

import lifecycle_sim as ls
from lifecycle_sim.units import format_exact

torch: Any = pytest.importorskip("torch", reason="torch is not installed: a capture needs it")

ROOT = Path(__file__).resolve().parents[1]
LLAMA, REFERENCE = str(ROOT / "benchmarks" / "programs" / "llama.py"), str(ROOT / "scenarios" / "capture" / "reference.py")
CARD = ls.DeviceProfile("recorded", 120, 170, 1536)
"""The card of the recordings of the reference job."""
RECORDED = {("full", 128): 7_013_335_044, ("full", 256): 9_103_544_320, ("mixed", 512): 12_426_629_128}
"""Requested peaks of the reference job on that card, in bytes, by the length of its context."""
WARMUP = 1


def seconds_of_children() -> float:
    """Return the CPU seconds that processes started from this one took, of those that ended."""
    taken = resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken.ru_utime + taken.ru_stime


@pytest.mark.parametrize("size", ["one_billion", "seven_billion"])
def test_a_step_of_billions_of_parameters(benchmark: Any, size: str) -> None:
    """Each capture is a fresh process, of one step of warm-up and one measured step."""
    before = seconds_of_children()
    captured = benchmark.pedantic(ls.capture_file, args=(LLAMA, size), kwargs={"warmup": WARMUP}, rounds=1)
    took = seconds_of_children() - before
    count = sum(row.size for row in captured.parameters if not row.buffer) // 2
    print(
        f"\n{size}: {count:,} parameters, {len(captured.trace):,} events, {took:.1f} s for {WARMUP + 1} steps, "
        f"process RSS at most {format_exact(captured.rss)}, reserved peak {format_exact(ls.predict(captured.trace).peak())}"
    )
    assert captured.rss < 2**30


def their_peak(sending: Any, function: str, context: int) -> None:
    """Run the reference job's steps under MemTracker in FakeTensorMode, and send its peak."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    from scenarios.capture import reference

    torch.set_num_threads(1)
    job = getattr(reference, function)(4, context)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = job["build_model"]()
        optimizer = job["make_optimizer"](model)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(WARMUP + 1):
                job["step"](model, optimizer, job["make_batch"]())
                tracker.reset_mod_stats()
    (levels,) = tracker.get_tracker_snapshot("peak").values()
    sending.send(max(levels.values()))
    sending.close()


@pytest.mark.parametrize(("function", "context"), RECORDED)
def test_against_memtracker_on_the_reference_job(benchmark: Any, function: str, context: int) -> None:
    """Two steps each; ours with kernel terms, CUDA's operators and its autocast, theirs with the CPU's."""
    before = seconds_of_children()
    captured = benchmark.pedantic(
        ls.capture_file, args=(REFERENCE, function, {"seq": context}), kwargs={"device": CARD, "warmup": WARMUP}, rounds=1
    )
    ours = max(ls.replay_device(captured.trace).span_peak(step).size for step in captured.steps)
    ours_took = seconds_of_children() - before
    method = multiprocessing.get_context("spawn")
    receiving, sending = method.Pipe(duplex=False)
    process = method.Process(target=their_peak, args=(sending, function, context))
    process.start()
    sending.close()
    theirs = receiving.recv()
    process.join()
    theirs_took = seconds_of_children() - before - ours_took
    recorded = RECORDED[function, context]
    print(
        f"\n{function} {context}: recorded {recorded:,} B; ours {ours:,} B, {100 * (ours / recorded - 1):+.3f} %, {ours_took:.1f} s; "
        f"MemTracker {theirs:,} B, {100 * (theirs / recorded - 1):+.3f} %, {theirs_took:.1f} s"
    )
    assert abs(ours - recorded) <= abs(theirs - recorded)
    assert ours_took < theirs_took
