"""Tables about one device: its facts, who holds its bytes, what had to be assumed, whether it fits."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.apart import BETWEEN, tell_apart
from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import at_event, facts, format_exact, heading, moment, share_of, shown, signed, stacked, table


def device_facts(device: Record, source: Record) -> Iterator[tuple[str, str]]:
    """The levels of a device, a line each."""
    yield from level_facts(device, source)
    yield from _reached_fact(device["reached_by"])
    if device["history"]:
        yield from _edge_facts(device)
    if (reserved := device["reserved"]) is not None:
        peak = f"peak {format_exact(reserved['peak']['bytes'])}, {at_event(reserved['peak']['event'])}"
        yield "reserved", peak if device["history"] else f"{format_exact(reserved['end'])} then"
    if device["storages"] is not None:
        yield "storages", storages_text(device["storages"], device["history"])
    yield from _oom_facts(device["oom"], device["basis"])


def level_facts(device: Record, source: Record) -> Iterator[tuple[str, str]]:
    """The peak and how sure it is; where there is only a state, what was held in it."""
    peak, basis = device["peak"], f"{device['basis']}, {device['evidence']}"
    if not device["history"]:
        yield "held", f"{format_exact(peak['bytes'])} {basis}, at the snapshot"
        yield "", "no history was recorded: the peak is this or more"
        return
    when = moment(peak["event"], peak["time"], None if device["time"] is None else device["time"]["first"], source)
    if device["relative"]:
        yield "peak", f"{format_exact(peak['bytes'])} {basis}, above an unknown start, {when}"
        if peak["lower"] > peak["bytes"]:
            yield "", f"at least {format_exact(peak['lower'])} in all: the level falls below the start by the difference"
        return
    yield "peak", f"{format_exact(peak['bytes'])} {basis}, {when}"
    if not peak["exact"]:
        upper = "an unknown level" if peak["upper"] is None else format_exact(peak["upper"])
        yield "", f"between {format_exact(peak['lower'])} and {upper}: the recording lost events"


def _edge_facts(device: Record) -> Iterator[tuple[str, str]]:
    """The level before the first event and after the last."""
    basis = device["basis"]
    if device["relative"]:
        older = f"{format_exact(device['start'])} {basis} and what lives through the whole window, which is " if device["start"] else ""
        yield "start", f"{older}unknown: all levels count from it"
        yield "end", f"{format_exact(device['end'])} {basis} above it"
        return
    yield "start", f"{format_exact(device['start'])} {basis}"
    low, high = device["start_bounds"]
    if low < high:
        yield "", f"between {format_exact(low)} and {format_exact(high)}: some storages may have come to life in a gap"
    yield "end", f"{format_exact(device['end'])} {basis}"


def _reached_fact(reached: Record | None) -> Iterator[tuple[str, str]]:
    if reached is not None:
        step = "" if reached["step"] is None or reached["inside"]["step"] else f", in step {reached['step'] + 1}"
        yield "reached by", f"an allocation of {format_exact(reached['bytes'])}{_asker(reached)}{step}"


def _asker(asked: Record) -> str:
    """For what, who asked, and inside what: ``" for x at model.py:12 forward, inside annotation ## 1 ##, phase forward"``."""
    what = f" for {shown(asked['label'], 60)}" if asked["label"] else ""
    at = f" at {shown(asked['owner'], 160)}" if asked["owner"] else "" if what else " (no stack recorded)"
    inside = [
        shown(name) if name.startswith(kind) else f"{kind} {shown(name, 80)}" for kind, name in asked["inside"].items() if name is not None
    ]
    return what + at + (f", inside {', '.join(inside)}" if inside else "")


def steady_facts(device: Record, source: Record) -> Iterator[tuple[str, str]]:
    """The steady state in a few lines, or why there is none; nothing of a scenario without steps or a mere state."""
    steady, basis = device["steady_state"], device["basis"]
    steps, drift, since = steady["steps"]["count"], steady["drift"], steady["since"]
    if not device["history"] or (not steps and source["evidence"] == "simulated"):
        return
    if steps < 2:
        found = f"only one step was found ({shown(steady['how'])})" if steps else "no steps found; --steps tells what they are"
        yield "steady state", f"cannot be told: {found}"
        return
    if since is None:
        yield "steady state", f"none: the last of {steps} steps leaves other storages than the one before"
    else:
        over = ", above the start," if device["relative"] else ""
        yield "steady state", f"{format_exact(steady['level'])} {basis}{over} since step {since + 1} of {steps}"
        before = f"step {since + 1} leaves" if since + 1 == steps else f"steps {since + 1} to {steps} each leave"
        yield "", f"({before} the storages that the step before left)"
        yield "transient", f"{format_exact(steady['transient'])} above it, {at_event(steady['peak']['event'])}"
    yield "steps", shown(steady["how"])
    if drift["bytes"] and since is None:
        mean = round(drift["bytes"] / drift["steps"])
        yield "drift", f"{signed(drift['bytes'])} over {drift['steps']} steps, {signed(mean)} a step"
    elif drift["bytes"]:
        yield "drift", f"{signed(drift['bytes'])} from step 1 to step {since}, before that"


def drift_table(device: Record) -> RenderableType | None:
    """Whose storages grew or shrank from the end of the first step to the end of the last."""
    drift = device["steady_state"]["drift"]
    if not drift["owners"]:
        return None
    names = tell_apart([each["key"] for each in drift["owners"]])
    rows = [(signed(each["bytes"]), f"{each['count']:+,}", name) for each, name in zip(drift["owners"], names, strict=True)]
    rows.append((signed(drift["bytes"]), f"{sum(each['count'] for each in drift['owners']):+,}", "total"))
    return stacked(heading("Drift, first step to last"), table(("bytes", "storages", "owner"), rows, left=("owner",), total=True))


def storages_text(storages: Record, history: bool) -> str:
    """How many storages there were."""
    older = f", {storages['before_window']:,} older than the window, {storages['never_freed']:,} never freed" if history else ""
    unidentified = storages["unidentified_bytes"]
    return f"{storages['count']:,}{older}" + (f"; {format_exact(unidentified)} belong to none that is named" if unidentified else "")


def _oom_facts(oom: Record, basis: str) -> Iterator[tuple[str, str]]:
    """Each failed allocation that is told: what was asked for, what there was, and who asked."""
    for entry in oom["first"]:
        yield "out of memory", _failure(entry)
        reserved = "" if entry["reserved"] is None else f" and {format_exact(entry['reserved'])} reserved"
        yield "", f"with {format_exact(entry['level'])} {basis}{reserved} at that time"
        if entry["frames"]:
            (stack,) = tell_apart([BETWEEN.join(entry["frames"])])
            yield "", f"asked for{_asker(entry | {'owner': stack})}"
    if (more := oom["count"] - len(oom["first"])) > 0:
        yield "", f"and {more:,} more; the last is {_failure(oom['last'])}"


def _failure(entry: Record) -> str:
    asked = f"event {entry['event']:,}: {format_exact(entry['bytes'])} asked for (rounded)"
    return f"{asked}, {format_exact(entry['device_free'])} free on the device"


def end_table(device: Record) -> RenderableType | None:
    """The recorded end state in all ways of counting, and how far the replay is from it."""
    state = device["recorded_end"]
    if state is None:
        return None
    levels = [f"{format_exact(state[name])} {name}" for name in ("requested", "allocated", "active", "reserved")]
    if pending := state["active"] - state["allocated"]:
        levels[2] += f": {format_exact(pending)} of it are freed and pending, and count as requested still"
    names = ["recorded end", "", "", ""]
    return facts([*zip(names, levels, strict=True), ("reconciliation", reconciliation_text(device["reconciliation"]))])


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


def shares_table(owners: Record, history: bool, when: str | None = None) -> RenderableType:
    """Who holds the bytes at an event, or at the moment *when*; the rows add up to the last."""
    total, by = owners["bytes"], owners["by"]
    names = tell_apart([each["key"] for each in owners["shares"]])
    rows = [
        (format_exact(each["bytes"]), share_of(each["bytes"], total), _count(each["count"]), name)
        for each, name in zip(owners["shares"], names, strict=True)
    ]
    counts = [each["count"] for each in owners["shares"] if each["count"] is not None]
    rows.append((format_exact(total), share_of(total, total), _count(sum(counts) if counts else None), "total"))
    where = when or (at_event(owners["event"]) if history else "at the snapshot")
    made = table(("bytes", "share", "storages", by), rows, left=(by,), total=True)
    return stacked(heading(f"Held {where}, by {by}"), made, None if owners["note"] is None else Text(owners["note"]))


def who_holds(device: Record) -> Iterator[RenderableType]:
    """Who holds the bytes: at the event asked for, and at the last failed allocation where others did then."""
    if device["owners"] is not None:
        yield shares_table(device["owners"], device["history"])
    if (then := device["owners_at_oom"]) is not None:
        yield shares_table(then, device["history"], f"when the last allocation failed (event {then['event']:,})")


def _count(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"


def verdict_text(device: Record) -> RenderableType | None:
    """Whether the device fits its capacity, and by how many bytes it does not."""
    judged = device["capacity"]
    if judged is None:
        return None
    word, style = {True: ("fits", "green"), False: ("does not fit", "red"), None: ("cannot be told", "yellow")}[judged["fits"]]
    whose = "" if judged["given"] else ", the capacity that the source states"
    line = Text.assemble(
        (word, style), f"{' whether it fits' if judged['fits'] is None else ''} into {format_exact(judged['bytes'])}{whose}"
    )
    rows: list[tuple[str, str | Text]] = [("capacity", line)]
    why = (
        "only a state was recorded and the peak may have been higher"
        if not device["history"]
        else "that is above an unknown start"
        if device["relative"]
        else "the recording lost events and the true peak may be higher"
    )
    for level in judged["levels"]:
        room = judged["bytes"] - level["bytes"]
        how = f"overflow of {format_exact(level['overflow'])}" if level["overflow"] else f"{format_exact(room)} left"
        if not level["overflow"] and (level["upper"] is None or level["upper"] > judged["bytes"]):
            how += f", but {why}"
        rows.append(("", f"{level['level']} {'peak' if device['history'] else 'held'} {format_exact(level['bytes'])}: {how}"))
    return facts(rows)
