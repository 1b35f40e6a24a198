"""Summaries of lines that were run: the rules, and each run in figures."""

from __future__ import annotations

from collections.abc import Sequence

from lifecycle_sim.output.summary import Record
from lifecycle_sim.study.pipeline.line import Line, coarse_draws
from lifecycle_sim.study.pipeline.line_answers import Estimate, LineAnswer, undetermined
from lifecycle_sim.study.pipeline.line_check import too_small
from lifecycle_sim.study.pipeline.line_figures import LevelFigures, LineFigures, StageFigures, Times
from lifecycle_sim.study.pipeline.line_occupancy import occupancy
from lifecycle_sim.study.pipeline.line_run import Deadlock


def line_document(line: Line, source: str, answers: Sequence[LineAnswer], top: int, levels: bool = False) -> Record:
    """Return the versioned document that ``lifecycle-sim line`` answers with; the first of *answers* is the line as written.

    Args:
        line: the line as written.
        source: what it is called.
        answers: what came of each line.
        top: how much of what is there at the peak to list.
        levels: whether to add the occupancy over time.
    """
    return {
        "schema": "lifecycle-sim/line/1",
        "source": {"name": source, "format": "scenario", "evidence": "simulated", "clock": str(line.clock), "unit": line.unit},
        "rules": rules_record(line),
        "rows": [row_record(answer, top, levels) for answer in answers],
        "undetermined": undetermined(answers),
        "fits": any_fits(answers),
    }


def any_fits(answers: Sequence[LineAnswer]) -> bool | None:
    """Whether any of *answers* fits its capacities in all its runs; None if no capacity says so and one at least gets to its end."""
    fits = [answer.fits for answer in answers]
    return True if True in fits else None if None in fits else False


def rules_record(line: Line) -> Record:
    """By which rules the line ran."""
    return {
        "title": line.title,
        "parameters": dict(sorted(line.parameters.items())),
        "stages": len(line.stages),
        "kinds": len(line.kinds),
        "items": line.items,
        "capacity_mode": line.mode.value,
        "random": line.random,
        "seed": line.seed,
        "coarse": coarse_draws(line),
        "replications": line.replications,
        "warmup": line.warmup,
        "horizon": line.horizon,
        "same_instant": "frees-first",
    }


def row_record(answer: LineAnswer, top: int, levels: bool = False) -> Record:
    """What came of one line: its first run in figures, and the estimates over all."""
    figures = answer.first
    return {
        "name": answer.name,
        "basis": "payload",
        "items": {"coming": len(figures.run.left), "finished": figures.finished, "lost": figures.lost},
        "makespan": figures.run.end,
        "window": {"begin": figures.begin, "end": figures.end},
        "peak": _peak(figures, top),
        "average": _average(figures.total),
        "total_work": figures.total.area,
        "capacity": _capacity(figures.total, answer.fits),
        "items_in_line": {"peak": figures.items.peak, "area": figures.items.area, "mean": float(figures.items.average)},
        "throughput": {"finished": figures.finished, "time": figures.run.end, "rate": float(figures.throughput)},
        "residence": _times(figures.residence),
        "outside": _times(figures.outside),
        "bubble": float(figures.bubble),
        "stages": [_stage(stage) for stage in figures.stages],
        "ways": [{"name": name, "peak": level.peak, **_average(level)} for name, level in figures.ways.items()],
        "levels": _levels(figures) if levels else None,
        "deadlock": None if figures.deadlock is None else _deadlock(figures.deadlock),
        "deadlocks": answer.deadlocks,
        "unfit": answer.unfit,
        "too_small": [] if answer.fits else too_small(answer.line),
        "replications": answer.line.replications,
        "estimates": {name: _estimate(each) for name, each in answer.estimates.items()},
    }


def _levels(figures: LineFigures) -> list[Record]:
    """The occupancy over time of the line, of each stage and of each way between two: from each time on, how much there is."""
    held = occupancy(figures.run)
    named = [(None, held.total), *((name, held.at(at)) for at, name in enumerate(held.places))]
    return [{"place": name, "times": level.time.tolist(), "amounts": level.level.tolist()} for name, level in named]


def _peak(figures: LineFigures, top: int) -> Record:
    shown = [
        {"item": each.item, "place": each.place, "what": each.what, "amount": each.size, "since": each.since}
        for each in figures.present[:top]
    ]
    return {"amount": figures.total.peak, "time": figures.total.peak_time, "present": {"count": len(figures.present), "shown": shown}}


def _average(level: LevelFigures) -> Record:
    """The average with what it is made of: the area under the level, and the time that passes; ``mean`` is rounded."""
    return {"area": level.area, "span": level.span, "mean": float(level.average)}


def _capacity(level: LevelFigures, fits: bool | None) -> Record:
    return {"amount": level.capacity, "fits": fits, "overflow": level.overflow, "above": level.above}


def _times(times: Times) -> Record:
    return {
        "count": times.count,
        "total": times.total,
        "mean": float(times.mean),
        "least": times.least,
        "median": times.median,
        "high": times.high,
        "most": times.most,
    }


def _stage(stage: StageFigures) -> Record:
    return {
        "name": stage.name,
        "machines": stage.machines,
        "visits": stage.visits,
        "batches": stage.batches,
        "working": stage.working,
        "setup": stage.setup,
        "repair": stage.repair,
        "blocked": stage.blocked,
        "idle": stage.idle,
        "utilisation": float(stage.utilisation),
        "peak": stage.level.peak,
        "average": _average(stage.level),
        "capacity": _capacity(stage.level, None if stage.level.capacity is None else not stage.level.overflow),
        "waiting": _times(stage.waiting),
        "delayed": _times(stage.delayed),
    }


def _deadlock(found: Deadlock) -> Record:
    return {
        "time": found.time,
        "inside": found.inside,
        "outside": found.outside,
        "cycle": [{"who": wait.who, "item": wait.item, "waits_for": wait.what, "held_by": list(wait.held_by)} for wait in found.cycle],
    }


def _estimate(each: Estimate) -> Record:
    return {"mean": each.mean, "half_width": each.half, "least": each.least, "most": each.most}
