"""What a search for region plans comes back with: a plan, the answer under a budget, and the frontier of cost against peak."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Which regions to recompute.

    Attributes:
        chosen: names of the regions, in the order of the candidates.
        cost: what recomputing them costs, in the problem's unit.
        peak: exact peak in bytes, as the simulator found it.
        told: the peak that the rows told; differs from ``peak`` where the rows are not exact.
        bound: no plan with a peak within the limit that was searched under costs less.
        proven: this plan costs the bound: none is cheaper.
        event: what happens at the event that holds the peak, by the rows.
        solver: what found it.
    """

    chosen: tuple[str, ...]
    cost: int
    peak: int
    told: int
    bound: int
    proven: bool
    event: str
    solver: str

    @property
    def gap(self) -> float:
        """By how much the cost may be above the least possible, as a share of it; 0 if proven, infinite if the bound is 0."""
        if self.proven or self.cost == self.bound:
            return 0.0
        return (self.cost - self.bound) / self.bound if self.bound else float("inf")


@dataclass(frozen=True)
class PlanAnswer:
    """What a search for a plan under a budget came back with.

    Attributes:
        budget: bytes.
        plan: the cheapest plan found whose peak is within the budget, or None.
        proven: the plan is the cheapest; without a plan: there is none.
        tightest: where there is no plan, the one found with the least peak.
        corrections: plans that the rows admitted and the simulator did not.
        exact: the rows told the exact peak of every plan that was looked at.
        least: no plan within the budget costs less; 0 where nothing is known.
    """

    budget: int
    plan: Plan | None
    proven: bool
    tightest: Plan | None
    corrections: int
    exact: bool
    least: int = 0


@dataclass(frozen=True)
class Frontier:
    """Plans of which none is both cheaper and lower in peak than another, from the cheapest to the lowest.

    Attributes:
        points: the plans.
        proven: every point is the cheapest at its peak, and there is no plan below the last.
        step: peaks that differ by less bytes than this are not told apart.
        corrections: plans that the rows admitted and the simulator did not.
        exact: the rows told the exact peak of every plan that was looked at.
    """

    points: tuple[Plan, ...]
    proven: bool
    step: int
    corrections: int
    exact: bool

    def at(self, peak: int) -> Plan | None:
        """Return the cheapest plan with a peak of at most *peak* bytes, or None."""
        return next((plan for plan in self.points if plan.peak <= peak), None)
