"""Tables about one device: its facts, who holds its bytes, what had to be assumed, whether it fits."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import at_event, duration, facts, format_exact, heading, share_of, shown, signed, stacked, table


def device_facts(device: Record, clock: str) -> Iterator[tuple[str, str]]:
    """The levels of a device, a line each."""
    peak, basis = device["peak"], device["basis"]
    when = at_event(peak["event"])
    if peak["time"] is not None and device["time"] is not None:
        when += f", {moment(peak['time'], device['time'], clock)}"
    yield "peak", f"{format_exact(peak['bytes'])} {basis}, {device['evidence']}, {when}"
    if not peak["exact"]:
        upper = "an unknown level" if peak["upper"] is None else format_exact(peak["upper"])
        yield "", f"between {format_exact(peak['lower'])} and {upper}: the recording lost events"
    yield "start", f"{format_exact(device['start'])} {basis}"
    low, high = device["start_bounds"]
    if low < high:
        yield "", f"between {format_exact(low)} and {format_exact(high)}: some storages may have come to life in a gap"
    yield "end", f"{format_exact(device['end'])} {basis}"
    reserved = device["reserved"]
    if reserved is not None:
        yield "reserved", f"peak {format_exact(reserved['peak']['bytes'])}, {at_event(reserved['peak']['event'])}"
    if device["storages"] is not None:
        yield "storages", storages_text(device["storages"])
    if device["oom"]["count"]:
        yield from _oom_facts(device["oom"])


def moment(time: int, times: Record, clock: str) -> str:
    """When: ``"at 4"`` by the source's own clock, ``"1.5 ms after the first"`` where times count from an epoch."""
    if times["from_zero"]:
        return f"at {time:,}" if clock == "tick" or not time else f"at {duration(time, clock)}"
    return f"{duration(time - times['first'], clock)} after the first"


def steady_facts(device: Record) -> Iterator[tuple[str, str]]:
    """The steady state in a few lines, or why there is none."""
    steady, basis = device["steady_state"], device["basis"]
    steps, drift = steady["steps"]["count"], steady["drift"]
    if steady["level"] is not None:
        yield "steady state", f"{format_exact(steady['level'])} {basis} since step {steady['since'] + 1} of {steps}"
        yield "transient", f"{format_exact(steady['transient'])} above it, {at_event(steady['peak']['event'])}"
    elif steps > 1:
        yield "steady state", f"none: the last of {steps} steps leaves other storages than the one before"
    else:
        yield "steady state", f"cannot be told: {shown(steady['how'])}"
        return
    yield "steps", shown(steady["how"])
    if drift["bytes"]:
        mean = round(drift["bytes"] / drift["steps"])
        yield "drift", f"{signed(drift['bytes'])} over {drift['steps']} steps, {signed(mean)} a step"


def drift_table(device: Record) -> RenderableType | None:
    """Whose storages grew or shrank from the end of the first step to the end of the last."""
    drift = device["steady_state"]["drift"]
    if not drift["owners"]:
        return None
    rows = [(signed(each["bytes"]), f"{each['count']:+,}", shown(each["key"], 160)) for each in drift["owners"]]
    rows.append((signed(drift["bytes"]), f"{sum(each['count'] for each in drift['owners']):+,}", "total"))
    return stacked(heading("Drift, first step to last"), table(("bytes", "storages", "owner"), rows, left=("owner",), total=True))


def storages_text(storages: Record) -> str:
    """How many storages there were."""
    text = f"{storages['count']:,}, {storages['before_window']:,} older than the window, {storages['never_freed']:,} never freed"
    unidentified = storages["unidentified_bytes"]
    return text + (f"; {format_exact(unidentified)} belong to none that is named" if unidentified else "")


def _oom_facts(oom: Record) -> Iterator[tuple[str, str]]:
    for entry in oom["first"]:
        yield (
            "out of memory",
            f"event {entry['event']:,}: {format_exact(entry['bytes'])} asked for, {format_exact(entry['device_free'])} free on the device",
        )
    if oom["count"] > len(oom["first"]):
        yield "", f"and {oom['count'] - len(oom['first']):,} more"


def end_table(device: Record) -> RenderableType | None:
    """The recorded end state in all ways of counting, and how far the replay is from it."""
    state = device["recorded_end"]
    if state is None:
        return None
    levels = [("recorded end", f"{format_exact(state[name])} {name}") for name in ("requested", "allocated", "active", "reserved")]
    levels[1:] = [("", text) for _, text in levels[1:]]
    return facts([*levels, ("reconciliation", reconciliation_text(device["reconciliation"]))])


def reconciliation_text(reconciliation: Record) -> str:
    """By how many bytes the replayed end differs from the recorded one."""
    difference, placed = reconciliation["difference"], reconciliation["difference_with_losses_placed"]
    text = f"the replayed end differs from the recorded one by {format_exact(difference)}"
    return text if placed == difference else f"{text}; with the lost events placed, by {format_exact(placed)}"


def assumptions_table(device: Record) -> RenderableType | None:
    """What had to be assumed, a line each."""
    if not device["assumptions"]:
        return None
    rows = [
        (f"{each['count']:,}", "" if each["bytes"] is None else format_exact(each["bytes"]), shown(each["text"]))
        for each in device["assumptions"]
    ]
    return stacked(heading("Assumed"), table(("count", "bytes", "what"), rows, left=("what",)))


def shares_table(owners: Record) -> RenderableType:
    """Who holds the bytes at an event; the rows add up to the last."""
    total = owners["bytes"]
    rows = [
        (format_exact(each["bytes"]), share_of(each["bytes"], total), _count(each["count"]), shown(each["key"], 160))
        for each in owners["shares"]
    ]
    counts = [each["count"] for each in owners["shares"] if each["count"] is not None]
    rows.append((format_exact(total), share_of(total, total), _count(sum(counts) if counts else None), "total"))
    by = owners["by"]
    what = "Held " + at_event(owners["event"])
    return stacked(heading(f"{what}, by {by}"), table(("bytes", "share", "storages", by), rows, left=(by,), total=True))


def _count(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"


def verdict_text(device: Record) -> RenderableType | None:
    """Whether the device fits its capacity, and by how many bytes it does not."""
    judged = device["capacity"]
    if judged is None:
        return None
    word, style = {True: ("fits", "green"), False: ("does not fit", "red"), None: ("cannot be told", "yellow")}[judged["fits"]]
    line = Text.assemble((word, style), f" into {format_exact(judged['bytes'])}")
    rows: list[tuple[str, str | Text]] = [("capacity", line)]
    for level in judged["levels"]:
        room = judged["bytes"] - level["bytes"]
        how = f"overflow of {format_exact(level['overflow'])}" if level["overflow"] else f"{format_exact(room)} left"
        if not level["overflow"] and (level["upper"] is None or level["upper"] > judged["bytes"]):
            how += ", but the recording lost events and the true peak may be higher"
        rows.append(("", f"{level['level']} peak {format_exact(level['bytes'])}: {how}"))
    return facts(rows)
