"""``lifecycle-sim protocol``: whether a comparison of sizes can answer, and what its runs say."""

from __future__ import annotations

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import json_option
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.output.summary_protocol import protocol_document
from lifecycle_sim.study.budget.protocol import read_protocol


@click.command("protocol")
@click.argument("file", metavar="FILE.toml")
@json_option
@click.pass_context
def command(ctx: click.Context, file: str, as_json: bool) -> None:
    """Check a comparison of model sizes at one budget of operations, and fit the runs that it names.

    FILE.toml states the budget with its tolerance, the measure of quality, what all runs have in common, and three or more (N, D). With
    [fit] data = "runs.csv" (columns N, D and loss) a law is fitted, with intervals, its range, and a check at an intermediate scale; what
    [[forecast]] asks about is told with a warning or refused. Exit code 1 if the comparison cannot answer or a forecast is refused.

    \b
    Example:
      lifecycle-sim protocol scenarios/budget/isoflop.toml
    """
    with progress(f"reading {file}"):
        protocol = read_protocol(file)
    answer(protocol_document(file, protocol), as_json)
    ctx.exit(Exit.YES if protocol.sound and protocol.answered else Exit.NO)
