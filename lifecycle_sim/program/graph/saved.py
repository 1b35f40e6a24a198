"""What can be made again from what: ancestors, boundaries, and the least that must be saved, told by networkx.

Operators are numbered in an order in which they can run; a result is called by the number of the operator that makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.remat.operators import OperatorGraph


def networkx_graph(graph: OperatorGraph) -> Any:
    """Return *graph* as a ``networkx.DiGraph``: an edge from what makes a result to what reads it; nodes have cost, size and name."""
    import networkx

    found = networkx.DiGraph()
    for number in range(len(graph)):
        found.add_node(number, name=_name(graph, number), cost=graph.costs[number], size=graph.sizes[number])
    found.add_edges_from((read, number) for number, reads in enumerate(graph.reads) for read in reads)
    return found


def needed_again(graph: OperatorGraph, wanted: Iterable[int], kept: Iterable[int]) -> tuple[int, ...]:
    """Return the operators that must run again, in order, to have the results *wanted* if only those in *kept* are held.

    They are the wanted ones that are not kept, and their ancestors on paths that no kept result cuts.

    Raises:
        InputError: there is no operator of such a number.
    """
    import networkx

    held = _known(graph, kept)
    missing = _known(graph, wanted) - held
    left = networkx_graph(graph)
    left.remove_nodes_from(held)
    found = set(missing)
    for number in missing:
        found |= networkx.ancestors(left, number)
    return tuple(sorted(found))


def boundaries(graph: OperatorGraph) -> tuple[int, ...]:
    """Return the results through which everything passes, in order: where a graph can be cut into segments that hand on one result.

    A result is one of them if every path from an operator that reads nothing to one whose result nothing reads runs through it: if it
    dominates the end.
    """
    import networkx

    if not len(graph):
        return ()
    flow = networkx_graph(graph)
    first, last = "first", "last"
    flow.add_edges_from([(first, number) for number, reads in enumerate(graph.reads) if not reads])
    flow.add_edges_from([(number, last) for number in range(len(graph)) if not flow.out_degree(number)])
    dominator = networkx.immediate_dominators(flow, first)
    found = []
    node = dominator[last]
    while node != first:
        found.append(node)
        node = dominator[node]
    return tuple(reversed(found))


def least_saved(
    graph: OperatorGraph, wanted: Iterable[int], *, given: Iterable[int] = (), once: Iterable[int] = ()
) -> tuple[tuple[int, ...], int]:
    """Return the results of least bytes that must be saved so that all *wanted* ones can be had later, and their bytes.

    A result can be had if it is saved or *given* (held anyway), or if its operator may run again and all that it reads can be had. A
    minimum cut between what may run only once and what is wanted; it says nothing of what running again costs or holds meanwhile.

    Args:
        graph: the operators.
        wanted: results that are needed later, such as by the backward pass.
        given: results that are held anyway, such as parameters.
        once: operators that must not run again, such as those that read the batch or communicate.

    Raises:
        InputError: there is no operator of such a number.
    """
    import networkx

    held, fixed, needed = _known(graph, given), _known(graph, once), _known(graph, wanted)
    flow = networkx.DiGraph()
    flow.add_nodes_from(["first", "last"])
    for number, reads in enumerate(graph.reads):
        if number in held:
            continue
        flow.add_edge((number, "made"), (number, "read"), capacity=graph.sizes[number])
        if number in fixed:
            flow.add_edge("first", (number, "made"))  # an edge without a capacity is of any capacity
        else:
            flow.add_edges_from(((read, "read"), (number, "made")) for read in set(reads) - held)
        if number in needed:
            flow.add_edge((number, "read"), "last")
    size, (near, _) = networkx.minimum_cut(flow, "first", "last")
    saved = tuple(number for number in range(len(graph)) if (number, "made") in near and (number, "read") not in near)
    return saved, int(size)


def to_node_link(graph: OperatorGraph) -> dict[str, Any]:
    """Return *graph* as node-link data, ready for JSON: what networkx calls ``node_link_data``, its edges under ``edges``."""
    return {
        "directed": True,
        "multigraph": False,
        "graph": {},
        "nodes": [
            {"id": number, "name": _name(graph, number), "cost": graph.costs[number], "size": graph.sizes[number]}
            for number in range(len(graph))
        ],
        "edges": [{"source": read, "target": number} for number, reads in enumerate(graph.reads) for read in dict.fromkeys(reads)],
    }


def from_node_link(data: Mapping[str, Any]) -> OperatorGraph:
    """Return the operators of node-link data, in an order in which they can run; of those that could run next, the first listed.

    Nodes have an ``id``, a whole number ``size`` in bytes, a whole number ``cost`` (1 by default) and perhaps a ``name``; edges stand under
    ``edges`` or, as older releases of networkx write them, ``links``, from what is read to what reads it.

    Raises:
        InputError: the data are not of that form, or operators wait for each other in a circle. Every problem has a line.
    """
    import networkx

    nodes = data.get("nodes") if isinstance(data, Mapping) else None
    links = data.get("edges", data.get("links")) if isinstance(data, Mapping) else None
    if not isinstance(nodes, list) or not isinstance(links, list):
        raise InputError("node-link data are an object with lists 'nodes' and 'edges' (or 'links')")
    problems: list[str] = []
    places: dict[Any, int] = {}
    for place, node in enumerate(nodes):
        key = node.get("id") if isinstance(node, Mapping) else None
        if not isinstance(key, (str, int)):
            problems.append(f"node {place:,} has no id: give a number or a text")
        elif key in places:
            problems.append(f"node {place:,} has the id {key!r} of node {places[key]:,}: ids are unique")
        else:
            places[key] = place
            for name, value in (("size", node.get("size")), ("cost", node.get("cost", 1))):
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    problems.append(f"node {key!r} has the {name} {value!r}: give a whole number of 0 or more")
    flow = networkx.DiGraph()
    flow.add_nodes_from(range(len(nodes)))
    for place, link in enumerate(links):
        ends = [link.get(end) if isinstance(link, Mapping) else None for end in ("source", "target")]
        unknown = [end for end in ends if not isinstance(end, (str, int)) or end not in places]
        problems += [f"edge {place:,} names {end!r}, which is no node's id" for end in unknown]
        if not unknown:
            flow.add_edge(places[ends[0]], places[ends[1]])
    if not problems and not networkx.is_directed_acyclic_graph(flow):
        circle = networkx.find_cycle(flow)
        problems.append(f"the edges close a circle through node {nodes[circle[0][0]]['id']!r}: an operator cannot wait for itself")
    if problems:
        raise InputError(problems)
    order = list(networkx.lexicographical_topological_sort(flow))
    number = {place: index for index, place in enumerate(order)}
    names = tuple(str(nodes[place].get("name", nodes[place]["id"])) for place in order)
    return OperatorGraph(
        reads=tuple(tuple(sorted(number[read] for read in flow.predecessors(place))) for place in order),
        costs=tuple(nodes[place].get("cost", 1) for place in order),
        sizes=tuple(nodes[place]["size"] for place in order),
        names=names if len(set(names)) == len(names) else (),
    )


def _name(graph: OperatorGraph, number: int) -> str:
    return graph.names[number] if graph.names else str(number)


def _known(graph: OperatorGraph, numbers: Iterable[int]) -> set[int]:
    found = set(numbers)
    unknown = sorted(number for number in found if not 0 <= number < len(graph))
    if unknown:
        raise InputError([f"there is no operator {number}: they are numbered 0 to {len(graph) - 1}" for number in unknown])
    return found
