"""Runs independent jobs, in this process or spread over others: the answers and their order are the same either way.

Anything with the ``map`` of :class:`concurrent.futures.Executor` can be the executor: a process pool, a thread pool, a dask client's
``get_executor()``, loky's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from lifecycle_sim.errors import InputError

Job = TypeVar("Job")
Answer = TypeVar("Answer")

WORTH_A_PROCESS = 400_000
"""Units of work (such as events to replay) below which a further process costs more than it saves."""


class Executor(Protocol):
    """What spreads jobs."""

    def map(self, function: Callable[..., Any], /, *jobs: Any) -> Iterator[Any]:
        """Return the answers of *function* in the order of *jobs*."""


def run_jobs(
    function: Callable[[Job], Answer], jobs: Sequence[Job], work: int = 0, workers: int | None = 1, executor: Executor | None = None
) -> list[Answer]:
    """Return ``[function(job) for job in jobs]``.

    Args:
        function: a function of a module, which depends on the job alone.
        jobs: what to run it on; each is sent to the process that runs it.
        work: how much work all jobs are together; decides how many processes are worth their start where *workers* is None.
        workers: how many processes; 1 is this one, and None as many as are worth it, up to the number of cores. With more than one, a
            script of one's own needs ``if __name__ == "__main__":`` around what it runs.
        executor: what to spread the jobs with instead.

    Raises:
        InputError: *workers* is less than 1.
    """
    if executor is not None:
        return list(executor.map(function, jobs))
    if workers is None:
        workers = min(work // WORTH_A_PROCESS, os.cpu_count() or 1)
        workers = max(workers, 1)
    if workers < 1:
        raise InputError(f"{workers} workers: there must be 1 at least")
    workers = min(workers, len(jobs))
    if workers <= 1:
        return [function(job) for job in jobs]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(function, jobs))
