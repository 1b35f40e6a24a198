"""Tables of ``lifecycle-sim whatif``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import facts, format_bytes, format_exact, heading, share_of, shown, stacked, table, title
from lifecycle_sim.output.tables_ladder import dropped_tables, ladder_tables, scenario_tables
from lifecycle_sim.units import format_duration

MOST_NAMED = 6
OTHERS = {"rungs": ladder_tables, "approximation": dropped_tables, "ranges": scenario_tables}
"""Other questions, by a key that their devices alone have."""


def tables(document: Record) -> Iterator[RenderableType]:
    """What is recomputed, the levels beside those of the base, what binds, the cost, what changes, and the notes."""
    for device in document["devices"]:
        other = next((made for key, made in OTHERS.items() if key in device), None)
        if other is not None:
            yield other(document, device)
            continue
        yield stacked(
            title(document),
            facts(_plan(device, document["written"])),
            _levels(device),
            _binding(device),
            _cost(device),
            _categories(device),
            _changes(device),
            _notes(device),
            _verdict(device),
        )


def _plan(device: Record, written: str | None) -> Iterator[tuple[str, str]]:
    plan = device["recomputed"]
    modules = plan["modules"]
    named = ", ".join(shown(module) for module in modules[:MOST_NAMED]) + (" …" if len(modules) > MOST_NAMED else "")
    for edit in device["edits"]:
        yield "edited", shown(edit)
    if modules:
        yield "recomputed", f"{plan['calls']:,} calls of {len(modules):,} modules: {named}"
        yield "early stop", "at the last tensor needed" if plan["early_stop"] else "off: each call runs to its end"
    if plan["saved_operators"]:
        yield "saved all the same", ", ".join(plan["saved_operators"])
    yield from _exchanged(device)
    if written is not None:
        yield "written to", shown(written)


def _exchanged(device: Record) -> Iterator[tuple[str, str]]:
    told, copied = device["communication"], device["transfers"]
    if told is not None:
        yield "gathered", f"{told['gathers']:,} tensors, {format_exact(told['gathered'])} received"
        yield "reduced", f"{told['reductions']:,} gradients, {format_exact(told['reduced'])} sent"
    if copied is not None:
        yield "on the host", f"{copied['tensors']:,} tensors, at most {format_exact(copied['host_peak'])}"
        yield "copied", f"{format_exact(copied['sent'])} there, {format_exact(copied['fetched'])} back"
        whole, bare = (format_duration(copied[key] // 1000 * 1000) for key in ("makespan", "compute"))
        yield "not hidden", f"{format_duration(copied['exposed'] // 1000 * 1000)}: {whole} with the copies, {bare} without"


def _edited(device: Record) -> str:
    """What the edited step is called: recomputed, if that is all."""
    return "edited" if device["edits"] else "recomputed"


def _levels(device: Record) -> RenderableType:
    rows: list[tuple[str, ...]] = []
    upper = device["upper"]
    for row in device["levels"]:
        before, after = row["base"]["peak"], row["edited"]["peak"]
        rows.append((row["level"], format_exact(before), format_exact(after), _change(before, after)))
        if row["level"] == "requested" and upper["edited"] > after:
            rows.append(("at most", format_exact(upper["base"]), format_exact(upper["edited"]), ""))
    return stacked(
        heading(f"Peak of {device['step']}, simulated"), table(("level", "as captured", _edited(device), "change"), rows, left=("level",))
    )


def _change(before: int, after: int) -> str:
    if before == after:
        return "none"
    sign = "+" if after > before else "−"
    part = share_of(abs(after - before), before) if before else ""
    return f"{sign}{format_bytes(abs(after - before))}  {sign}{part.strip()}"


def _binding(device: Record) -> RenderableType:
    rows = [(shown(row["owner"]), format_exact(row["bytes"])) for row in device["binding"]["holders"]]
    return stacked(
        heading("What binds, requested bytes"),
        Text(f"{device['why']} (event {device['binding']['event']:,})."),
        table(("held there by", "bytes"), rows, left=("held there by",)),
    )


def _cost(device: Record) -> RenderableType:
    step, again = device["cost"]["step"], device["cost"]["again"]
    rows = [
        ("operators", f"{step['operators']:,}", f"{again['operators']:,}", _part(again["operators"], step["operators"])),
        ("FLOPs", f"{step['flops']:,}", f"{again['flops']:,}", _part(again["flops"], step["flops"])),
        ("bytes moved", format_bytes(step["moved"]), format_bytes(again["moved"]), _part(again["moved"], step["moved"])),
    ]
    if step["nanoseconds"] is not None and again["nanoseconds"] is not None:
        name = "time, at least" if device["cost"]["lower_bound"] else "time, as given"
        rows.append(
            (
                name,
                _milliseconds(step["nanoseconds"]),
                _milliseconds(again["nanoseconds"]),
                _part(again["nanoseconds"], step["nanoseconds"]),
            )
        )
    return stacked(heading("Cost"), table(("of the step", "as captured", "runs again", "more"), rows, left=("of the step",)))


def _part(more: int, whole: int) -> str:
    return f"+{100 * more / whole:.1f} %" if whole else ""


def _milliseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:,.3f} ms"


def _categories(device: Record) -> RenderableType:
    rows = [(row["category"], format_exact(row["base"]), format_exact(row["edited"])) for row in device["categories"]]
    return stacked(heading("At the peak of each"), table(("category", "as captured", _edited(device)), rows, left=("category",)))


def _changes(device: Record) -> RenderableType:
    rows = []
    for row in device["changes"]:
        if not row["base"] and not row["edited"]:
            continue
        pair = [format_bytes(row[key]) if row["unit"] == "B" else f"{row[key]:,}" for key in ("base", "edited")]
        rows.append((row["what"], *pair, "changes" if row["base"] != row["edited"] else "stays"))
    return stacked(
        heading("What changes, and what does not"), table(("what", "as captured", _edited(device), "it"), rows, left=("what", "it"))
    )


def _notes(device: Record) -> RenderableType | None:
    return stacked(heading("Notes"), Text("\n".join(device["notes"]))) if device["notes"] else None


def _verdict(device: Record) -> Text | None:
    if not device["out_of_memory"]:
        return None
    failed = device["out_of_memory"][0]
    return Text(f"It does not fit: memory ran out at a request of {format_exact(failed['bytes'])}; what follows was not replayed.")
