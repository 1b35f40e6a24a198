"""``lifecycle-sim convert``: write a trace in another format."""

from __future__ import annotations

import click

from lifecycle_sim.cli.options import device_option, output_options, parameter_option
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import open_trace
from lifecycle_sim.errors import InputError
from lifecycle_sim.output.atomic import refuse_to_overwrite, write_atomically
from lifecycle_sim.output.exports import encoder_for
from lifecycle_sim.output.printable import one_line


@click.command("convert")
@click.argument("source")
@output_options
@parameter_option
@device_option
def command(source: str, output: str, force: bool, parameters: dict[str, int], device: str | None) -> None:
    """Write SOURCE to a file in the format that the file's suffix names.

    \b
    .jsonl  native JSON lines: readable, and the whole trace
    .npz    native numpy columns: compact, and the whole trace
    .csv    minimalloc instance: the lifetimes of one device

    \b
    Example:
      lifecycle-sim convert snapshot.pickle -o trace.jsonl
    """
    try:
        encode = encoder_for(output)
    except InputError as error:
        raise click.BadParameter(one_line(str(error)), param_hint="--output") from None
    refuse_to_overwrite(output, force)
    trace = open_trace(source, parameters)
    with progress(f"writing {output}"):
        write_atomically(output, encode(trace, device), force)
