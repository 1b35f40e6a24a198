"""Which part of the recording began with fresh memory: nothing can be live in a range of addresses when it is taken from the device.

::

    event        0   1   2   3   4   5
    segment          [==================      1 takes the range from the device
    storage in it            …   -            4 frees it, no event allocates it: an allocation was lost in (1, 4]
"""

from __future__ import annotations

import numpy as np

from lifecycle_sim.events import Events
from lifecycle_sim.events.kinds import TAKES
from lifecycle_sim.events.trace import Int64


def last_taken(events: Events, address: Int64, before: Int64) -> Int64:
    """Return for each *address* the last event that took a range around it from the device, and lies before event *before*; -1 if none.

    The ranges are put into the nodes of a binary tree over the sorted addresses, at most two on each level, and every address looks
    at the one node of each level that is above it: k ranges and m addresses take (k + m) log m log k steps, however they overlap.
    """
    found = np.full(len(address), -1, np.int64)
    taken = np.flatnonzero(np.isin(events.kind, TAKES))
    if not len(taken) or not len(address):
        return found
    order = np.argsort(address, kind="stable")
    leaves, stride = 1 << (len(address) - 1).bit_length(), len(events) + 1
    node = np.empty(len(address), np.int64)
    node[order] = np.arange(len(address)) + leaves
    low = np.searchsorted(address[order], events.address[taken]) + leaves
    high = np.searchsorted(address[order], events.address[taken] + events.size[taken]) + leaves
    while len(taken):
        inside = low < high
        left, right = inside & (low % 2 == 1), inside & (high % 2 == 1)
        held = np.sort(np.concatenate([low[left] * stride + taken[left], (high[right] - 1) * stride + taken[right]]))
        if len(held):
            at = np.searchsorted(held, node * stride + before) - 1
            nodes, times = np.divmod(held[np.maximum(at, 0)], stride)
            found = np.where((at >= 0) & (nodes == node), np.maximum(found, times), found)
        taken, low, high = taken[inside], (low[inside] + 1) // 2, high[inside] // 2
        node //= 2
    return found
