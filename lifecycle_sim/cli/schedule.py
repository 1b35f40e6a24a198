"""``lifecycle-sim schedule``: a schedule of pipeline-parallel training, or several side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import capacity_option, json_option, parameter_option
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.schedule_costs import CostSource
from lifecycle_sim.errors import InputError
from lifecycle_sim.output.atomic import refuse_to_overwrite, write_atomically
from lifecycle_sim.output.printable import one_line
from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.summary_schedule import rows_document, run_document
from lifecycle_sim.study.pipeline.schedule import Schedule
from lifecycle_sim.study.pipeline.schedule_cut import Balance, read_cut
from lifecycle_sim.study.pipeline.schedule_lists import read_lists, write_lists
from lifecycle_sim.study.pipeline.schedule_orders import SCHEDULES, find, schedule
from lifecycle_sim.study.pipeline.schedule_result import ScheduleRun, run_schedule
from lifecycle_sim.study.pipeline.schedule_study import Point, compare_schedules, evenly, largest_microbatch, points, possible, read_sweep
from lifecycle_sim.study.pipeline.schedule_trace import schedule_trace

FIGURES = (".png", ".svg", ".pdf")
LISTS = ".csv"
MOST_TWINS = 4
WRITE_HELP = "Draw it (.png, .svg, .pdf), write the action lists (.csv), or each rank's bytes as a trace (.jsonl, .npz, .pickle)."
COMPARE_HELP = "Set schedules beside this one: names with commas between them, or all."
BALANCE_HELP = "What of the stages is to be equal: layers (in number; so without this), time, bytes; or each one's layers, such as 4,3,3,2."
SWEEP_HELP = "Run every combination of these numbers, such as 'p=4,8 m=16,32 v=2,4': stages, micro-batches, chunks."


@click.command("schedule")
@click.argument("name", metavar="NAME|LISTS.csv")
@click.option("--stages", "--ranks", "ranks", type=click.IntRange(1, 100_000), metavar="P", help="How many ranks the pipeline has.")
@click.option("--microbatches", type=click.IntRange(1, 10_000_000), metavar="M", help="How many micro-batches a step has.")
@click.option(
    "--chunks", type=click.IntRange(1, 10_000), metavar="V", help="How many stages a rank holds; 2 unless the schedule has its own."
)
@click.option("--costs", metavar="FILE.toml", help="Times and bytes of the model's layers, which are cut into stages.")
@click.option("--model", metavar="FILE.py[:FUNCTION]", help="Capture this model instead, and cut it into stages.")
@click.option("--device", default="h100", show_default=True, metavar="CARD", help="The card to capture for.")
@click.option("--batch", type=click.IntRange(1), help="Samples of a micro-batch, for functions of the model that take batch.")
@click.option("--seq", type=click.IntRange(1), help="Likewise for those that take seq.")
@parameter_option
@click.option("--dtype", metavar="TYPE", help="Convert the model to this type, such as bf16.")
@click.option("--autocast", metavar="TYPE", help="Run its forward under autocast to this type.")
@click.option("--cut", metavar="MODULE", help="The module whose numbered children are the layers, such as model.layers.")
@click.option("--balance", metavar="WHAT", help=BALANCE_HELP)
@click.option("--tflops", type=click.IntRange(1), metavar="N", help="Tera-FLOPs a second of a rank: times are then seconds.")
@click.option("--communication", metavar="TIME", help="How long a result takes to another rank, such as 3 (ticks) or '50 us'.")
@click.option("--recompute", is_flag=True, help="Keep only each layer's input, and run its forward again before its backward.")
@capacity_option
@click.option("--largest", is_flag=True, help="Find the largest micro-batch that fits: of --batch, or of the parameter batch in --costs.")
@click.option("--limit", type=click.IntRange(1), default=65_536, show_default=True, metavar="N", help="The largest to try.")
@click.option("--compare", metavar="NAMES", help=COMPARE_HELP)
@click.option("--sweep", metavar="VALUES", help=SWEEP_HELP)
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Processes for --compare and --sweep; by default as many as are worth it."
)
@click.option("--lists", is_flag=True, help="Show each rank's actions.")
@click.option("-o", "--output", metavar="FILE", help=WRITE_HELP)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    name: str,
    ranks: int | None,
    microbatches: int | None,
    chunks: int | None,
    costs: str | None,
    model: str | None,
    device: str,
    batch: int | None,
    seq: int | None,
    parameters: dict[str, int],
    dtype: str | None,
    autocast: str | None,
    cut: str | None,
    balance: str | None,
    tflops: int | None,
    communication: str | None,
    recompute: bool,
    capacity: int | None,
    largest: bool,
    limit: int,
    compare: str | None,
    sweep: str | None,
    workers: int | None,
    lists: bool,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Run the schedule NAME of pipeline-parallel training: times, micro-batches in flight and bytes of each rank, and the rank that binds.

    NAME is gpipe, 1f1b, looped-bfs, interleaved-1f1b, zb-h1, zb-h2, interleaved-zb, zbv or dualpipev; LISTS.csv holds action lists as torch
    writes them, a line a rank. Without --costs and --model every stage takes a tick for its forward and for either gradient.

    The exit code is 1 if bytes and a capacity are known and nothing fits, or if none of several schedules is possible.

    \b
    Examples:
      lifecycle-sim schedule 1f1b --stages 8 --microbatches 32
      lifecycle-sim schedule gpipe --stages 4 --microbatches 16 --compare 1f1b -o twins.png
      lifecycle-sim schedule 1f1b --stages 4 --microbatches 8 --model scenarios/capture/gpt.py --batch 1 --device h100
    """
    if costs is not None and model is not None:
        raise click.UsageError("--costs and --model both say what stages take: leave one of them out")
    if model is None and (batch, seq, dtype, autocast, cut, tflops) != (None,) * 6:
        raise click.UsageError("--batch, --seq, --dtype, --autocast, --cut and --tflops are about a model: add --model FILE.py")
    if balance is not None and costs is None and model is None:
        raise click.UsageError("--balance is about the cut of layers into stages: add --costs FILE.toml or --model FILE.py")
    if largest and (compare or sweep):
        raise click.UsageError("--largest is about one schedule: leave --compare and --sweep out")
    if parameters and costs is None and model is None:
        raise click.UsageError("--param is about the costs: add --costs FILE.toml or --model FILE.py")
    if output is not None:
        _check_output(output, bool(compare or sweep))
        refuse_to_overwrite(output, force)
    if name.lower().endswith(LISTS) and (compare or sweep or (ranks, microbatches, chunks) != (None, None, None)):
        raise click.UsageError(
            f"{name} says itself how many ranks and micro-batches there are, and is run alone: "
            "leave --stages, --microbatches, --chunks, --compare and --sweep out"
        )
    given = parameters | {key: value for key, value in (("batch", batch), ("seq", seq)) if value is not None}
    cutting = Balance.LAYERS if balance is None else read_cut(balance)
    source = CostSource(costs, model, given, device, dtype, autocast, cut, tflops, communication, recompute, cutting)
    asked = Asked(name, ranks, microbatches, chunks)
    if compare or sweep:
        document = _several(source, asked.points(compare, sweep), capacity, workers, output, force)
    else:
        made = read_lists(name) if name.lower().endswith(LISTS) else asked.schedule()
        document = _one(source, made, capacity, limit if largest else None, lists, output, force)
    answer(document, as_json)
    impossible = "rows" in document and all(row["result"] is None for row in document["rows"])
    ctx.exit(Exit.NO if document["fits"] is False or impossible else Exit.YES)


