"""The options of ``lifecycle-sim fit``, and what of them goes together."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

import click

from lifecycle_sim.cli.options import read_size
from lifecycle_sim.cli.source import parameters_of
from lifecycle_sim.errors import UnitError
from lifecycle_sim.study.batch.accumulation import LARGEST_GLOBAL_BATCH
from lifecycle_sim.units import parse_duration

BASES = ("requested", "allocated", "reserved", "payload")


@dataclass(frozen=True)
class Asked:
    """All options of the command; None, False or empty where they were not given."""

    source: str | None
    fixed: int | None
    per_sample: int | None
    probe: tuple[tuple[int, int | None, str], ...]
    budget: int | None
    device: str | None
    headroom: int
    limit: int | None
    basis: str | None
    seq: tuple[int, ...]
    batch: tuple[int, ...]
    longest: bool
    growth: int | None
    series: str | None
    widen: float
    by: str
    window: int | None
    global_batch: int | None
    deadline: int | None
    overhead: int | None
    time_per_sample: int | None
    times: str | None
    parameters: dict[str, int]
    dtype: str | None
    autocast: str | None
    warmup: int
    without: tuple[str, ...]
    workspace: int | None
    release: str
    conf: str
    workers: int | None
    output: str | None
    force: bool
    as_json: bool

    def given(self, *names: str) -> list[str]:
        """Return those of the options *names* that were given."""
        return [name for name in names if getattr(self, name) not in (None, (), False, {}, "")]


def asked_of(options: dict[str, Any]) -> Asked:
    """Return the options as a record."""
    return Asked(**{field.name: options[field.name] for field in fields(Asked)})


def option_name(name: str) -> str:
    """Return an option as it is written."""
    return {"parameters": "--param", "output": "-o"}.get(name, f"--{name.replace('_', '-')}")


def refuse(asked: Asked, names: tuple[str, ...], why: str) -> None:
    """Refuse options that belong to other questions.

    Raises:
        UsageError: one of them was given.
    """
    if found := asked.given(*names):
        raise click.UsageError(f"{', '.join(option_name(name) for name in found)} {why}")


def counts(_ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[int, ...]:
    """Read ``512,1024``, or the option several times.

    Raises:
        BadParameter: one is no whole number of 1 or more, or comes twice.
    """
    found: list[int] = []
    for part in (part.strip() for text in given for part in text.split(",")):
        if not re.fullmatch(r"[0-9](?:_?[0-9]){0,18}", part) or int(part) < 1:
            raise click.BadParameter(f"{part!r} is no whole number of 1 or more", param=param)
        if int(part) in found:
            raise click.BadParameter(f"{part} is given twice", param=param)
        found.append(int(part))
    return tuple(found)


def probes(_ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[tuple[int, int | None, str], ...]:
    """Read ``8,128=a.pickle`` (batch, sequence) or ``8=a.pickle``.

    Raises:
        BadParameter: one is not of that form.
    """
    found = []
    for text in given:
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*(?:,\s*([0-9]{1,18})\s*)?=(.+)", text)
        if match is None:
            raise click.BadParameter(f"{text!r} is not of the form BATCH,SEQ=RECORDING, such as 8,128=a.pickle", param=param)
        found.append((int(match[1]), None if match[2] is None else int(match[2]), match[3]))
    return tuple(found)


def duration(_ctx: click.Context, param: click.Parameter, given: str | None) -> int | None:
    """Read a duration with its unit.

    Raises:
        BadParameter: it is none, or negative.
    """
    if given is None:
        return None
    try:
        found = parse_duration(given)
    except UnitError as error:
        raise click.BadParameter(str(error), param=param) from None
    if found < 0:
        raise click.BadParameter(f"{given!r} is negative", param=param)
    return found


def _a_number(_ctx: click.Context, param: click.Parameter, given: float) -> float:
    if given != given:
        raise click.BadParameter("nan is no number", param=param)
    return given


def fit_options(command: Any) -> Any:
    """Add all options, grouped by what they are about."""
    for add in reversed(OPTIONS):
        command = add(command)
    return command


def _size(*names: str, **more: Any) -> Any:
    return click.option(*names, metavar="SIZE", callback=read_size, **more)


def _time(*names: str, **more: Any) -> Any:
    return click.option(*names, metavar="TIME", callback=duration, **more)


OPTIONS = (
    _size("--fixed", help="Bytes that are there with any batch, as plain numbers."),
    _size("--per-sample", help="Bytes that a sample adds."),
    click.option(
        "--probe", multiple=True, metavar="B[,S]=FILE", callback=probes, help="A recording with batch B, sequences of S; repeatable."
    ),
    _size("--budget", help="Bytes there are; by default those of --device."),
    click.option("--device", metavar="CARD", help="The card, such as a100-80g, l4, rtx4090; for captures h100 by default."),
    _size("--headroom", default="0 B", show_default=True, help="Bytes of them to leave free."),
    click.option("--limit", type=click.IntRange(1), metavar="N", help="The largest batch (or length) allowed."),
    click.option("--basis", type=click.Choice(BASES), help="What bytes count; of captures reserved by default, of recordings requested."),
    click.option("--seq", multiple=True, metavar="N[,N]", callback=counts, help="Lengths of sequences; a table and its least batch."),
    click.option("--batch", multiple=True, metavar="N[,N]", callback=counts, help="Batches for --longest, or one for --growth."),
    click.option("--longest", is_flag=True, help="Find the longest sequence at each --batch instead."),
    click.option("--growth", type=click.IntRange(1), metavar="T", help="Compare captures at T and 2 T tokens, owner by owner."),
    click.option("--series", metavar="NAME", help="Which rows of a CSV with a column series."),
    click.option(
        "--widen",
        type=click.FloatRange(1, 100),
        default=1.0,
        show_default=True,
        callback=_a_number,
        help="How far beyond the probes to answer.",
    ),
    click.option("--by", type=click.Choice(("auto", "sequence", "tokens")), default="auto", show_default=True, help="What a model counts."),
    click.option("--window", type=click.IntRange(0, 64), metavar="N", help="Neighbours to run too; 2 for reserved bytes, else 0."),
    click.option("--global-batch", type=click.IntRange(1, LARGEST_GLOBAL_BATCH), metavar="N", help="Tell the ways to accumulate it."),
    _time("--deadline", help="The time that a step over the global batch may take."),
    _time("--overhead", help="The time that any micro-batch takes."),
    _time("--time-per-sample", help="The time that each sample of it adds."),
    click.option("--times", metavar="FILE", help="Measured times in place of these two: a CSV of batch, time (and seq)."),
    click.option(
        "--param",
        "parameters",
        multiple=True,
        metavar="NAME=VALUE",
        callback=lambda _c, _p, given: parameters_of(given),
        help="Set a parameter of a scenario, or of the functions of a Python file; repeatable.",
    ),
    click.option("--dtype", metavar="TYPE", help="Captures: convert the model to this type, such as bf16."),
    click.option("--autocast", metavar="TYPE", help="Captures: run the default step's forward under autocast to this type."),
    click.option("--warmup", type=click.IntRange(1), default=2, show_default=True, help="Captures: steps before the one that counts."),
    click.option("--without", multiple=True, metavar="TERM", help="Captures: leave a kernel term out; repeatable."),
    _size("--workspace", help="Captures: bytes of a cuBLAS workspace, in place of the card's own."),
    click.option("--release", default="2.14", show_default=True, metavar="X.Y", help="Captures: the PyTorch release to predict."),
    click.option("--conf", default="", metavar="OPTIONS", help="Captures: allocator options, as in PYTORCH_CUDA_ALLOC_CONF."),
    click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes; by default as many as there is work for."),
    click.option("-o", "--output", metavar="FILE", help="Draw the frontier of several --seq as a heat map."),
    click.option("--force", is_flag=True, help="Replace the file if it exists."),
)
