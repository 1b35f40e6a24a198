"""PyTorch's native CUDA caching allocator, address by address.

One :class:`Allocator` is one device's. It makes the decisions of the compiled allocator (rounding, pools, best fit with each release's
tie-break, splitting, merging, deferred frees, garbage collection, expandable segments, private pools, limits, retries) and records the
events that a snapshot's trace would show, in the same order::

    from lifecycle_sim.replay.allocator import Allocator, Device

    allocator = Allocator(Device(24 * 2**30), "expandable_segments:True", release="2.13")
    address = allocator.malloc(3_000_000, stream=0)      # None when memory ran out; allocator.failures[-1] then says how
    allocator.free(address)
    allocator.statistics()["reserved_bytes"].peak        # torch.cuda.memory_stats(), by name
    allocator.levels().external_waste                    # requested, allocated, active, reserved after each event
    allocator.events(), allocator.state()                # as lifecycle_sim.events.Events and MemoryState

The parts of the surface:

* what programs do: ``malloc``, ``free``, ``record_stream``, ``complete`` (a stream has caught up), ``process_events``, ``empty_cache``;
  ``set_memory_fraction`` and ``set_options`` at run time; ``create_pool``, ``begin_pool``, ``end_pool``, ``release_pool``;
  ``begin_capture`` and ``end_capture``;
* what recordings need besides: ``defer`` and ``finish`` for frees that were late for a reason the recording does not hold,
  ``release_segment`` for a single ``segment_free``, :class:`RecordedAddresses` for the addresses of new segments, and
  :meth:`Allocator.from_state` to begin with the segments and blocks of a :class:`~lifecycle_sim.events.MemoryState`;
* what can be seen: ``events``, ``block_sizes``, ``levels``, ``statistics``, ``state``, ``largest_free``, ``failures``, ``reserved``.

Where PyTorch's own behaviour is undefined (released private pools with expandable segments, splitting limits lowered at run time), the
model does the sane thing. Not modelled: backends other than the native one, reuse inside a graph capture by the graph's topology, and
callbacks that free memory.
"""

from lifecycle_sim.replay.allocator.device import AddressPolicy, Device, LowestAddress, NextAddress, RecordedAddresses
from lifecycle_sim.replay.allocator.model import Allocator, OutOfMemory
from lifecycle_sim.replay.allocator.pools import DEFAULT_POOL, PoolId
from lifecycle_sim.replay.allocator.release import NEWEST, OLDEST, Release
from lifecycle_sim.replay.allocator.settings import AllocatorSettings, parse_options, settings_from_snapshot
from lifecycle_sim.replay.allocator.statistics import Counters, Levels, Stat, Statistics

__all__ = [
    "DEFAULT_POOL",
    "NEWEST",
    "OLDEST",
    "AddressPolicy",
    "Allocator",
    "AllocatorSettings",
    "Counters",
    "Device",
    "Levels",
    "LowestAddress",
    "NextAddress",
    "OutOfMemory",
    "PoolId",
    "RecordedAddresses",
    "Release",
    "Stat",
    "Statistics",
    "parse_options",
    "settings_from_snapshot",
]