@dataclass(frozen=True)
class Asked:
    """The schedule that was asked for, and its numbers, as far as they were given."""

    name: str
    ranks: int | None
    microbatches: int | None
    chunks: int | None

    def schedule(self) -> Schedule:
        """Return the one schedule.

        Raises:
            UsageError: a number is missing.
        """
        find(self.name)
        if self.ranks is None or self.microbatches is None:
            raise click.UsageError(
                "how many ranks and micro-batches? add --stages and --microbatches, such as --stages 8 --microbatches 32"
            )
        return schedule(self.name, self.ranks, self.microbatches, self.chunks)

    def points(self, compare: str | None, sweep: str | None) -> tuple[Point, ...]:
        """Return the schedules to set side by side, this one first.

        Raises:
            UsageError: a number is missing, or given twice.
        """
        swept = {} if sweep is None else read_sweep(sweep)
        numbers = {"p": self.ranks, "m": self.microbatches, "v": self.chunks}
        if twice := [letter for letter in swept if numbers[letter] is not None]:
            raise click.UsageError(f"{twice[0]} is in --sweep and has an option of its own: leave one of them out")
        values = {letter: swept.get(letter, () if value is None else (value,)) for letter, value in numbers.items()}
        if not values["p"] or not values["m"]:
            raise click.UsageError("how many ranks and micro-batches? add --stages and --microbatches, or p=… and m=… to --sweep")
        chunks = values["v"] or (2,)
        names = [] if compare is None else compare.replace(" ", "").split(",")
        if names == ["all"]:
            names = list(SCHEDULES) if sweep else list(possible(values["p"][0], values["m"][0], chunks[0]))
        return points(dict.fromkeys((find(self.name).name, *(find(each).name for each in names))), values["p"], values["m"], chunks)


