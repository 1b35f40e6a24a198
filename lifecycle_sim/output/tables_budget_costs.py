"""Tables of what a plan costs: operations, time, candidates, and the experiment with repeated data."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import facts, heading, shown, table
from lifecycle_sim.units import format_duration, format_long


def work_of(document: Record) -> Iterator[tuple[str, str]]:
    """What the plan takes in operations, and how that compares with a captured step."""
    work, tokens = document["work"], document["tokens"]
    if tokens:
        distinct = (
            "distinct ones not told" if tokens["distinct"] is None else f"{tokens['distinct']:,} distinct, {tokens['epochs']:.3g} times"
        )
        yield "tokens", f"{tokens['processed']:,} processed in {tokens['positions']:,} places; {distinct}; {tokens['samples']:,} samples"
    if work["flops"]:
        yield "6ND", f"{work['flops']:,} = 6 · {work['counted']:,} · {work['tokens']:,}"
    if work["attention"]:
        yield "attention", f"{work['attention']:,} more"
    if work["factor"] != 1:
        yield "recompute", f"the hardware does {work['factor']:.4g} times that"
    if work["step"]:
        beside = ""
        if work["step_six_n"]:
            beside = f", {work['step'] / work['step_six_n']:.3f} times 6N for its {work['step_tokens']:,} tokens"
        yield "a step", f"{work['step']:,} in products, convolutions and attention, counted in the capture{beside}"


def time_of(time: Record) -> Iterator[tuple[str, str]]:
    """The bound from the peak, and the time from measured throughput or the lack of it."""
    if time["theoretical"] is not None:
        devices = f"{time['devices']:,} device{'' if time['devices'] == 1 else 's'}"
        yield "at full peak", f"{format_long(time['theoretical'])} on {devices} of {time['peak']:.4g} operations/s: a bound, no date"
    if time["tokens_per_second"] is None:
        yield "measured", "nothing: without a measured throughput there is no time"
        return
    samples = "" if time["samples_per_second"] is None else f", {time['samples_per_second']:,.4g} samples/s"
    yield "measured", f"{time['tokens_per_second']:,.6g} tokens/s{samples} ({shown(time['measured'] or 'as given')})"
    steps = time["steps"]
    if steps:
        spread = f"{format_duration(steps['fastest'])} to {format_duration(steps['slowest'])}"
        yield "a step", f"{format_duration(steps['step'])}, {spread}, {steps['measured']:,} after {steps['warmup']:,} of warm-up"
        if steps["parts"]:
            parts = [f"{each['name']} {format_duration(each['time'])}" for each in steps["parts"]]
            yield "of which", ", ".join([*parts, f"rest {format_duration(steps['rest'])}"])
    if time["utilisation"] is not None:
        yield "MFU", f"{100 * time['utilisation']:.2f} % by 6N{' and attention' if time['with_attention'] else ''}"
    saving = f", {format_long(time['saving'])} of it saving" if time["saving"] else ""
    yield "time", f"{format_long(time['time'])} from measured throughput{saving}"


def allocations(rows: list[Record]) -> Iterator[RenderableType]:
    """What each approach takes for the best, and where it was fitted."""
    cells = [
        (each["approach"], f"{each['parameters']:.4g}", f"{each['tokens']:.4g}", "yes" if each["extrapolated"] else "no", each["constants"])
        for each in rows
    ]
    yield table(("approach", "N", "D", "extrapolated", "constants"), cells, left=("approach", "constants"))
    fitted = next((each["fitted"] for each in rows if each["fitted"]), None)
    if fitted:
        yield facts([("fitted on", f"runs of {fitted[0]:.3g} to {fitted[1]:.3g} operations")])


def candidates(document: Record) -> Iterator[RenderableType]:
    """The candidates, in the order given; none is called the best."""
    rows = document["candidates"]
    served, loss = any(each["inference"] for each in rows), document["same_loss"]
    yield heading(
        "Candidates in the order given, not ranked" if loss is None else f"Candidates of a predicted loss of {loss:g}, not ranked"
    )
    headers = ["N", "D", "D / N", "training", *(["inference", "in all"] if served else []), "epochs", "loss"]
    cells = []
    for each in rows:
        told = "–" if each["loss"] is None else f"{each['loss']:.4f}{' *' if each['extrapolated'] else ''}"
        work = [f"{each['training']:.4g}", *([f"{each['inference']:.4g}", f"{each['total']:.4g}"] if served else [])]
        epochs = "–" if each["epochs"] is None else f"{each['epochs']:.3g}"
        ratio = f"{each['tokens'] / each['parameters']:.3g}"
        cells.append((f"{each['parameters']:.4g}", f"{each['tokens']:.4g}", ratio, *work, epochs, told))
    yield table(headers, cells)
    if any(each["extrapolated"] for each in rows):
        yield Text("* extrapolated: the law was not fitted there")


def experiment(rows: list[Record]) -> Iterator[RenderableType]:
    """Equal work, and what was learned."""
    yield heading("Repeated data at one budget of operations, measured")
    cells = [
        (
            f"{each['rate']:,} ×",
            f"{each['distinct']:,}",
            f"{each['accesses']:,}",
            f"{each['flops']:,}",
            f"{each['loss_after']:.3f}",
            f"{each['loss_seen']:.3f}",
            f"{each['gain']:.3f}",
        )
        for each in rows
    ]
    headers = ("each met", "distinct", "accesses", "operations", "held-out loss", "loss on seen", "gain")
    yield table(headers, cells)
    seeds = len(rows[0]["gains"])
    yield facts(
        [
            ("accesses", "counted by the data as samples were taken; operations, product by product"),
            (
                "gain",
                f"the fall of the held-out loss from {rows[0]['loss_before']:.3f}, averaged over {seeds:,} seeds: no amount of information",
            ),
        ]
    )
