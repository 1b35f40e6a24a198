"""Tables of ``lifecycle-sim capture``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import facts, format_bytes, format_exact, heading, share_of, shown, stacked, table, title


def tables(document: Record) -> Iterator[RenderableType]:
    """The card, the levels of each measured step, what holds the peak, the terms, and the assumptions."""
    for device in document["devices"]:
        yield stacked(
            title(document),
            facts(_card(device, document["written"])),
            _steps(device),
            _shares(device, "categories", "category"),
            _shares(device, "owners", "owner"),
            _terms(device),
            _assumptions(device),
            _verdict(device),
        )


def _card(device: Record, written: str) -> Iterator[tuple[str, str]]:
    card, parameters = device["card"], device["parameters"]
    yield "card", f"{card['name']}: architecture {card['architecture'] / 10:.1f}, {card['processors']} multiprocessors"
    yield "made with", ", ".join(f"{name} {version}" for name, version in device["versions"].items()) + ", eager"
    yield "parameters", f"{parameters['count']:,} with {format_exact(parameters['bytes'])}, {parameters['references']:,} references"
    if device["flops"]:
        yield "FLOPs", f"{device['flops']:,} in matrix products, convolutions and attention of the measured steps"
    yield "written to", shown(written)


def _steps(device: Record) -> RenderableType:
    rows = []
    for step in device["steps"]:
        upper = step["requested"]["upper"]
        for level in ("requested", "allocated", "reserved"):
            peak = format_exact(step[level]["peak"])
            rows.append((shown(step["name"]), level, peak, format_exact(step[level]["end"])))
        if upper > step["requested"]["peak"]:
            rows.insert(-2, ("", "at most", format_exact(upper), ""))
    return stacked(heading("Measured steps, simulated"), table(("step", "level", "peak", "at its end"), rows, left=("step", "level")))


def _shares(device: Record, rows: str, key: str) -> RenderableType:
    whole = sum(row["bytes"] for row in device[rows])
    made = [(shown(row[key]), format_exact(row["bytes"]), share_of(row["bytes"], whole)) for row in device[rows]]
    return table((key, "at the last step's peak", "share"), made, left=(key,))


def _terms(device: Record) -> RenderableType | None:
    rows = [
        (
            row["name"],
            f"{row['count']:,}",
            f"0 to {format_bytes(row['interval'][1])}, not counted" if row["interval"] else format_exact(row["most"]),
        )
        for row in device["terms"]
        if row["count"]
    ]
    return (
        stacked(heading("Kernel terms, in the figures above"), table(("term", "times", "most at a time"), rows, left=("term",)))
        if rows
        else None
    )


def _assumptions(device: Record) -> RenderableType | None:
    rows = [(row["code"], f"{row['count']:,}", row["text"]) for row in device["assumptions"]]
    return stacked(heading("Assumptions"), table(("assumed", "times", "what"), rows, left=("assumed", "what"))) if rows else None


def _verdict(device: Record) -> Text | None:
    capacity = device["card"]["capacity"]
    if not device["out_of_memory"]:
        return None if capacity is None else Text(f"It fits into the card's {format_exact(capacity)}.")
    failed = device["out_of_memory"][0]
    return Text(f"It does not fit: memory ran out at a request of {format_exact(failed['bytes'])}; what follows was not replayed.")
