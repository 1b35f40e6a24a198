"""``lifecycle-sim timeline``: the level over events."""

from __future__ import annotations

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.options import on_source, top_option
from lifecycle_sim.cli.source import name_of, open_trace, replays
from lifecycle_sim.output.summary import document
from lifecycle_sim.output.summary_timeline import BY, FEWEST_POINTS, timeline_record


@click.command("timeline")
@on_source
@click.option(
    "--points",
    type=click.IntRange(FEWEST_POINTS, 100_000),
    default=40,
    show_default=True,
    help="At how many events at most to tell the level; the first, the last, the peak and local extrema are kept.",
)
@click.option("--by", type=click.Choice(BY), help="The peak of each stream, or inside each annotated range, besides.")
@top_option(20)
def command(source: str, parameters: dict[str, int], device: str | None, as_json: bool, points: int, by: str | None, top: int) -> None:
    """Tell the level of SOURCE over its events, and the peak of each stream or range.

    \b
    Example:
      lifecycle-sim timeline snapshot.pickle --by span
    """
    trace = open_trace(source, parameters)
    devices = [timeline_record(replayed, points, by, top) for replayed in replays(trace, device)]
    answer(document("timeline", trace, name_of(source), devices), as_json)
