"""Compares configurations of a job by the work that the same target takes, each with the largest micro-batch that it allows.

Time and memory are given, and so is quality, if it is: a column of the user's own, which names the data set it was measured on. Nothing is
known of quality here, and none is made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lifecycle_sim.errors import InputError, UnitError
from lifecycle_sim.spelling import closest
from lifecycle_sim.study.batch.deadline import Feasible, StraightTime, feasible, step_time
from lifecycle_sim.study.batch.search import FeasibleRange, feasible_range
from lifecycle_sim.units import parse_bytes, parse_duration

TOP = ("title", "budget", "headroom", "basis", "limit", "global_batch", "steps", "deadline", "configuration")
ROW = ("name", "fixed", "per_sample", "overhead", "time_per_sample", "quality", "quality_data", "training_data")
REQUIRED = ("name", "fixed", "per_sample", "overhead", "time_per_sample")


@dataclass(frozen=True)
class Configuration:
    """A way to run a job.

    Attributes:
        name: what it is called.
        fixed, per_sample: bytes at a micro-batch: ``fixed + per_sample · batch``.
        time: how long a micro-batch takes, in nanoseconds.
        quality: the user's own figure, as text; None if there is none.
        quality_data: the data set that it was measured on.
        training_data: the data set that was trained on.
    """

    name: str
    fixed: int
    per_sample: int
    time: StraightTime
    quality: str | None = None
    quality_data: str | None = None
    training_data: str | None = None


@dataclass(frozen=True)
class Job:
    """The same target for all configurations.

    Attributes:
        title: what it is.
        budget, headroom: bytes there are, and bytes of them to be left free.
        basis: what bytes count.
        limit: the largest micro-batch that is allowed.
        global_batch: samples of a step.
        steps: steps to the target.
        deadline: nanoseconds that a step may take, None for any.
        configurations: the ways to run it.
    """

    title: str
    budget: int
    headroom: int
    basis: str
    limit: int
    global_batch: int
    steps: int
    deadline: int | None
    configurations: tuple[Configuration, ...]


@dataclass(frozen=True)
class Compared:
    """A configuration, and what the target takes with it.

    Attributes:
        configuration: the configuration.
        memory: the largest micro-batch that memory allows.
        feasible: the micro-batches that are in time as well.
        micro_batch: the one with the least time for a step among them; None if there is none.
        accumulated: micro-batches a step.
        padded: samples of a step that are padding.
        step_time: nanoseconds of a step.
        total_time: nanoseconds to the target.
        samples: samples computed to the target, padding included: the work.
    """

    configuration: Configuration
    memory: FeasibleRange
    feasible: Feasible
    micro_batch: int | None
    accumulated: int | None
    padded: int | None
    step_time: int | None
    total_time: int | None
    samples: int | None


def compare(job: Job) -> tuple[Compared, ...]:
    """Return what the target of *job* takes with each configuration, in their order."""
    return tuple(_compared(job, configuration) for configuration in job.configurations)


def _compared(job: Job, configuration: Configuration) -> Compared:
    room = max(0, job.budget - job.headroom)
    memory = feasible_range(configuration.fixed, configuration.per_sample, room, job.limit)
    found = feasible(job.global_batch, memory.batch, configuration.time, job.deadline)
    if not found.ranges:
        return Compared(configuration, memory, found, None, None, None, None, None, None)
    chosen = min(found.ranges, key=lambda each: (each.time, -each.first))
    time = step_time(job.global_batch, chosen.first, configuration.time)
    samples = chosen.first * chosen.steps * job.steps
    return Compared(configuration, memory, found, chosen.first, chosen.steps, chosen.padded, time, time * job.steps, samples)


def read_job(document: Mapping[str, Any], name: str) -> Job:
    """Return the job that *document*, the content of a TOML file, describes.

    Args:
        document: ``budget``, ``global_batch`` and ``steps``, and a table ``[[configuration]]`` for each way to run it.
        name: what messages call the file.

    Raises:
        InputError: something is missing or wrong; all problems are told.
    """
    reader = _Reader(name)
    reader.unknown(document, TOP, "")
    rows = document.get("configuration")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows) or not rows:
        raise InputError(f"{name}: has no table [[configuration]]: write one for each way to run the job")
    made = [reader.configuration(row, number) for number, row in enumerate(rows, start=1)]
    names = [each.name for each in made]
    reader.problems += [f"{name}: two configurations are called {each!r}" for each in dict.fromkeys(names) if names.count(each) > 1]
    job = Job(
        str(document.get("title", "")),
        reader.size(document, "budget", ""),
        reader.size(document, "headroom", "") if "headroom" in document else 0,
        str(document.get("basis", "requested")),
        reader.count(document, "limit", "", 2**63 - 1),
        reader.count(document, "global_batch", ""),
        reader.count(document, "steps", ""),
        reader.duration(document, "deadline", "") if "deadline" in document else None,
        tuple(made),
    )
    if reader.problems:
        raise InputError(reader.problems)
    return job


class _Reader:
    """Reads values and keeps the problems."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[str] = []

    def unknown(self, table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
        for key in table:
            if key not in known:
                close = closest(key, known)
                meant = f"did you mean {close!r}?" if close else f"the keys are {', '.join(known)}"
                self.problems.append(f"{self.name}: {where}{key!r} is not known: {meant}")

    def configuration(self, row: Mapping[str, Any], number: int) -> Configuration:
        where = f"configuration {number}: "
        self.unknown(row, ROW, where)
        quality, data = row.get("quality"), row.get("quality_data")
        if quality is not None and not data:
            self.problems.append(
                f"{self.name}: {where}quality does not say what it was measured on: add quality_data, the name of the data set"
            )
        if quality is not None and data and data == row.get("training_data"):
            self.problems.append(f"{self.name}: {where}quality was measured on the training data: measure it on data apart from that")
        name = row.get("name")
        if not isinstance(name, str) or not name:
            self.problems.append(f"{self.name}: {where}has no name")
        return Configuration(
            str(name),
            self.size(row, "fixed", where),
            self.size(row, "per_sample", where, least=1),
            StraightTime(self.duration(row, "overhead", where), self.duration(row, "time_per_sample", where)),
            None if quality is None else str(quality),
            None if data is None else str(data),
            None if row.get("training_data") is None else str(row["training_data"]),
        )

    def size(self, table: Mapping[str, Any], key: str, where: str, least: int = 0) -> int:
        return self._quantity(table, key, where, least, lambda text: parse_bytes(text), 'a size such as "24 GiB"')

    def duration(self, table: Mapping[str, Any], key: str, where: str) -> int:
        return self._quantity(table, key, where, 0, parse_duration, 'a duration such as "1.5 ms"')

    def _quantity(self, table: Mapping[str, Any], key: str, where: str, least: int, parse: Any, like: str) -> int:
        value = table.get(key)
        try:
            if not isinstance(value, str):
                raise UnitError(f"{key} is {'missing' if value is None else repr(value)}: give {like}")
            found = int(parse(value))
            if found < least:
                raise UnitError(f"{key} is {value!r}: give {like}, {least} at least")
            return found
        except UnitError as error:
            self.problems.append(f"{self.name}: {where}{error}")
            return least

    def count(self, table: Mapping[str, Any], key: str, where: str, otherwise: int | None = None) -> int:
        value = table.get(key, otherwise)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.problems.append(
                f"{self.name}: {where}{key} is {'missing' if value is None else repr(value)}: give a whole number, 1 or more"
            )
            return 1
        return value
