"""Plans operator by operator, and what the graph tells of them: published optima, exhaustive searches, definitions spelled out."""

from __future__ import annotations

import heapq
import json
import sys
from itertools import combinations
from pathlib import Path

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle_sim.errors import InputError, MissingExtraError
from lifecycle_sim.program.graph import boundaries, from_node_link, least_saved, needed_again, networkx_graph, to_node_link
from lifecycle_sim.program.remat.operators import OperatorGraph, plan_operators, play_operators
from lifecycle_sim.program.remat.operators_cpsat import plan_large_graph


@st.composite
def graphs(draw: st.DrawFn, most: int = 7) -> OperatorGraph:
    count = draw(st.integers(1, most))
    reads = tuple(tuple(sorted(draw(st.frozensets(st.integers(0, number - 1), max_size=3)) if number else ())) for number in range(count))
    figures = st.lists(st.integers(0, 6), min_size=count, max_size=count).map(tuple)
    return OperatorGraph(reads, draw(figures), draw(figures))


def least_cost_slowly(graph: OperatorGraph, limit: int) -> int | None:
    """Dijkstra one run or one drop at a time."""
    start = (frozenset[int](), frozenset[int]())
    least, queue, number = {start: 0}, [(0, 0, start)], 0
    while queue:
        cost, _, state = heapq.heappop(queue)
        held, ran = state
        if len(ran) == len(graph):
            return cost
        if cost > least[state]:
            continue
        size = sum(graph.sizes[each] for each in held)
        after = [(0, (held - {each}, ran)) for each in held]
        after += [
            (graph.costs[each], (held | {each}, ran | {each}))
            for each in range(len(graph))
            if each not in held and held >= set(graph.reads[each]) and size + graph.sizes[each] <= limit
        ]
        for spent, new in after:
            if cost + spent < least.get(new, 1 << 60):
                number += 1
                least[new] = cost + spent
                heapq.heappush(queue, (cost + spent, number, new))
    return None


def training_graph(layers: int) -> OperatorGraph:
    """A chain with its backward pass: operator k of the latter reads the gradient, the layer's result and its input."""
    reads: list[tuple[int, ...]] = [(), *((layer - 1,) for layer in range(1, layers)), (layers - 1,)]
    for layer in reversed(range(layers)):
        reads.append(tuple(sorted({len(reads) - 1, layer, max(layer - 1, 0)})))
    count = len(reads)
    return OperatorGraph(tuple(reads), tuple(1 + (7 * i) % 5 for i in range(count)), tuple(2 + (5 * i) % 7 for i in range(count)))


def test_the_published_optima_of_small_graphs(shared: Path) -> None:
    cases = json.loads((shared / "data/recompute/small_dag_optima.json").read_text(encoding="utf-8"))
    points = 0
    for case in cases:
        graph = OperatorGraph(tuple(map(tuple, case["graph"]["deps"])), tuple(case["graph"]["cost"]), tuple(case["graph"]["size"]))
        assert play_operators(graph, range(len(graph))) == (case["noremat_cost"], case["noremat_peak"])
        for point in case["points"]:
            answer = plan_operators(graph, point["B"])
            assert answer.plan is not None
            assert (answer.plan.cost, answer.proven) == (point["optimal"], True)
            assert play_operators(graph, answer.plan.runs) == (answer.plan.cost, answer.plan.peak)
            assert answer.plan.peak <= point["B"]
            points += 1
        assert plan_operators(graph, case["min_feasible"] - 1).plan is None
    assert (len(cases), points) == (28, 89)


