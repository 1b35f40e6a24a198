"""Options of ``lifecycle-sim whatif`` that say what is to be done to a step, read from flags and from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from lifecycle_sim.study.strategies import Strategies

Command = TypeVar("Command", bound=Callable[..., Any])
FLAGS = {"no_early_stop": "early_stop", "no_preserve_rng": "preserve_rng"}


def strategy_options(command: Command) -> Command:
    """Add every option that says what is to be done, and ``--edits`` for a file of them."""
    for add in reversed(
        (
            click.option(
                "--checkpoint", multiple=True, metavar="MODULES", help="Modules to recompute, such as 'blocks.[0-5]'; repeatable."
            ),
            click.option("--save", multiple=True, metavar="OPERATOR", help="An operator whose outputs are saved all the same; repeatable."),
            click.option("--no-early-stop", is_flag=True, help="Let each recomputation run to its end."),
            click.option("--no-preserve-rng", is_flag=True, help="Keep no state of random number generators."),
            click.option("--optimizer", metavar="NAME", help="Another optimizer, such as sgd, adamw-fused or adamw-8bit."),
            click.option("--in-backward", is_flag=True, help="Of a FILE.py: update in the backward pass, and free each gradient there."),
            click.option(
                "--accumulate", type=click.IntRange(1), metavar="K", help="Of a FILE.py: divide a step's batch into K micro-batches."
            ),
            click.option(
                "--freeze", multiple=True, metavar="PARAMETERS", help="Of a FILE.py: train these not, such as 'embed.*'; repeatable."
            ),
            click.option("--to-dtype", metavar="TYPE", help="Of a FILE.py: what if the model were of this type."),
            click.option("--to-autocast", metavar="TYPE", help="Of a FILE.py: what if autocast were to this type."),
            click.option("--shard", metavar="STAGE:RANKS", help="Divide state (zero1), gradients (zero2), parameters (zero3): zero3:8."),
            click.option(
                "--offload", multiple=True, metavar="WHAT", help="Keep on the host: saved tensors or optimizer state; repeatable."
            ),
            click.option("--link", metavar="RATE", help="Bytes a second to the host, and as many back, such as '25 GB/s'."),
            click.option("--offload-from", metavar="SIZE", help="Tensors below this stay on the device; by default 1 MiB."),
            click.option("--ahead", type=click.IntRange(0), metavar="N", help="Tensors fetched ahead of the one needed; by default 2."),
            click.option("--behind", type=click.IntRange(0), metavar="N", help="Tensors that may wait for the host; by default 4."),
            click.option("--wait", is_flag=True, help="Let compute wait for every copy."),
            click.option("--edits", metavar="FILE.toml", help="Read all of these from a file; options add to it."),
            click.option("--ladder", is_flag=True, help="Add them one at a time, a row for each."),
        )
    ):
        command = add(command)
    return command


def chosen_strategies(asked: dict[str, Any]) -> Strategies:
    """Take the options of :func:`strategy_options` out of *asked*, and return what they say.

    Raises:
        InputError: the file cannot be read, or they exclude each other.
    """
    from lifecycle_sim.study.strategies import Strategies, read_strategies

    path = asked.pop("edits")
    asked["dtype_of_file"], asked["autocast_of_file"] = asked.pop("dtype"), asked.pop("autocast")
    asked["dtype"], asked["autocast"] = asked.pop("to_dtype"), asked.pop("to_autocast")
    for flag, name in FLAGS.items():
        asked[name] = not asked.pop(flag)
    plain = Strategies()
    given = {field.name: asked.pop(field.name) for field in fields(Strategies)}
    said = {name: value for name, value in given.items() if value not in (None, ()) and value != getattr(plain, name)}
    return Strategies(**said) if path is None else replace(read_strategies(path), **said)
