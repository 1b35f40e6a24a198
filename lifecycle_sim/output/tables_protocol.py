"""Tables of ``lifecycle-sim protocol``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import facts, heading, shown, stacked, table


def tables(document: Record) -> Iterator[RenderableType]:
    """What the comparison needs, its runs, and what was fitted."""
    source, budget = document["source"], document["budget"]
    yield stacked(
        heading(f"{source['name']} · {shown(source['title'])}"),
        facts(
            [
                ("answer", "the comparison can answer" if document["sound"] else "the comparison cannot answer: see what is not met"),
                ("budget", f"{budget['work']:.4g} operations, within {100 * budget['tolerance']:.3g} %"),
                ("quality", f"{shown(document['quality']['measure'])}, {document['quality']['better']} is better"),
            ]
        ),
    )
    needs = [("yes" if each["met"] else "no", each["name"], shown(each["text"])) for each in document["requirements"]]
    yield stacked(heading("What it needs"), table(("met", "requirement", "found"), needs, left=("requirement", "found")))
    rows = [
        (shown(run["name"]), f"{run['parameters']:,}", f"{run['tokens']:,}", f"{run['work']:.4g}", f"{100 * run['deviation']:+.2f} %")
        for run in document["runs"]
    ]
    if rows:
        yield stacked(heading("Runs"), table(("run", "N", "D", "6ND", "from the budget"), rows, left=("run",)))
    if document["unfitted"]:
        yield Text(f"Not fitted: {document['unfitted']}.")
    if document["fit"]:
        yield stacked(*_fit(document["fit"]))
    forecasts = [
        (f"{each['parameters']:,}", f"{each['tokens']:,}", _interval(each["interval"]), shown(each["text"]))
        for each in document["forecasts"]
    ]
    if forecasts:
        yield stacked(heading("Forecasts, fitted"), table(("N", "D", "loss", "what it is worth"), forecasts, left=("what it is worth",)))


def _interval(interval: Record | None) -> str:
    return "–" if interval is None else f"{interval['value']:.4f} [{interval['low']:.4f}, {interval['high']:.4f}]"


def _fit(fit: Record) -> Iterator[RenderableType]:
    yield heading(f"L(N, D) = E + A/N^α + B/D^β, fitted to {fit['count']:,} runs")
    rows = [(each["name"], f"{each['value']:.4g}", f"{each['low']:.4g}", f"{each['high']:.4g}") for each in fit["constants"]]
    level = f"{100 * fit['level']:.0f} %"
    yield table(("constant", "value", f"{level} from", f"{level} to"), rows, left=("constant",))
    check = fit["scale_check"]
    ranges = fit["fitted"]
    told = [
        (
            "fitted range",
            "; ".join(f"{name} {_figure(ranges[key])}" for name, key in (("N", "parameters"), ("D", "tokens"), ("6ND", "work"))),
        ),
        ("residuals", f"{100 * fit['residual']:.2f} % at most"),
    ]
    if check is None:
        told.append(("scale check", "not possible: too few runs to hold the largest out; nothing is forecast outside of the range"))
    else:
        told.append(
            (
                "scale check",
                f"{'passed' if check['passed'] else 'failed'}: {len(check['held_out']):,} runs above {check['most_work']:.3g} operations, "
                f"predicted from the {check['fitted']:,} below, are off by {100 * check['worst']:.2f} % at most",
            )
        )
    yield facts(told)


def _figure(ends: list[int]) -> str:
    return f"{ends[0]:.3g} to {ends[1]:.3g}"
