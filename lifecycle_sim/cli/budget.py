"""``lifecycle-sim budget``: what is there whatever the batch, what a run costs, and which evidence is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from fractions import Fraction
from typing import Any

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import json_option, parameter_option, read_size
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.errors import InputError, UnitError
from lifecycle_sim.output.summary_budget import PARTS, budget_document
from lifecycle_sim.output.summary_budget import only as chosen
from lifecycle_sim.study.budget.documents import LEAST_NUMBER, LONGEST, MOST_NUMBER
from lifecycle_sim.study.budget.numbers import plan_of, read_numbers
from lifecycle_sim.study.budget.report import BudgetReport, LargestBatch, WeightFile
from lifecycle_sim.study.budget.speed import PEAKS
from lifecycle_sim.units import parse_count

_IN_TABLES = {
    "model": {"parameters": "parameters", "trainable": "trainable", "buffers": "buffers"},
    "sharding": {"stage": "stage", "data": "data_parallel"},
    "run": {"tokens": "tokens", "batch": "batch", "sequence": "seq"},
    "speed": {"tokens_per_second": "tokens_per_second", "device": "peak_of", "devices": "devices"},
    "memory": {"capacity": "capacity", "margin": "margin"},
}
_RECIPE = ("weights", "gradients", "master", "moments", "optimizer")
_OF_NUMBERS = ("parameters", "trainable", "buffers", *_RECIPE)
MOST_SOUGHT = 2**20
"""The largest micro-batch that is looked for."""
_OF_FILES = ("card", "dtype", "autocast", "weight_file")


def _count(_ctx: click.Context, param: click.Parameter, given: str | None) -> int | None:
    if given is None:
        return None
    try:
        return parse_count(given)
    except UnitError as error:
        raise click.BadParameter(str(error), param=param) from None


def _rate(_ctx: click.Context, param: click.Parameter, given: str | None) -> Fraction | None:
    if given is None:
        return None
    try:
        size = float(given)
    except ValueError:
        raise click.BadParameter(f"{given!r} is no number", param=param) from None
    if not LEAST_NUMBER <= size <= MOST_NUMBER or len(given) > LONGEST:
        raise click.BadParameter(f"{given!r}: give a number above 0, from {LEAST_NUMBER:g} to {MOST_NUMBER:g}", param=param)
    return Fraction(given.strip())


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, in the order of the help."""
    for add in reversed(
        (
            click.option(
                "--parameters", "count", metavar="N", callback=_count, help="How many parameters, such as 7e9, in place of SOURCE."
            ),
            click.option("--trainable", metavar="N", callback=_count, help="How many of them are trained; by default all."),
            click.option("--weights", metavar="TYPE", help="Type of the weights, such as bf16; by default fp32."),
            click.option("--gradients", metavar="TYPE", help="Type of the gradients; by default that of the weights."),
            click.option("--master", metavar="TYPE", help="Type of the optimizer's copy of the weights; by default none."),
            click.option(
                "--moments", metavar="TYPE", help="Type of the moments; by default that of the master weights, else of the weights."
            ),
            click.option("--optimizer", metavar="NAME", help="Such as adamw, adamw+amsgrad, sgd+momentum; none is inference."),
            click.option("--buffers", metavar="SIZE", callback=read_size, help="Bytes of buffers."),
            click.option("--stage", type=click.IntRange(0, 3), help="ZeRO stage; FSDP is 3."),
            click.option("--data-parallel", type=click.IntRange(1), metavar="N", help="Data-parallel ranks, over which the stage divides."),
            click.option("--tokens", metavar="D", callback=_count, help="Tokens to be processed, such as 2e8."),
            click.option("--tokens-per-second", metavar="NUMBER", callback=_rate, help="Measured throughput of all devices."),
            click.option(
                "--peak-of", type=click.Choice(tuple(PEAKS)), help="The device whose peak gives a bound; no time follows from it."
            ),
            click.option("--devices", type=click.IntRange(1), metavar="N", help="How many such devices."),
            click.option("--report", is_flag=True, help="Of FILE.py: capture a step too, and go on to time."),
            click.option("--batch", type=click.IntRange(1), help="Samples of a step."),
            click.option("--seq", type=click.IntRange(1), help="Places of a sample."),
            parameter_option,
            click.option("--card", metavar="CARD", help="The card to capture for; by default h100."),
            click.option("--dtype", metavar="TYPE", help="Convert the model of FILE.py to this type, such as bf16."),
            click.option("--autocast", metavar="TYPE", help="Run the forward pass of FILE.py under autocast to this type."),
            click.option("--capacity", metavar="SIZE", callback=read_size, help="Bytes of a device; exit code 1 if a step does not fit."),
            click.option("--margin", metavar="SIZE", callback=read_size, help="Bytes to leave free."),
            click.option("--weight-file", metavar="FILE", help="A safetensors file, or its header alone, to compare with."),
            click.option("--only", multiple=True, type=click.Choice(tuple(PARTS)), help="Show this part alone; repeatable."),
            json_option,
        )
    ):
        command = add(command)
    return command


