"""``lifecycle-sim lifetimes``: the storages that stand out."""

from __future__ import annotations

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.options import on_source, top_option
from lifecycle_sim.cli.source import name_of, open_trace, replays
from lifecycle_sim.output.summary import document
from lifecycle_sim.output.summary_lifetimes import SORTS, lifetimes_record


@click.command("lifetimes")
@on_source
@click.option("--leaked", is_flag=True, help="Only storages that are never freed.")
@click.option("--temporary", type=click.IntRange(0), metavar="N", help="Only storages freed within the N allocations that follow theirs.")
@click.option("--sort", type=click.Choice(SORTS), default="size", show_default=True, help="Largest, longest or oldest first.")
@top_option(10)
def command(
    source: str,
    parameters: dict[str, int],
    device: str | None,
    as_json: bool,
    leaked: bool,
    temporary: int | None,
    sort: str,
    top: int,
) -> None:
    """List the storages of SOURCE that stand out, and count all of them by size and span.

    \b
    Examples:
      lifecycle-sim lifetimes snapshot.pickle --sort span
      lifecycle-sim lifetimes snapshot.pickle --leaked
    """
    if leaked and temporary is not None:
        raise click.UsageError("a storage that is never freed is not temporary: choose --leaked or --temporary")
    trace = open_trace(source, parameters)
    devices = [lifetimes_record(replayed, leaked, temporary, sort, top) for replayed in replays(trace, device)]
    answer(document("lifetimes", trace, name_of(source), devices), as_json)
