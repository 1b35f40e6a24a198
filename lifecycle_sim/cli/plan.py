"""``lifecycle-sim plan``: which modules to recompute so that a step stays within a budget."""

from __future__ import annotations

from typing import Any

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.captured import on_capture, trace_asked_for
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import json_option, read_size
from lifecycle_sim.cli.planning import planning_options
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.output.summary import document
from lifecycle_sim.output.summary_plan import plan_record
from lifecycle_sim.study.plan import plan
from lifecycle_sim.study.prediction import predict
from lifecycle_sim.study.recompute import what_if


@click.command("plan")
@on_capture
@click.option("--budget", required=True, metavar="SIZE", callback=read_size, help="Requested bytes that the step may peak at.")
@planning_options
@json_option
def command(
    source: str,
    budget: int,
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
    the cheapest is said. Exit code 1 if there is no plan. torch is needed for a FILE.py alone.

    \b
    Example:
      lifecycle-sim plan step.jsonl --budget "24 GiB"
    """
    trace = trace_asked_for(source, asked)
    with progress("searching"):
        found = plan(trace, budget, modules or None, objective=objective, early_stop=not no_early_stop, solver=solver, seconds=seconds)
    with progress("predicting what the allocator makes of it"):
        if found.plan is not None and found.plan.chosen:
            edited = what_if(trace, found.plan.chosen, early_stop=not no_early_stop)
            levels = edited.base, edited.edited
        else:
            base = predict(trace).steps[-1]
            levels = base, base
    answer(document("plan", trace, source, [plan_record(trace, found, levels)], fits=found.fits), as_json)
    click.get_current_context().exit(Exit.YES if found.fits else Exit.NO)
