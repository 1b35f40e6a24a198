"""Which operators to run again, operator by operator (Checkmate's problem): the least time within a memory limit on any graph.

Source of the problem: P. Jain, A. Jain, A. Nrusimha, A. Gholami, P. Abbeel, K. Keutzer, I. Stoica, J. Gonzalez, "Checkmate: breaking the
memory wall with optimal tensor rematerialization", MLSys 2020. Every operator makes one result; while it runs, the results it reads,
its own and whatever else is kept are held. Every operator must run once at least; results may be dropped at any time and made again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from lifecycle_sim.errors import InputError

SEARCHED = 16
"""Operators of the largest graph that :func:`plan_operators` searches through by itself."""


@dataclass(frozen=True)
class OperatorGraph:
    """Operators in an order in which they can run.

    Attributes:
        reads: for each operator the operators whose results it reads, all before it.
        costs: what running each takes.
        sizes: bytes of each result.
        names: of the operators, for people; empty for numbers.
    """

    reads: tuple[tuple[int, ...], ...]
    costs: tuple[int, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        total = len(self.reads)
        problems = []
        if not len(self.costs) == len(self.sizes) == total or len(self.names) not in (0, total):
            problems.append(f"{total:,} operators have {len(self.costs):,} costs, {len(self.sizes):,} sizes and {len(self.names):,} names")
        if len(set(self.names)) < len(self.names):
            problems.append("two operators have one name: names are unique")
        if min((*self.costs, *self.sizes), default=0) < 0:
            problems.append("a cost or a size is negative: give 0 or more")
        for number, read in enumerate(self.reads):
            problems += [f"operator {number:,} reads {each:,}, which does not come before it" for each in read if not 0 <= each < number]
        if problems:
            raise InputError(problems)

    def __len__(self) -> int:
        return len(self.reads)

    @property
    def cost(self) -> int:
        """What running every operator once takes."""
        return sum(self.costs)


@dataclass(frozen=True)
class OperatorPlan:
    """The order in which operators run, some of them more than once.

    Attributes:
        runs: numbers of the operators in the order in which they run; a result is kept from a run to the last one that reads it from there.
        cost: of all runs.
        extra: beyond running every operator once.
        peak: bytes held at most, as found by following the runs.
        bound: no plan in the scope of the search costs less.
        proven: the plan costs the bound.
        solver: what found it.
    """

    runs: tuple[int, ...]
    cost: int
    extra: int
    peak: int
    bound: int
    proven: bool
    solver: str


@dataclass(frozen=True)
class OperatorAnswer:
    """What a search came back with: a plan, or none and whether that is proven.

    Attributes:
        limit: bytes.
        plan: the cheapest found, or None.
        proven: in the scope, it is the cheapest; without a plan: there is none.
        scope: which plans were looked at. Outside of it there may be a cheaper one, or one at all.
    """

    limit: int
    plan: OperatorPlan | None
    proven: bool
    scope: str


ALL_PLANS = "all plans"


def play_operators(graph: OperatorGraph, runs: Sequence[int]) -> tuple[int, int]:
    """Follow *runs*, dropping every result once it is not read again before it is made again; return the cost and the bytes held at most.

    Raises:
        InputError: a run reads a result that was never made before, or an operator never runs.
    """
    until: list[int] = []  # for each run, the last run that reads its result
    made: dict[int, int] = {}
    for at, number in enumerate(runs):
        if not 0 <= number < len(graph):
            raise InputError(f"run {at:,} is of operator {number}, and there are {len(graph):,}")
        for read in graph.reads[number]:
            if read not in made:
                raise InputError(f"run {at:,} of operator {number:,} reads the result of {read:,}, which was not made before")
            until[made[read]] = at
        made[number] = at
        until.append(at)
    missing = [number for number in range(len(graph)) if number not in made]
    if missing:
        raise InputError(f"operator {missing[0]:,} never runs")
    change = [0] * (len(runs) + 1)
    for at, (number, last) in enumerate(zip(runs, until, strict=True)):
        change[at] += graph.sizes[number]
        change[last + 1] -= graph.sizes[number]
    level = peak = 0
    for step in change:
        level += step
        peak = max(peak, level)
    return sum(graph.costs[number] for number in runs), peak


def plan_operators(graph: OperatorGraph, limit: int) -> OperatorAnswer:
    """Return the cheapest order of runs within *limit* bytes, in whatever order the graph allows; exact, for small graphs.

    A search through what is held and what has run (A*, with what has not run yet as the estimate).

    Raises:
        InputError: the graph has more than 16 operators; :func:`~lifecycle_sim.program.remat.operators_cpsat.plan_large_graph` takes those.
    """
    if len(graph) > SEARCHED:
        raise InputError(f"{len(graph):,} operators are too many to search through: at most {SEARCHED}, or plan_large_graph (extra plan)")
    every = (1 << len(graph)) - 1
    reads = [sum(1 << read for read in set(each)) for each in graph.reads]
    start = (0, 0)  # bits: results held, operators that have run
    least = {start: 0}
    came: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}
    order = count()
    queue = [(graph.cost, next(order), 0, start)]
    while queue:
        _, _, spent, state = heapq.heappop(queue)
        if spent > least[state]:
            continue
        held, ran = state
        if ran == every:
            return OperatorAnswer(limit, _plan(graph, _runs(came, state), spent), True, ALL_PLANS)
        left = graph.cost - sum(cost for number, cost in enumerate(graph.costs) if ran >> number & 1)
        for number in range(len(graph)):
            bit = 1 << number
            if held & bit or reads[number] & ~held:
                continue
            room = limit - graph.sizes[number]
            total = spent + graph.costs[number]
            ahead = total + left - (0 if ran & bit else graph.costs[number])
            for kept in _kept(graph, held, reads[number], room):
                after = (kept | bit, ran | bit)
                if total < least.get(after, total + 1):
                    least[after] = total
                    came[after] = state, number
                    heapq.heappush(queue, (ahead, next(order), total, after))
    return OperatorAnswer(limit, None, True, ALL_PLANS)


def _kept(graph: OperatorGraph, held: int, needed: int, room: int) -> Iterator[int]:
    """Every set of results to keep of those *held*, with the *needed* ones, that fits and to which none of the others can be added."""
    may = [number for number in range(len(graph)) if held >> number & 1 and not needed >> number & 1]
    size = sum(graph.sizes[number] for number in range(len(graph)) if needed >> number & 1)
    todo = [(0, needed, room - size, room)]
    while todo:
        at, kept, free, tightest = todo.pop()
        if free < 0:
            continue
        if at == len(may):
            if free < tightest or tightest == room:
                yield kept
            continue
        each = graph.sizes[may[at]]
        todo.append((at + 1, kept, free, min(tightest, each)))
        todo.append((at + 1, kept | 1 << may[at], free - each, tightest))


def _runs(came: dict[tuple[int, int], tuple[tuple[int, int], int]], state: tuple[int, int]) -> tuple[int, ...]:
    runs = []
    while state in came:
        state, number = came[state]
        runs.append(number)
    return tuple(reversed(runs))


def _plan(graph: OperatorGraph, runs: tuple[int, ...], spent: int) -> OperatorPlan:
    cost, peak = play_operators(graph, runs)
    return OperatorPlan(runs, cost, cost - graph.cost, peak, spent, True, "search")
