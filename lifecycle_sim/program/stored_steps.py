"""Graphs of steps as a captured trace stores them: written as plain data into its settings, and read back only if they are whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from lifecycle_sim.errors import InputError, TraceFormatError
from lifecycle_sim.events import Kind, Trace
from lifecycle_sim.program.step_graph import NO_STORAGE, Call, Hold, Mark, StepGraph, StepOperator

SCHEMA = "lifecycle-sim/step-graph/1"
LETTERS = "oafsuprelbc"
"""The letter of each kind of mark in a file."""
COUNTED = (Mark.OPERATOR, Mark.ALLOC, Mark.SAVE, Mark.ENTER, Mark.BACKWARD)
"""Marks whose values count up, so that a file need not hold them."""


def graphs_of(trace: Trace) -> tuple[StepGraph, ...]:
    """Return the graphs of the steps that a captured *trace* holds, checked against its events.

    Raises:
        InputError: the trace holds none: it is no capture of a training step, or was made without operators.
        TraceFormatError: they are not whole, or not those of the trace.
    """
    settings = trace.settings.get("capture")
    stored = settings.get("graph") if isinstance(settings, dict) else None
    if stored is None:
        raise InputError(
            f"the trace holds no operators and holds (its format is {trace.format}): a what-if needs a capture of a training step, "
            "made by lifecycle-sim capture or ls.capture"
        )
    if not trace.devices:
        raise TraceFormatError("the capture holds a graph and no device: it was cut off. Capture the step again, or copy it again")
    events = trace.devices[0].events
    allocs = events.kind == Kind.ALLOC
    sizes = dict(zip(events.address[allocs].tolist(), events.size[allocs].tolist(), strict=True))
    try:
        if stored["schema"] != SCHEMA:
            raise TraceFormatError(f"the graph of the capture has schema {stored['schema']!r}: this release reads {SCHEMA!r}")
        graphs = tuple(_read(step, stored["names"], sizes) for step in stored["steps"])
        recorded = [address if alloc else ~address for address, alloc in zip(events.address.tolist(), allocs.tolist(), strict=True)]
        for graph in graphs:
            if list(graph.events) != recorded[graph.start : graph.stop]:
                raise TraceFormatError(
                    f"the graph of {graph.name} does not belong to the trace: its events are others. Capture the step again"
                )
        steps = {(span.name, span.start, span.stop) for span in trace.devices[0].spans if span.kind == "step"}
        if not graphs or any((graph.name, graph.start, graph.stop) not in steps for graph in graphs):
            raise TraceFormatError("the capture does not tell where the steps of its graph begin and end: capture the step again")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, TraceFormatError):
            raise
        raise TraceFormatError(f"the graph of the capture is not whole ({type(error).__name__}: {error}): capture the step again") from None
    return graphs


def stored_graphs(graphs: Sequence[StepGraph]) -> dict[str, Any]:
    """Return *graphs* as the plain data that a trace's settings hold; ``docs/formats.md`` tells its keys."""
    names: dict[str, int] = {}

    def number(name: str) -> int:
        return names.setdefault(name, len(names))

    steps = []
    for graph in graphs:
        values = [value for kind, value in graph.marks() if kind not in COUNTED]
        first = next((value for kind, value in graph.marks() if kind == Mark.ALLOC), 0)
        steps.append(
            {
                "step": graph.name,
                "start": graph.start,
                "stop": graph.stop,
                "unsound": graph.unsound,
                "recomputed": sorted(graph.recomputed),
                "operators": [
                    [
                        number(each.name),
                        number(each.phase),
                        number(each.module),
                        each.flops,
                        each.moved,
                        number(each.dtype),
                        list(each.reads),
                        list(each.writes),
                        list(each.mutates),
                        each.random + 2 * each.cached_cast + 4 * each.product,
                        each.upper,
                    ]
                    for each in graph.operators
                ],
                "holds": [hold.storage for hold in graph.holds],
                "lasting": [place for place, hold in enumerate(graph.holds) if hold.lasting],
                "calls": [[number(call.module), call.parent, int(call.grad), list(call.inputs), list(call.others)] for call in graph.calls],
                "first_storage": first,
                "marks": "".join(LETTERS[kind] for kind in graph.kinds),
                "values": values,
            }
        )
    return {"schema": SCHEMA, "names": list(names), "steps": steps}


def _read(stored: Mapping[str, Any], names: Sequence[str], sizes: Mapping[int, int]) -> StepGraph:
    kinds = [LETTERS.index(letter) for letter in stored["marks"]]
    counts = dict.fromkeys(COUNTED, 0) | {Mark.ALLOC: stored["first_storage"]}
    given = iter(stored["values"])
    values = []
    for kind in kinds:
        if kind in counts:
            values.append(counts[Mark(kind)])
            counts[Mark(kind)] += 1
        else:
            values.append(int(next(given, NO_STORAGE)))
    lasting = set(stored["lasting"])
    graph = StepGraph(
        stored["step"],
        stored["start"],
        stored["stop"],
        tuple(
            StepOperator(
                names[name],
                names[phase],
                names[module],
                flops,
                moved,
                names[dtype],
                tuple(reads),
                tuple(writes),
                tuple(mutates),
                bool(flags & 1),
                bool(flags & 2),
                bool(flags & 4),
                upper,
            )
            for name, phase, module, flops, moved, dtype, reads, writes, mutates, flags, upper in stored["operators"]
        ),
        tuple(Hold(storage, place in lasting) for place, storage in enumerate(stored["holds"])),
        tuple(
            Call(names[module], parent, bool(grad), tuple(inputs), tuple(others))
            for module, parent, grad, inputs, others in stored["calls"]
        ),
        kinds,
        values,
        sizes,
        stored["unsound"],
        frozenset(stored["recomputed"]),
    )
    _must_be_whole(graph)
    return graph


def _must_be_whole(graph: StepGraph) -> None:
    numbers = chain(
        (graph.start, graph.stop),
        (hold.storage for hold in graph.holds),
        chain.from_iterable((row.flops, row.moved, row.upper, *row.reads, *row.writes, *row.mutates) for row in graph.operators),
        chain.from_iterable((call.parent, *call.inputs, *call.others) for call in graph.calls),
    )
    texts = chain(
        (graph.name, graph.unsound or "", *graph.recomputed),
        chain.from_iterable((row.name, row.phase, row.module, row.dtype) for row in graph.operators),
        (call.module for call in graph.calls),
    )
    if {type(each) for each in numbers} - {int} or {type(each) for each in texts} - {str}:
        raise TraceFormatError(
            f"the graph of {graph.name} is not whole: it has a value of a kind that is not known. Capture the step again"
        )
    tables = {
        **dict.fromkeys((Mark.OPERATOR, Mark.CAST), len(graph.operators)),
        **dict.fromkeys((Mark.SAVE, Mark.UNPACK, Mark.APPLIED, Mark.RELEASE), len(graph.holds)),
        **dict.fromkeys((Mark.ENTER, Mark.LEAVE), len(graph.calls)),
    }
    for kind, value in graph.marks():
        if not 0 <= value < tables.get(Mark(kind), 1 << 62):
            raise TraceFormatError(f"the graph of {graph.name} is not whole: {Mark(kind).name.lower()} {value} is in no table")