@click.command("budget")
@click.argument("source", required=False)
@_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: str | None,
    count: int | None,
    parameters: dict[str, int],
    report: bool,
    only: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Tell what a plan takes: weights, gradients and states in bytes; operations; time, if throughput was measured.

    SOURCE is FILE.py or FILE.py:function, which defines build_model() and make_optimizer(model) as for params and capture; or a TOML file
    of numbers. Without it, --parameters says how many there are. Options of the command line replace numbers of the file.

    \b
    Examples:
      lifecycle-sim budget --parameters 7e9 --weights bf16 --master fp32 --stage 1 --data-parallel 64
      lifecycle-sim budget scenarios/capture/gpt.py --report --batch 4 --seq 1024 --autocast bf16
      lifecycle-sim budget scenarios/budget/audit.toml
    """
    given = {name: value for name, value in options.items() if value not in (None, {})}
    if count is not None:
        given["parameters"] = count
    if source is None and count is None:
        raise click.UsageError("nothing to tell of: give FILE.py, FILE.toml or --parameters")
    if only and as_json:
        raise click.UsageError("--only chooses among tables: --json has all parts")
    is_file = source is not None and not source.lower().endswith(".toml")
    _refuse(given, _OF_NUMBERS if is_file else _OF_FILES, "what FILE.py defines" if is_file else "numbers")
    if not is_file and parameters:
        raise click.UsageError("--param sets parameters of the functions in FILE.py")
    seeks = not only or "batch" in only
    made = _of_file(str(source), given, parameters, report, seeks) if is_file else _of_numbers(source, given)
    document = budget_document(source or f"{count:,} parameters", made)
    answer(document if as_json else chosen(document, only), as_json)
    ctx.exit(Exit.NO if made.fits is False else Exit.YES)


def _refuse(given: dict[str, Any], names: tuple[str, ...], what: str) -> None:
    wrong = [name for name in names if name in given]
    if wrong:
        raise click.UsageError(f"--{wrong[0].replace('_', '-')} does not go with {what}")


def _of_numbers(source: str | None, given: dict[str, Any]) -> BudgetReport:
    if source is None:
        tables: dict[str, Any] = {"title": "states of a count of parameters"}
    else:
        tables = read_numbers(source)
    for table, keys in _IN_TABLES.items():
        for key, option in keys.items():
            if option in given:
                tables.setdefault(table, {})[key] = given[option]
    recipe = {key: given[key] for key in _RECIPE if key in given}
    if recipe:
        tables["recipe"] = [tables.get("recipe", [{}])[0] | recipe]
    return plan_of(tables)


def _of_file(source: str, given: dict[str, Any], parameters: dict[str, int], report: bool, seeks: bool) -> BudgetReport:
    from lifecycle_sim.cli.capture import split_program
    from lifecycle_sim.sources.capture import capture_file, params_file
    from lifecycle_sim.study.budget.chain import Given, Step, file_report
    from lifecycle_sim.study.budget.sharding import Sharding

    path, function = split_program(source)
    sizes = {name: given[name] for name in ("batch", "seq") if name in given}
    if not report:
        wrong = [name for name in ("card", "autocast", "margin") if name in given]
        if wrong:
            raise click.UsageError(f"--{wrong[0]} is about a step: add --report")
    told = Given(
        batch=given.get("batch"),
        sequence=given.get("seq"),
        tokens=given.get("tokens"),
        capacity=given.get("capacity"),
        margin=given.get("margin", 0),
        throughput=given.get("tokens_per_second"),
        peak=PEAKS.get(given.get("peak_of", "")),
        devices=given.get("devices", 1),
        device=given.get("peak_of"),
        autocast=given.get("autocast"),
    )
    sharding = Sharding(given.get("stage", 0), given.get("data_parallel", 1))
    weights = _weight_file(given["weight_file"]) if "weight_file" in given else None
    with progress(f"counting {source}"), redirect_stdout(sys.stderr):  # what the file prints is narration
        table = params_file(path, function, parameters, given.get("dtype"))
    step = None
    if report:
        from lifecycle_sim.replay import replay_device
        from lifecycle_sim.study.prediction import predict

        with progress(f"capturing {source}"):
            captured = capture_file(
                path,
                function,
                parameters | sizes,
                device=given.get("card", "h100"),
                dtype=given.get("dtype"),
                autocast=given.get("autocast"),
            )
            step = Step(captured, replay_device(captured.trace), predict(captured.trace, capacity=2**62))
    largest = None if step is None or not seeks else _largest(path, function, parameters, given, step.captured.profile.capacity)
    title = f"{table.model}, counted{' and captured' if report else ''}"
    return file_report(title, table, told, step=step, largest=largest, sharding=sharding, weight_file=weights)


def _largest(
    path: str, function: str | None, parameters: dict[str, int], given: dict[str, Any], capacity: int | None
) -> LargestBatch | None:
    """Find the largest micro-batch by captures on both sides of it; None where nothing bounds it."""
    from lifecycle_sim.study.batch.runs import CapturePlan, capture_runs
    from lifecycle_sim.study.batch.verified import find_largest
    from lifecycle_sim.study.budget.chain import largest_batch

    budget = given.get("capacity", capacity)
    if budget is None:
        return None
    plan = CapturePlan(path, function, parameters, given.get("card", "h100"), given.get("dtype"), given.get("autocast"))
    try:
        with progress("capturing other batches, to find the largest that fits"):
            (found,) = find_largest(capture_runs(plan), budget, (given.get("seq"),), headroom=given.get("margin", 0), limit=MOST_SOUGHT)
    except InputError as error:
        return LargestBatch(None, "not at all", (), error.problems[0])
    return largest_batch(found)


def _weight_file(path: str) -> WeightFile:
    from lifecycle_sim.sources.safetensors import read_weight_header

    header = read_weight_header(path)
    return WeightFile(path, header.tensors, header.elements, header.size, header.types, header.file_size)
