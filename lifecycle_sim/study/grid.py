"""The same program at several sizes: what the shapes say, what a device is predicted to hold, and what a run on the CPU took here.

Each figure is of its own kind and none is turned into another: what a process holds on a CPU says nothing about a device.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError, LifecycleError, MissingExtraError
from lifecycle_sim.events import Category, Kind
from lifecycle_sim.sources.capture.launch import capture_file
from lifecycle_sim.sources.capture.process import ProcessRun, run_on_cpu
from lifecycle_sim.sources.capture.profiles import DeviceProfile, find_profile
from lifecycle_sim.sources.capture.record import Capture
from lifecycle_sim.study.executor import Executor, run_jobs
from lifecycle_sim.study.prediction import StepLevels, predict
from lifecycle_sim.units import format_exact


@dataclass(frozen=True)
class Payload:
    """Bytes that shapes alone tell, each storage once: what is there in a step before anything is computed, and what training adds to it.

    Attributes:
        parameters: of all parameters.
        buffers: of all buffers.
        gradients: of the trainable parameters; 0 in inference.
        optimizer_state: what the optimizer holds after the warm-up.
        inputs: the batch of a step.
    """

    parameters: int
    buffers: int
    gradients: int
    optimizer_state: int
    inputs: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.parameters + self.buffers + self.gradients + self.optimizer_state + self.inputs


@dataclass(frozen=True)
class Predicted:
    """What a capture predicts for a device.

    Attributes:
        payload: from the shapes.
        levels: the highest levels of the measured steps, and those after the last.
        fits: whether the device met every request.
        warmup: steps before the measured ones.
        steps: measured steps.
        seconds: how long the capture took.
        rss: the most bytes that its process held, on this machine.
        versions: of torch and Python.
    """

    payload: Payload
    levels: StepLevels
    fits: bool
    warmup: int
    steps: int
    seconds: float
    rss: int
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Spread:
    """The least, the middle and the greatest of several measurements; the middle of an even number is the lower of two."""

    least: int
    middle: int
    most: int

    @classmethod
    def of(cls, values: Sequence[int]) -> Spread:
        """Return the spread of *values*, of which there is one at least."""
        ordered = sorted(values)
        return cls(ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1])


@dataclass(frozen=True)
class SweepPoint:
    """One combination of sizes.

    Attributes:
        parameters: the sizes by name.
        predicted: what the device is predicted to hold; None if that failed.
        runs: the runs on the CPU, each in a process of its own.
        problems: what failed.
    """

    parameters: Mapping[str, int]
    predicted: Predicted | None
    runs: tuple[ProcessRun, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def nanoseconds(self) -> Spread | None:
        """How long a step took on the CPU: each run counts with the middle of its steps."""
        return Spread.of([Spread.of(run.nanoseconds).middle for run in self.runs]) if self.runs else None

    @property
    def rss(self) -> Spread | None:
        """The most bytes that the processes held, on this machine. They are no estimate of a device."""
        return Spread.of([run.rss_peak for run in self.runs]) if self.runs else None


@dataclass(frozen=True)
class Sweep(Shown):
    """A program at several sizes.

    Attributes:
        profile: the card of the predictions.
        capacity: its bytes, which the reserved bytes are held against; None for no limit.
        repeats: how many runs on the CPU each point has.
        points: the points, in the order of the sizes.
    """

    profile: DeviceProfile
    capacity: int | None
    repeats: int
    points: tuple[SweepPoint, ...] = field(default_factory=tuple)

    @property
    def fits(self) -> bool | None:
        """Whether every point is predicted to fit: None where one has no prediction, for no other figure can stand in for it."""
        known = [None if point.predicted is None else point.predicted.fits for point in self.points]
        return False if False in known else None if None in known else True

    @property
    def complete(self) -> bool:
        """Whether nothing failed."""
        return not any(point.problems for point in self.points)

    def __repr__(self) -> str:
        return f"Sweep({self.profile.name!r}, {len(self.points)} points, {self.repeats} runs each)"

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        told = [("card", self.profile.name)]
        for point in self.points:
            name = ", ".join(f"{name} {value:,}" for name, value in point.parameters.items()) or "the only point"
            found = point.predicted
            told.append((name, "not predicted" if found is None else f"{format_exact(found.levels.reserved)} reserved, simulated"))
        return told


@dataclass(frozen=True)
class _Job:
    path: str
    function: str | None
    parameters: Mapping[str, int]
    options: Mapping[str, Any]
    capacity: int | None
    conf: str


def sweep_file(
    path: str,
    function: str | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    parameters: Mapping[str, int] | None = None,
    *,
    device: str | DeviceProfile = "h100",
    dtype: Any = None,
    autocast: Any = None,
    warmup: int = 2,
    steps: int = 3,
    repeats: int = 3,
    without: Sequence[str] = (),
    workspace: int | None = None,
    release: str | None = None,
    capacity: int | None = None,
    conf: str = "",
    workers: int | None = 1,
    executor: Executor | None = None,
) -> Sweep:
    """Capture and run what the Python file *path* defines at every combination of *sizes*, each in a process of its own.

    Captures may run side by side; the runs on the CPU, which are timed, come one after the other, after all captures.

    Args:
        path: a file as for ``capture_file``, like *function*, *device*, *dtype*, *autocast*, *without*, *workspace* and *release*.
        function: see there.
        sizes: the values to try, by name, such as ``{"batch": [1, 2], "seq": [64, 128]}``.
        parameters: further values by name, the same at each point.
        device: see there.
        dtype: see there.
        autocast: see there.
        warmup: steps before the measured ones, in captures and runs alike.
        steps: measured steps, in captures and runs alike.
        repeats: runs on the CPU at each point; 0 for none.
        without: see there.
        workspace: see there.
        release: see there.
        capacity: bytes of the card, in place of its own.
        conf: allocator options, as in ``PYTORCH_CUDA_ALLOC_CONF``.
        workers: processes that capture side by side, as for ``run_jobs``.
        executor: what to spread the captures with instead.

    Raises:
        MissingExtraError: torch is not installed.
        InputError: a size is given twice or is no size, *repeats* is negative, the device is not known, or every point failed.
    """
    profile = find_profile(device, workspace)
    grid = {name: list(values) for name, values in (sizes or {}).items()}
    _check(grid, parameters or {}, repeats)
    common: dict[str, Any] = {"dtype": dtype, "autocast": autocast, "warmup": warmup, "steps": steps}
    captured = {**common, "device": profile, "without": tuple(without), **({} if release is None else {"release": release})}
    chosen = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    given = [{**(parameters or {}), **point} for point in chosen]
    limit = profile.capacity if capacity is None else capacity
    jobs = [_Job(path, function, each, captured, limit, conf) for each in given]
    predicted = run_jobs(_predict, jobs, workers=workers, executor=executor)
    points = []
    for sizes_here, each, found in zip(chosen, given, predicted, strict=True):
        runs, problems = _runs(path, function, each, common, repeats)
        failed = found if isinstance(found, tuple) else ()
        kept = None if isinstance(found, tuple) else found
        points.append(SweepPoint(sizes_here, kept, tuple(runs), (*failed, *problems)))
    if all(point.predicted is None and not point.runs for point in points):
        raise InputError(dict.fromkeys(problem for point in points for problem in point.problems))
    return Sweep(profile, limit, repeats, tuple(points))


def _check(grid: Mapping[str, Sequence[int]], parameters: Mapping[str, int], repeats: int) -> None:
    problems = []
    for name, values in grid.items():
        if not values:
            problems.append(f"{name} has no values: give one at least")
        if len(set(values)) < len(values):
            problems.append(f"{name} has a value twice: give each once")
        problems += [f"{name} {value!r} is no size: give integers of 1 or more" for value in values if value < 1]
        if name in parameters:
            problems.append(f"{name} is given as one value and as several: give it once")
    if repeats < 0:
        problems.append(f"repeats is {repeats}: give the number of runs at each point, 0 or more")
    if problems:
        raise InputError(problems)


def _predict(job: _Job) -> Predicted | tuple[str, ...]:
    """Return what is predicted for the point *job*, or the problems; in a process of the executor, where there is one."""
    try:
        captured = capture_file(job.path, job.function, job.parameters, **job.options)
        prediction = predict(captured.trace, capacity=job.capacity, settings=job.conf)
    except MissingExtraError:
        raise
    except LifecycleError as error:
        return _problems("not predicted", error)
    measured = prediction.steps[captured.warmup :]
    names = ("requested", "allocated", "reserved")
    peaks = [max(getattr(step, name) for step in measured) for name in names]
    after = [getattr(measured[-1], f"{name}_after") for name in names]
    return Predicted(
        payload_of(captured),
        StepLevels("measured steps", *peaks, *after),
        prediction.fits,
        captured.warmup,
        len(captured.steps),
        captured.seconds,
        captured.rss,
        dict(captured.versions),
    )


def _runs(
    path: str, function: str | None, parameters: Mapping[str, int], options: Mapping[str, Any], repeats: int
) -> tuple[list[ProcessRun], tuple[str, ...]]:
    """Run *repeats* times, but not again once it failed."""
    found: list[ProcessRun] = []
    try:
        for _ in range(repeats):
            found.append(run_on_cpu(path, function, parameters, **options))
    except MissingExtraError:
        raise
    except LifecycleError as error:
        return found, _problems("not run", error)
    return found, ()


def _problems(what: str, error: LifecycleError) -> tuple[str, ...]:
    texts = error.problems if isinstance(error, InputError) else (str(error),)
    return tuple(f"{what}: {text}" for text in texts)


def payload_of(captured: Capture) -> Payload:
    """Return the bytes of *captured* that its shapes tell: of the model once for all steps, and of the last step's batch."""
    events = captured.trace.devices[0].events
    last = captured.steps[-1]
    born = (events.kind == Kind.ALLOC).nonzero()[0]
    category, size = events.category[born], events.size[born]
    inputs = size[(category == Category.INPUT) & (born >= last.start) & (born < last.stop)].sum()
    signed = events.size * ((events.kind == Kind.ALLOC).astype("int64") * 2 - 1)
    state = signed[events.category == Category.OPTIMIZER_STATE].sum()
    trains = bool((events.category == Category.GRADIENT).any())
    rows = captured.parameters
    return Payload(
        sum(row.size for row in rows if not row.buffer),
        sum(row.size for row in rows if row.buffer),
        sum(row.size for row in rows if row.trainable and not row.buffer) if trains else 0,
        int(state),
        int(inputs),
    )