def _one(
    source: CostSource, made: Schedule, capacity: int | None, limit: int | None, lists: bool, output: str | None, force: bool
) -> Record:
    """Run one schedule; with a *limit*, find the largest micro-batch up to it."""
    model = source.model()
    bound = model.capacity if capacity is None else capacity
    if limit is not None and bound is None:
        raise click.UsageError("--largest needs the bytes of a rank: add --capacity, such as --capacity '80 GiB'")
    with progress(f"running {made.name}"):
        run = run_schedule(made, model)
    found = None
    if limit is not None and bound is not None:
        sized = cache(source.model)
        found = largest_microbatch(made, lambda size: sized(size).costs(made.stages, made.in_flight), bound, limit)
    if output is not None:
        _write(run, bound, output, force, source.title)
    return run_document(source.name, run, bound, capacity is not None, found, lists, output)


def _several(
    source: CostSource, chosen: tuple[Point, ...], capacity: int | None, workers: int | None, output: str | None, force: bool
) -> Record:
    """Run several schedules and set them side by side."""
    model = source.model()
    bound = model.capacity if capacity is None else capacity
    with progress(f"running {len(chosen)} schedules"):
        rows = compare_schedules(model, chosen, bound, workers)
    if output is not None:
        from lifecycle_sim.output import figures

        drawn = [row.point for row in rows if row.why_not is None]
        if len(drawn) > MOST_TWINS:
            raise InputError(f"{output}: {len(drawn)} schedules cannot be drawn side by side: name up to {MOST_TWINS - 1} with --compare")
        common = evenly(model, chosen)
        runs = [run_schedule(schedule(each.name, each.ranks, each.microbatches, each.chunks), common) for each in drawn]
        with progress(f"drawing {output}"):
            figures.save(figures.schedule_twins(runs, bound, source.title), output, force)
    return rows_document(source.name, model, rows, bound, capacity is not None, output)


def _check_output(output: str, several: bool) -> None:
    """Refuse a file that cannot be written, before anything runs."""
    suffix = Path(output).suffix.lower()
    if suffix in FIGURES:
        return
    if several:
        raise click.UsageError(f"{output}: schedules side by side are drawn: give a file for -o that ends in {', '.join(FIGURES)}")
    if suffix != LISTS:
        from lifecycle_sim.output.exports import encoder_for

        encoder_for(output)


def _write(run: ScheduleRun, capacity: int | None, output: str, force: bool, title: str) -> None:
    """Write the figure, the action lists, or the trace."""
    suffix = Path(output).suffix.lower()
    with progress(f"writing {output}"):
        if suffix in FIGURES:
            from lifecycle_sim.output import figures

            figures.save(figures.schedule_chart(run, capacity, title), output, force)
        elif suffix == LISTS:
            write_atomically(output, write_lists(run.schedule).encode(), force)
        else:
            from lifecycle_sim.output.exports import encoder_for

            export = encoder_for(output)(schedule_trace(run, capacity), None)
            write_atomically(output, export.data, force)
            for note in export.notes:
                click.echo(one_line(note), err=True)
