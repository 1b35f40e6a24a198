"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from lifecycle_sim.cli.source import parameters_of
from lifecycle_sim.errors import UnitError
from lifecycle_sim.units import parse_bytes

FIGURES = (".png", ".svg", ".pdf")
"""Suffixes of files that are figures."""
Command = TypeVar("Command", bound=Callable[..., Any])


def read_size(_ctx: click.Context, param: click.Parameter, given: str | None) -> int | None:
    """Return the bytes that *given*, such as ``24 GiB``, stands for; of a limit like ``11.6 GiB`` a part of a byte is dropped.

    Raises:
        BadParameter: it is no size with a unit, or negative.
    """
    if given is None:
        return None
    try:
        size = parse_bytes(given, round_down=True)
    except UnitError as error:
        raise click.BadParameter(str(error), param=param) from None
    if size < 0:
        raise click.BadParameter(f"{given!r} is negative", param=param)
    return size


def refuse_no_figure(output: str) -> None:
    """Refuse an *output* whose suffix is that of no figure.

    Raises:
        BadParameter: it is so.
    """
    if not is_figure(output):
        raise click.BadParameter(f"{output!r} ends in none of {', '.join(FIGURES)}", param_hint="--output")


def is_figure(output: str) -> bool:
    """Whether the file *output* is to be a figure, by its suffix."""
    return Path(output).suffix.lower() in FIGURES


def on_source(command: Command) -> Command:
    """SOURCE, ``--param``, ``--device`` and ``--json``: what every question about a source takes."""
    for add in (
        json_option,
        device_option,
        parameter_option,
        click.argument("source"),
    ):
        command = add(command)
    return command


def json_option(command: Command) -> Command:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one versioned JSON document instead of tables.")(command)


def parameter_option(command: Command) -> Command:
    """``--param name=value``, repeatable."""
    return click.option(
        "--param",
        "parameters",
        multiple=True,
        metavar="NAME=VALUE",
        callback=lambda _ctx, _param, given: parameters_of(given),
        help="Set an integer parameter of a scenario; repeatable.",
    )(command)


def device_option(command: Command) -> Command:
    """``--device``."""
    return click.option("--device", metavar="NAME", help='Only this device, such as "cuda:1" or 1; by default all of them.')(command)


def top_option(default: int) -> Callable[[Command], Command]:
    """``--top N``."""
    return click.option("--top", type=click.IntRange(1, 10_000), default=default, show_default=True, help="How many rows to show.")


def capacity_option(command: Command) -> Command:
    """``--capacity``."""
    text = 'Bytes to compare each device\'s peak with, such as "24 GiB"; exit code 1 if it does not fit.'
    return click.option("--capacity", metavar="SIZE", callback=read_size, help=text)(command)


def output_options(command: Command) -> Command:
    """``-o`` and ``--force``."""
    force = click.option("--force", is_flag=True, help="Replace the file if it exists.")
    return click.option("-o", "--output", required=True, metavar="FILE", help="The file to write.")(force(command))
