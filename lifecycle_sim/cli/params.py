"""``lifecycle-sim params``: the parameters of a model, each storage once, and what gradients and optimizer add."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.capture import split_program
from lifecycle_sim.cli.options import json_option, parameter_option
from lifecycle_sim.output.summary_params import params_document
from lifecycle_sim.sources.capture import params_file


@click.command("params")
@click.argument("file")
@click.option("--dtype", metavar="NAME", help='Convert the model to this type first, such as "bf16".')
@parameter_option
@json_option
def command(file: str, dtype: str | None, parameters: dict[str, int], as_json: bool) -> None:
    """Count the parameters that the Python FILE defines: FILE.py or FILE.py:function.

    The file defines build_model(), which returns the module, and make_optimizer(model) if there is an optimizer; or the function returns
    the module, or a dict of these. Tensors get no memory. Names that share a storage share a row, and its bytes count once.

    \b
    Example:
      lifecycle-sim params scenarios/capture/shared_linear.py
    """
    path, function = split_program(file)
    with redirect_stdout(sys.stderr):  # what the file prints is narration
        table = params_file(path, function, parameters, dtype)
    answer(params_document(file, table), as_json)
