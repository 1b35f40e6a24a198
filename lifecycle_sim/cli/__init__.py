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

SECTIONS = {
    "Read a recording, or any other trace": {
        "peak": "The exact peak: who holds it, what is steady, what was assumed.",
        "timeline": "The level over events; the peak of each stream or range.",
        "lifetimes": "The largest, longest, leaked or temporary storages.",
        "check": "Whether a recording contradicts itself, and what it lost.",
        "allocator": "The caching allocator: other settings, why memory ran out.",
        "plot": "Timelines, lifecycles, compositions, addresses, as figures.",
        "convert": "Another format: for torch's viewer, for tables, or a part.",
    },
    "Predict a program without a card": {
        "capture": "What a training step would allocate, from a Python file.",
        "params": "Parameters, each storage once; gradients, optimizer state.",
        "sweep": "Several sizes: predicted for a card, and run on the CPU.",
    },
    "Make it fit": {
        "fit": "The largest batch or longest sequence that fits.",
        "whatif": "A captured step recomputed, sharded, offloaded or changed.",
        "plan": "Which modules to recompute so that a step fits.",
        "frontier": "Every plan of recomputation that is cheapest at its peak.",
    },
    "Count before anything runs": {
        "budget": "Weights, gradients, states; operations and time.",
        "protocol": "Whether a comparison of model sizes can answer.",
    },
    "Run a scenario": {
        "run": "Peak, steady state and the static table side by side.",
        "line": "A production line: occupancy by stage, peak, total work.",
        "schedule": "Pipeline-parallel training: times and bytes by rank.",
    },
}
"""The commands with a line about each, by what a newcomer wants to do."""

COMMANDS = {name: line for section in SECTIONS.values() for name, line in section.items()}


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
        """List the commands by section, without importing them."""
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])

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
    or npz; plain or gzip), a scenario (.toml), or - for standard input. FILE.py defines a model and its step.

    \b
    Examples:
      lifecycle-sim peak snapshot.pickle
      lifecycle-sim allocator snapshot.pickle --why
      lifecycle-sim fit FILE.py --device a100-80g --seq 2048
      lifecycle-sim COMMAND --help
    """
