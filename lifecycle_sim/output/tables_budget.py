"""Tables of ``lifecycle-sim budget``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import counted, facts, format_bytes, format_exact, heading, shown, stacked, table
from lifecycle_sim.output.tables_budget_costs import allocations, candidates, experiment, time_of, work_of
from lifecycle_sim.units import format_gb


def tables(document: Record) -> Iterator[RenderableType]:
    """The chain from parameters to time, each part that is there."""
    source = document["source"]
    yield stacked(heading(f"{source['name']} · {shown(source['title'])}"))
    if document["opening"]:
        yield stacked(facts(_opening(document["opening"])))
    if document["weight_file"]:
        yield stacked(heading("The file of weights"), facts(_weight_file(document["weight_file"], document.get("compared", document))))
    states = document["states"]
    if len(states) == 1:
        yield stacked(heading(f"{_capital(states[0]['name'])}, payload"), _states(states[0]), facts(_totals(states[0])))
    elif states:
        yield stacked(heading("Recipes, payload"), _compared(states))
    if document["memory"]:
        yield stacked(heading(f"A step, {document['memory']['evidence']}"), facts(_memory(document["memory"])))
    if document["largest_batch"]:
        yield stacked(heading("Largest micro-batch"), facts(_largest(document["largest_batch"])))
    if document["work"] and (document["work"]["flops"] or document["work"]["step"]):
        yield stacked(heading("Operations"), facts(work_of(document)))
    if document["time"]:
        yield stacked(heading("Time"), facts(time_of(document["time"])))
    if document["allocations"]:
        yield stacked(heading("Compute-optimal by published fits"), *allocations(document["allocations"]))
    if document["candidates"]:
        yield stacked(*candidates(document))
    if document["experiment"]:
        yield stacked(*experiment(document["experiment"]))
    if document["missing"]:
        rows = [(each["name"], each["text"]) for each in document["missing"]]
        yield stacked(heading("To be measured before anything is promised"), facts(rows))
    if document["not_counted"]:
        yield stacked(heading("Not counted"), facts((each["name"], each["text"]) for each in document["not_counted"]))


def _capital(text: str) -> str:
    return shown(text[:1].upper() + text[1:])


def _opening(opening: Record) -> Iterator[tuple[str, str]]:
    frozen = opening["frozen"]
    yield "mode", opening["mode"]
    meaning = f": {opening['definition_text']}" if opening["definition"] else ""
    yield "N", f"{opening['parameters']:,}, {opening['trainable']:,} of them trained{meaning}"
    yield "D", "not told" if opening["tokens"] is None else f"{opening['tokens']:,} tokens to be processed"
    sizes = [f"{name} = {opening[key]:,}" for name, key in (("B", "batch"), ("T", "sequence")) if opening[key] is not None]
    yield "B, T", ", ".join(sizes) or ("as the file has them" if opening["from_file"] else "not told")
    yield "types", ", ".join(f"{each['what']} {each['type']}" for each in opening["types"]) or "none"
    yield "optimizer", opening["optimizer"]
    if frozen["count"]:
        left = frozen["count"] - len(frozen["shown"])
        yield "frozen", ", ".join(shown(name) for name in frozen["shown"]) + (f" and {left:,} more" if left else "")
    else:
        yield "frozen", "nothing" if opening["mode"] == "training" else "everything"
    yield "sharding", opening["sharding"]


def _weight_file(found: Record, document: Record) -> Iterator[tuple[str, str]]:
    yield "header", f"{counted(found['tensors'], 'tensor')} of {', '.join(found['types'])}, {found['elements']:,} elements"
    yield "size", f"{format_exact(found['file_bytes'])} with its header"
    states, memory = document["states"], document["memory"]
    if states:
        total = states[0]["total"]
        yield (
            "with states",
            f"{format_exact(total)} payload, {_times(total, found['file_bytes'])} that, once the optimizer has made its states",
        )
    if memory:
        peak = memory["peak"]
        yield "in a step", f"{format_exact(peak)} {memory['basis']}, {_times(peak, found['file_bytes'])} that, at its peak"


def _times(size: int, whole: int) -> str:
    return f"{size / whole:.2f} times" if whole else "–"


def _states(states: Record) -> RenderableType:
    rows = [
        (row["name"], f"{row['bytes']:,}", format_gb(row["bytes"]), format_bytes(row["bytes"]), row["formula"]) for row in states["rows"]
    ]
    total = states["total"]
    rows.append(("together", f"{total:,}", format_gb(total), format_bytes(total), ""))
    return table(("", "bytes", "decimal", "binary", "formula"), rows, left=("", "formula"), total=True)


def _totals(states: Record) -> Iterator[tuple[str, str]]:
    before, total = states["before_first_step"], states["total"]
    if before != total:
        yield "before step 1", f"{format_exact(before)}: the optimizer makes {format_exact(total - before)} in its first step"
    if states["counters"]:
        yield "counters", f"{states['counters']:,} B of scalars on the host, apart from the total"
    for note in states["notes"]:
        yield "checked", note


def _compared(all_states: list[Record]) -> RenderableType:
    rows = []
    for states in all_states:
        parts = dict.fromkeys(("parameter", "gradient", "optimizer_state"), 0)
        for row in states["rows"]:
            parts[row["category"]] = parts.get(row["category"], 0) + row["bytes"]
        each = f"{states['total'] / states['parameters']:.4g} B" if states["parameters"] else "–"
        rows.append(
            (shown(states["name"]), *(format_gb(parts[name]) for name in parts if name != "buffer"), format_gb(states["total"]), each)
        )
    return table(("recipe", "weights", "gradients", "states", "together", "a parameter"), rows, left=("recipe",))


def _memory(memory: Record) -> Iterator[tuple[str, str]]:
    basis = memory["basis"]
    yield "states", format_exact(memory["states"])
    if memory["activations"] is not None:
        most = memory["most_activations"]
        later = "" if most == memory["activations"] else f"; {format_exact(most)} at most in the step"
        yield "activations", f"{format_exact(memory['activations'])} kept for backward{later}"
    if memory["evidence"] == "simulated":
        yield "temporaries", f"{format_exact(memory['temporaries'])}: inputs, workspaces, short-lived results"
    where = f", in {shown(memory['inside'])}" if memory["inside"] else ""
    yield "peak", f"{format_exact(memory['peak'])} {basis}{where}"
    if memory["first_step"] is not None and memory["first_step"] != memory["peak"]:
        yield "first step", f"{format_exact(memory['first_step'])} {basis}: the optimizer's states are not there yet"
    if memory["reserved"] is not None:
        yield "reserved", f"{format_exact(memory['reserved'])} by the allocator's model"
    yield "margin", format_exact(memory["margin"])
    if memory["capacity"] is not None:
        left = memory["capacity"] - memory["needed"]
        told = f"fits, {format_exact(left)} left" if memory["fits"] else f"does not fit: {format_exact(-left)} too much"
        if memory["activations"] is None and memory["fits"]:
            told = f"states alone leave {format_exact(left)}; activations are not told"
        yield "capacity", f"{format_exact(memory['capacity'])}: {told}"


def _largest(largest: Record) -> Iterator[tuple[str, str]]:
    yield "batch", "not known" if largest["batch"] is None else f"{largest['batch']:,}"
    yield "because", shown(largest["text"])
    yield "checked", largest["verified"]
