"""Options of the commands that plan recomputation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from lifecycle_sim.program.remat.search import SECONDS, SOLVERS

Command = TypeVar("Command", bound=Callable[..., Any])


def planning_options(command: Command) -> Command:
    """``--modules``, ``--objective``, ``--no-early-stop``, ``--solver`` and ``--seconds``."""
    for add in (
        click.option("--seconds", type=click.FloatRange(0.01), default=SECONDS, show_default=True, help="How long one search may take."),
        click.option(
            "--solver", type=click.Choice(SOLVERS), default="auto", show_default=True, help="branch: no package needed; highs: extra plan."
        ),
        click.option("--no-early-stop", is_flag=True, help="Let each recomputation run to its end."),
        click.option(
            "--objective",
            type=click.Choice(["flops", "time"]),
            default="flops",
            show_default=True,
            help="What a plan costs: FLOPs run again, or their time at least, by the card's roofline.",
        ),
        click.option(
            "--modules",
            multiple=True,
            metavar="MODULES",
            help="Modules to choose from, such as 'blocks.*'; repeatable. By default blocks and their larger parts.",
        ),
    ):
        command = add(command)
    return command
