"""What the reports of numbers and of files have in common: the types they open with, time, and what they close with."""

from __future__ import annotations

from fractions import Fraction

from lifecycle_sim.study.budget.report import BudgetReport, PlannedTime, PlannedWork
from lifecycle_sim.study.budget.speed import StepTime, mfu, theoretical_time, training_time
from lifecycle_sim.study.budget.states import StateBudget


def types_of(budget: StateBudget) -> dict[str, str]:
    """Return the types of what *budget* holds, by what it is."""
    types: dict[str, str] = {}
    for row in budget.rows:
        name = row.name if row.category != "optimizer_state" or row.name in ("master weights", "main gradients") else "moments"
        if row.kind and not name.startswith("buffers"):
            types[name] = row.kind if types.get(name, row.kind) == row.kind else f"{types[name]}, {row.kind}"
    return types


def planned_time(
    work: PlannedWork,
    *,
    peak: int | None,
    devices: int,
    device: str | None,
    throughput: Fraction | None,
    sequence: int | None,
    measured: str | None,
    saving: int = 0,
    steps: StepTime | None = None,
) -> PlannedTime:
    """Return the time that *work* takes: a bound from the peak, and what measured *throughput* says, if there is one."""
    flops, tokens = work.flops or 0, work.tokens or 0
    utilisation = None
    if peak and throughput:
        a_token = Fraction(flops + (work.attention or 0), tokens)
        utilisation = mfu(a_token, throughput, devices, peak)
    return PlannedTime(
        None if not peak else theoretical_time(flops, peak, devices),
        peak,
        devices,
        device,
        throughput,
        throughput / sequence if throughput and sequence else None,
        measured,
        training_time(tokens, throughput) + saving if throughput else None,
        saving,
        utilisation,
        work.attention is not None,
        steps,
    )


def missing_of(report: BudgetReport) -> tuple[str, ...]:
    """Return the names of the evidence that *report* does not rest on."""
    if report.candidates:
        return tuple(dict.fromkeys(name for each in report.candidates for name in each.missing))
    if report.opening is None or report.work is None or not report.work.flops:
        return ()
    lacking = []
    if report.time is None or report.time.throughput is None:
        lacking.append("throughput")
    lacking.append("loss")
    if report.tokens is None or report.tokens.distinct is None:
        lacking.append("data")
    if report.memory is None or report.memory.evidence != "simulated":
        lacking.append("memory")
    return tuple(lacking)


def not_counted_of(report: BudgetReport) -> tuple[str, ...]:
    """Return the names of what *report* leaves out."""
    if report.opening is None:
        return ()
    left = ["context"]
    simulated = report.memory is not None and report.memory.evidence == "simulated"
    if not simulated:
        left.append("fragmentation")
        if report.memory is None or not report.memory.activations:
            left.append("activations")
    if report.opening.sharding != "none":
        left += ["gathered", "distributed"]
    if report.largest is None or report.largest.batch is None:
        left.append("largest")
    if not simulated and report.opening.mode == "training":
        left.append("casts")
    if report.work is not None and report.work.flops and report.work.attention is None:
        left.append("attention")
    if report.time is not None:
        left.append("overheads")
    return (*left, "host")
