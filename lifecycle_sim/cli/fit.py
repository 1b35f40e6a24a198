"""``lifecycle-sim fit``: the largest batch, or the longest sequence, that fits."""

from __future__ import annotations

from typing import Any

import click

from lifecycle_sim.cli.answer import answer
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.cli.fit_options import Asked, asked_of, fit_options, refuse
from lifecycle_sim.cli.options import json_option

OF_CAPTURES = ("dtype", "autocast", "without", "workspace", "conf", "growth")
OF_RUNS = (*OF_CAPTURES, "longest", "batch", "window", "workers", "output")


@click.command("fit")
@click.argument("source", required=False)
@fit_options
@json_option
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Find the largest batch that fits, and say what keeps it from being larger.

    SOURCE is a Python file as for capture (each candidate is captured: no card, no out-of-memory trial), a CSV of probes (batch, seq, peak,
    basis), a scenario with a parameter batch, or a table of configurations (.toml). Without a SOURCE: plain numbers, or --probe. The exit
    code is 1 if no batch fits.

    \b
    Examples:
      lifecycle-sim fit scenarios/capture/gpt.py --autocast bf16 --device a100-80g --seq 1024 --headroom "2 GiB"
      lifecycle-sim fit probes.csv --budget "24 GiB" --global-batch 512
      lifecycle-sim fit --probe 4,128=a.pickle --probe 4,256=b.pickle --budget "16 GiB" --by tokens
      lifecycle-sim fit --fixed "100 B" --per-sample "30 B" --budget "200 B" --limit 10
    """
    asked = asked_of(options)
    document, fits = _dispatch(asked)
    answer(document, asked.as_json)
    ctx.exit(Exit.NO if fits is False else Exit.YES)


def _dispatch(asked: Asked) -> tuple[dict[str, Any], bool | None]:
    """Answer by the kind of what was given."""
    from lifecycle_sim.cli import fit_questions as questions

    timed = asked.overhead is not None or asked.times is not None
    if (asked.overhead is None) != (asked.time_per_sample is None) or (asked.deadline is not None and not timed):
        raise click.UsageError("a time needs both --overhead and --time-per-sample, or --times; and a --deadline needs them")
    if asked.overhead is not None and asked.times is not None:
        raise click.UsageError("times are measured, as --times, or given, as --overhead and --time-per-sample: leave one out")
    if timed and asked.global_batch is None:
        raise click.UsageError("times are of steps over a --global-batch: add it")
    if asked.fixed is not None or asked.per_sample is not None:
        if asked.source is not None or asked.probe:
            raise click.UsageError("--fixed and --per-sample are all there is to know: leave the source and --probe out")
        refuse(asked, (*OF_RUNS, "series", "seq"), "does not go with plain numbers: leave it out")
        return questions.plain_numbers(asked)
    if asked.source is None or asked.probe:
        if asked.source is not None or not asked.probe:
            raise click.UsageError("give a source, or --probe for each recording, or --fixed and --per-sample")
        refuse(asked, (*OF_RUNS, "series"), "does not go with recordings: leave it out")
        return questions.recordings(asked)
    if asked.source.endswith(".py") or ".py:" in asked.source:
        refuse(asked, ("series",), "chooses rows of a CSV: leave it out")
        return questions.growth_of(asked) if asked.growth is not None else questions.captured(asked)
    if asked.source.lower().endswith(".toml"):
        refuse(asked, (*OF_CAPTURES, "series"), "does not go with a scenario: leave it out")
        return questions.toml(asked)
    refuse(asked, OF_RUNS, "does not go with a CSV of probes: leave it out")
    return questions.probes_file(asked)
