"""What ``lifecycle-sim fit`` is asked about: plain numbers, probes, recordings, captures, scenarios, configurations."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import click

from lifecycle_sim.cli.capture import split_program
from lifecycle_sim.cli.fit_options import Asked, refuse
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import name_of, standard_input
from lifecycle_sim.errors import CaptureError, InputError
from lifecycle_sim.output import summary_fit as records
from lifecycle_sim.output.atomic import refuse_to_overwrite
from lifecycle_sim.output.summary import Record
from lifecycle_sim.sources.capture.profiles import find_profile
from lifecycle_sim.study.batch.accumulated import RUN, largest_accumulated
from lifecycle_sim.study.batch.configurations import compare, read_job
from lifecycle_sim.study.batch.deadline import StraightTime, TimeModel, feasible
from lifecycle_sim.study.batch.decision import NO_LIMIT, decide_all, lengths_of
from lifecycle_sim.study.batch.fitted import Fitted, fit
from lifecycle_sim.study.batch.frontier import frontier
from lifecycle_sim.study.batch.growth import growth
from lifecycle_sim.study.batch.measured import probe_of_trace
from lifecycle_sim.study.batch.probes import Probe, read_probes
from lifecycle_sim.study.batch.runs import CapturePlan, Measure, ScenarioPlan, capture_runs, scenario_runs
from lifecycle_sim.study.batch.search import feasible_range
from lifecycle_sim.study.batch.times import read_times, times_at
from lifecycle_sim.study.batch.verified import LIMIT, Verified, find_largest
from lifecycle_sim.units import parse_bytes

Answered = tuple[Record, bool | None]
CARD = "h100"
IN_TABLE = (
    *("budget", "device", "limit", "basis", "seq", "batch", "longest", "window", "global_batch", "deadline", "overhead", "time_per_sample"),
    *("times", "parameters", "workers", "output"),
)
LARGEST_FILE = 64 << 20


def plain_numbers(asked: Asked) -> Answered:
    """``fixed + per_sample · batch`` against a budget."""
    if asked.fixed is None or asked.per_sample is None:
        raise click.UsageError("plain numbers need both --fixed and --per-sample")
    budget, card = _budget(asked)
    limit = NO_LIMIT if asked.limit is None else asked.limit
    found = feasible_range(asked.fixed, asked.per_sample, max(0, budget - asked.headroom), limit)
    document = records.fit_document(
        "plain numbers",
        "formula",
        budget=records.budget_record(budget, asked.headroom, limit, card),
        answers=[records.formula_record(found)],
        **_steps(asked, found.batch, None),
        fits=found.batch >= 1,
    )
    return document, found.batch >= 1


def probes_file(asked: Asked) -> Answered:
    """A CSV of probes."""
    name = asked.source or ""
    return _fitted(asked, name_of(name), read_probes(_text(name, "probes"), name_of(name), asked.series, asked.basis))


def _text(name: str, what: str) -> str:
    """The text of a CSV of *what*."""
    try:
        return (standard_input().read(LARGEST_FILE + 1) if name == "-" else _read(name)).decode("utf-8-sig")
    except UnicodeDecodeError:
        hint = ": a recording is given as --probe BATCH=FILE" if what == "probes" else ""
        raise InputError(f"{name_of(name)}: is no CSV of {what}, but no text at all{hint}") from None


def recordings(asked: Asked) -> Answered:
    """Recordings, each of a batch."""
    from lifecycle_sim.sources.detect import read_trace

    found: list[Probe] = []
    for batch, seq, path in asked.probe:
        with progress(f"reading {path}"):
            found.append(probe_of_trace(read_trace(path), batch, seq, asked.basis or "requested", source=path))
    return _fitted(asked, "recordings", found)


def _fitted(asked: Asked, name: str, probes: Sequence[Probe]) -> Answered:
    """Fit a model and decide by it; with two probes only say no."""
    model = fit(probes, asked.by)
    budget, card = _budget(asked)
    room = budget - asked.headroom
    more: dict[str, Any] = {"budget": records.budget_record(budget, asked.headroom, asked.limit, card)}
    lengths: Sequence[int | None] = asked.seq
    if not all(segment.verified for segment in model.segments):
        excluded = [records.excluded_record(model, room, seq) for seq in lengths or lengths_of(model)]
        document = records.fit_document(name, "probes", **more, answers=[], excluded=excluded, model=records.model_record(model))
        return document | {"fits": None}, False
    found = decide_all(model, budget, lengths, limit=asked.limit, headroom=asked.headroom, widen=Fraction(asked.widen))
    fewest = min(found, key=lambda each: (each.batch, -(each.seq or 0)))
    least = fewest.batch
    document = records.fit_document(
        name,
        "probes",
        **more,
        answers=[records.decision_record(each) for each in found],
        minimum=least if len(found) > 1 else None,
        **_steps(asked, least, fewest.seq),
        model=records.model_record(model),
        widened=_widened(asked, model),
        fits=least >= 1,
    )
    return document, least >= 1


def _widened(asked: Asked, model: Fitted) -> Record | None:
    last = max(segment.whole.last for segment in model.segments)
    return None if asked.widen == 1 else {"times": str(Fraction(asked.widen).limit_denominator(1000)), "last_probe": last}


def captured(asked: Asked) -> Answered:
    """A Python file, each candidate of which is captured."""
    path, function = split_program(asked.source or "")
    profile = find_profile(asked.device or CARD, asked.workspace)
    budget, card = _budget(asked, profile.name)
    plan = CapturePlan(
        path,
        function,
        asked.parameters,
        profile,
        asked.dtype,
        asked.autocast,
        asked.without,
        asked.workspace,
        asked.release,
        asked.warmup,
        asked.conf,
        max(0, budget - asked.headroom),
    )
    several = capture_runs(replace(plan, accumulate=RUN), asked.workers)
    return _runs(asked, "captures", capture_runs(plan, asked.workers), budget, card, asked.basis or "reserved", several)


def toml(asked: Asked) -> Answered:
    """A scenario whose parameter batch is searched, or a table of configurations."""
    name = asked.source or ""
    try:
        document = tomllib.loads(_read(name).decode("utf-8-sig"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{name}: is no TOML: {error}") from None
    if "configuration" in document:
        refuse(asked, IN_TABLE, "is said in a table of configurations, or does not go with one: leave it out")
        job = read_job(document, name)
        found = compare(job)
        fits = any(each.micro_batch is not None for each in found)
        told = records.configurations_record(job, found)
        room = records.budget_record(job.budget, job.headroom, job.limit)
        return records.fit_document(name, "configurations", budget=room, configurations=told, fits=fits), fits
    own = document.get("capacity")
    if asked.budget is None and asked.device is None and isinstance(own, str):
        asked = replace(asked, budget=parse_bytes(own, round_down=True))
    budget, card = _budget(asked)
    return _runs(asked, "scenario", scenario_runs(ScenarioPlan(name, asked.parameters)), budget, card, asked.basis or "payload")


def _runs(asked: Asked, kind: str, measure: Measure, budget: int, card: str | None, basis: str, several: Measure | None = None) -> Answered:
    """Search by runs, over batches or over lengths; *several* measures steps that accumulate."""
    if asked.longest and not asked.batch:
        raise click.UsageError("--longest needs the --batch at which it is asked")
    if asked.batch and not asked.longest:
        raise click.UsageError("--batch is what is sought: leave it out, or add --longest")
    if asked.longest and asked.seq:
        raise click.UsageError("with --longest the length is sought: leave --seq out")
    if asked.output is not None:
        if len(asked.seq) < 2:
            raise click.UsageError("a frontier is drawn over several lengths: give two or more, as in --seq 512,1024")
        refuse_to_overwrite(asked.output, asked.force)
        from lifecycle_sim.output.figures.files import check_target

        check_target(asked.output)
    if asked.times is not None:
        read_times(_text(asked.times, "times"), asked.times)  # what is wrong with it is told before anything is run
    others: Sequence[int | None] = asked.batch if asked.longest else asked.seq or (None,)
    with progress(f"running {asked.source} with one batch after another"):
        found = find_largest(
            measure,
            budget,
            others,
            axis="seq" if asked.longest else "batch",
            basis=basis,
            headroom=asked.headroom,
            limit=asked.limit or LIMIT,
            window=asked.window,
        )
    fewest = min(found, key=lambda each: (each.value, -(each.other or 0)))
    least = fewest.value
    edge = frontier(found) if len(asked.seq) > 1 else None
    document = records.fit_document(
        asked.source or "",
        kind,
        budget=records.budget_record(budget, asked.headroom, asked.limit, card),
        answers=[records.verified_record(each) for each in found],
        minimum=least if len(found) > 1 else None,
        warmup=asked.warmup if kind == "captures" else None,
        frontier=None if edge is None else records.frontier_record(edge),
        **({} if asked.longest else _accumulated(asked, measure, several, fewest)),
        written=asked.output,
        fits=least >= 1,
    )
    if edge is not None and asked.output is not None:
        from lifecycle_sim.output import figures

        figures.save(figures.batch_frontier(edge, title=asked.source or ""), asked.output, asked.force)
    return document, least >= 1


def _accumulated(asked: Asked, measure: Measure, several: Measure | None, found: Verified) -> dict[str, Any]:
    """The ways to the global batch that fit; where accumulating steps can be run, the largest of them is run."""
    if asked.global_batch is None or several is None or found.value < 1:
        return _steps(asked, found.value, found.seq)
    try:
        with progress(f"running {asked.source} with several micro-batches a step"):
            chosen = largest_accumulated(measure, several, found, asked.global_batch)
    except CaptureError as error:
        told = _steps(asked, found.value, found.seq)
        told["accumulation"]["not_run"] = " ".join(error.problems)
        return told
    told = _steps(asked, 0 if chosen.way is None else chosen.way.micro_batch, found.seq)
    told["accumulation"]["run"] = records.accumulated_record(chosen)
    return told


def growth_of(asked: Asked) -> Answered:
    """Captures at T and 2 T tokens."""
    from lifecycle_sim.sources.capture.launch import capture_file

    path, function = split_program(asked.source or "")
    seq = asked.growth or 1
    if len(asked.batch) > 1 or asked.longest or asked.seq:
        raise click.UsageError("--growth compares two captures at one --batch: leave --longest and --seq out")
    given = {**asked.parameters, **({"batch": asked.batch[0]} if asked.batch else {})}
    with progress(f"capturing {asked.source} at {seq} and {2 * seq} tokens"):
        one, two = (
            capture_file(
                path,
                function,
                {**given, "seq": length},
                device=asked.device or CARD,
                dtype=asked.dtype,
                autocast=asked.autocast,
                warmup=asked.warmup,
                without=asked.without,
                workspace=asked.workspace,
                release=asked.release,
            )
            for length in (seq, 2 * seq)
        )
    return records.fit_document(asked.source or "", "growth", growth=records.growth_record(growth(one, two), seq)), None


def _steps(asked: Asked, batch: int, seq: int | None = None) -> dict[str, Any]:
    """The ways to the global batch, and those in time."""
    if asked.global_batch is None:
        return {}
    found: dict[str, Any] = {"accumulation": records.accumulation_records(asked.global_batch, batch)}
    time: TimeModel | None = None
    if asked.overhead is not None and asked.time_per_sample is not None:
        time = StraightTime(asked.overhead, asked.time_per_sample)
    if asked.times is not None:
        time = times_at(read_times(_text(asked.times, "times"), asked.times), seq)
    if time is not None:
        found["in_time"] = records.feasible_record(feasible(asked.global_batch, batch, time, asked.deadline), time.longest)
    return found


def _budget(asked: Asked, card: str | None = None) -> tuple[int, str | None]:
    """The bytes there are, and the card."""
    card = asked.device or card
    profile = None if card is None else find_profile(card)
    budget = asked.budget if asked.budget is not None or profile is None else profile.capacity
    if budget is None:
        raise click.UsageError("nothing says how many bytes there are: add --budget SIZE, or --device CARD")
    if asked.headroom > budget:
        raise click.UsageError(f"--headroom is more than the {budget:,} B there are: nothing would be left")
    return budget, None if profile is None else profile.name


def _read(name: str) -> bytes:
    with open(name, "rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise InputError(
            f"{name}: is larger than {LARGEST_FILE >> 20} MiB, which no such table is: a recording is given as --probe BATCH=FILE"
        )
    return data
