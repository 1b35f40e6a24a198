"""``lifecycle-sim capture``: what a training step would allocate on a card that is not there."""

from __future__ import annotations

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import json_option, output_options, parameter_option, read_size
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.errors import InputError
from lifecycle_sim.output.atomic import refuse_to_overwrite, write_atomically
from lifecycle_sim.output.exports import encoder_for
from lifecycle_sim.output.summary import document
from lifecycle_sim.output.summary_capture import capture_record
from lifecycle_sim.replay import replay_device
from lifecycle_sim.sources.capture.launch import capture_file
from lifecycle_sim.sources.capture.plan import NEWEST
from lifecycle_sim.study.prediction import predict


@click.command("capture")
@click.argument("program", metavar="FILE.py[:FUNCTION]")
@output_options
@click.option("--device", default="h100", show_default=True, metavar="CARD", help="The card to capture for, such as a100-80g, l4, rtx4090.")
@click.option("--batch", type=click.IntRange(1), help="Given to the functions that take a parameter batch.")
@click.option("--seq", type=click.IntRange(1), help="Given to the functions that take a parameter seq.")
@parameter_option
@click.option("--dtype", metavar="TYPE", help="Convert the model to this type, such as bf16.")
@click.option("--autocast", metavar="TYPE", help="Run the default step's forward under autocast to this type.")
@click.option("--warmup", type=click.IntRange(0), default=2, show_default=True, help="Steps before the measured ones.")
@click.option("--steps", type=click.IntRange(1), default=1, show_default=True, help="Measured steps.")
@click.option("--without", multiple=True, metavar="TERM", help="Leave a kernel term out, such as reduce_scratch; repeatable.")
@click.option("--workspace", metavar="SIZE", callback=read_size, help="Bytes of a cuBLAS workspace, in place of the card's own.")
@click.option("--release", default=NEWEST, show_default=True, metavar="X.Y", help="The PyTorch release to predict.")
@click.option("--capacity", metavar="SIZE", callback=read_size, help="Bytes of the card, in place of its own; exit code 1 if it runs out.")
@click.option("--conf", default="", metavar="OPTIONS", help="Allocator options, as in PYTORCH_CUDA_ALLOC_CONF.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    program: str,
    output: str,
    force: bool,
    device: str,
    batch: int | None,
    seq: int | None,
    parameters: dict[str, int],
    dtype: str | None,
    autocast: str | None,
    warmup: int,
    steps: int,
    without: tuple[str, ...],
    workspace: int | None,
    release: str,
    capacity: int | None,
    conf: str,
    as_json: bool,
) -> None:
    """Capture steps of the model that FILE.py defines, without a card, and write the trace.

    The file defines build_model(), make_batch(), and for training make_optimizer(model); step(model, optimizer, batch) is there for steps
    of another kind. FUNCTION is one that returns these in a dict instead. The file is run: capture none that you do not trust.

    \b
    Example:
      lifecycle-sim capture scenarios/capture/gpt.py --autocast bf16 --batch 4 --seq 1024 -o step.jsonl
    """
    encode = encoder_for(output)
    refuse_to_overwrite(output, force)
    path, function = split_program(program)
    given = parameters | {name: value for name, value in (("batch", batch), ("seq", seq)) if value is not None}
    with progress(f"capturing {program}"):
        captured = capture_file(
            path,
            function,
            given,
            device=device,
            dtype=dtype,
            autocast=autocast,
            warmup=warmup,
            steps=steps,
            without=without,
            workspace=workspace,
            release=release,
        )
    trace = captured.trace
    with progress("predicting what the allocator makes of it"):
        prediction = predict(trace, capacity=capacity, settings=conf)
        record = capture_record(captured, replay_device(trace), prediction)
    with progress(f"writing {output}"):
        write_atomically(output, encode(trace, None).data, force)
    answer(document("capture", trace, program, [record], written=output, fits=prediction.fits), as_json)
    ctx.exit(Exit.YES if prediction.fits else Exit.NO)


def split_program(program: str) -> tuple[str, str | None]:
    """Return the file and the function that *program* names.

    Raises:
        InputError: it names no Python file.
    """
    path, colon, function = program.rpartition(":") if ".py:" in program else (program, "", "")
    if not path.endswith(".py") or (colon and not function.isidentifier()):
        raise InputError(f"{program}: is no Python file: write FILE.py or FILE.py:FUNCTION")
    return path, function or None
