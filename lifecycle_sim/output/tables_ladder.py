"""Tables of strategies one at a time, of bounds without dropped storages, and of scenarios with recomputed ranges."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import duration, facts, format_bytes, format_exact, heading, shown, stacked, table, title
from lifecycle_sim.units import format_duration

OTHERWISE = " *"
CATEGORIES = 5


def ladder_tables(document: Record, device: Record) -> RenderableType:
    """A row for each rung: levels; then what holds its peak; then what it costs."""
    rungs = device["rungs"]
    names = [shown(rung["added"]) + (OTHERWISE if rung["trains_otherwise"] else "") for rung in rungs]
    levels = [
        (
            name,
            *(format_bytes(rung["peak"][level]) for level in ("requested", "allocated", "reserved")),
            "" if rung["fits"] else "does not fit",
        )
        for name, rung in zip(names, rungs, strict=True)
    ]
    marked = any(rung["trains_otherwise"] for rung in rungs)
    return stacked(
        title(document),
        heading("Peak, each strategy on top of those above, simulated"),
        table(("added", "requested", "allocated", "reserved", ""), levels, left=("added", "")),
        _by_category(names, rungs),
        _costs(names, rungs),
        Text("* changes what is trained, and not only how") if marked else None,
        _notes(rungs),
    )


def _by_category(names: list[str], rungs: list[Record]) -> RenderableType:
    most: dict[str, int] = {}
    for rung in rungs:
        for row in rung["categories"]:
            most[row["category"]] = max(most.get(row["category"], 0), row["bytes"])
    kept = sorted(most, key=lambda key: -most[key])[:CATEGORIES]
    rows = []
    for name, rung in zip(names, rungs, strict=True):
        held = {row["category"]: row["bytes"] for row in rung["categories"]}
        rest = sum(size for key, size in held.items() if key not in kept)
        rows.append((name, *(format_bytes(held.get(key, 0)) for key in kept), format_bytes(rest)))
    headers = ("added", *(key.replace("_", " ") for key in kept), "other")
    return stacked(heading("At the peak of requested bytes, by category"), table(headers, rows, left=("added",)))


def _costs(names: list[str], rungs: list[Record]) -> RenderableType:
    bound = all(rung["lower_bound"] for rung in rungs)
    rows = []
    for name, rung in zip(names, rungs, strict=True):
        cost, exchanged, copied = rung["cost"], rung["communication"], rung["transfers"]
        rows.append(
            (
                name,
                f"{cost['operators']:,}",
                f"{cost['flops'] / 1e9:,.1f} G",
                "" if cost["nanoseconds"] is None else format_duration(cost["nanoseconds"] // 1000 * 1000),
                "" if exchanged is None else format_bytes(exchanged["gathered"] + exchanged["reduced"]),
                "" if copied is None else format_duration(copied["exposed"] // 1000 * 1000),
            )
        )
    time = "time, at least" if bound else "time, as given"
    return stacked(
        heading("Cost of the step"),
        table(("added", "operators", "FLOPs", time, "exchanged", "copies not hidden"), rows, left=("added",)),
    )


def _notes(rungs: list[Record]) -> RenderableType | None:
    notes = dict.fromkeys(note for rung in rungs for note in rung["notes"])
    return stacked(heading("Notes"), Text("\n".join(notes))) if notes else None


def dropped_tables(document: Record, device: Record) -> RenderableType:
    """The bounds, and what they rest on."""
    told, peak = device["approximation"], device["peak"]
    rows = [
        ("as recorded", format_exact(peak["base"])),
        ("at least", format_exact(peak["lower"])),
        ("at most", format_exact(peak["upper"])),
    ]
    text = (
        "An approximation: the recording tells no uses. At least: each storage goes at once and comes back when the first of its region is "
        "freed. At most: it stays to the end of its region and comes back when the region after it is done; each region keeps its largest "
        "tensor, autocast its casts to the end of forward, and what was taken beside them is taken again. A capture of the program gives "
        "the exact answer."
    )
    return stacked(
        title(document),
        facts(
            [
                ("dropped", f"{told['storages']:,} storages, {format_exact(told['bytes'])}, in {told['regions']:,} regions"),
                ("chosen by", ", ".join(map(shown, told["owners"]))),
                ("backward", f"begins with event {told['backward']:,}"),
            ]
        ),
        heading(f"Peak, {device['basis']} bytes"),
        table(("", "bytes"), rows, left=("",)),
        Text(text),
        _verdict(document, device),
    )


def scenario_tables(document: Record, device: Record) -> RenderableType:
    """Both costs side by side, and the ranges."""
    clock = document["source"]["clock"]
    base, edited = device["program"]["base"], device["program"]["edited"]
    rows = [
        ("peak, payload", format_exact(base["peak"]), format_exact(edited["peak"])),
        ("operators", f"{base['operators']:,}", f"{edited['operators']:,}"),
        ("they take together", duration(base["busy"], clock), duration(edited["busy"], clock)),
        ("runs for", duration(base["makespan"], clock), duration(edited["makespan"], clock)),
    ]
    return stacked(
        title(document),
        facts([("scenario", shown(device["title"], 300))] if device["title"] else []),
        heading("What it comes to"),
        table(("", "as it stands", "recomputed"), rows, left=("",)),
        heading("Recomputed"),
        table(("range", "runs again", "before"), _ranges(device), left=("range", "runs again", "before")),
        _verdict(document, device),
    )


def _verdict(document: Record, device: Record) -> Text | None:
    """Whether it fits into the capacity that was given; None without one."""
    if device["capacity"] is None:
        return None
    room, fits = format_exact(device["capacity"]), document["fits"]
    if fits is None:
        return Text(f"whether it fits into {room} cannot be told: that lies between the bounds", style="yellow")
    return Text(f"it fits into {room}", style="green") if fits else Text(f"it does not fit into {room}", style="red")


def _ranges(device: Record) -> Iterator[tuple[str, str, str]]:
    for row in device["ranges"]:
        first, last = row["operators"][0], row["operators"][-1]
        yield (
            shown(first) if first == last else f"{shown(first)} .. {shown(last)}",
            f"{len(row['again'])} of {len(row['operators'])}",
            shown(row["before"]),
        )
