"""``lifecycle-sim convert``: write a trace in another format."""

from __future__ import annotations

import re

import click

from lifecycle_sim.cli.options import device_option, output_options, parameter_option
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import open_trace
from lifecycle_sim.errors import InputError
from lifecycle_sim.output.atomic import refuse_to_overwrite, write_atomically
from lifecycle_sim.output.exports import encode_part, encoder_for
from lifecycle_sim.output.printable import one_line

Window = tuple[int | None, int | None]
_WINDOW = re.compile(r"\s*([0-9][0-9_,]{0,25})?\s*:\s*([0-9][0-9_,]{0,25})?\s*")


def read_window(_ctx: click.Context, param: click.Parameter, given: str | None) -> Window | None:
    """Return the ends of the window that *given*, such as ``1000:2000``, stands for; None for an end that is left out.

    Raises:
        BadParameter: it is no window.
    """
    if given is None:
        return None
    match = _WINDOW.fullmatch(given)
    if match is None:
        raise click.BadParameter(f"{given!r} is not of the form FIRST:STOP, such as 1000:2000, 1000: or :2000", param=param)
    first, stop = (int(re.sub("[_,]", "", number)) if number else None for number in match.groups())
    return first, stop


@click.command("convert")
@click.argument("source")
@output_options
@click.option("--window", metavar="FIRST:STOP", callback=read_window, help="Only events from FIRST to before STOP of one device; from 0.")
@click.option("--largest", metavar="N", type=click.IntRange(1), help="Only the N storages of each device with the most bytes.")
@parameter_option
@device_option
def command(
    source: str,
    output: str,
    force: bool,
    window: Window | None,
    largest: int | None,
    parameters: dict[str, int],
    device: str | None,
) -> None:
    """Write SOURCE to a file in the format that the file's suffix names.

    \b
    .jsonl   native JSON lines: readable, and the whole trace
    .npz     native numpy columns: compact, and the whole trace
    .csv     minimalloc instance: the lifetimes of one device, nothing else
    .pickle  CUDA memory snapshot: what torch.cuda._memory_viz and the viewer in a browser open

    What had to be left out or made up is said on standard error. A snapshot too large for the viewer opens as a window of it, or with
    its largest storages only.

    \b
    Example:
      lifecycle-sim convert snapshot.pickle -o trace.jsonl
      lifecycle-sim convert large.pickle -o small.pickle --largest 2000
    """
    try:
        encode = encoder_for(output)
    except InputError as error:
        raise click.BadParameter(one_line(str(error)), param_hint="--output") from None
    refuse_to_overwrite(output, force)
    trace = open_trace(source, parameters)
    with progress(f"writing {output}"):
        export = encode_part(trace, encode, device, window, largest)
        write_atomically(output, export.data, force)
    for note in export.notes:
        click.echo(one_line(note), err=True)
