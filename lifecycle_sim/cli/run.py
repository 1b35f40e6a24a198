"""``lifecycle-sim run``: run a scenario and tell its story."""

from __future__ import annotations

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import capacity_option, json_option, parameter_option, top_option
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import name_of, open_scenario
from lifecycle_sim.output.summary import all_fit, document, surely_fit
from lifecycle_sim.output.summary_peak import peak_summary
from lifecycle_sim.output.summary_run import rules_record, run_record
from lifecycle_sim.program.engine import run
from lifecycle_sim.replay import replay_all


@click.command("run")
@click.argument("scenario")
@parameter_option
@capacity_option
@top_option(10)
@json_option
@click.pass_context
def command(ctx: click.Context, scenario: str, parameters: dict[str, int], capacity: int | None, top: int, as_json: bool) -> None:
    """Run SCENARIO and set its peak beside its steady state and its static table.

    The exit code is 1 if a capacity is known and the peak does not fit into it.

    \b
    Example:
      lifecycle-sim run scenarios/mlp_step.toml --param batch=4
    """
    program = open_scenario(scenario, parameters)
    with progress(f"running {name_of(scenario)}"):
        trace = run(program)
        devices = [peak_summary(each, top=top, capacity=capacity) | run_record(program, each) for each in replay_all(trace)]
    answer(document("run", trace, name_of(scenario), devices, rules=rules_record(program, trace.settings), fits=all_fit(devices)), as_json)
    ctx.exit(Exit.YES if surely_fit(devices) else Exit.NO)
