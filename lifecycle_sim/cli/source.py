"""Opens what a command was asked about: a recording of any format, or a scenario, which is run first."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

import click

from lifecycle_sim.cli.progress import progress
from lifecycle_sim.errors import InputError, ScenarioError

if TYPE_CHECKING:
    from lifecycle_sim.events import Trace
    from lifecycle_sim.program.graph import Program
    from lifecycle_sim.replay import DeviceReplay

SLOW_TO_READ = 128 * 2**20
HEAD = 4096

_STAGE = re.compile(r"^[ \t]*(?:\[\[[ \t]*stage[ \t]*\]\]|stage[ \t]*=)", re.MULTILINE)
"""What only a line has."""

_TOML = re.compile(
    rb"""(?:[ \t]*(?:\#[^\n]*)?\r?\n)*[ \t]*(?:\[\[?[ \t]*[A-Za-z_"'][^\]\n,{}]*\]\]?[ \t]*(?:\#|\r?\n|$)|[A-Za-z_][\w.-]*[ \t]*=)"""
)


def open_trace(source: str, parameters: dict[str, int]) -> Trace:
    """Read the trace that *source* names; a scenario is run with *parameters*."""
    if not is_scenario(source):
        if parameters:
            raise InputError(f"{source}: only a scenario has parameters, and this is a recording: leave --param out")
        from lifecycle_sim.sources.detect import read_trace

        with progress(f"reading {name_of(source)}", at_once=_is_slow(source)):
            return read_trace(source)
    text, name = scenario_for(source)
    if _STAGE.search(text):
        return _occupancy_of_line(source, text, name, parameters)
    from lifecycle_sim.program.engine import run
    from lifecycle_sim.program.scenario import program_of

    program = program_of(text, name, parameters)
    with progress(f"running {name_of(source)}"):
        return run(program)


def _occupancy_of_line(source: str, text: str, name: str, parameters: dict[str, int]) -> Trace:
    from lifecycle_sim.study.pipeline.line_engine import run_line
    from lifecycle_sim.study.pipeline.line_file import line_of
    from lifecycle_sim.study.pipeline.line_trace import line_trace

    line = line_of(text, name, parameters)
    with progress(f"running {name_of(source)}"):
        return line_trace(run_line(line))


def open_scenario(source: str, parameters: dict[str, int]) -> Program:
    """Load the scenario that *source* names; ``-`` is standard input.

    Raises:
        ScenarioError: it is none, or has problems.
    """
    from lifecycle_sim.program.scenario import program_of

    text, name = scenario_for(source)
    try:
        return program_of(text, name, parameters)
    except ScenarioError:
        if source == "-" or is_scenario(source) or not is_recording(source):
            raise
        raise _no_scenario(source) from None


def scenario_for(source: str) -> tuple[str, str]:
    """Return the text of the scenario that *source* names, and what to call it; ``-`` is standard input.

    Raises:
        ScenarioError: it cannot be read.
        InputError: it is a recording, or no text.
    """
    from lifecycle_sim.program.scenario import LARGEST, scenario_text

    if source != "-":
        try:
            return scenario_text(Path(source))
        except ScenarioError:
            if is_scenario(source) or not is_recording(source):
                raise
            raise _no_scenario(source) from None
    try:
        return standard_input().read(LARGEST + 1).decode("utf-8-sig") + "\n", "scenario"
    except UnicodeDecodeError as error:
        raise InputError(
            f"standard input is not UTF-8 text (byte {error.start:,}), so it is no scenario: if it is a recording, use peak"
        ) from None


def _no_scenario(source: str) -> InputError:
    return InputError(f"{source} is a recording, not a scenario: ask lifecycle-sim peak about it")


def replays(trace: Trace, device: str | None) -> tuple[DeviceReplay, ...]:
    """Replay the device that was asked for, or all of them."""
    from lifecycle_sim.replay import replay_all, replay_device

    with progress("replaying"):
        return replay_all(trace) if device is None else (replay_device(trace, device),)


class OfDevice(Protocol):
    """What was found out about one device."""

    @property
    def device(self) -> str:
        """Its name."""


Found = TypeVar("Found", bound=OfDevice)


def the_only(replayed: tuple[Found, ...], why: str) -> Found:
    """Return the one device of *replayed*.

    Raises:
        UsageError: there are several, and none was chosen.
    """
    if len(replayed) > 1:
        names = ", ".join(each.device for each in replayed)
        raise click.UsageError(f"{why} needs one device: add --device, one of {names}")
    return replayed[0]


def is_scenario(source: str) -> bool:
    """Whether *source* is a scenario, by its suffix ``.toml`` or else by how its content begins."""
    if source.lower().endswith(".toml"):
        return True
    return _TOML.match(_head(source)) is not None


def is_recording(source: str) -> bool:
    """Whether *source* is a file in one of the formats of recordings, by how it begins."""
    from lifecycle_sim.sources.container import opened

    try:
        with opened(source):
            return True
    except (InputError, OSError):
        return False


def name_of(source: str) -> str:
    """What messages call *source*."""
    return "standard input" if source == "-" else source


def parameters_of(given: Iterable[str]) -> dict[str, int]:
    """Read ``name=value`` pairs.

    Raises:
        BadParameter: one is not of that form, its value is no integer, or a name comes twice.
    """
    values: dict[str, int] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not name or re.fullmatch(r"\s*[+-]?[0-9](?:_?[0-9])*\s*", value) is None or len(value) > 40:
            raise click.BadParameter(f"{pair!r} is not of the form name=integer, such as batch=4", param_hint="--param")
        if name in values:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--param")
        values[name] = int(value)
    return values


def _head(source: str) -> bytes:
    if source == "-":
        stream = standard_input()
        return stream.peek(HEAD)[:HEAD] if isinstance(stream, io.BufferedReader) else b""
    if not os.path.isfile(source):
        return b""
    try:
        with open(source, "rb") as file:
            return file.read(HEAD)
    except OSError:  # who reads the whole of it says what is wrong
        return b""


def standard_input() -> BinaryIO:
    """Return standard input, as bytes.

    Raises:
        InputError: it is closed.
    """
    if sys.stdin is None:  # closed before the start: Python has no stream then
        raise InputError("standard input is closed: give a file, or something to read on standard input")
    return sys.stdin.buffer


def _is_slow(source: str) -> bool:
    return source != "-" and os.path.isfile(source) and os.path.getsize(source) > SLOW_TO_READ
