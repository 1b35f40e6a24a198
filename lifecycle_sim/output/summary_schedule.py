"""The facts of ``lifecycle-sim schedule`` as records: one schedule, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence

from lifecycle_sim.events import Basis
from lifecycle_sim.output.summary import Record
from lifecycle_sim.study.pipeline.schedule import Schedule
from lifecycle_sim.study.pipeline.schedule_costs import Costs, Model
from lifecycle_sim.study.pipeline.schedule_result import RankResult, ScheduleRun
from lifecycle_sim.study.pipeline.schedule_study import LargestMicrobatch, Probe, ScheduleRow


def run_document(
    source: str,
    run: ScheduleRun,
    capacity: int | None = None,
    given: bool = False,
    largest: LargestMicrobatch | None = None,
    lists: bool = False,
    written: str | None = None,
) -> Record:
    """Return the versioned document about one schedule.

    Args:
        source: what the costs are from.
        run: what was run.
        capacity: bytes of each rank.
        given: whether the capacity was given, and is not the source's own.
        largest: the largest micro-batch that fits, if it was asked for.
        lists: whether to add each rank's actions.
        written: the file that was written.
    """
    schedule = run.schedule
    return {
        **_head(source, run.costs),
        "schedule": _schedule(schedule),
        "makespan": run.makespan,
        "work": run.work,
        "idle": run.makespan * schedule.ranks - run.work,
        "gaps": run.gaps,
        "binding": run.binding.rank,
        "peak": run.peak,
        "capacity": None if capacity is None else _capacity(run.costs, capacity, given) | {"overflow": _overflow(run.peak, capacity)},
        "ranks": [_rank(run, rank) for rank in run.ranks],
        "lists": [" ".join(map(str, actions)) for actions in schedule.lists] if lists else None,
        "largest": None if largest is None else _largest(largest),
        "assumptions": list(run.costs.assumptions),
        "written": written,
        "fits": None if capacity is None or run.peak is None else run.peak <= capacity,
    }


def rows_document(
    source: str, model: Model, rows: Sequence[ScheduleRow], capacity: int | None = None, given: bool = False, written: str | None = None
) -> Record:
    """Return the versioned document about several schedules; ``fits`` is whether any of them does."""
    judged = [row.fits for row in rows if row.fits is not None]
    return {
        **_head(source, model),
        "capacity": None if capacity is None else _capacity(model, capacity, given),
        "rows": [_row(row) for row in rows],
        "assumptions": [*model.assumptions, *([f"layers are cut into stages{model.aim}"] if model.aim else [])],
        "written": written,
        "fits": any(judged) if judged else None,
    }


def _head(source: str, costs: Costs | Model) -> Record:
    return {
        "schema": "lifecycle-sim/schedule/1",
        "source": {"name": source, "title": costs.title, "evidence": "simulated", "clock": str(costs.clock)},
        "basis": None if costs.basis is None else str(costs.basis),
        "communication": costs.communication,
    }


def _schedule(schedule: Schedule) -> Record:
    return {
        "name": schedule.name,
        "ranks": schedule.ranks,
        "microbatches": schedule.microbatches,
        "chunks": schedule.chunks,
        "stages": schedule.stages,
        "actions": len(schedule),
        "splits": schedule.splits,
    }


def _capacity(costs: Costs | Model, capacity: int, given: bool) -> Record:
    """The bytes of a rank, and who says so; a captured model, whose bytes are requested ones, has those of its card."""
    return {"bytes": capacity, "given": given, "from": "given" if given else "card" if costs.basis is Basis.REQUESTED else "costs"}


def _overflow(peak: int | None, capacity: int) -> int | None:
    return None if peak is None else max(0, peak - capacity)


def _rank(run: ScheduleRun, rank: RankResult) -> Record:
    known = rank.peak is not None
    place = str(run.schedule.lists[rank.rank][rank.peak_place]) if rank.peak_place >= 0 else None
    return {
        "rank": rank.rank,
        "stages": list(rank.stages),
        "in_flight": rank.in_flight,
        "in_flight_input": rank.in_flight_input,
        "area": rank.area,
        "peak": {"bytes": rank.peak, "action": place, "time": rank.peak_time} if known else None,
        "average": None if rank.byte_area is None else rank.byte_area // max(1, run.makespan),
        "byte_area": rank.byte_area,
        "static": rank.static,
        "busy": rank.busy,
        "gaps": rank.gaps,
        "first": rank.first,
        "last": rank.last,
    }


def _largest(found: LargestMicrobatch) -> Record:
    return {
        "size": found.size,
        "limit": found.limit,
        "at": None if found.at is None else _probe(found.at),
        "above": None if found.above is None else _probe(found.above),
        "probes": [_probe(each) for each in found.probes],
    }


def _probe(probe: Probe) -> Record:
    return {"size": probe.size, "bytes": probe.peak, "rank": probe.rank}


def _row(row: ScheduleRow) -> Record:
    point = row.point
    named = {"name": point.name, "ranks": point.ranks, "microbatches": point.microbatches, "chunks": point.chunks}
    if row.why_not is not None:
        return {**named, "why_not": row.why_not, "result": None}
    return {
        **named,
        "why_not": None,
        "result": {
            "makespan": row.makespan,
            "work": row.work,
            "idle": row.makespan * point.ranks - row.work,
            "gaps": row.gaps,
            "in_flight": row.in_flight,
            "in_flight_rank": row.in_flight_rank,
            "peak": row.peak,
            "binding": row.rank,
            "average": row.average,
            "fits": row.fits,
        },
    }
