"""Writes the lifetimes of a device as a minimalloc CSV: an instance of the offset-assignment problem.

Format: github.com/google/minimalloc, ``id,lower,upper,size`` with half-open intervals ``[lower, upper)``.
"""

from __future__ import annotations

import numpy as np

from lifecycle_sim.replay import DeviceReplay


def write_minimalloc(replayed: DeviceReplay) -> bytes:
    """Return the storages of *replayed* as a minimalloc CSV.

    Times are positions in the timeline: position 0 is before the first event, position i + 1 after event i, so that a storage live in
    ``[alloc, free)`` has ``lower = alloc + 1`` and ``upper = free + 1``, and the instance has the peak of the replay. Bytes that were
    there throughout without a name are one more row, ``unidentified``. Storages whose interval is empty are left out.

    Raises:
        InputError: the record's events carry no identity.
    """
    found = replayed.identified_lifetimes()
    kept = np.flatnonzero(found.alloc < found.free)
    lower, upper, size = found.alloc[kept] + 1, found.free[kept] + 1, found.size[kept]
    rows = [
        f"{number},{begin},{end},{held}"
        for number, begin, end, held in zip(kept.tolist(), lower.tolist(), upper.tolist(), size.tolist(), strict=True)
    ]
    if replayed.unidentified:
        rows.append(f"unidentified,0,{found.events + 1},{replayed.unidentified}")
    return ("\n".join(["id,lower,upper,size", *rows]) + "\n").encode()
