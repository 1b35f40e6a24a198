"""Runs a step for each pair of length and batch: captures of a Python file, or a scenario with parameters, spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.engine import run
from lifecycle_sim.program.scenario import load_scenario
from lifecycle_sim.replay import replay_device
from lifecycle_sim.sources.capture.launch import capture_file
from lifecycle_sim.sources.capture.plan import NEWEST
from lifecycle_sim.sources.capture.profiles import DeviceProfile
from lifecycle_sim.sources.capture.variant import Variant
from lifecycle_sim.study.batch.measured import StepPeaks, step_peaks
from lifecycle_sim.study.executor import Executor, run_jobs
from lifecycle_sim.study.prediction import predict

Place = tuple[int | None, int]
"""The length of sequences, None where there are none, and the batch."""
Measure = Callable[[Sequence[Place]], Sequence[StepPeaks]]
"""Returns the peaks of a step for each place, in their order."""


@dataclass(frozen=True)
class CapturePlan:
    """What to capture, all but batch and length; see :func:`~lifecycle_sim.sources.capture.launch.capture_file`.

    Attributes:
        path, function, parameters, device, dtype, autocast, without, workspace, release: as there.
        warmup: steps before the one that is looked into; 1 at least, or optimizer state would be missing.
        settings: allocator options in PyTorch's syntax.
        accumulate: micro-batches of a step.
        capacity: bytes of the device on which the allocator tries again where it would hold more than that; None for nowhere.
    """

    path: str
    function: str | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    device: str | DeviceProfile = "h100"
    dtype: str | None = None
    autocast: str | None = None
    without: Collection[str] = ()
    workspace: int | None = None
    release: str = NEWEST
    warmup: int = 2
    settings: str = ""
    capacity: int | None = None
    accumulate: int = 1

    def __post_init__(self) -> None:
        if self.warmup < 1:
            raise InputError("warmup is 0: the first step is no probe, for optimizer state is made in it; give 1 or more")


def capture_runs(plan: CapturePlan, workers: int | None = None, executor: Executor | None = None) -> Measure:
    """Return what measures by captures.

    Args:
        plan: what to capture; batch and length are added to its parameters.
        workers: how many processes: by default as many as there are captures in a round, up to the number of cores.
        executor: what to spread captures with instead.
    """
    return partial(_in_parallel, captured_peaks, plan, workers, executor)


def captured_peaks(job: tuple[CapturePlan, Place]) -> StepPeaks:
    """Capture a step and return its peaks, with what the allocator makes of its requests.

    Raises:
        MissingExtraError, CaptureError, InputError: as :func:`~lifecycle_sim.sources.capture.launch.capture_file`.
    """
    plan, (seq, batch) = job
    captured = capture_file(
        plan.path,
        plan.function,
        {**plan.parameters, "batch": batch * plan.accumulate, **({} if seq is None else {"seq": seq})},
        device=plan.device,
        dtype=plan.dtype,
        autocast=plan.autocast,
        warmup=plan.warmup,
        without=plan.without,
        workspace=plan.workspace,
        release=plan.release,
        variant=Variant(accumulate=plan.accumulate),
    )
    prediction = predict(captured.trace, capacity=2**62, settings=plan.settings)
    trainable = sum(row.size for row in captured.parameters if row.trainable)
    peaks = step_peaks(replay_device(captured.trace), batch, seq, prediction=prediction, trainable=trainable)
    if plan.capacity is None or peaks.levels["reserved"] <= plan.capacity:
        return peaks
    again = predict(captured.trace, capacity=plan.capacity, settings=plan.settings)
    return replace(peaks, fits=again.fits, retries=again.retries)


@dataclass(frozen=True)
class ScenarioPlan:
    """A scenario to run, all but batch and length.

    Attributes:
        scenario: its path, or its text.
        parameters: values of its parameters.
        batch, seq: what its parameters are called that stand for batch and length.
    """

    scenario: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    batch: str = "batch"
    seq: str = "seq"


def scenario_runs(plan: ScenarioPlan, workers: int | None = 1, executor: Executor | None = None) -> Measure:
    """Return what measures by running a scenario; the arguments are those of :func:`capture_runs`."""
    return partial(_in_parallel, scenario_peaks, plan, workers, executor)


def scenario_peaks(job: tuple[ScenarioPlan, Place]) -> StepPeaks:
    """Run a scenario and return its peaks.

    Raises:
        ScenarioError: it has problems, with these values.
    """
    plan, (seq, batch) = job
    given = {**plan.parameters, plan.batch: batch, **({} if seq is None else {plan.seq: seq})}
    replayed = replay_device(run(load_scenario(plan.scenario, given)))
    return step_peaks(replayed, batch, seq)


def _in_parallel(
    function: Callable[[Any], StepPeaks], plan: Any, workers: int | None, executor: Executor | None, places: Sequence[Place]
) -> list[StepPeaks]:
    jobs = [(plan, place) for place in places]
    return run_jobs(function, jobs, CORES_WORTH * len(jobs), workers, executor)


CORES_WORTH = 10**6
"""Units of work that a capture stands for, see :func:`~lifecycle_sim.study.executor.run_jobs`: each is worth a process."""
