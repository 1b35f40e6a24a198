"""``lifecycle-sim peak``: the exact peak and who holds it."""

from __future__ import annotations

import re

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.options import capacity_option, on_source, top_option
from lifecycle_sim.cli.progress import progress
from lifecycle_sim.cli.source import name_of, open_trace, replays
from lifecycle_sim.output.summary import all_fit, document, surely_fit
from lifecycle_sim.output.summary_moments import failed_allocations
from lifecycle_sim.output.summary_peak import AT_OOM, peak_summary
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.grouping import BY

STEPS_HELP = 'What a step is: the name of an annotation, or the events at which steps end, such as "120,240"; by default it is found.'


def read_steps(_ctx: click.Context, _param: click.Parameter, given: str | None) -> list[int] | str | None:
    """Return the events that *given* lists, or the name that it is."""
    if given is None or re.fullmatch(r"\s*[0-9]{1,18}\s*(,\s*[0-9]{1,18}\s*)*", given) is None:
        return given
    return [int(event) for event in given.split(",")]


def read_at(_ctx: click.Context, param: click.Parameter, given: str | None) -> int | str | None:
    """Return the event that *given* names.

    Raises:
        BadParameter: it is neither an event's number, nor -1, nor "oom".
    """
    if given is None or given == AT_OOM:
        return given
    if re.fullmatch(r"-1|[0-9]{1,18}", given) is None:
        raise click.BadParameter(f"{given!r} is no event: give its number, -1 for the start, or {AT_OOM}", param=param)
    return int(given)


def having(replayed: tuple[DeviceReplay, ...], at: int | str | None) -> tuple[DeviceReplay, ...]:
    """Return the devices that have the event *at*.

    Raises:
        UsageError: none has.
    """
    if at is None:
        return replayed
    if at == AT_OOM:
        chosen = tuple(each for each in replayed if len(failed_allocations(each)))
        missing = "no failed allocation is recorded: leave --at out, or give an event"
    else:
        chosen = tuple(each for each in replayed if int(at) < len(each.timeline))
        counts = ", ".join(f"{each.device} has {len(each.timeline):,}" for each in replayed)
        missing = f"there is no event {at}: events count from 0, and {counts}"
    if not chosen:
        raise click.UsageError(missing)
    return chosen


BY_HELP = f"What to share the bytes out by: {', '.join(BY)}; by default owners, where stacks are known."


@click.command("peak")
@on_source
@click.option(
    "--at",
    callback=read_at,
    metavar="EVENT|oom",
    help="Tell who holds the bytes after this event instead of at the peak: -1 is the start, oom the last failed allocation.",
)
@click.option("--by", type=click.Choice(BY), metavar="GROUPING", help=BY_HELP)
@top_option(10)
@click.option("--steps", metavar="NAME|EVENTS", callback=read_steps, help=STEPS_HELP)
@capacity_option
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    parameters: dict[str, int],
    device: str | None,
    as_json: bool,
    at: int | str | None,
    by: str | None,
    top: int,
    steps: list[int] | str | None,
    capacity: int | None,
) -> None:
    """Tell the exact peak of SOURCE, who holds it, what is steady, and what had to be assumed.

    The exit code is 1 if a capacity is known and a peak does not fit into it.

    \b
    Examples:
      lifecycle-sim peak snapshot.pickle
      lifecycle-sim peak snapshot.pickle --by stack --top 3 --capacity "24 GiB"
      lifecycle-sim peak out_of_memory.pickle --at oom
      lifecycle-sim peak scenario.toml --param batch=4 --json
    """
    trace = open_trace(source, parameters)
    replayed = having(replays(trace, device), at)
    with progress("attributing"):
        devices = [peak_summary(each, by, at, top, steps, capacity) for each in replayed]
    answer(document("peak", trace, name_of(source), devices, fits=all_fit(devices)), as_json)
    ctx.exit(Exit.YES if surely_fit(devices) else Exit.NO)
