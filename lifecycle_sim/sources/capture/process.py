"""Real steps on the CPU, in a process of their own: how long each takes, and what memory the process holds.

This is the memory of a process on this machine: the interpreter, torch's code, threads, the C library's heap. It is no figure of a device,
and none is derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lifecycle_sim.sources.capture.launch import FRESH, apart, need_torch, say, unset
from lifecycle_sim.sources.capture.plan import Plan, PlanFile, dtype_name
from lifecycle_sim.sources.capture.profiles import find_profile


@dataclass(frozen=True)
class ProcessRun:
    """Steps that really ran on the CPU, in a process of their own.

    Attributes:
        warmup: steps before the measured ones.
        nanoseconds: how long each measured step took, without making its batch.
        rss_before: resident bytes of the process before the model was built, torch imported.
        rss_after: resident bytes after the last step.
        rss_peak: the most resident bytes.
        peak_since_start: whether that is the most since the process began, and not of the measured steps alone: the system tells no other.
        threads: of torch.
    """

    warmup: int
    nanoseconds: tuple[int, ...]
    rss_before: int
    rss_after: int
    rss_peak: int
    peak_since_start: bool
    threads: int


def run_on_cpu(
    path: str,
    function: str | None = None,
    parameters: Mapping[str, int] | None = None,
    *,
    dtype: Any = None,
    autocast: Any = None,
    warmup: int = 2,
    steps: int = 1,
) -> ProcessRun:
    """Run real steps of what the Python file *path* defines, on the CPU and in a fresh process.

    ``device="cuda"`` means the CPU there, in factories, moves, autocast and scalers.

    Args:
        path: a file as for :func:`~lifecycle_sim.sources.capture.launch.capture_file`, like the arguments that follow.
        function: see there.
        parameters: see there.
        dtype: see there.
        autocast: see there.
        warmup: see there.
        steps: see there.

    Raises:
        MissingExtraError: torch is not installed.
        CaptureError: the file or a function of it failed, or ended the process.
    """
    need_torch("running a step")
    low, kind = dtype_name(autocast, "autocast"), dtype_name(dtype, "dtype")
    plan = Plan(unset, unset, None, None, find_profile("h100"), kind, low, warmup, steps)
    return apart(_report, PlanFile(path, function, dict(parameters or {}), plan), FRESH, "ran the steps")


def _report(plan: Plan | PlanFile, sending: Any) -> None:
    say(sending, "running", "run_plan", plan)
