"""Tables of ``lifecycle-sim run``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import (
    at_event,
    counted,
    duration,
    facts,
    format_bytes,
    format_exact,
    heading,
    shown,
    signed,
    stacked,
    table,
    title,
)
from lifecycle_sim.output.tables_device import assumptions_table, device_facts, steady_facts, verdict_text, who_holds

ORDERS = {
    "frees-first": "at one instant, what ends makes room for what begins (frees before allocs)",
    "allocs-first": "at one instant, what begins is there before what ends goes (allocs before frees)",
}
CAPACITY_MODES = {
    "line": "the capacity is a line to compare with; nothing waits for it",
    "wait": "operators wait until the capacity has room for them",
}


def tables(document: Record) -> Iterator[RenderableType]:
    """The rules of the run, the levels, steps side by side, the static table, who holds the peak, and the verdict."""
    source = document["source"]
    clock = source["clock"]
    yield stacked(title(document), facts(_rules(document["rules"], clock)))
    for device in document["devices"]:
        yield heading(f"{device['device']} · {counted(device['events'], 'event')}")
        yield stacked(
            facts([*device_facts(device, source), *_average(device, clock), *steady_facts(device, source)]),
            _steps(device["steps"], device["basis"]),
            _static(device["static_table"]),
            *who_holds(device),
            assumptions_table(device),
            verdict_text(device),
        )


def _rules(rules: Record, clock: str) -> Iterator[tuple[str, str]]:
    if rules["title"]:
        yield "scenario", shown(rules["title"], 300)
    if rules["parameters"]:
        yield "parameters", ", ".join(f"{name} = {value:,}" for name, value in rules["parameters"].items())
    yield "order", ORDERS[rules["same_instant"]]
    if rules["capacity_mode"] is not None:
        yield "capacity", CAPACITY_MODES[rules["capacity_mode"]]
    if rules["makespan"] is not None:
        yield "ran for", duration(rules["makespan"], clock)
    for wait in rules["waited"]["shown"]:
        yield "waited", f"{shown(wait['operator'])} for {duration(wait['ticks'], clock)}"
    if (more := rules["waited"]["count"] - len(rules["waited"]["shown"])) > 0:
        yield "", f"and {more:,} more operators"


def _average(device: Record, clock: str) -> Iterator[tuple[str, str]]:
    """The average beside which the peak stands, and what is held in all; over one horizon both are the same in every order of the work."""
    average, peak = device["average"], device["peak"]["bytes"]
    if average is None:
        return
    times = f"; the peak is {peak * average['until'] / average['area']:,.1f} times that" if average["area"] > 0 else ""
    yield "average", f"{format_exact(average['bytes'])} over the {average['over']} of {duration(average['until'], clock)}{times}"
    unit, scale = ("s", 10**9) if clock == "ns" else ("ticks", 1)
    yield "held in all", f"{_exact(average['area'], scale)} B·{unit} ({format_bytes(average['area'] // scale)}·{unit})"


def _exact(count: int, scale: int) -> str:
    """*count* / *scale*, with all its decimals; *scale* is a power of ten."""
    whole, rest = divmod(count, scale)
    return f"{whole:,}" + (f".{rest:0{len(str(scale)) - 1}d}".rstrip("0") if rest else "")


def _steps(steps: Record, basis: str) -> RenderableType | None:
    """The peak and the end of each step, and whether the first differs from the second."""
    if not steps["count"]:
        return None
    rows = [(shown(row["name"]), format_exact(row["peak"]), _in(row["operator"]), format_exact(row["end"])) for row in steps["shown"]]
    if (more := steps["count"] - len(rows)) > 0:
        rows.insert(-1, (f"{more:,} more", "…", "…", "…"))
    made = table(("step", "peak", "in operator", "level at its end"), rows, left=("step", "in operator"))
    return stacked(heading(f"Steps, {basis} bytes"), made, _first_two(*steps["shown"][:2]) if steps["count"] > 1 else None)


def _first_two(first: Record, second: Record) -> Text:
    change = second["peak"] - first["peak"]
    if not change and second["end"] == first["end"]:
        return Text("The first two steps have the same peak and the same level at their end.")
    peaks = f"peaks {format_exact(abs(change))} {'above' if change > 0 else 'below'} the first" if change else "has the peak of the first"
    ends = f"ends {signed(second['end'] - first['end'])} from where it ended" if second["end"] != first["end"] else "ends at the same level"
    return Text(f"The second step {peaks} and {ends}.")


def _in(operator: str | None) -> str:
    return "" if operator is None else shown(operator)


def _static(static: Record) -> RenderableType | None:
    if not static["total"]:
        return None
    rows = [
        (
            row["category"],
            format_exact(row["static"]) if row["in_table"] else "not in it",
            format_exact(row["peak"]),
            format_exact(row["end"]),
        )
        for row in static["categories"]
    ]
    ends = sum(row["end"] for row in static["categories"])
    rows.append(("total", format_exact(static["total"]), format_exact(static["peak"]), format_exact(ends)))
    headers = ("category", "static table", "at the peak", "at the end")
    text = f"At the peak, {at_event(static['event'])}{_place(static['where'])}, the static table lacks {format_exact(static['lacks'])}"
    if static["counts_absent"]:
        text += f" and counts {format_exact(static['counts_absent'])} that are not there"
    return stacked(heading("Static table beside the run"), table(headers, rows, left=("category",), total=True), Text(text + "."))


def _place(where: Record) -> str:
    """In which operator, phase and step: ``" (operator relu.backward, phase backward, step 2)"``."""
    named = [shown(name) if kind == "step" else f"{kind} {shown(name)}" for kind, name in where.items() if name is not None]
    return f" ({', '.join(named)})" if named else ""