def test_cp_sat_finds_the_same_optima(shared: Path) -> None:
    pytest.importorskip("ortools")
    cases = json.loads((shared / "data/recompute/small_dag_optima.json").read_text(encoding="utf-8"))
    points = 0
    for case in cases:
        graph = OperatorGraph(tuple(map(tuple, case["graph"]["deps"])), tuple(case["graph"]["cost"]), tuple(case["graph"]["size"]))
        for point in case["points"]:
            answer = plan_large_graph(graph, point["B"])
            assert answer.plan is not None
            assert (answer.plan.cost, answer.plan.bound, answer.proven) == (point["optimal"], point["optimal"], True)
            assert answer.plan.peak <= point["B"]
            points += 1
    assert points == 89


@given(graphs(), st.integers(0, 25))
@settings(max_examples=60)
def test_the_search_is_exact(graph: OperatorGraph, limit: int) -> None:
    answer, cost = plan_operators(graph, limit), least_cost_slowly(graph, limit)
    assert answer.proven
    assert (answer.plan.cost if answer.plan else None) == cost
    if answer.plan:
        assert answer.plan.peak <= limit
        assert answer.plan.extra == answer.plan.cost - graph.cost


@pytest.mark.parametrize("share", [9, 7, 6])
def test_larger_graphs_by_both(share: int) -> None:
    pytest.importorskip("ortools")
    graph = training_graph(7)
    limit = play_operators(graph, range(len(graph)))[1] * share // 10
    one, other = plan_operators(graph, limit), plan_large_graph(graph, limit, copies=4)
    assert one.plan is not None
    assert other.plan is not None
    assert one.plan.cost == other.plan.cost > graph.cost
    assert (one.proven, one.scope, one.plan.solver) == (True, "all plans", "search")
    assert (other.proven, other.plan.solver) == (True, "CP-SAT")
    assert "each at most 4 times" in other.scope
    if share == 6:
        fewer = plan_large_graph(graph, limit).plan
        assert fewer is not None
        assert fewer.cost > one.plan.cost == one.plan.bound, "an operator must run four times"


