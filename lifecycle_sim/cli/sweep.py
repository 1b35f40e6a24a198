"""``lifecycle-sim sweep``: a program at several sizes, predicted for a card and run on the CPU of this machine."""

from __future__ import annotations

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.capture import split_program
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import json_option, parameter_option, read_size
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.output.summary_sweep import sweep_document
from lifecycle_sim.sources.capture.plan import NEWEST
from lifecycle_sim.study.grid import sweep_file


def read_sizes(_ctx: click.Context, param: click.Parameter, given: str | None) -> list[int] | None:
    """Return the sizes in *given*, such as ``1,2,4``.

    Raises:
        BadParameter: one is no integer.
    """
    if given is None:
        return None
    try:
        return [int(part) for part in given.split(",")]
    except ValueError:
        raise click.BadParameter(f"{given!r} is no list of sizes: write integers with commas between, such as 1,2,4", param=param) from None


@click.command("sweep")
@click.argument("program", metavar="FILE.py[:FUNCTION]")
@click.option("--batch", metavar="SIZES", callback=read_sizes, help="Sizes such as 1,2,4,8 for the parameter batch.")
@click.option("--seq", metavar="SIZES", callback=read_sizes, help="Sizes such as 64,128,256 for the parameter seq.")
@parameter_option
@click.option("--device", default="h100", show_default=True, metavar="CARD", help="The card to predict for, such as a100-80g, l4, rtx4090.")
@click.option("--dtype", metavar="TYPE", help="Convert the model to this type, such as bf16.")
@click.option("--autocast", metavar="TYPE", help="Run the default step's forward under autocast to this type.")
@click.option("--warmup", type=click.IntRange(0), default=2, show_default=True, help="Steps before the measured ones.")
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, help="Measured steps.")
@click.option("--repeats", type=click.IntRange(0), default=3, show_default=True, help="Runs on the CPU at each point; 0 for none.")
@click.option("--without", multiple=True, metavar="TERM", help="Leave a kernel term out, such as reduce_scratch; repeatable.")
@click.option("--workspace", metavar="SIZE", callback=read_size, help="Bytes of a cuBLAS workspace, in place of the card's own.")
@click.option("--release", default=NEWEST, show_default=True, metavar="X.Y", help="The PyTorch release to predict.")
@click.option("--capacity", metavar="SIZE", callback=read_size, help="Bytes of the card, in place of its own; exit code 1 if it runs out.")
@click.option("--conf", default="", metavar="OPTIONS", help="Allocator options, as in PYTORCH_CUDA_ALLOC_CONF.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Captures side by side. Runs are timed one by one.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    program: str,
    batch: list[int] | None,
    seq: list[int] | None,
    parameters: dict[str, int],
    device: str,
    dtype: str | None,
    autocast: str | None,
    warmup: int,
    steps: int,
    repeats: int,
    without: tuple[str, ...],
    workspace: int | None,
    release: str,
    capacity: int | None,
    conf: str,
    workers: int,
    as_json: bool,
) -> None:
    """Try the model that FILE.py defines at several sizes: predict what a card holds, and run it on the CPU.

    Each point is captured and run in fresh processes, with the same warm-up and the same measured steps. What the process holds on the
    CPU stands beside the prediction and is never turned into one: it says nothing about the card. The file is run: sweep none that you
    do not trust.

    The exit code is 1 if a point does not fit or failed.

    \b
    Example:
      lifecycle-sim sweep scenarios/capture/gpt.py:small --batch 1,2,4,8 --seq 64,128,256 --device a100-80g
    """
    path, function = split_program(program)
    sizes = {name: values for name, values in (("batch", batch), ("seq", seq)) if values is not None}
    points = len(batch or [0]) * len(seq or [0])
    with progress(f"{points} points of {program}, each a capture and {repeats} runs"):
        found = sweep_file(
            path,
            function,
            sizes,
            parameters,
            device=device,
            dtype=dtype,
            autocast=autocast,
            warmup=warmup,
            steps=steps,
            repeats=repeats,
            without=without,
            workspace=workspace,
            release=release,
            capacity=capacity,
            conf=conf,
            workers=workers,
        )
    answer(sweep_document(program, found), as_json)
    ctx.exit(Exit.YES if found.complete and found.fits is not False else Exit.NO)
