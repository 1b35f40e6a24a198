"""Tables of ``lifecycle-sim schedule``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import counted, duration, facts, format_bytes, format_exact, heading, share_of, shown, stacked, table
from lifecycle_sim.output.tables_what_if import short

MOST_RANKS = 32
FIRST_RANKS = 16
MOST_STAGES = 6


def tables(document: Record) -> Iterator[RenderableType]:
    """One schedule with its ranks, or several side by side."""
    yield from _several(document) if "rows" in document else _one(document)


def _title(document: Record, what: str) -> Text:
    source = document["source"]
    parts = [what, *dict.fromkeys(shown(text) for text in (source["name"], source["title"]) if text), source["evidence"]]
    return heading(" · ".join(parts))


def _one(document: Record) -> Iterator[RenderableType]:
    made = document["schedule"]
    chunks = f", {made['chunks']} chunks a rank" if made["chunks"] > 1 else ""
    batches = "micro-batch" if made["microbatches"] == 1 else "micro-batches"
    what = f"{made['name']}, {counted(made['ranks'], 'rank')}, {made['microbatches']:,} {batches}{chunks}"
    yield stacked(
        _title(document, what),
        facts(_facts(document)),
        _ranks(document),
        _lists(document),
        _assumed(document),
    )


def _facts(document: Record) -> Iterator[tuple[str, str]]:
    clock, made, work = document["source"]["clock"], document["schedule"], document["work"]
    whole = work + document["idle"]
    yield "makespan", duration(document["makespan"], clock)
    yield "work", f"{duration(work, clock)} of all ranks, {counted(made['actions'], 'action')}"
    gaps = f"; between a rank's first action and its last at most {duration(document['gaps'], clock)}"
    yield "bubble", f"{share_of(document['idle'], whole)}, {duration(document['idle'], clock)} in which ranks are idle{gaps}"
    if document["communication"]:
        yield "communication", f"{duration(document['communication'], clock)} from a rank to another, beside the work"
    yield "in flight", _in_flight(document)
    if document["peak"] is not None:
        yield "peak", _peak(document)
    if document["capacity"] is not None:
        yield "capacity", _capacity(document)
    if document["largest"] is not None:
        yield "largest", _largest(document["largest"])
    if document["written"]:
        yield "written to", shown(document["written"])


def _in_flight(document: Record) -> str:
    unit = "micro-batches" if document["schedule"]["chunks"] == 1 else "micro-batches, each chunk's counted apart,"
    ranks = document["ranks"]
    most = max(rank["in_flight"] for rank in ranks)
    first = next(rank["rank"] for rank in ranks if rank["in_flight"] == most)
    told = f"at most {most:,} {unit} on rank {first}"
    if document["schedule"]["splits"]:
        told += f"; {max(rank['in_flight_input'] for rank in ranks):,} until the input's gradient is done"
    return told


def _peak(document: Record) -> str:
    rank = document["ranks"][document["binding"]]
    clock, at = document["source"]["clock"], rank["peak"]
    when = "throughout" if at["action"] is None else f"in {at['action']}, from {duration(at['time'], clock)} on"
    return f"{format_exact(document['peak'])} {document['basis']}, simulated, on rank {rank['rank']} {when}"


def _capacity(document: Record) -> str:
    capacity, over = document["capacity"], document["capacity"]["overflow"]
    verdict = "nothing to compare" if over is None else f"does not fit, by {format_exact(over)}" if over else "fits"
    return f"{format_exact(capacity['bytes'])}, {_whose(capacity)}: {verdict}"


def _whose(capacity: Record) -> str:
    return {"given": "as given", "costs": "as the costs say", "card": "of the card"}[capacity["from"]]


def _largest(found: Record) -> str:
    size, at, above = found["size"], found["at"], found["above"]
    if size < 0:
        return "none: what is there throughout does not fit"
    if size == 0:
        return f"none: a micro-batch of 1 takes {format_exact(above['bytes'])} on rank {above['rank']}"
    over = f"; {above['size']:,} would take {format_bytes(above['bytes'])}" if above else ", the most that was allowed"
    told = f"a micro-batch of {size:,}, with {format_exact(at['bytes'])} on rank {at['rank']}{over}"
    return f"{told} ({counted(len(found['probes']), 'probe')})"


def _ranks(document: Record) -> RenderableType:
    ranks, sized, clock = document["ranks"], document["peak"] is not None, document["source"]["clock"]
    told = ranks if len(ranks) <= MOST_RANKS else [*ranks[:FIRST_RANKS], *ranks[-FIRST_RANKS:]]
    headers = ["rank", "stages", "in flight", *(["peak", "average", "throughout"] if sized else []), "busy", "gaps"]
    rows = []
    for rank in told:
        stages = ", ".join(map(str, rank["stages"][:MOST_STAGES])) + (" …" if len(rank["stages"]) > MOST_STAGES else "")
        cells = [f"{rank['rank']:,}", stages, f"{rank['in_flight']:,}"]
        if sized:
            cells += [short(rank["peak"]["bytes"]), short(rank["average"]), short(rank["static"])]
        cells += [share_of(rank["busy"], document["makespan"]), duration(rank["gaps"], clock)]
        rows.append(cells)
    left = len(ranks) - len(told)
    return stacked(
        heading("Ranks" + (f", {document['basis']} bytes, simulated" if sized else "")),
        table(headers, rows),
        Text(f"{left:,} ranks between them are left out") if left else None,
    )


def _lists(document: Record) -> RenderableType | None:
    if document["lists"] is None:
        return None
    return stacked(heading("Actions"), facts((f"rank {rank}", actions) for rank, actions in enumerate(document["lists"])))


def _assumed(document: Record) -> RenderableType | None:
    lines = document["assumptions"]
    return stacked(heading("Assumed"), facts(("·", shown(line, 400)) for line in lines)) if lines else None


def _several(document: Record) -> Iterator[RenderableType]:
    rows = document["rows"]
    same = {key: len({row[key] for row in rows}) == 1 for key in ("ranks", "microbatches")}
    first = rows[0]
    what = "schedules"
    what += f", {first['ranks']} ranks" if same["ranks"] else ""
    what += f", {first['microbatches']} micro-batches" if same["microbatches"] else ""
    yield stacked(
        _title(document, what),
        facts(_limits(document)),
        _table(document, same),
        _twins(document),
        _refused(document),
        _assumed(document),
    )


def _limits(document: Record) -> Iterator[tuple[str, str]]:
    clock = document["source"]["clock"]
    if (work := _same_work(document)) is not None:
        yield "work", f"{duration(work, clock)} of all ranks, in every schedule"
    if document["communication"]:
        yield "communication", f"{duration(document['communication'], clock)} from a rank to another, beside the work"
    if document["capacity"] is not None:
        yield "capacity", f"{format_exact(document['capacity']['bytes'])}, {_whose(document['capacity'])}"
    if document["written"]:
        yield "written to", shown(document["written"])


def _same_work(document: Record) -> int | None:
    """The work of all schedules, if it is the same."""
    found = {row["result"]["work"] for row in document["rows"] if row["result"] is not None}
    return found.pop() if len(found) == 1 else None


def _table(document: Record, same: dict[str, bool]) -> RenderableType | None:
    clock, sized = document["source"]["clock"], document["basis"] is not None
    judged = sized and document["capacity"] is not None
    headers = ["schedule", *([] if same["ranks"] else ["ranks"]), *([] if same["microbatches"] else ["micro-batches"]), "chunks"]
    alike = _same_work(document) is not None
    headers += ["makespan", *([] if same["microbatches"] else ["of each"]), *([] if alike else ["work"]), "bubble", "in flight"]
    headers += ["peak", "rank", "average"] if sized else []
    headers += ["fits"] if judged else []
    made = []
    for row in document["rows"]:
        came = row["result"]
        if came is None:
            continue
        cells = [row["name"]]
        cells += [] if same["ranks"] else [f"{row['ranks']:,}"]
        cells += [] if same["microbatches"] else [f"{row['microbatches']:,}"]
        cells += [f"{row['chunks']}", duration(came["makespan"], clock)]
        cells += [] if same["microbatches"] else [_each(came["makespan"], row["microbatches"], clock)]
        cells += [] if alike else [duration(came["work"], clock)]
        cells += [share_of(came["idle"], came["idle"] + came["work"])]
        cells += [_flying(came["in_flight"], row["chunks"])]
        cells += [short(came["peak"]), str(came["binding"]), short(came["average"])] if sized else []
        cells += ["yes" if came["fits"] else "no"] if judged else []
        made.append(cells)
    if not made:
        return None
    notes = [] if same["microbatches"] else ["Of each is the makespan divided by the micro-batches."]
    if any(row["chunks"] > 1 for row in document["rows"]):
        notes.append("In flight counts a micro-batch in one of v chunks as 1/v.")
    notes += [f"Peak and average are {document['basis']} bytes, simulated, of the rank that binds."] if sized else []
    return stacked(table(headers, made, left=("schedule", "fits")), Text(" ".join(notes)) if notes else None)


def _each(makespan: int, microbatches: int, clock: str) -> str:
    return duration(makespan // microbatches, clock) if clock == "ns" else f"{makespan / microbatches:,.4g} ticks"


def _flying(count: int, chunks: int) -> str:
    """Micro-batches in flight, of chunks in all of them."""
    return f"{count / chunks:,.4g}"


def _twins(document: Record) -> Text | None:
    """Say so of the two schedules of equal makespan and work whose peaks differ most."""
    key = "peak" if document["basis"] is not None else "in_flight"
    groups: dict[tuple[int, ...], list[Record]] = {}
    for row in document["rows"]:
        if (came := row["result"]) is not None:
            groups.setdefault((row["ranks"], row["microbatches"], row["chunks"], came["makespan"], came["work"]), []).append(row)
    apart = [
        (max(group, key=lambda row: row["result"][key]), min(group, key=lambda row: row["result"][key]))
        for group in groups.values()
        if len({row["result"][key] for row in group}) > 1
    ]
    if not apart:
        return None
    most, least = max(apart, key=lambda pair: pair[0]["result"][key] / max(1, pair[1]["result"][key]))
    times = most["result"][key] / max(1, least["result"][key])
    return Text(
        f"{most['name']} and {least['name']} take the same time and do the same work, and at its peak {most['name']} holds "
        f"{times:.3g} times as much: neither time nor work tells the peak."
    )


def _refused(document: Record) -> RenderableType | None:
    rows = [
        (f"p={row['ranks']} m={row['microbatches']} v={row['chunks']}", shown(row["why_not"], 300))
        for row in document["rows"]
        if row["why_not"] is not None
    ]
    return stacked(heading("Not possible"), facts(rows)) if rows else None
