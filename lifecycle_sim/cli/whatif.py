"""``lifecycle-sim whatif``: what a captured step would be with modules recomputed, tensors divided or on the host, another optimizer."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.captured import captured_trace, is_program
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import is_figure, json_option, parameter_option, read_size
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import is_scenario, name_of, open_scenario, open_trace
from lifecycle_sim.cli.strategy_options import chosen_strategies, strategy_options
from lifecycle_sim.errors import InputError
from lifecycle_sim.output.atomic import refuse_to_overwrite, write_atomically
from lifecycle_sim.output.exports import encoder_for
from lifecycle_sim.output.summary import document
from lifecycle_sim.output.summary_recompute import recompute_record

if TYPE_CHECKING:
    from lifecycle_sim.events import Trace
    from lifecycle_sim.sources.capture.variant import Variant
    from lifecycle_sim.study.recompute import Recompute
    from lifecycle_sim.study.strategies import Recapture, Strategies


@click.command("whatif")
@click.argument("source", metavar="CAPTURE|FILE.py[:FUNCTION]|SCENARIO|RECORDING")
@strategy_options
@click.option("--drop", multiple=True, metavar="OWNERS", help="Of a RECORDING: drop what these frames hold for backward; repeatable.")
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
    help="What -o draws: both levels (timeline, the default), or the storages that are let go and made again.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: str,
    drop: tuple[str, ...],
    output: str | None,
    kind: str | None,
    force: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """What a captured training step would be if torch checkpointed modules of it, or it were made smaller otherwise.

    Recomputation is exact, operator by operator, and so is what changes the program, which is captured again. MODULES are paths, in which
    * and ? stand for no dot, [0-5] for one character and ** for anything. torch is needed for a FILE.py alone. Of a SCENARIO, ranges of
    operators are recomputed; of a RECORDING without operators, --drop gives bounds.

    \b
    Example:
      lifecycle-sim whatif step.jsonl --checkpoint 'blocks.*'
      lifecycle-sim whatif train.py --accumulate 4 --shard zero3:8 --checkpoint 'blocks.*' --ladder
    """
    encode = None
    if output is not None:
        encode = None if is_figure(output) else encoder_for(output)
        refuse_to_overwrite(output, force)
    if kind is not None and (output is None or encode is not None):
        raise click.UsageError(f"--kind {kind} says what is drawn, and nothing is: add -o with a .png, .svg or .pdf")
    ladder, reentrant, capacity, conf = (asked.pop(name) for name in ("ladder", "reentrant", "capacity", "conf"))
    strategies = chosen_strategies(asked)
    if reentrant:
        from lifecycle_sim.study.recompute import REENTRANT

        raise InputError(REENTRANT)
    found: Recompute | None = None
    if drop:
        _must_be_alone("--drop", strategies, ladder, output)
        _must_not_capture("--drop", asked, conf, parameters=asked["parameters"])
        trace, record, fits = _dropped(source, drop, capacity)
    elif not strategies.empty and is_scenario(source):
        _must_be_alone("a scenario", strategies, ladder, output, ("checkpoint",))
        _must_not_capture("a scenario", asked, conf)
        trace, record, fits = _of_scenario(source, asked["parameters"], strategies.checkpoint, capacity)
    elif strategies.empty:
        raise click.UsageError("nothing is to be done: name modules with --checkpoint, or another edit, such as --shard zero3:8")
    else:
        base, recapture = _captured(source, asked)
        if ladder:
            _must_not_write(output, "a ladder has a trace for each rung")
            trace, record, fits = base, *_climbed(base, strategies, recapture, capacity, conf)
        else:
            trace, found = base, _edited(base, strategies, recapture, capacity, conf)
            record, fits = recompute_record(found), found.prediction.fits
    if output is not None and found is not None:
        if encode is not None:
            write_atomically(output, encode(found.trace, None).data, force)
        else:
            with progress(f"drawing {output}"):
                _draw(found, kind, output, force, name_of(source))
    answer(document("whatif", trace, name_of(source), [record], written=output, fits=fits), as_json)
    ctx.exit(Exit.NO if fits is False else Exit.YES)


def _captured(source: str, asked: dict[str, Any]) -> tuple[Trace, Recapture | None]:
    """The capture of the program as it is, and how to capture it again."""
    parameters = asked["parameters"] | {name: asked[name] for name in ("batch", "seq") if asked[name] is not None}
    options = {"device": asked["device"], "autocast": asked["autocast_of_file"], "dtype": asked["dtype_of_file"]}
    base = captured_trace(source, parameters, options)
    if not is_program(source):
        return base, None

    @cache
    def captured_as(variant: Variant, dtype: str | None, autocast: str | None) -> Trace:
        changed = {"autocast": autocast, "dtype": dtype}
        again = options | {name: value for name, value in changed.items() if value is not None}
        return captured_trace(source, parameters, again, variant)

    def recapture(strategies: Strategies) -> Trace:
        return captured_as(strategies.variant(), strategies.dtype, strategies.autocast)

    return base, recapture


def _edited(base: Trace, strategies: Strategies, recapture: Recapture | None, capacity: int | None, conf: str) -> Recompute:
    from lifecycle_sim.study.strategies import what_if_strategies

    with progress("editing its lifetimes"):
        return what_if_strategies(base, strategies, recapture, capacity=capacity, settings=conf)


def _climbed(base: Trace, strategies: Strategies, recapture: Recapture | None, capacity: int | None, conf: str) -> tuple[Any, bool]:
    from lifecycle_sim.output.summary_ladder import ladder_record
    from lifecycle_sim.study.strategies import ladder

    with progress("editing its lifetimes, one strategy at a time"):
        rungs = ladder(base, strategies, recapture, capacity=capacity, settings=conf)
        return ladder_record(rungs), rungs[-1].found.prediction.fits


def _dropped(source: str, patterns: tuple[str, ...], capacity: int | None) -> tuple[Trace, Any, bool | None]:
    from lifecycle_sim.output.summary_ladder import dropped_record
    from lifecycle_sim.replay import replay_device
    from lifecycle_sim.study.dropped import what_if_dropped

    trace = open_trace(source, {})
    with progress("replaying"):
        found = what_if_dropped(replay_device(trace), patterns)
    fits = None if capacity is None else True if found.upper <= capacity else False if found.lower > capacity else None
    return trace, dropped_record(found, capacity), fits


def _of_scenario(source: str, parameters: dict[str, int], ranges: tuple[str, ...], capacity: int | None) -> tuple[Trace, Any, bool | None]:
    from lifecycle_sim.output.summary_ladder import scenario_record
    from lifecycle_sim.study.recompute_scenario import what_if_program

    program = open_scenario(source, parameters)
    with progress(f"running {name_of(source)}"):
        found = what_if_program(program, ranges)
    return found.trace, scenario_record(found, capacity), None if capacity is None else found.edited.peak <= capacity


def _must_be_alone(what: str, strategies: Strategies, ladder: bool, output: str | None, known: tuple[str, ...] = ()) -> None:
    from dataclasses import fields

    plain = type(strategies)()
    other = [
        field.name for field in fields(plain) if field.name not in known and getattr(strategies, field.name) != getattr(plain, field.name)
    ]
    other += ["ladder"] if ladder else []
    if other:
        names = ", ".join(name.replace("_", "-") for name in other)
        raise click.UsageError(f"{what} and {names}: a step without captured operators cannot be edited so; capture it")
    _must_not_write(output, "here is no edited capture to write")


def _must_not_capture(what: str, asked: dict[str, Any], conf: str, **more: object) -> None:
    """Refuse options that say how a program is captured, or what allocator its requests go to."""
    given = {"device": asked["device"], "batch": asked["batch"], "seq": asked["seq"], "conf": conf, **more}
    given |= {"autocast": asked["autocast_of_file"], "dtype": asked["dtype_of_file"]}
    names = ", ".join({"parameters": "--param"}.get(name, f"--{name}") for name, value in given.items() if value)
    if names:
        raise click.UsageError(f"{what} and {names}: nothing is captured here, and no allocator is asked: leave {names} out")


def _must_not_write(output: str | None, why: str) -> None:
    if output is not None:
        raise click.UsageError(f"{why}: leave -o out")


def _draw(found: Recompute, kind: str | None, output: str, force: bool, title: str) -> None:
    from lifecycle_sim.output import figures

    draw = figures.recomputed_lifecycles if kind == "lifecycle" else figures.recomputed_timeline
    figures.save(draw(found, title=title), output, force)
