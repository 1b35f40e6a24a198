"""Tables of ``lifecycle-sim sweep``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import counted, facts, format_bytes, format_exact, heading, shown, stacked, table
from lifecycle_sim.units import format_duration

SPREAD = ("least", "middle", "most")


def tables(document: Record) -> Iterator[RenderableType]:
    """What was done, what the card is predicted to hold, what the runs took, what failed, and what each figure is."""
    yield stacked(heading(document["source"]["name"]), facts(_settings(document)))
    yield stacked(heading(f"Predicted for the {document['card']['name']}"), _predictions(document))
    if any(point["run"] for point in document["points"]):
        yield stacked(heading("A step on the CPU of this machine, measured: the spread over the runs"), _times(document))
        yield stacked(heading("Process RSS of those runs at its most, measured: the spread over the runs"), _memory(document))
    problems = [(_name(point), shown(problem)) for point in document["points"] for problem in point["problems"]]
    if problems:
        yield stacked(heading("Failed"), table(("point", "what"), problems, left=("point", "what")))
    yield stacked(heading("What each figure is"), facts(document["figures"].items()), Text(document["not_carried_over"]))
    verdict = _verdict(document)
    if verdict:
        yield Text(verdict)


def _settings(document: Record) -> Iterator[tuple[str, str]]:
    card = document["card"]
    limit = "" if card["capacity"] is None else f", {format_exact(card['capacity'])}"
    yield "card", f"{card['name']}{limit}"
    if document["versions"]:
        yield "made with", ", ".join(f"{name} {version}" for name, version in document["versions"].items()) + ", eager"
        yield "measured", f"{counted(document['steps'], 'step')} after {document['warmup']} of warm-up, in captures and runs alike"
    if document["threads"]:
        yield "runs", f"{document['repeats']} at each point, each a fresh process, {counted(document['threads'], 'thread')}"


def _predictions(document: Record) -> RenderableType:
    names = _names(document)
    rows = []
    for point in document["points"]:
        if point["prediction"] is None:
            rows.append((*_values(point, names), "–", "–", "–", "–", "not predicted"))
            continue
        levels = [format_bytes(point["prediction"][level]["peak"]) for level in ("requested", "allocated", "reserved")]
        fits = "yes" if point["prediction"]["fits"] else "no"
        rows.append((*_values(point, names), format_bytes(point["payload"]["total"]), *levels, fits))
    return table((*names, "payload", "requested", "allocated", "reserved", "fits"), rows)


def _times(document: Record) -> RenderableType:
    names = _names(document)
    rows = []
    for point in document["points"]:
        took = [format_duration(point["run"]["nanoseconds"][which]) for which in SPREAD] if point["run"] else ["–"] * 3
        rows.append((*_values(point, names), *took))
    return table((*names, *SPREAD), rows)


def _memory(document: Record) -> RenderableType:
    names = _names(document)
    rows = []
    for point in document["points"]:
        run, capture = point["run"], point["capture"]
        before = format_bytes(run["rss_before"]["middle"]) if run else "–"
        held = [format_bytes(run["rss_peak"][which]) for which in SPREAD] if run else ["–"] * 3
        rows.append((*_values(point, names), before, *held, format_bytes(capture["rss"]) if capture else "–"))
    return table((*names, "before the model", *SPREAD, "of the capture"), rows)


def _names(document: Record) -> tuple[str, ...]:
    return tuple(document["points"][0]["parameters"])


def _values(point: Record, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{point['parameters'][name]:,}" for name in names)


def _name(point: Record) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in point["parameters"].items()) or "the only point"


def _verdict(document: Record) -> str | None:
    if document["fits"] is False:
        failed = [_name(point) for point in document["points"] if point["prediction"] and not point["prediction"]["fits"]]
        return f"It does not fit at {'; '.join(failed)}."
    if document["fits"] is None:
        return "Whether every point fits cannot be told: one has no prediction, and no other figure stands in for it."
    return None if document["card"]["capacity"] is None else "Every point is predicted to fit."
