"""The command ``lifecycle-sim``: one thin file for each command, which parses, calls and prints.

A command's file is imported when the command is called for, so that ``lifecycle-sim --help`` starts without numpy.
"""

from __future__ import annotations

import importlib
import io
import sys
from typing import Any

import click

from lifecycle_sim import __version__
from lifecycle_sim.cli.endings import ended_clearly

COMMANDS = {
    "peak": "Exact peak: who holds it, what is steady, what had to be assumed.",
    "timeline": "The level over events, and the peak of each stream or range.",
    "lifetimes": "The largest, longest, leaked or temporary storages.",
    "run": "Run a scenario: peak, steady state and the static table side by side.",
    "line": "Run a production line: occupancy by stage, peak, average, total work; what if.",
    "schedule": "Pipeline-parallel training: times, micro-batches in flight and bytes by rank.",
    "check": "Whether a recording contradicts itself, and what it lost.",
    "allocator": "The caching allocator on its own beside a recording; the four levels; waste.",
    "params": "The parameters that a Python file defines, each storage once; gradients and optimizer state.",
    "budget": "Weights, gradients and states; operations and time; which evidence a plan is missing.",
    "protocol": "Whether a comparison of model sizes can answer, and what its runs say.",
    "plot": "Draw a timeline, lifecycle chart, composition or size × span chart.",
    "convert": "Write a trace in another format.",
    "fit": "The largest batch or longest sequence that fits, seen to fit or by a model with its margin.",
    "capture": "What a training step would allocate on a card that is not there.",
    "sweep": "A program at several sizes: predicted for a card, and run on the CPU.",
    "plan": "Which modules of a captured step to recompute so that it stays within a budget.",
    "frontier": "Every plan of recomputation that is cheapest at its peak.",
    "whatif": "What a step would be with modules recomputed, tensors divided or on the host, another program.",
}


class Commands(click.Group):
    """The commands by name, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command *cmd_name*, None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"lifecycle_sim.cli.{cmd_name}").command
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        """Read the command line; ``--help`` and ``--version`` are answered here."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter still gets the answer
        with ended_clearly():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command; every way in which it can fail becomes an exit code and lines on stderr."""
        with ended_clearly(bool(ctx.params.get("traceback"))):
            return super().invoke(ctx)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 yes, 1 answered no, 2 wrong usage, 3 bad input, 4 a package is missing.",
)
@click.version_option(__version__, prog_name="lifecycle-sim")
@click.option("--traceback", is_flag=True, help="Show where an internal error happened.")
def main(traceback: bool) -> None:
    """Replay memory lifecycles: who holds the peak, what is steady, what drifts, what would fit.

    SOURCE is a recording in any known format (CUDA memory snapshot, profiler trace, memory timeline, minimalloc CSV, native JSONL
    or npz; plain or gzip), a scenario (.toml), or - for standard input.

    \b
    Example:
      lifecycle-sim peak snapshot.pickle
    """
