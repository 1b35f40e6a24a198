"""PyTorch's native CUDA caching allocator, address by address."""

from lifecycle_sim.replay.allocator.device import AddressPolicy, Device, LowestAddress, NextAddress, RecordedAddresses
from lifecycle_sim.replay.allocator.model import Allocator, OutOfMemory
from lifecycle_sim.replay.allocator.release import NEWEST, OLDEST, Release
from lifecycle_sim.replay.allocator.settings import AllocatorSettings, parse_options, settings_from_snapshot
from lifecycle_sim.replay.allocator.statistics import Levels, Stat, Statistics

__all__ = [
    "NEWEST",
    "OLDEST",
    "AddressPolicy",
    "Allocator",
    "AllocatorSettings",
    "Device",
    "Levels",
    "LowestAddress",
    "NextAddress",
    "OutOfMemory",
    "RecordedAddresses",
    "Release",
    "Stat",
    "Statistics",
    "parse_options",
    "settings_from_snapshot",
]
