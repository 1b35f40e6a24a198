"""The capture that a question is about: a file that holds one, or a Python file that is captured for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lifecycle_sim.cli.capture import split_program
from lifecycle_sim.cli.options import parameter_option
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Trace

if TYPE_CHECKING:
    from lifecycle_sim.sources.capture.variant import Variant

Command = TypeVar("Command", bound=Callable[..., Any])


def on_capture(command: Command) -> Command:
    """SOURCE, and the options that hold for a FILE.py: what every question about a captured step takes."""
    for add in (
        click.option("--dtype", metavar="TYPE", help="Of a FILE.py: convert the model to this type."),
        click.option("--autocast", metavar="TYPE", help="Of a FILE.py: run the default step's forward under autocast to this type."),
        parameter_option,
        click.option("--seq", type=click.IntRange(1), help="Of a FILE.py: given to functions that take a parameter seq."),
        click.option("--batch", type=click.IntRange(1), help="Of a FILE.py: given to functions that take a parameter batch."),
        click.option("--device", metavar="CARD", help="Of a FILE.py: the card to capture for, such as a100-80g; by default h100."),
        click.argument("source", metavar="CAPTURE|FILE.py[:FUNCTION]"),
    ):
        command = add(command)
    return command


def trace_asked_for(source: str, asked: dict[str, Any]) -> Trace:
    """Return the trace of the options that :func:`on_capture` adds."""
    sizes = {name: asked[name] for name in ("batch", "seq") if asked[name] is not None}
    return captured_trace(source, asked["parameters"] | sizes, {name: asked[name] for name in ("device", "autocast", "dtype")})


def is_program(source: str) -> bool:
    """Whether *source* names a Python file to capture, and not a capture."""
    return source.endswith(".py") or ".py:" in source


def captured_trace(source: str, parameters: dict[str, int], options: dict[str, str | None], variant: Variant | None = None) -> Trace:
    """Return the trace that was captured, or that of the program that *source* names, changed by *variant*."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if is_program(source):
        from lifecycle_sim.sources.capture.launch import capture_file

        path, function = split_program(source)
        given |= {} if variant is None else {"variant": variant}
        with progress(f"capturing {source}"):
            return capture_file(path, function, parameters, **given).trace
    if given or parameters:
        names = ", ".join([*(f"--{name}" for name in given), *parameters])
        raise InputError(f"{source} is captured already: {names} can be chosen for a FILE.py alone")
    from lifecycle_sim.cli.source import open_trace

    return open_trace(source, {})
