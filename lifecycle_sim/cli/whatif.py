"""``lifecycle-sim whatif``: what a captured step would be with modules recomputed."""

from __future__ import annotations

from pathlib import Path

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.captured import captured_trace
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import is_figure, json_option, parameter_option, read_size
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.output.atomic import refuse_to_overwrite, write_atomically
from lifecycle_sim.output.exports import encoder_for
from lifecycle_sim.output.summary import document
from lifecycle_sim.output.summary_recompute import recompute_record
from lifecycle_sim.study.recompute import Recompute, what_if


@click.command("whatif")
@click.argument("source", metavar="CAPTURE|FILE.py[:FUNCTION]")
@click.option(
    "--checkpoint", multiple=True, required=True, metavar="MODULES", help="Modules to recompute, such as 'blocks.[0-5]'; repeatable."
)
@click.option("--save", multiple=True, metavar="OPERATOR", help="An operator whose outputs are saved all the same; repeatable.")
@click.option("--no-early-stop", is_flag=True, help="Let each recomputation run to its end.")
@click.option("--no-preserve-rng", is_flag=True, help="Keep no state of random number generators.")
@click.option("--reentrant", is_flag=True, help="Refused: reentrant checkpointing has another schedule.")
@click.option("--capacity", metavar="SIZE", callback=read_size, help="Bytes of the card, in place of its own; exit code 1 if it runs out.")
@click.option("--conf", default="", metavar="OPTIONS", help="Allocator options, as in PYTORCH_CUDA_ALLOC_CONF.")
@click.option("--device", metavar="CARD", help="Of a FILE.py: the card to capture for, such as a100-80g; by default h100.")
@click.option("--batch", type=click.IntRange(1), help="Of a FILE.py: given to functions that take a parameter batch.")
@click.option("--seq", type=click.IntRange(1), help="Of a FILE.py: given to functions that take a parameter seq.")
@parameter_option
@click.option("--autocast", metavar="TYPE", help="Of a FILE.py: run the default step's forward under autocast to this type.")
@click.option("--dtype", metavar="TYPE", help="Of a FILE.py: convert the model to this type.")
@click.option("-o", "--output", metavar="FILE", help="Write the edited trace, for peak and timeline, or draw it: a .png, .svg or .pdf.")
@click.option(
    "--kind",
    type=click.Choice(["timeline", "lifecycle"]),
    default="timeline",
    show_default=True,
    help="What is drawn: both levels, or the storages that are let go and made again.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    checkpoint: tuple[str, ...],
    save: tuple[str, ...],
    no_early_stop: bool,
    no_preserve_rng: bool,
    reentrant: bool,
    capacity: int | None,
    conf: str,
    output: str | None,
    kind: str,
    force: bool,
    device: str | None,
    batch: int | None,
    seq: int | None,
    parameters: dict[str, int],
    autocast: str | None,
    dtype: str | None,
    as_json: bool,
) -> None:
    """What a captured training step would be if torch checkpointed modules of it: exact, operator by operator.

    The capture is one without checkpointing; MODULES are paths, in which * and ? stand for no dot, [0-5] for one character and ** for
    anything. torch is needed for a FILE.py alone.

    \b
    Example:
      lifecycle-sim whatif step.jsonl --checkpoint 'blocks.*'
    """
    encode = None
    if output is not None:
        encode = None if is_figure(output) else encoder_for(output)
        refuse_to_overwrite(output, force)
    parameters = parameters | {name: value for name, value in (("batch", batch), ("seq", seq)) if value is not None}
    trace = captured_trace(source, parameters, {"device": device, "autocast": autocast, "dtype": dtype})
    with progress("editing its lifetimes"):
        found = what_if(
            trace,
            checkpoint,
            save or None,
            not no_early_stop,
            not no_preserve_rng,
            reentrant=reentrant,
            capacity=capacity,
            settings=conf,
        )
        record = recompute_record(found)
    if output is not None:
        if encode is not None:
            write_atomically(output, encode(found.trace, None).data, force)
        else:
            with progress(f"drawing {output}"):
                _draw(found, kind, output, force, Path(source).name)
    fits = found.prediction.fits
    answer(document("whatif", trace, source, [record], written=output, fits=fits), as_json)
    ctx.exit(Exit.YES if fits else Exit.NO)


def _draw(found: Recompute, kind: str, output: str, force: bool, title: str) -> None:
    from lifecycle_sim.output import figures

    draw = figures.recomputed_timeline if kind == "timeline" else figures.recomputed_lifecycles
    figures.save(draw(found, title=title), output, force)
