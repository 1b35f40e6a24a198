"""``lifecycle-sim frontier``: every plan of recomputation that is cheapest at its peak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.captured import on_capture, trace_asked_for
from lifecycle_sim.cli.options import json_option, refuse_no_figure
from lifecycle_sim.cli.planning import planning_options
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.output.atomic import refuse_to_overwrite
from lifecycle_sim.output.summary import document
from lifecycle_sim.output.summary_plan import frontier_record
from lifecycle_sim.program.stored_steps import graphs_of
from lifecycle_sim.study.plan import frontier


@click.command("frontier")
@on_capture
@planning_options
@click.option("-o", "--output", metavar="FILE", help="Draw the frontier: a .png, .svg or .pdf.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@json_option
def command(
    source: str,
    modules: tuple[str, ...],
    objective: str,
    no_early_stop: bool,
    solver: str,
    seconds: float,
    output: str | None,
    force: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Every plan of recomputation that is cheapest at its peak, and what people usually choose beside them.

    The capture is one of a training step without checkpointing. Every peak is simulated exactly. torch is needed for a FILE.py alone.

    \b
    Example:
      lifecycle-sim frontier step.jsonl -o frontier.png
    """
    if output is not None:
        refuse_no_figure(output)
        refuse_to_overwrite(output, force)
    trace = trace_asked_for(source, asked)
    with progress("searching"):
        found = frontier(trace, modules or None, objective=objective, early_stop=not no_early_stop, solver=solver, seconds=seconds)
    if output is not None:
        from lifecycle_sim.output import figures

        flops = sum(row.flops for row in graphs_of(trace)[-1].operators)
        with progress(f"drawing {output}"):
            figures.save(figures.plan_frontier(found, flops, title=Path(source).name), output, force)
    answer(document("frontier", trace, source, [frontier_record(trace, found)], written=output), as_json)
