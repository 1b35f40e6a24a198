"""Tables of ``lifecycle-sim plan``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import facts, format_bytes, format_exact, heading, shown, stacked, table, title
from lifecycle_sim.units import format_duration


def tables(document: Record) -> Iterator[RenderableType]:
    """The batches that were tried, the budget, the plan with its certainty, the levels, what a capture of it says, and the answer last."""
    for device in document["devices"]:
        yield stacked(title(document), _batches(device), facts(_facts(device)), _levels(device), _verified(device), _verdict(device))


def _facts(device: Record) -> Iterator[tuple[str, str]]:
    basis, plan = device["basis"], device["plan"]
    yield "budget", f"{format_exact(device['budget'])} {basis}"
    yield "as captured", f"{format_exact(device['base_peak'])} {basis}, simulated"
    yield "chosen from", f"{device['candidates']:,} modules"
    if plan is None:
        tightest = device["tightest"]
        if tightest is not None:
            yield "least peak", f"{format_exact(tightest['peak'])} {basis}, simulated, for {cost_text(tightest['cost'], device['unit'])}"
            yield "recompute", names_text(tightest["modules"], 24)
            yield "binds at", shown(tightest["binds_at"])
        return
    yield "peak", f"{format_exact(plan['peak'])} {basis}, simulated"
    yield "cost", f"{cost_text(plan['cost'], device['unit'])}, {certainty(plan, device['unit'])}"
    yield "recompute", names_text(plan["modules"], 24)
    yield "binds at", shown(plan["binds_at"])
    yield "found by", plan["solver"]
    if device["corrections"]:
        yield "corrections", f"{device['corrections']:,} plans turned out above the budget when they were simulated"


def _batches(device: Record) -> RenderableType | None:
    found = device["largest_batch"]
    if found is None:
        return None
    rows = [
        (
            f"{row['batch']:,}",
            format_bytes(row["base_peak"]),
            *(
                ("no plan" if row["proven"] else "none found", "", "", "")
                if row["plan"] is None
                else (
                    format_bytes(row["plan"]["peak"]),
                    f"{len(row['plan']['modules']):,}",
                    _share(row, device["unit"]),
                    "yes" if row["dominated"] else "no",
                )
            ),
        )
        for row in found["batches"]
    ]
    columns = (
        "batch",
        "nothing recomputed",
        "cheapest plan",
        "modules",
        "more FLOPs" if device["unit"] == "FLOP" else "time more, at least",
    )
    return stacked(
        heading(f"Batches, peak of {device['basis']} bytes, simulated"), table((*columns, "dominated"), rows), facts(_largest(found))
    )


def _share(row: Record, unit: str) -> str:
    cost = row["plan"]["cost"]
    return f"+{100 * cost / row['flops']:.1f} %" if unit == "FLOP" and row["flops"] else cost_text(cost, unit)


def _largest(found: Record) -> Iterator[tuple[str, str]]:
    if found["batch"] is None:
        yield "largest batch", "none fits"
        return
    bound = f"the limit of {found['limit']:,} binds" if found["batch"] == found["limit"] else f"{found['batch'] + 1:,} does not fit"
    if not found["proven"]:
        bound = f"no plan was found for {found['batch'] + 1:,}; that there is none is not proven"
    yield "largest batch", f"{found['batch']:,}: {bound}"


def _verified(device: Record) -> RenderableType | None:
    found = device["verified"]
    if found is None:
        return None
    rows = [(row["level"], format_exact(row["told"]), format_exact(row["captured"])) for row in found["levels"]]
    if found["exact"]:
        text = f"Captured with torch's checkpoint in it, nothing differs: {found['operators']:,} operators, each with its high-water."
    else:
        text = f"Captured with torch's checkpoint in it, the step differs: {found['first_difference'] or 'in its levels'}."
    return stacked(heading("The plan applied"), table(("level", "as told", "as captured"), rows, left=("level",)), Text(text))


def _levels(device: Record) -> RenderableType | None:
    if device["plan"] is None:
        return None
    rows = [(row["level"], format_exact(row["base"]), format_exact(row["planned"])) for row in device["levels"]]
    return stacked(heading("Peak of the step, simulated"), table(("level", "as captured", "planned"), rows, left=("level",)))


def _verdict(device: Record) -> Text:
    if device["fits"]:
        reserved = next(row["planned"] for row in device["levels"] if row["level"] == "reserved")
        more = f"; the allocator reserves {format_exact(reserved)}, more than that" if reserved > device["budget"] else ""
        return Text(f"there is a plan within the budget of {device['basis']} bytes{more}", style="green")
    if device["proven"]:
        return Text("no plan stays within the budget", style="red")
    return Text("no plan within the budget was found; that there is none is not proven", style="red")


def certainty(plan: Record, unit: str) -> str:
    """Whether a plan is proven the cheapest, or how low the cost may be."""
    if plan["proven"]:
        return "proven the least"
    return f"not proven the least: at least {cost_text(plan['bound'], unit)}"


def cost_text(cost: int, unit: str) -> str:
    """A cost with its unit; a time is one at least."""
    return f"{format_duration(cost)} at least" if unit == "ns" else f"{cost:,} {unit}"


def names_text(names: Sequence[str], most: int) -> str:
    """Names in a row, those that follow each other in number as one, such as ``blocks.0–5.mlp``; the first where there are many."""
    if not names:
        return "nothing"
    runs: dict[tuple[str, str], list[list[int]]] = {}
    for name in names:
        found = re.fullmatch(r"(|.*?\.)(\d+)(|\..*)", name)
        before, number, after = (found[1], int(found[2]), found[3]) if found else (name, -1, "")
        own = runs.setdefault((before, after), [])
        if own and own[-1][-1] + 1 == number:
            own[-1].append(number)
        else:
            own.append([number])
    told = [_run(before, numbers, after) for (before, after), own in runs.items() for numbers in own]
    return ", ".join(told[:most]) + (f" and {len(told) - most:,} more" if len(told) > most else "")


def _run(before: str, numbers: Sequence[int], after: str) -> str:
    if numbers[0] < 0:
        return shown(before)
    last = f"–{numbers[-1]}" if len(numbers) > 1 else ""
    return shown(f"{before}{numbers[0]}{last}{after}")