def test_a_graph_too_large_for_the_search() -> None:
    pytest.importorskip("ortools")
    graph = training_graph(12)
    everything = play_operators(graph, range(len(graph)))[1]
    with pytest.raises(InputError, match="too many to search through"):
        plan_operators(graph, everything)
    answer = plan_large_graph(graph, everything)
    assert answer.plan is not None
    assert (answer.plan.extra, answer.plan.runs) == (0, tuple(range(len(graph))))
    tight = plan_large_graph(graph, everything * 6 // 10)
    assert tight.plan is not None
    assert tight.plan.extra > 0
    assert play_operators(graph, tight.plan.runs) == (tight.plan.cost, tight.plan.peak)
    assert tight.plan.peak <= everything * 6 // 10
    none = plan_large_graph(graph, 3)
    assert (none.plan, none.proven) == (None, True)


def test_what_a_later_run_reads_may_have_to_run_again_after_its_last_reader() -> None:
    pytest.importorskip("ortools")
    graph = OperatorGraph(reads=((), (0,), (), (1,)), costs=(1, 2, 4, 8), sizes=(2, 2, 5, 1))
    one, other = plan_operators(graph, 5), plan_large_graph(graph, 5)
    assert one.plan is not None
    assert other.plan is not None
    assert other.plan.runs == (0, 1, 2, 0, 1, 3)
    assert (other.plan.extra, other.plan.peak) == (3, 5)
    assert one.plan.extra == 0, "the search may run operator 2 first"


def test_without_ortools_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'lifecycle-sim\[plan\]'"):
        plan_large_graph(training_graph(3), 100)


def test_runs_that_are_impossible_and_graphs_that_are_none() -> None:
    graph = training_graph(2)
    with pytest.raises(InputError, match="reads the result of 0, which was not made"):
        play_operators(graph, [1])
    with pytest.raises(InputError, match="never runs"):
        play_operators(graph, [0, 1])
    with pytest.raises(InputError, match="there are 5"):
        play_operators(graph, [7])
    with pytest.raises(InputError, match="give 1 or more"):
        plan_large_graph(graph, 9, copies=0)
    with pytest.raises(InputError) as caught:
        OperatorGraph(((1,), ()), (1,), (-1, 0), ("a", "a"))
    assert len(caught.value.problems) == 4


@given(graphs(9), st.data())
def test_what_must_run_again_by_its_definition(graph: OperatorGraph, data: st.DataObject) -> None:
    numbers = st.frozensets(st.integers(0, len(graph) - 1))
    wanted, kept = data.draw(numbers), data.draw(numbers)

    def again(number: int) -> set[int]:
        return set() if number in kept else {number}.union(*(again(read) for read in graph.reads[number]))

    assert needed_again(graph, wanted, kept) == tuple(sorted(set().union(*(again(number) for number in wanted))))


@given(graphs(9))
def test_boundaries_by_removing_each(graph: OperatorGraph) -> None:
    def reached(without: int) -> set[int]:
        seen: set[int] = set()
        for number, reads in enumerate(graph.reads):
            if number != without and (not reads or not seen.isdisjoint(reads)):
                seen.add(number)
        return seen

    read = {each for reads in graph.reads for each in reads}
    ends = set(range(len(graph))) - read
    expected = tuple(number for number in range(len(graph)) if not reached(number) & ends)
    assert boundaries(graph) == expected


@given(graphs(7), st.data())
@settings(max_examples=60)
def test_the_least_saved_set_among_all(graph: OperatorGraph, data: st.DataObject) -> None:
    numbers = st.frozensets(st.integers(0, len(graph) - 1), max_size=4)
    wanted, given_, once = data.draw(numbers), data.draw(numbers), data.draw(numbers)

    def can_be_had(number: int, saved: frozenset[int]) -> bool:
        if number in saved or number in given_:
            return True
        return number not in once and all(can_be_had(read, saved) for read in graph.reads[number])

    every = [frozenset(c) for size in range(len(graph) + 1) for c in combinations(range(len(graph)), size)]
    least = min(sum(graph.sizes[n] for n in s) for s in every if all(can_be_had(number, s) for number in wanted))
    saved, size = least_saved(graph, wanted, given=given_, once=once)
    assert size == least == sum(graph.sizes[number] for number in saved)
    assert all(can_be_had(number, frozenset(saved)) for number in wanted)


@given(graphs(9))
def test_node_link_data_go_out_and_in(graph: OperatorGraph) -> None:
    data = json.loads(json.dumps(to_node_link(graph)))
    back = from_node_link(data)
    assert (back.reads, back.costs, back.sizes) == (graph.reads, graph.costs, graph.sizes)
    read = networkx.node_link_graph(data, edges="edges")
    assert set(read.edges) == set(networkx_graph(graph).edges)
    old = {**data, "links": data.pop("edges"), "nodes": data["nodes"][::-1]}
    assert sum(from_node_link(old).sizes) == sum(graph.sizes)


def test_node_link_data_that_are_none_are_refused_line_by_line() -> None:
    nodes = [{"id": "a", "size": 1}, {"id": "a", "size": 1}, {"size": 1}, {"id": "b", "size": -1, "cost": 1.5}]
    with pytest.raises(InputError) as caught:
        from_node_link({"nodes": nodes, "edges": [{"source": "a", "target": "z"}, 3]})
    assert len(caught.value.problems) == 7
    with pytest.raises(InputError, match="lists 'nodes' and 'edges'"):
        from_node_link({"nodes": []})
    circle = {"nodes": [{"id": 1, "size": 1}, {"id": 2, "size": 1}], "links": [{"source": 1, "target": 2}, {"source": 2, "target": 1}]}
    with pytest.raises(InputError, match="close a circle through node 1"):
        from_node_link(circle)
    assert from_node_link({"nodes": [{"id": "x", "size": 4}], "links": []}).names == ("x",)
    with pytest.raises(InputError, match="no operator 5"):
        needed_again(training_graph(1), [5], [])
