"""What the allocator would make of a batch that nobody ran: the requests of two runs, each grown along the line through its two sizes.

Tensors grow evenly with the batch, so that two runs with the same events tell the requests of a third; what that many requests hold from
the device, in steps and not along a line, the allocator's model says. It proposes only: an answer is measured on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lifecycle_sim.events import Trace
from lifecycle_sim.study.prediction import predict

MOST = 2**62
"""Bytes of a device on which everything fits."""


@dataclass(frozen=True)
class Requests:
    """What a run asked its allocator for.

    Attributes:
        trace: the requests of one device, from the start of the process on.
        settings: allocator options in PyTorch's syntax.
    """

    trace: Trace
    settings: str = ""

    def like(self, other: Requests) -> bool:
        """Return whether *other* asked for and gave back the same storages in the same order, whatever their sizes."""
        (one,), (two,) = self.trace.devices, other.trace.devices
        columns = ("kind", "address", "stream")
        return one.spans == two.spans and all(np.array_equal(getattr(one.events, key), getattr(two.events, key)) for key in columns)


def levels_between(runs: Mapping[int, Requests], basis: str) -> Callable[[int], int] | None:
    """Return what tells the peak at any count from two whose events are the same: the largest, and the least from its half on.

    Small counts may take other kernels with other scratch; sizes that are rounded up rise unevenly from one count to the next.

    Args:
        runs: requests by count.
        basis: ``"requested"``, ``"allocated"`` or ``"reserved"``.

    Returns:
        The function, or None where no two runs are alike.
    """
    pairs = [(one, other) for other in sorted(runs, reverse=True) for one in sorted(runs) if one < other]
    pairs.sort(key=lambda pair: 2 * pair[0] < pair[1])  # stable
    found = next((pair for pair in pairs if runs[pair[0]].like(runs[pair[1]])), None)
    if found is None:
        return None
    one, other = found
    trace, settings = runs[one].trace, runs[one].settings
    recorded = trace.devices[0]
    sizes = recorded.events.size.tolist()
    growth = [big - small for small, big in zip(sizes, runs[other].trace.devices[0].events.size.tolist(), strict=True)]

    def peak(count: int) -> int:
        grown = [max(0, size + (count - one) * more // (other - one)) for size, more in zip(sizes, growth, strict=True)]
        if sum(grown) >= MOST:
            return MOST
        events = replace(recorded.events, size=np.array(grown, dtype=np.int64))
        return predict(replace(trace, devices=(replace(recorded, events=events),)), capacity=MOST, settings=settings).peak(basis)

    return peak
