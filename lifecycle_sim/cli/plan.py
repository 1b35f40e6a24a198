"""``lifecycle-sim plan``: which modules to recompute so that a step stays within a budget."""

from __future__ import annotations

from typing import Any

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.captured import is_program, on_capture, trace_asked_for
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import json_option, read_size
from lifecycle_sim.cli.planning import planning_options
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.events import Trace
from lifecycle_sim.output.summary import document
from lifecycle_sim.output.summary_plan import batch_record, plan_record, verified_record
from lifecycle_sim.study.applied import VerifiedPlan, verify
from lifecycle_sim.study.batch_plans import LIMIT, BatchPlans, budget_of, largest_batch
from lifecycle_sim.study.plan import RegionPlan, plan
from lifecycle_sim.study.plan_levels import PlannedLevels
from lifecycle_sim.study.prediction import LEVELS


@click.command("plan")
@on_capture
@click.option("--budget", metavar="SIZE", callback=read_size, help="Bytes that the step may peak at; by default the card's memory.")
@click.option(
    "--basis",
    type=click.Choice(LEVELS),
    help="What the budget counts; by default requested bytes, and reserved ones where it is the card's memory.",
)
@click.option("--verify", "verifies", is_flag=True, help="Of a FILE.py: capture it again with the plan applied, and compare.")
@click.option("--largest-batch", "largest", is_flag=True, help="Of a FILE.py: seek the largest batch that some plan lets fit.")
@click.option("--most", type=click.IntRange(1), help=f"The largest batch that is tried; by default {LIMIT:,}.")
@planning_options
@json_option
def command(
    source: str,
    budget: int | None,
    basis: str | None,
    verifies: bool,
    largest: bool,
    most: int | None,
    modules: tuple[str, ...],
    objective: str,
    no_early_stop: bool,
    solver: str,
    seconds: float,
    as_json: bool,
    **asked: Any,
) -> None:
    """Which modules of a captured step to recompute, at least cost, so that its peak stays within a budget.

    The capture is one of a training step without checkpointing. The plan is simulated exactly before it is told; whether it is proven
    the cheapest is said. A budget of allocated or reserved bytes is one of what the allocator makes of the step. Exit code 1 if there is
    no plan, or --verify finds another peak. torch is needed for a FILE.py alone.

    \b
    Example:
      lifecycle-sim plan step.jsonl --budget "24 GiB"
      lifecycle-sim plan train.py --device a100-40g --largest-batch
    """
    for given, name in ((verifies, "--verify"), (largest, "--largest-batch")):
        if given and not is_program(source):
            raise click.UsageError(f"{name} captures steps anew: give a FILE.py")
    if most is not None and not largest:
        raise click.UsageError("--most bounds the batches that are tried: add --largest-batch")
    if largest and asked["batch"] is not None:
        raise click.UsageError("--largest-batch seeks the batch: leave --batch out")
    basis = basis or ("reserved" if budget is None or largest else "requested")
    options: dict[str, Any] = {"objective": objective, "early_stop": not no_early_stop, "solver": solver, "seconds": seconds}
    batches: BatchPlans | None = None
    if largest:
        captures: dict[int, Trace] = {}

        def capture_at(batch: int) -> Trace:
            captures[batch] = trace_asked_for(source, asked | {"batch": batch})
            return captures[batch]

        batches = largest_batch(capture_at, budget, modules or None, basis=basis, limit=most or LIMIT, **options)
        row = batches.largest or batches.rows[0]
        asked["batch"], trace, found = row.batch, captures[row.batch], row.found
    else:
        trace = trace_asked_for(source, asked)
        with progress("searching"):
            found = plan(trace, budget_of(trace, budget), modules or None, basis=basis, **options)
    with progress("predicting what the allocator makes of it"):
        levels = PlannedLevels(trace, not no_early_stop)
        told = levels.of(()), levels.of(() if found.plan is None else found.plan.chosen)
    verified = _verified(source, asked, trace, found, not no_early_stop) if verifies else None
    record = plan_record(trace, found, told) | {
        "verified": None if verified is None else verified_record(verified),
        "largest_batch": None if batches is None else batch_record(batches),
    }
    answer(document("plan", trace, source, [record], fits=found.fits), as_json)
    as_told = found.fits and (verified is None or verified.exact)
    click.get_current_context().exit(Exit.YES if as_told else Exit.NO)


def _verified(source: str, asked: dict[str, Any], trace: Trace, found: RegionPlan, early_stop: bool) -> VerifiedPlan | None:
    """The step captured again with the plan applied; None if there is none."""
    if found.plan is None:
        return None
    sizes = {name: asked[name] for name in ("batch", "seq") if asked[name] is not None}
    options = {name: asked[name] for name in ("device", "autocast", "dtype") if asked[name] is not None}
    with progress(f"capturing {source} with the plan applied"):
        return verify(source, found, trace, early_stop=early_stop, parameters=asked["parameters"] | sizes, **options)
