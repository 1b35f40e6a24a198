"""Tables of ``lifecycle-sim fit``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lifecycle_sim.output.summary import Record
from lifecycle_sim.output.tables import (
    counted,
    duration,
    facts,
    format_bytes,
    format_exact,
    heading,
    share_of,
    shown,
    stacked,
    table,
)

HELD_SHOWN = 4


def tables(document: Record) -> Iterator[RenderableType]:
    """The answers, what they rest on, and what was asked besides."""
    source = document["source"]
    yield stacked(heading(f"{source['name']} · {source['kind']}"))
    answers = document.get("answers", [])
    if answers:
        least = min(answers, key=_value)
        yield stacked(facts(_answer(document, least)), _runs(least), _helps(least))
    if len(answers) > 1:
        yield stacked(_by_length(document))
    yield stacked(
        _excluded(document),
        _model(document),
        _frontier(document),
        _accumulation(document),
        _in_time(document),
        _configurations(document),
        _growth(document),
        _assumed(document),
    )


def _value(each: Record) -> int:
    """The number that was sought."""
    value: int = each["value"] if "value" in each else each["batch"]
    return value


def _answer(document: Record, each: Record) -> Iterator[tuple[str, str]]:
    budget = document["budget"]
    card = f", {budget['card']}" if budget["card"] else ""
    headroom = f", of which {format_exact(budget['headroom'])} stay free" if budget["headroom"] else ""
    yield "budget", f"{format_exact(budget['bytes'])}{card}{headroom}"
    what = "longest sequence" if each["axis"] == "seq" else "largest batch"
    value = _value(each)
    other = each["batch"] if each["axis"] == "seq" else each["seq"]
    at = "" if other is None else f" with batch {other:,}" if each["axis"] == "seq" else f" with {other:,} tokens a sequence"
    yield what, f"{value:,}{at}{_none(each, value)}"
    yield "bound by", _bound(each, document)
    unit = f"{each['basis']} bytes, {each['evidence']}"
    name = "tokens" if each["axis"] == "seq" else "batch"
    if each["at"] is not None:
        yield f"at {name} {value:,}", f"{format_exact(each['at'])}, {format_exact(each['left'])} left; {unit}"
    if each["above"] is not None:
        over = f"{format_exact(each['deficit'])} too much" if each["deficit"] > 0 else "an estimate, as nothing was measured there"
        yield f"at {name} {max(value, 0) + 1:,}", f"{format_exact(each['above'])}, {over}{_retries(each)}"
    if each["shape"] is not None:
        basis = f", of {each['model_basis']} bytes" if each.get("model_basis") not in (None, each["basis"]) else ""
        yield "shape", f"{each['shape']}{basis}"
    if each["verified"]:
        which = "it and the next were both run" if each["above"] is not None else "it was run, the next is beyond the limit"
        yield "margin", f"none: {which} ({counted(len(each['runs']), 'run')} in {counted(each['rounds'], 'round')})"
    elif each["margin"] is not None and each["evidence"] == "fitted":
        lost = f"; {counted(each['lost'], 'batch') if each['lost'] == 1 else str(each['lost']) + ' batches'} lost to it"
        yield "margin", f"{format_exact(each['margin'])} above the estimate{lost}; costs rounded up, the budget down"
    if each["reach"] is not None and each["reach"]["numerator"]:
        reach = each["reach"]["numerator"] / each["reach"]["denominator"]
        first_ones = f"; first predicted {each['proposed']:,}" if each["verified"] else ""
        yield "reach", f"{reach:.4g} times the largest that it was calibrated with{first_ones}"
    if each.get("holes") or each.get("fit_above"):
        holes = f"{', '.join(f'{count:,}' for count in each['holes'])} below it do not fit" if each["holes"] else ""
        above = f"{', '.join(f'{count:,}' for count in each['fit_above'])} above it fit" if each["fit_above"] else ""
        yield "holes", "; ".join(part for part in (holes, above) if part)
    elif each["verified"] and each["scanned"][1] - each["scanned"][0] > 1:
        yield "holes", f"none from {each['scanned'][0]:,} to {each['scanned'][1]:,}, which were all run"
    if each.get("refusal"):
        yield "no model", each["refusal"]


def _none(each: Record, value: int) -> str:
    if value == 0:
        return ": not even 1 fits" if each["binding"] != "limit" else ""
    return ": the part that no batch shrinks is too large by itself" if value < 0 else ""


def _bound(each: Record, document: Record) -> str:
    text = {
        "limit": f"the limit of {document['budget']['limit'] or each['batch']:,}",
        "calibrated range": "the probes: nothing larger was measured; measure larger ones, or widen",
        "fixed part": "what is there with any batch: a smaller batch cannot help",
        "smallest probe": "the smallest probe, which does not fit: smaller ones were not measured",
    }.get(each["binding"], str(each["binding"]))
    if each.get("requested_phase") is not None and each["basis"] not in ("requested", "payload"):
        reached = f", reached in {each['phase']}" if each["phase"] else ""
        return f"{text}{reached}; requested bytes peak{_where(each['requested_phase'], each['requested_category'], each['growing'])}"
    return f"{text}{_where(each['phase'], each['category'], each['growing'])}"


def _where(phase: str | None, category: str | None, growing: str | None) -> str:
    where = f" in {phase}" if phase else ""
    most = f", where {category} holds most" if category else ""
    return f"{where}{most}{f' and {growing} grows' if growing and growing != category else ''}"


def _retries(each: Record) -> str:
    told = each.get("with_retries")
    if told is None:
        return ""
    often = counted(told["retries"], "time")
    return f"; it would get through, giving memory back {often}" if told["fits"] else "; giving memory back does not save it"


def _runs(each: Record) -> RenderableType | None:
    if "runs" not in each:
        return None
    levels = sorted(each["runs"][0]["levels"], key=lambda level: level == each["basis"])
    name = "tokens" if each["axis"] == "seq" else "batch"
    rows = [(f"{run['seq' if each['axis'] == 'seq' else 'batch']:,}", *_levels(run, levels), run["phase"] or "") for run in each["runs"]]
    return stacked(heading("Runs: peaks over all steps"), table((name, *levels, "peak in"), rows, left=("peak in",)))


def _levels(run: Record, levels: list[str]) -> Iterator[str]:
    """The last of *levels*, which is the one that counts, exactly."""
    for level in levels:
        size = run["levels"][level]
        yield format_exact(size) if level == levels[-1] else format_bytes(size)


def _helps(each: Record) -> RenderableType | None:
    if not each.get("helps"):
        return None
    rows = [(row["text"], format_exact(row["bytes"]), "yes" if row["enough"] else "no") for row in each["helps"]]
    states = each["states_together"]
    title = f"What could help; states take {format_exact(states)} together at the smallest batch"
    return stacked(heading(title), table(("means", "saves at most", "enough"), rows, left=("means", "enough")))


def _by_length(document: Record) -> RenderableType:
    answers = document["answers"]
    longest = answers[0]["axis"] == "seq"
    head = ("batch", "longest sequence") if longest else ("tokens", "largest batch")
    rows = []
    for each in answers:
        value = _value(each)
        key = each["batch"] if longest else each["seq"]
        left = "" if each["left"] is None else format_exact(each["left"])
        rows.append((f"{key:,}" if key is not None else "", f"{value:,}", left, each["binding"], each["phase"] or ""))
    least = document["minimum"]
    note = Text(f"The least of them, {least:,}, holds for all {'batches' if longest else 'lengths'}.")
    return stacked(table((*head, "left", "bound by", "peak in"), rows, left=("bound by", "peak in")), note)


def _excluded(document: Record) -> RenderableType | None:
    if "excluded" not in document:
        return None
    rows = []
    for each in document["excluded"]:
        at = "" if each["seq"] is None else f" with {each['seq']:,} tokens"
        if each["first_excluded"] is None:
            rows.append(("does not fit", f"nothing can be said{at}"))
        else:
            rows.append(
                ("does not fit", f"batch {each['first_excluded']:,} and more{at}: {format_exact(each['bytes'])} at least, unverified")
            )
    why = "two probes give a line that nothing could contradict: a lower estimate, which can only say no. Probe a third batch"
    return facts([*rows, ("does it fit?", why)])


def _model(document: Record) -> RenderableType | None:
    model = document.get("model")
    if model is None:
        return None
    unit = "a token" if model["by"] == "tokens" else "a sample"
    lines = [
        (
            f"{line['seq']:,}" if line["seq"] else "all",
            shown(line["phase"]),
            format_exact(line["fixed"]),
            f"{format_exact(line['per_unit'])}",
        )
        for line in model["lines"]
    ]
    rows = [
        (
            f"{row['batch']:,}" + ("" if row["seq"] is None else f" × {row['seq']:,}"),
            format_exact(row["bytes"]),
            format_bytes(row["above"]),
            "" if row["error_left_out"] is None else f"{row['error_left_out']:+,} B",
            "" if row["covered"] is None else "yes" if row["covered"] else "no",
        )
        for row in model["probes"]
    ]
    return stacked(
        heading(f"Model: the maximum of these lines ({model['basis']} bytes, fitted to {model['evidence']} peaks)"),
        table(("tokens", "phase", "fixed", unit), lines, left=("phase",)),
        heading("Probes, and what the model says of each when it is left out"),
        table(("probe", "peak", "bound above", "error left out", "covered"), rows, left=("covered",)),
    )


def _frontier(document: Record) -> RenderableType | None:
    edge = document.get("frontier")
    if edge is None:
        return None
    shown_batches = edge["batches"][:: max(1, -(-len(edge["batches"]) // 7))]
    rows = []
    for row, length in enumerate(edge["lengths"]):
        cells = []
        for batch in shown_batches:
            column = edge["batches"].index(batch)
            size, run = edge["peaks"][row][column], edge["measured"][row][column]
            cells.append(f"{'' if run else '~'}{format_bytes(size)}{'' if size <= edge['room'] else ' !'}")
        rows.append((f"{length:,}", *cells))
    note = Text("~ on the line between the nearest runs; ! does not fit.")
    return stacked(
        heading(f"Batch × sequence, {edge['basis']} bytes"), table(("tokens", *(f"{batch:,}" for batch in shown_batches)), rows), note
    )


def _accumulation(document: Record) -> RenderableType | None:
    told = document.get("accumulation")
    if told is None:
        return None
    if not told["shown"]:
        return Text(f"A global batch of {told['global_batch']:,} cannot be made: no micro-batch fits.")
    rows = [(f"{row['micro_batch']:,}", f"{row['accumulated']:,}", f"{row['padded']:,}") for row in told["shown"]]
    more = told["count"] - len(rows)
    title = f"Ways to a global batch of {told['global_batch']:,}{f', and {more:,} with smaller micro-batches' if more > 0 else ''}"
    made = table(("micro-batch", "accumulated", "samples of padding"), rows)
    return stacked(heading(title), facts(_accumulating(told)) if "run" in told or "not_run" in told else None, made)


def _accumulating(told: Record) -> Iterator[tuple[str, str]]:
    if "not_run" in told:
        yield "accumulating", f"not run: {told['not_run']}"
        return
    run = told["run"]
    yield (
        "run",
        f"micro-batch {run['micro_batch']:,}, {run['micro_batches']} a step: {format_exact(run['at'])}, {format_exact(run['left'])} left",
    )
    if run["larger"] is not None:
        yield "next larger", f"micro-batch {run['larger']['micro_batch']:,} lacks {format_exact(run['larger']['deficit'])}"


def _in_time(document: Record) -> RenderableType | None:
    told = document.get("in_time")
    if told is None:
        return None
    deadline = "no deadline" if told["deadline"] is None else f"at most {duration(told['deadline'], 'ns')}"
    rows = [
        (
            f"{row['first']:,}" + (f" to {row['last']:,}" if row["last"] > row["first"] else ""),
            f"{row['accumulated']:,}",
            duration(row["time"], "ns"),
            f"{row['padded']:,}",
        )
        for row in told["shown"]
    ]
    fastest = told["fastest"]
    pairs = [("binds", told["binds"]), ("in time", f"{told['count']:,} of the micro-batches up to {max(told['memory_batch'], 0):,}")]
    if told["timed"] is not None:
        pairs.append(("timed", f"micro-batches up to {told['timed']:,}; between two of them the longer time counts, beyond none is known"))
    if fastest is not None:
        pairs.append(("fastest", f"micro-batch {fastest['micro_batch']:,}: {duration(fastest['time'], 'ns')} a step"))
    made = table(("micro-batch", "accumulated", "a step, from", "samples of padding"), rows, left=("micro-batch",)) if rows else None
    return stacked(heading(f"Memory and deadline: steps of {told['global_batch']:,} samples, {deadline}"), facts(pairs), made)


def _configurations(document: Record) -> RenderableType | None:
    told = document.get("configurations")
    if told is None:
        return None
    rows = []
    for row in told["rows"]:
        made = row["micro_batch"] is not None
        quality = "" if row["quality"] is None else f"{shown(row['quality'])} on {shown(row['quality_data'])}"
        rows.append(
            (
                shown(row["name"]),
                f"{row['memory_batch']:,}",
                f"{row['micro_batch']:,} × {row['accumulated']:,}" if made else "none",
                duration(row["step_time"], "ns") if made else "",
                duration(row["total_time"], "ns") if made else "",
                f"{row['samples']:,}" if made else "",
                quality,
            )
        )
    head = ("configuration", "memory allows", "micro-batches", "a step", "all steps", "samples", "quality, as given")
    budget = document["budget"]
    deadline = "" if told["deadline"] is None else f", each in {duration(told['deadline'], 'ns')} at most"
    title = f"{told['title']}: {told['steps']:,} steps of {told['global_batch']:,} samples{deadline}"
    room = f"{format_exact(budget['bytes'])} {told['basis']}, of which {format_exact(budget['headroom'])} stay free"
    return stacked(heading(title), facts([("budget", room)]), table(head, rows, left=("configuration", "quality, as given")))


def _growth(document: Record) -> RenderableType | None:
    told = document.get("growth")
    if told is None:
        return None
    seq = told["seq"]
    quadratic = sum(row["bytes"] for row in told["quadratic"])
    phases = [phase or "no phase" for phase in told["phases"]]
    pairs = [
        (f"at {seq:,} tokens", f"{format_exact(told['before'])} requested, simulated, in {phases[0]}"),
        (
            f"at {2 * seq:,} tokens",
            f"{format_exact(told['after'])}, {told['after'] / max(told['before'], 1):.3g} times as much, in {phases[1]}",
        ),
        (
            "quadruples",
            f"{format_exact(quadratic)} of it, {share_of(quadratic, told['after'])}" if quadratic else "nothing that is held at the peak",
        ),
    ]
    pairs += [("", f"{format_exact(row['bytes'])} made by {shown(row['operator'])}") for row in told["quadratic"]]
    pairs += [("stays", f"{format_exact(size)} of {name}") for name, size in told["caches"].items()]
    kernels = told["kernels"]
    switches = [
        f"{', '.join(shown(name) for name in kernels[key])} only at {length:,} tokens"
        for key, length in (("only_shorter", seq), ("only_longer", 2 * seq))
        if kernels[key]
    ]
    pairs.append(("kernels", "; ".join(switches) or "the same ones ran"))
    if any(told["unmatched"]):
        pairs.append(("unmatched", f"{told['unmatched'][0]:,} storages of the shorter and {told['unmatched'][1]:,} of the longer"))
    rows = [
        (
            shown(row["owner"]),
            format_bytes(row["before"]),
            format_bytes(row["after"]),
            f"{row['after'] / row['before']:.3g} ×" if row["before"] else "",
            ", ".join(f"{name} {share_of(size, row['after'])}" for name, size in row["terms"].items() if size and row["after"]),
        )
        for row in told["owners"]
    ]
    head = ("owner", f"at {seq:,}", f"at {2 * seq:,}", "factor", "how it grew")
    return stacked(facts(pairs), table(head, rows, left=("owner", "how it grew")))


def _assumed(document: Record) -> RenderableType | None:
    """What state was assumed live, and what is not counted."""
    answers = document.get("answers", [])
    rows: list[tuple[str, str]] = []
    if document["source"]["kind"] == "captures" and answers:
        states = ", ".join(f"{name} {format_bytes(size)}" for name, size in answers[0]["states"].items())
        rows.append(
            (
                "states",
                f"step {document['warmup'] + 1}, after {counted(document['warmup'], 'step')} of warm-up; live at most: {states or 'none'}",
            )
        )
        needs = answers[0]["accumulation_needs"]
        if needs:
            rows.append(
                (
                    "accumulation",
                    f"one micro-batch a step; from the second on gradients are there all the time: up to {format_exact(needs)} more",
                )
            )
        rows.append(("not counted", "the CUDA context (often 300 to 600 MiB), libraries, other processes: leave headroom for them"))
    if document["source"]["kind"] == "probes" and answers:
        rows.append(("states", "as in the probes: each is of a step with optimizer state, of the same program and accumulation"))
    if "widened" in document:
        told = document["widened"]
        rows.append(
            ("widened", f"to {told['times']} times the largest probe, {told['last_probe']:,}, in proportion: measure again near the answer")
        )
    return facts(rows) if rows else None
