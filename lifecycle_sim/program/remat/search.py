"""A region plan under a budget, and the whole frontier of cost against peak: searched on rows, then evaluated exactly and corrected.

The search finds the cheapest plan that the rows admit; the problem's simulator evaluates it. If its peak is above the budget after all,
the rows told too little: the row that was missing is added (or the plan excluded), and the search goes on. A plan that fits is the
cheapest of all as long as no row tells more than is held.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.remat.branch import BranchAndBound, Found
from lifecycle_sim.program.remat.milp import Milp
from lifecycle_sim.program.remat.plans import Frontier, Plan, PlanAnswer
from lifecycle_sim.program.remat.problem import RegionProblem, Row
from lifecycle_sim.program.remat.symmetry import ordered_pairs
from lifecycle_sim.program.remat.table import RowTable

SOLVERS = ("auto", "branch", "highs")
BRANCHED = 12
"""Candidates up to which ``"auto"`` branches and bounds; above it takes HiGHS."""
SECONDS = 60.0
"""How long one search may take before its best plan so far is taken, its gap stated."""
QUANTUM = 512
"""Bytes by which HiGHS lowers the budget from one plan of a frontier to the next: what CUDA's allocator rounds to."""
CORRECTIONS = 1000
"""Plans that may turn out above the budget before a search is given up."""


def plan_regions(
    problem: RegionProblem, budget: int, *, solver: str = "auto", seconds: float = SECONDS, corrections: int = CORRECTIONS
) -> PlanAnswer:
    """Return the cheapest plan of *problem* whose peak is at most *budget* bytes; of equal costs the one of lower peak.

    What costs nothing is chosen only where the peak would be higher without it.

    Args:
        problem: what there is to choose from.
        budget: bytes, on the problem's basis.
        solver: ``"branch"``, ``"highs"`` (extra ``plan``), or ``"auto"``: branch and bound for few candidates.
        seconds: how long one search may take.
        corrections: plans that may turn out above the budget before the search is given up.

    Raises:
        InputError: an unknown solver, or a budget that is negative.
        MissingExtraError: HiGHS is needed and not installed.
    """
    if budget < 0:
        raise InputError(f"a budget of {budget:,} bytes is negative")
    search = _Search(problem, solver, seconds)
    plan, proven = search.cheapest(budget, corrections)
    tightest = None
    if plan is None:
        tightest = search.lowest()
    return PlanAnswer(budget, plan, proven and search.never_above, tightest, search.corrections, search.exact, search.least)


def frontier_of_regions(
    problem: RegionProblem, *, solver: str = "auto", seconds: float = SECONDS, step: int | None = None, most: int = 10_000
) -> Frontier:
    """Return every plan of *problem* that is cheapest at its peak.

    From the plan that recomputes nothing down: the cheapest plan within the budget, then the same below its peak, until there is none.

    Args:
        problem: what there is to choose from.
        solver: as in :func:`plan_regions`.
        seconds: how long one search may take; a frontier takes two or three for each point.
        step: bytes between a peak and the next budget; 1 by default, and 512 with HiGHS.
        most: points after which the frontier ends unproven.

    Raises:
        InputError: an unknown solver, or a step below 1.
        MissingExtraError: HiGHS is needed and not installed.
    """
    search = _Search(problem, solver, seconds)
    step = step if step is not None else (QUANTUM if search.by_highs else 1)
    if step < 1:
        raise InputError(f"a step of {step} bytes between budgets is none: give 1 or more")
    found: list[Plan] = []
    proven, budget = True, None
    while True:
        plan, certain = search.cheapest(budget)
        proven = proven and certain
        if plan is None:
            break
        if len(found) == most:
            proven = False
            break
        found.append(plan)
        budget = plan.peak - step
        if budget < 0:
            break
    return Frontier(_undominated(found), proven and search.never_above, step, search.corrections, search.exact)


def _undominated(plans: list[Plan]) -> tuple[Plan, ...]:
    kept: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.cost, plan.peak)):
        if not kept or plan.peak < kept[-1].peak:
            kept.append(plan)
    return tuple(kept)


