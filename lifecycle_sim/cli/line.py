"""``lifecycle-sim line``: run a production line, or several side by side."""

from __future__ import annotations

from pathlib import Path

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import json_option, parameter_option, top_option
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import name_of, scenario_for
from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.output.atomic import refuse_to_overwrite, write_atomically
from lifecycle_sim.output.exports import encoder_for
from lifecycle_sim.output.printable import one_line
from lifecycle_sim.output.summary_line import line_document
from lifecycle_sim.study.pipeline.line import Line
from lifecycle_sim.study.pipeline.line_answers import LineAnswer, answer_lines, undetermined
from lifecycle_sim.study.pipeline.line_edits import Edit, read_edits, read_sweep
from lifecycle_sim.study.pipeline.line_file import line_of
from lifecycle_sim.study.pipeline.line_trace import line_trace

FIGURES = (".png", ".svg", ".pdf")
KINDS = ("occupancy", "visits", "compare")
SET_HELP = 'What if this were so: NAME.KEY=VALUE, such as "press.machines=2", or PARAMETER=VALUE; several with commas between; repeatable.'
SWEEP_HELP = 'What if it took each of these values: "press.machines=1..4" or "gap=0,500"; repeatable, then every combination.'
CAPACITY_HELP = 'The capacity of the line, such as "24 GiB", in place of its own.'
OUTPUT_HELP = "Draw it (.png, .svg, .pdf), or write its occupancy as a trace (.jsonl, .npz, .csv, .pickle) for every other command."
KIND_HELP = "What to draw: occupancy over time by stage, the visits, or lines side by side; by default what was asked about."
WORKERS_HELP = "Processes to spread replications over; by default as many as are worth it."


@click.command("line")
@click.argument("scenario")
@parameter_option
@click.option("--set", "settings", multiple=True, metavar="EDIT", help=SET_HELP)
@click.option("--sweep", multiple=True, metavar="VALUES", help=SWEEP_HELP)
@click.option("--capacity", metavar="SIZE", help=CAPACITY_HELP)
@click.option(
    "--replications", type=click.IntRange(1, 100_000), metavar="N", help="Runs with other draws, in place of the scenario's own number."
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="The seed of all draws, in place of the scenario's own.")
@click.option("-o", "--output", metavar="FILE", help=OUTPUT_HELP)
@click.option("--kind", type=click.Choice(KINDS), help=KIND_HELP)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--levels", is_flag=True, help="With --json, add the occupancy over time of the line and of each stage.")
@top_option(10)
@click.option("--workers", type=click.IntRange(1), metavar="N", help=WORKERS_HELP)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    scenario: str,
    parameters: dict[str, int],
    settings: tuple[str, ...],
    sweep: tuple[str, ...],
    capacity: str | None,
    replications: int | None,
    seed: int | None,
    output: str | None,
    kind: str | None,
    force: bool,
    levels: bool,
    top: int,
    workers: int | None,
    as_json: bool,
) -> None:
    """Run the line in SCENARIO: occupancy by stage, peak, average, total work, machines, and what blocks or overflows.

    A line has [[stage]] and [[item]] tables, see docs/line.md. With --set or --sweep it runs again with these changes, with the same draws,
    and the runs stand side by side.

    The exit code is 1 if a capacity is known and nothing fits, or if the line deadlocks.

    \b
    Examples:
      lifecycle-sim line scenarios/line_peak.toml
      lifecycle-sim line scenarios/line_peak.toml --sweep gap=0,500,1000 -o three.png
      lifecycle-sim line scenarios/line_workshop.toml --set paint.machines=2 --set "saw.machines=2,saw.order=shortest"
      lifecycle-sim line scenarios/line_peak.toml -o line.jsonl
    """
    encode = None
    if output is not None:
        encode = None if Path(output).suffix.lower() in FIGURES else encoder_for(output)
        if encode is not None and (settings or sweep):
            raise click.UsageError("a trace is that of one line: leave --set and --sweep out, or draw the lines side by side")
        refuse_to_overwrite(output, force)
    if kind is not None and (output is None or encode is not None):
        raise click.UsageError(f"--kind is what to draw: give a file for it with -o, ending in {', '.join(FIGURES)}")
    if levels and not as_json:
        raise click.UsageError("--levels goes into the document: add --json, or draw the levels with -o")
    text, source = scenario_for(scenario)
    base = [
        Edit(None, key, value)
        for key, value in (("capacity", capacity), ("replications", replications), ("seed", seed))
        if value is not None
    ]
    edits = [read_edits(each) for each in settings] + (read_sweep(sweep) if sweep else [])
    written = line_of(text, source, parameters)
    named = [("as written", _edited(written, text, parameters, tuple(base), ()))]
    named += [(", ".join(map(str, each)), _edited(written, text, parameters, tuple(base), each)) for each in edits]
    with progress(f"running {name_of(scenario)}"):
        answers = answer_lines(named[1:] if sweep and not settings else named, workers)
    if output is not None:
        with progress(f"writing {output}"):
            if encode is None:
                draw(answers, kind, output, force, Path(name_of(scenario)).name)
            else:
                export = encode(line_trace(answers[0].first.run), None)
                write_atomically(output, export.data, force)
                for note in export.notes:
                    click.echo(one_line(note), err=True)
    told = line_document(named[0][1], name_of(scenario), answers, top, levels)
    answer(told, as_json)
    ctx.exit(Exit.NO if told["fits"] is False else Exit.YES)


def _edited(written: Line, text: str, parameters: dict[str, int], base: tuple[Edit, ...], edits: tuple[Edit, ...]) -> Line:
    """The line with options and edits in place of what its file says.

    Raises:
        ScenarioError: they make problems; each is told as theirs, for the file itself has none.
    """
    made = (*base, *edits)
    if not made:
        return written
    try:
        return line_of(text, written.source, parameters, made)
    except ScenarioError as error:
        whose = ", ".join(map(str, edits or base))
        raise ScenarioError([problem if problem.startswith(whose) else f"with {whose}: {problem}" for problem in error.problems]) from None


def draw(answers: list[LineAnswer], kind: str | None, output: str, force: bool, title: str) -> None:
    """Draw one figure and write it."""
    from lifecycle_sim.output import figures

    chosen = kind or ("compare" if len(answers) > 1 else "occupancy")
    if chosen == "compare":
        headline = "Total work, average, peak: none determines another" if undetermined(answers) else "Lines side by side"
        axes = figures.line_variants([(each.name, each.first) for each in answers], title, headline)
    elif chosen == "visits":
        axes = figures.line_visits(answers[0].first, title=title)
    else:
        axes = figures.line_occupancy(answers[0].first, title=title)
    figures.save(axes, output, force)
