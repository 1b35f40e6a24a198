"""Why memory ran out, for people: the answer in sentences, then what was free and what would have helped."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import facts, format_bytes, format_exact, handle, heading, stacked, table
from lifecycle_sim.output.tables_device import assumptions_table
from lifecycle_sim.output.tables_what_if import CAPACITY_FROM

SHOWN_PIECES = 5


def why_tables(device: Record) -> Iterator[RenderableType]:
    """The answer, the figures, the free pieces, and what would have made it fit."""
    found = device["why"]
    yield heading(f"{device['device']} · {device['events']:,} events")
    if found["fits"]:
        yield stacked(Text(_all_met(found)), assumptions_table(found))
        return
    yield stacked(
        Text(story(found)),
        facts(_figures(found)),
        _free(found["free"]),
        stacked(heading("What would have made it fit"), _remedies(found["remedies"])),
        assumptions_table(found),
    )


def story(found: Record) -> str:
    """The answer in a few sentences."""
    failure, free = found["failure"], found["free"]
    where = "before the window" if failure["event"] < 0 else f"at event {failure['event']:,}"
    asked = f"Memory ran out {where}: asked for {format_exact(failure['requested'])}"
    if failure["segment"] != failure["requested"]:
        asked += f' (PyTorch says "Tried to allocate {format_bytes(failure["segment"])}", the segment it would have had to get)'
    usable = [each for each in free["places"] if each["usable"]]
    largest = usable[0]["largest"] if usable else 0
    pieces = f"{format_bytes(free['bytes'])} was free in {free['count']:,} pieces" if free["count"] else "nothing held was free"
    if free["count"]:
        pieces += (
            f", the largest on its stream and in its pool {format_exact(largest)}"
            if largest
            else ", none of them on its stream and in its pool"
        )
    left = f"the device had {format_bytes(failure['device_free'])} left of {format_bytes(found['capacity'])}"
    kind = (
        "There was enough in all, but not in one piece." if free["enough_in_all"] else "There was not enough in all, whatever the pieces."
    )
    helped = [each for each in found["remedies"] if each["fits"] and each["means"] in ("settings", "flush")]
    control = [each for each in found["remedies"] if each["means"] == "start" and each["fits"]]
    met = [each for each in found["remedies"] if each["met"] and not each["fits"] and each["means"] in ("settings", "flush")]
    if control:
        then = "Settings cannot be told apart here: the recorded ones fit too when they begin as other settings must."
    elif helped:
        then = f"With {_names(helped)} it would have fitted."
    elif met:
        then = f"With {_names(met)} this request would have been met, but not all that follow."
    else:
        then = "No other setting that was tried would have met it."
    return f"{asked}; {pieces}; {left}. {kind} {then} {_amounts(found['remedies'])}".strip()


def _names(remedies: list[Record]) -> str:
    names = [each["name"] for each in remedies]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _amounts(remedies: list[Record]) -> str:
    parts = [f"with {format_bytes(each['bytes'])} more of the device" for each in remedies if each["means"] == "capacity" and each["met"]][
        :1
    ]
    less = [each for each in remedies if each["means"] == "smaller request" and each["met"]]
    parts += [f"for a request of {format_exact(each['total'])}, {format_exact(each['bytes'])} less" for each in less]
    return f"It would have been met {', or '.join(parts)}." if parts else ""


def _all_met(found: Record) -> str:
    came = found["until_then"]
    room = found["capacity"] - came["peak_reserved"]["bytes"]
    return (
        f"Nothing fails: the reserved peak of {format_exact(came['peak_reserved']['bytes'])} leaves {format_exact(room)} "
        f"of {format_exact(found['capacity'])}; {came['num_alloc_retries']:,} retries."
    )


def _figures(found: Record) -> Iterator[tuple[str, str]]:
    failure = found["failure"]
    yield "rules", f"PyTorch {found['release']}, {found['options'] or 'default settings'}, begun {found['start']}"
    yield "capacity", f"{format_exact(found['capacity'])}, {CAPACITY_FROM[found['capacity_from']]}"
    rounded = " (rounded, as the recording tells it)" if failure["failed_in_recording"] else ""
    yield "asked for", f"{format_exact(failure['requested'])}{rounded}"
    yield "block", format_exact(failure["rounded"])
    yield "segment", format_exact(failure["segment"])
    pool = "" if failure["pool"] == [0, 0] else f" of pool {tuple(failure['pool'])}"
    yield "for", f"the {'small' if failure['small'] else 'large'} pool{pool} on the stream {handle(failure['stream'])}"
    yield "reserved", f"{format_exact(failure['reserved'])}, after {format_exact(failure['given_back'])} were given back in the attempt"
    yield "allocated", format_exact(failure["allocated"])
    if failure["active"] != failure["allocated"]:
        yield "awaiting free", format_exact(failure["active"] - failure["allocated"])
    yield "left on device", format_exact(failure["device_free"])
    if failure["limit"] is not None:
        yield "memory limit", format_exact(failure["limit"])


def _free(free: Record) -> RenderableType | None:
    if not free["count"]:
        return None
    rows = []
    for each in free["places"]:
        pool = "" if each["pool"] == [0, 0] else f" of {tuple(each['pool'])}"
        place = f"{'small' if each['small'] else 'large'}{pool}"
        can = "yes" if each["usable"] else "no"
        rows.append((place, handle(each["stream"]), format_exact(each["bytes"]), f"{each['count']:,}", format_bytes(each["largest"]), can))
    made = table(("pool", "stream", "free", "pieces", "largest", "usable"), rows, left=("pool", "stream", "usable"))
    largest = ", ".join(format_bytes(size) for size in free["largest"][:SHOWN_PIECES])
    return stacked(heading("Free pieces"), made, Text(f"the largest of all: {largest}"))


def _remedies(remedies: list[Record]) -> RenderableType:
    rows = []
    for each in remedies:
        name = each["name"]
        if each["means"] == "capacity":
            name = f"{format_exact(each['bytes'])} {name}"
        elif each["total"] is not None:
            name = f"a request of {format_exact(each['total'])}"
        whole = {True: "yes", False: "no", None: "not tried"}[each["fits"]]
        if each["failure"] is not None:
            whole = f"no, event {each['failure']['event']:,}"
        rows.append((name, "yes" if each["met"] else "no", whole))
    return table(("with", "request met", "all met"), rows, left=("with", "request met", "all met"))