@dataclass
class _Search:
    """One problem being searched: its rows so far, the plans that were excluded, and what was learnt of how exact the rows are."""

    problem: RegionProblem
    solver: str
    seconds: float
    corrections: int = 0
    least: int = 0
    """No plan within the budget costs less, as far as was searched."""
    exact: bool = True
    never_above: bool = True
    """No row was seen to tell more than the simulator."""
    _more: list[Row] = field(default_factory=list)
    _cuts: list[frozenset[int]] = field(default_factory=list)
    _peaks: dict[frozenset[int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise InputError(f"there is no solver {self.solver!r}: give one of {', '.join(SOLVERS)}")
        self.by_highs = self.solver == "highs" or (self.solver == "auto" and len(self.problem.candidates) > BRANCHED)
        self._load()
        self.peak(frozenset())

    def _load(self) -> None:
        """Make the searches anew, after a row was added."""
        self.table = RowTable(self.problem, self._more)
        self.branch: BranchAndBound | None = None
        if not self.by_highs:
            self.branch = BranchAndBound(self.table)
            return
        pairs = ordered_pairs(self.problem, self.table)
        self.quick = Milp(self.table, pairs)
        safe = tuple(pair for pair in pairs if pair.proven)
        self.safe = self.quick if len(safe) == len(pairs) else Milp(self.table, safe)
        self.free = self.safe if not safe else None

    def peak(self, plan: frozenset[int]) -> int:
        """The exact peak of *plan*, simulated once."""
        if plan not in self._peaks:
            peak = self.problem.evaluate(self.problem.names(plan))
            told, _ = self.table.peak(plan)
            self.exact = self.exact and told == peak
            self.never_above = self.never_above and told <= peak
            self._peaks[plan] = peak
        return self._peaks[plan]

    def cheapest(self, budget: int | None, corrections: int = CORRECTIONS) -> tuple[Plan | None, bool]:
        """The cheapest plan within *budget* that the simulator confirms, and whether that is proven."""
        for _ in range(corrections):
            found = self._against_known(self._least_cost(budget), budget)
            if found.plan is None:
                return None, found.proven
            if budget is None or self.peak(found.plan) <= budget:
                return self._plan(replace(found, plan=self._needed(found.plan))), found.proven
            self.least = found.bound
            self._correct(found.plan, budget)
        return None, False

    def _needed(self, plan: frozenset[int]) -> frozenset[int]:
        """*plan* without what costs nothing and lowers nothing."""
        free = sorted(number for number in plan if not self.problem.candidates[number].cost)
        for less in (frozenset(free), *(frozenset({number}) for number in free)):
            if less <= plan and self.table.peak(plan - less)[0] <= self.table.peak(plan)[0] and self.peak(plan - less) <= self.peak(plan):
                plan -= less
        return plan

    def _against_known(self, found: Found, budget: int | None) -> Found:
        """What was found, or a plan known from before that is cheaper: then the solver erred, and nothing is proven."""
        known = [plan for plan, peak in self._peaks.items() if budget is None or peak <= budget]
        best = min(known, key=lambda plan: (self.table.cost(plan), self._peaks[plan], sorted(plan)), default=None)
        if best is None or (found.plan is not None and found.cost <= self.table.cost(best)):
            return found
        return Found(best, self.table.cost(best), self.table.peak(best)[0], 0, False, found.solver)

    def lowest(self) -> Plan | None:
        """The plan of least peak, as far as the rows tell."""
        if self.branch is not None:
            found = self.branch.least_peak(None, seconds=self.seconds)
        else:
            found = self.safe.least_peak(None, seconds=self.seconds)
        if found.plan is None and self._peaks:
            best = min(self._peaks, key=lambda plan: (self._peaks[plan], self.table.cost(plan)))
            found = Found(best, self.table.cost(best), self.table.peak(best)[0], 0, False, found.solver)
        return None if found.plan is None else self._plan(found, self.table.cost(found.plan))

    def _plan(self, found: Found, bound: int | None = None) -> Plan:
        plan = found.plan or frozenset()
        told, row = self.table.peak(plan)
        peak = self.peak(plan)
        return Plan(
            chosen=self.problem.names(plan),
            cost=found.cost,
            peak=peak,
            told=told,
            bound=found.bound if bound is None else min(found.bound, bound),
            proven=found.proven and self.never_above,
            event=self.table.rows[row].event,
            solver=found.solver,
        )

    def _correct(self, plan: frozenset[int], budget: int) -> None:
        """Make up for what the rows lacked: the row that binds under *plan*, or else the plan is excluded."""
        self.corrections += 1
        if self.problem.binding is not None:
            row = self.problem.binding(self.problem.names(plan))
            level = row.level(plan)
            if level is not None and level > budget:
                self._more.append(row)
                self._load()
                return
        self._cuts.append(plan)

    def _least_cost(self, budget: int | None) -> Found:
        if self.branch is not None:
            return self.branch.least_cost(budget, self._cuts, seconds=self.seconds)
        deadline = time.monotonic() + self.seconds
        guess = self.quick.least_cost(budget, self._cuts, seconds=self.seconds)
        sure = self._proving()
        if sure is not self.quick:
            # The order of the blocks was a guess, or a plan was excluded whose mirror images may do: ask for a cheaper one without it.
            left = max(deadline - time.monotonic(), self.seconds / 10)
            most = None if guess.plan is None else guess.cost - self.quick.unit
            found = sure.least_cost(budget, self._cuts, most=most, seconds=left)
            if found.plan is not None or guess.plan is None:
                guess = found
            else:
                bound = guess.cost if found.proven else min(found.bound, guess.cost)
                guess = replace(guess, bound=bound, proven=bound == guess.cost)
        if guess.plan is None:
            return guess
        return self._lower(guess, sure)

    def _proving(self) -> Milp:
        """The search whose answers are proofs."""
        if not self._cuts:
            return self.safe
        if self.free is None:
            self.free = Milp(self.table)
        return self.free

    def _lower(self, found: Found, solver: Milp) -> Found:
        """A plan of the same cost and lower peak, where there is one."""
        lower = solver.least_peak(found.cost, self._cuts, seconds=self.seconds)
        if lower.plan is None or (lower.peak, lower.cost) >= (found.peak, found.cost):
            return found
        return Found(lower.plan, lower.cost, lower.peak, min(found.bound, lower.cost), found.proven, found.solver)
