"""The largest micro-batch with the cheapest plan of recomputation that lets it fit, and what each batch on the way costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Trace
from lifecycle_sim.program.remat.search import SECONDS
from lifecycle_sim.program.stored_steps import graphs_of
from lifecycle_sim.study.batch import largest
from lifecycle_sim.study.plan import RegionPlan, plan
from lifecycle_sim.study.recompute import Captured
from lifecycle_sim.units import format_exact

LIMIT = 4096
"""The largest batch that is tried if nothing else is said."""


@dataclass(frozen=True)
class BatchPlan:
    """One batch that was tried.

    Attributes:
        batch: the samples of a step.
        found: the cheapest plan under the budget, if there is one.
        flops: floating-point operations of the step without recomputation.
        dominated: a larger batch fits at no more operations run again for each that the step needs.
    """

    batch: int
    found: RegionPlan
    flops: int
    dominated: bool = False

    @property
    def fits(self) -> bool:
        """Whether there is a plan within the budget."""
        return self.found.fits

    @property
    def again(self) -> int | None:
        """Floating-point operations run again; None where nothing fits, or where costs count something else."""
        return self.found.plan.cost if self.found.plan is not None and self.found.unit == "FLOP" else None


@dataclass(frozen=True)
class BatchPlans(Shown):
    """The answer to: how large can the micro-batch be if recomputation may help, and what does each batch cost.

    Attributes:
        budget: bytes, on the basis.
        basis: what bytes count.
        rows: the batches that were tried, in order, each with its cheapest plan.
        limit: the largest batch that was allowed.
    """

    budget: int
    basis: str
    rows: tuple[BatchPlan, ...]
    limit: int

    @property
    def largest(self) -> BatchPlan | None:
        """The largest batch that fits, with its plan; None if none does."""
        return next((row for row in reversed(self.rows) if row.fits), None)

    @property
    def without(self) -> int | None:
        """The largest batch among those tried that fits with nothing recomputed; None if none does."""
        return next((row.batch for row in reversed(self.rows) if row.fits and not (row.found.plan and row.found.plan.chosen)), None)

    @property
    def refuted(self) -> BatchPlan | None:
        """The next batch, for which no plan was found; None if it is the limit that bound."""
        fitting = self.largest
        return next((row for row in self.rows if not row.fits and row.batch == (fitting.batch if fitting else 0) + 1), None)

    @property
    def proven(self) -> bool:
        """Whether no plan lets the next batch fit, or the limit bound."""
        return self.refuted is None or self.refuted.found.proven

    def __repr__(self) -> str:
        found = self.largest
        if found is None or found.found.plan is None:
            return f"BatchPlans(no batch fits within {self.budget:,} B {self.basis})"
        return (
            f"BatchPlans(batch {found.batch:,} with {len(found.found.plan.chosen):,} modules recomputed, "
            f"within {self.budget:,} B {self.basis}, "
            f"{'proven' if self.proven else 'not proven the largest'})"
        )

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        return [
            ("budget", f"{format_exact(self.budget)} {self.basis}"),
            *(
                (
                    f"batch {row.batch:,}",
                    "no plan fits"
                    if row.found.plan is None
                    else f"{len(row.found.plan.chosen):,} modules recomputed, peak {format_exact(row.found.plan.peak)}, "
                    f"cost {row.found.plan.cost:,} {row.found.unit}",
                )
                for row in self.rows
            ),
        ]


def largest_batch(
    capture_at: Callable[[int], Captured | Trace],
    budget: int | str | None = None,
    modules: str | Iterable[str] | None = None,
    *,
    basis: str = "reserved",
    limit: int = LIMIT,
    objective: str = "flops",
    early_stop: bool = True,
    solver: str = "auto",
    seconds: float = SECONDS,
) -> BatchPlans:
    """Return the largest micro-batch for which some plan stays within *budget*, with the cheapest such plan of each batch that was tried.

    Batches are doubled from 1 until nothing fits, then halved in between; what fits is taken to fit for every smaller batch too.

    Args:
        capture_at: captures a step of a batch, such as ``lambda batch: ls.capture_file("model.py", parameters={"batch": batch})``.
        budget: bytes, or a size such as ``"40 GiB"``; by default the memory of the card of the captures.
        modules: as in :func:`lifecycle_sim.plan`, like all that follow but *limit*.
        basis: what the budget counts.
        limit: the largest batch that is tried.
        objective: what a plan costs.
        early_stop: whether recomputation stops at the last tensor needed.
        solver: how plans are searched.
        seconds: how long one search may take.

    Raises:
        InputError: a limit below 1, no budget where the captures state no capacity, or what ``ls.plan`` raises.
    """
    if limit < 1:
        raise InputError(f"a largest batch of {limit:,} is none: give 1 or more")
    rows: dict[int, BatchPlan] = {}
    bytes_given = budget

    def tried(batch: int) -> bool:
        nonlocal bytes_given
        if batch in rows:
            return rows[batch].fits
        captured = capture_at(batch)
        trace = captured if isinstance(captured, Trace) else captured.trace
        bytes_given = budget_of(trace, bytes_given)
        found = plan(trace, bytes_given, modules, basis=basis, objective=objective, early_stop=early_stop, solver=solver, seconds=seconds)
        rows[batch] = BatchPlan(batch, found, sum(row.flops for row in graphs_of(trace)[-1].operators))
        return found.fits

    low, high = 0, 1
    while high <= limit and tried(high):
        low, high = high, min(2 * high, limit) if high < limit else limit + 1
    if low:
        largest(lambda more: tried(low + more), high - low - 1)
    ordered = [rows[batch] for batch in sorted(rows)]
    first = ordered[0].found
    return BatchPlans(first.budget, first.basis, tuple(_judged(ordered)), limit)


def budget_of(trace: Trace, budget: int | str | None) -> int | str:
    """Return *budget*, or the memory of the card that *trace* was captured for.

    Raises:
        InputError: there is neither.
    """
    if budget is not None:
        return budget
    capacity = trace.devices[0].capacity
    if capacity is None:
        raise InputError("the capture does not say how much memory its card has: give a budget")
    return capacity


def _judged(rows: list[BatchPlan]) -> list[BatchPlan]:
    """Mark the batches that a larger one beats: no more is run again for each operation that the step needs."""
    judged: list[BatchPlan] = []
    for place, row in enumerate(rows):
        larger = [other for other in rows[place + 1 :] if other.found.plan is not None]
        cost = None if row.found.plan is None else row.found.plan.cost
        beaten = cost is not None and any(
            other.found.plan is not None and other.found.plan.cost * max(row.flops, 1) <= cost * max(other.flops, 1) for other in larger
        )
        judged.append(BatchPlan(row.batch, row.found, row.flops, beaten))
    return judged
