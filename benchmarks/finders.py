"""Batch finders side by side: what each returns, how many runs it makes, how many of them run out of memory, was its answer run.

The others' control flow is replayed here on peaks that are ``fixed + per_sample · batch``: Lightning's ``power`` and ``binsearch``
(initial value 2, cap 8192, 25 trials, margin of 5 %), accelerate's reduction by a tenth and by half from 128.
``python -m benchmarks.finders`` prints the table; the cases are those that differ by what is true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lifecycle_sim.study.batch.seeking import Seen, seek, seek_all

CAP, TRIALS, MARGIN, START = 8192, 25, 0.05, 128
GIB = 2**30
CASES = {
    "true max 0 (fixed fits, nothing else)": (4 * GIB, 8 * GIB, 10 * GIB),
    "true max 1": (4 * GIB, 5 * GIB, 10 * GIB),
    "true max 3": (4 * GIB, 2 * GIB - 1, 10 * GIB),
    "true max 12": (GIB, 805_306_367, 10 * GIB),
    "true max 63": (GIB, 153_391_689, 10 * GIB),
    "true max 100": (0, 107_374_182, 10 * GIB),
    "true max 1000": (GIB, 9_663_676, 10 * GIB),
    "true max 8192+ (cap)": (0, 1, 10 * GIB),
    "fixed alone exceeds": (11 * GIB, 1, 10 * GIB),
}


@dataclass
class Runs:
    """Counts runs of a step.

    Attributes:
        fits: whether a batch fits.
        tried: the batches that were run, in order.
    """

    fits: Callable[[int], bool]
    tried: list[int] = field(default_factory=list)

    def __call__(self, batch: int) -> bool:
        """Run a batch."""
        self.tried.append(batch)
        return self.fits(batch)


@dataclass(frozen=True)
class Result:
    """What a finder returned: a batch, or the error it raised; the runs; how many ran out of memory; whether the batch was run and fits."""

    found: int | str
    runs: int
    out_of_memory: int
    tested: bool


def result(found: int | str, run: Runs, real: bool = True) -> Result:
    """Return the result; *real* runs need memory, and those of a simulation do not."""
    failed = sum(not run.fits(batch) for batch in run.tried) if real else 0
    tested = isinstance(found, int) and found in run.tried and run.fits(found)
    return Result(found, len(run.tried), failed, tested)


def lightning_power(fits: Callable[[int], bool], size: int = 2) -> Result:
    """Double until it fails, or halve until it does not; the cap is returned without a run."""
    run, succeeded = Runs(fits), False
    for _ in range(TRIALS):
        if size >= CAP:
            return result(CAP, run)
        if size == 0:
            run.tried.append(0)
            return Result("ValueError(batch_size=0)", len(run.tried), sum(not fits(batch) for batch in run.tried), False)
        if run(size):
            succeeded = True
            size *= 2
            continue
        size //= 2
        if succeeded:
            break
    return result(size, run)


def lightning_binsearch(fits: Callable[[int], bool], size: int = 2, margin: float = MARGIN) -> Result:
    """Double until it fails, then bisect between; a part of the batch is taken off at the end, and that is not run."""
    run, low, high = Runs(fits), 1, None
    for _ in range(TRIALS):
        if size >= CAP:
            size = CAP
            break
        if run(size):
            low = size
            if high is None:
                size *= 2
                continue
            if high - low <= 1:
                break
        else:
            high = size
            if high - low <= 1:
                size = low
                break
        size = (low + high) // 2
    return result(max(1, int(size * (1 - margin))), run)


def accelerate(fits: Callable[[int], bool], reduce: Callable[[int], int], size: int = START) -> Result:
    """Take the first of falling batches that does not fail; never a larger one than the first."""
    run = Runs(fits)
    while size > 0:
        if run(size):
            return result(size, run)
        size = reduce(size)
    return Result("RuntimeError: No executable batch size found, reached zero.", len(run.tried), len(run.tried), False)


def by_tenths(size: int) -> int:
    """Nine tenths of *size*."""
    return int(size * 0.9)


def by_halves(size: int) -> int:
    """Half of *size*."""
    return size // 2


def this(fixed: int, per_sample: int, budget: int, limit: int = 2**20) -> Result:
    """This project's search, whose runs are simulated: both sides of the answer are among them."""
    run = Runs(lambda batch: fixed + per_sample * batch <= budget)

    def measure(pairs: Sequence[tuple[str, int]]) -> list[Seen]:
        run.tried.extend(batch for _, batch in pairs)
        return [Seen(fixed + per_sample * batch) for _, batch in pairs]

    found = seek_all({"batch": seek(budget, limit)}, measure)["batch"].value
    return result(found if found or fixed <= budget else -1, run, real=False)


def side_by_side() -> dict[str, dict[str, Result]]:
    """Return what each finder makes of each case."""
    table = {}
    for name, (fixed, per_sample, budget) in CASES.items():

        def fits(batch: int, fixed: int = fixed, per_sample: int = per_sample, budget: int = budget) -> bool:
            return fixed + per_sample * batch <= budget

        table[name] = {
            "this": this(fixed, per_sample, budget),
            "lightning_power": lightning_power(fits),
            "lightning_binsearch": lightning_binsearch(fits),
            "lightning_binsearch_margin0": lightning_binsearch(fits, margin=0),
            "lightning_binsearch_init1": lightning_binsearch(fits, size=1),
            "accelerate_0.9_from128": accelerate(fits, by_tenths),
            "accelerate_halving_from128": accelerate(fits, by_halves),
        }
    return table


def main() -> None:
    """Print the table in Markdown."""
    table = side_by_side()
    finders = list(next(iter(table.values())))
    print("| case | " + " | ".join(finders) + " |\n|---|" + "---|" * len(finders))
    for case, row in table.items():
        cells = []
        for each in row.values():
            found = each.found if isinstance(each.found, int) else "error"
            untested = "" if each.tested or not isinstance(each.found, int) or each.found < 1 else ", not run"
            cells.append(f"{found}{untested}; {each.runs} runs, {each.out_of_memory} out of memory")
        print(f"| {case} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
