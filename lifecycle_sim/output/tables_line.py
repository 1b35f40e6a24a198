"""Tables of ``lifecycle-sim line``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.line_words import Words, rounded
from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import counted, facts, heading, share_of, shown, stacked, table

MODES = {
    "line": "a line to compare with; nothing waits for it",
    "block": "it blocks: items wait until there is room",
}
ORDER = "at one instant, what ends makes room for what begins"
ESTIMATES = {"above_capacity": "time above capacity", "items_in_line": "items in line", "total_work": "total work"}


def tables(document: Record) -> Iterator[RenderableType]:
    """The rules, then one line in figures, or several side by side."""
    source, rows = document["source"], document["rows"]
    told = Words(source["unit"], source["clock"])
    yield heading(f"{source['name']} · line of {counted(document['rules']['stages'], 'stage')} · {source['evidence']}")
    yield stacked(facts(_rules(document["rules"], rows[0], told)))
    if len(rows) == 1:
        yield from _one(rows[0], document["rules"], told)
    else:
        yield from _several(document, told)


def _rules(rules: Record, row: Record, told: Words) -> Iterator[tuple[str, str]]:
    if rules["title"]:
        yield "scenario", shown(rules["title"], 300)
    if rules["parameters"]:
        yield "parameters", ", ".join(f"{name} = {value:,}" for name, value in rules["parameters"].items())
    yield "order", ORDER
    if row["capacity"]["amount"] is not None:
        yield "capacity", f"{told.exact(row['capacity']['amount'])}; {MODES[rules['capacity_mode']]}"
    elif any(stage["capacity"]["amount"] is not None for stage in row["stages"]):
        yield "capacity", f"of stages; {MODES[rules['capacity_mode']]}"
    if rules["random"]:
        yield "drawn", f"with seed {rules['seed']}, {counted(rules['replications'], 'run')}"
    if rules["coarse"]:
        named = ", ".join(shown(name, 40) for name in rules["coarse"])
        yield (
            "rounded",
            f"to whole {'ticks' if told.clock == 'tick' else 'ns'}, which shows in the short times of {named}: use a finer unit",
        )


def _one(row: Record, rules: Record, told: Words) -> Iterator[RenderableType]:
    if row["deadlock"] is not None:
        yield _deadlock(row["deadlock"], told)
    yield heading("The first run" if row["replications"] > 1 else "The run")
    yield stacked(facts(_levels(row, told)))
    yield stacked(heading(f"Stages, from {told.time(row['window']['begin'])} to {told.time(row['window']['end'])}"), _stages(row, told))
    if row["ways"]:
        ways = [(shown(way["name"]), told.short(way["peak"]), told.short(way["mean"])) for way in row["ways"]]
        yield stacked(heading("On the way"), table(("between", "peak", "average"), ways, left=("between",)))
    yield _present(row["peak"], told)
    if row["estimates"]:
        yield _estimates(row, told)
    yield _verdict(row, told)


def _levels(row: Record, told: Words) -> Iterator[tuple[str, str]]:
    items, peak, average = row["items"], row["peak"], row["average"]
    lost = f", {items['lost']:,} lost" if items["lost"] else ""
    yield "items", f"{items['finished']:,} of {items['coming']:,} went through{lost}, in {told.time(row['makespan'])}"
    yield "peak", f"{told.exact(peak['amount'])} ({told.basis}), at {told.time(peak['time'])}"
    times = f"; the peak is {peak['amount'] * average['span'] / average['area']:,.1f} times that" if average["area"] else ""
    if not average["span"] and row["makespan"]:
        yield "average", "none: the warm-up is as long as the run"
    else:
        yield "average", f"{told.mean(average)} over {told.time(average['span'])}{times}"
    yield "total work", told.work(row["total_work"])
    inside = row["items_in_line"]
    if told.unit != "item":
        yield "items in line", f"{inside['peak']:,} at most, {rounded(inside['mean'])} on average"
    if row["makespan"]:
        whole = row["window"] == {"begin": 0, "end": row["makespan"]}
        yield "throughput", told.rate(row["throughput"]["rate"]) + ("" if whole else f" over all of the {told.time(row['makespan'])}")
    if row["residence"]["count"]:
        yield "residence", _spread(row["residence"], told)
    if row["outside"]["total"]:
        yield "outside", f"{_spread(row['outside'], told)}, waiting to enter"
    if average["span"]:
        yield "bubble", f"{100 * row['bubble']:.1f} % of the machines' time is no work"
    if row["capacity"]["overflow"]:
        yield "overflow", f"{told.exact(row['capacity']['overflow'])} above the capacity, {told.time(row['capacity']['above'])} in all"


def _spread(times: Record, told: Words) -> str:
    if times["least"] == times["most"]:
        return f"{told.time(times['most'])} each"
    return (
        f"{told.time(times['mean'])} on average, from {told.time(times['least'])} to {told.time(times['most'])}; "
        f"half of them {told.time(times['median'])} or less, 95 % {told.time(times['high'])} or less"
    )


def _stages(row: Record, told: Words) -> RenderableType:
    """One row a stage; columns that would say nothing are left out."""
    stages = row["stages"]
    span = row["window"]["end"] - row["window"]["begin"]
    kept = [key for key in ("working", "setup", "repair", "blocked", "idle") if key in ("working", "idle") or any(s[key] for s in stages)]
    limited = any(stage["capacity"]["amount"] is not None for stage in stages)
    waits = any(stage["waiting"]["total"] for stage in stages)
    rows = []
    for stage in stages:
        cells = [shown(stage["name"], 40), f"{stage['machines']:,}", f"{stage['visits']:,}"]
        cells += [share_of(stage[key], stage["machines"] * span) for key in kept]
        cells += [told.short(stage["peak"]), told.short(stage["average"]["mean"])]
        cells += [told.time(stage["waiting"]["mean"])] if waits else []
        cells += _limit(stage["capacity"], told) if limited else []
        rows.append(cells)
    headers = [
        "stage",
        "machines",
        "visits",
        *kept,
        "peak",
        "average",
        *(["wait"] if waits else []),
        *(["capacity", "above"] if limited else []),
    ]
    return table(headers, rows, left=("stage",))


def _limit(capacity: Record, told: Words) -> list[str]:
    """The capacity of a stage, and how far the peak is above it."""
    if capacity["amount"] is None:
        return ["", ""]
    return [told.short(capacity["amount"]), told.short(capacity["overflow"]) if capacity["overflow"] else "–"]


def _present(peak: Record, told: Words) -> RenderableType | Text:
    listed = peak["present"]["shown"]
    if not listed:
        return Text("")
    rows = [
        (shown(each["item"], 40), shown(each["place"], 40), each["what"], told.exact(each["amount"]), told.time(each["since"]))
        for each in listed
    ]
    more = peak["present"]["count"] - len(rows)
    made = table(("item", "at", "what", "occupies", "since"), rows, left=("item", "at", "what"))
    return stacked(heading(f"There at the peak, at {told.time(peak['time'])}"), made, Text(f"and {more:,} more") if more > 0 else None)


def _estimates(row: Record, told: Words) -> RenderableType:
    """Mean and confidence interval of each figure that differs between runs."""
    rows = []
    for name, each in row["estimates"].items():
        if each["least"] == each["most"] == 0:
            continue
        say = _sayer(name, told)
        rows.append((ESTIMATES.get(name, name), say(each["mean"]), f"± {say(each['half_width'])}", say(each["least"]), say(each["most"])))
    made = table(("figure", "mean", "95 %", "least", "most"), rows, left=("figure",))
    return stacked(heading(f"Over {counted(row['replications'], 'run')}"), made)


def _sayer(name: str, told: Words) -> Callable[[float], str]:
    """How the figure called *name* is said."""
    if name in ("peak", "average"):
        return told.short
    if name == "total_work":
        return told.short_work
    if name in ("makespan", "residence", "above_capacity"):
        return told.time
    if name == "throughput":
        return told.rate
    if name == "bubble" or name.startswith("utilisation"):
        return lambda value: f"{100 * value:.2f} %"
    return rounded


def _deadlock(found: Record, told: Words) -> RenderableType:
    inside = counted(found["inside"], "item")
    lines = [f"deadlock at {told.time(found['time'])}: {inside} in the line, {found['outside']:,} outside, and none can go on"]
    for wait in found["cycle"]:
        held_by = ", ".join(map(shown, wait["held_by"]))
        lines.append(f"  {shown(wait['who'])} holds {shown(wait['item'])} and waits for {wait['waits_for']}, held by {held_by}")
    return stacked(Text("\n".join(lines), style="bold red"))


def _verdict(row: Record, told: Words) -> Text:
    capacity = row["capacity"]
    if row["deadlock"] is not None or row["deadlocks"]:
        of = f" in {row['deadlocks']:,} of {row['replications']:,} runs" if row["replications"] > 1 else ""
        return Text(f"deadlocked{of}: more room, or fewer items at once, would let it go on", style="bold red")
    if capacity["fits"] is None:
        return Text("")
    if capacity["fits"]:
        return Text("fits", style="bold green")
    often = f" in {row['unfit']:,} of {row['replications']:,} runs" if row["replications"] > 1 else ""
    return Text("\n".join((f"does not fit{often}{_excess(row, told)}", *row["too_small"])), style="bold red")


def _excess(row: Record, told: Words) -> str:
    """By how much the run that is told of is above its capacities; nothing if another run is."""
    of = "in the first " if row["replications"] > 1 else ""
    if row["capacity"]["overflow"]:
        return f": {of}{told.exact(row['capacity']['overflow'])} too much"
    above = [shown(stage["name"], 40) for stage in row["stages"] if stage["capacity"]["overflow"]]
    return f": {of}{', '.join(above)} {'is' if len(above) == 1 else 'are'} above capacity" if above else ""


def _several(document: Record, told: Words) -> Iterator[RenderableType]:
    """Lines side by side: the figures that can be compared, and what they show about each other."""
    rows = document["rows"]
    judged = any(row["capacity"]["fits"] is not None for row in rows)
    outside = any(row["outside"]["total"] for row in rows)
    cells = []
    for row in rows:
        made = [_broken(row["name"]), told.short_work(row["total_work"]), told.short(row["average"]["mean"])]
        made += [told.short(row["peak"]["amount"]), told.time(row["makespan"])]
        made += [told.time(row["residence"]["mean"]) if row["residence"]["count"] else "–"]
        made += [told.time(row["outside"]["mean"])] if outside else [told.rate(row["throughput"]["rate"])]
        made += [_answer(row)] if judged else []
        cells.append(made)
    headers = ["line", "total work", "average", "peak", "ran for", "residence", "outside" if outside else "throughput"]
    headers += ["fits"] if judged else []
    runs = rows[0]["replications"]
    note = "First runs of each, with the same draws." if runs > 1 else None
    yield stacked(heading("Side by side"), table(headers, cells, left=("line",)), None if note is None else Text(note))
    if runs > 1:
        yield _estimates_side_by_side(rows, told)
    for row in rows:
        if row["deadlock"] is not None:
            yield stacked(heading(shown(row["name"])), _deadlock(row["deadlock"], told))
    if document["undetermined"]:
        said = "".join(f"\n- {shown(sentence, 300)}" for sentence in document["undetermined"])
        yield stacked(heading("Total work, average and peak"), Text(f"None of the three determines another. Here{said}"))


def _broken(name: str) -> str:
    """A line's name, an edit a line."""
    return shown(name, 120).replace(", ", ",\n")


def _answer(row: Record) -> str:
    fits = row["capacity"]["fits"]
    return "deadlock" if row["deadlock"] else "" if fits is None else "yes" if fits else "no"


def _estimates_side_by_side(rows: list[Record], told: Words) -> RenderableType:
    names = ("peak", "average", "residence")
    cells = []
    for row in rows:
        estimates = row["estimates"]
        said = [f"{_sayer(name, told)(estimates[name]['mean'])} ± {_sayer(name, told)(estimates[name]['half_width'])}" for name in names]
        cells.append([_broken(row["name"]), *said])
    return stacked(heading(f"Over {counted(rows[0]['replications'], 'run')}, 95 %"), table(("line", *names), cells, left=("line",)))
