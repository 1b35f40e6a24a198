"""How a what-if begins: on an empty device, or with what was there when the recording began."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lifecycle_sim.events import BlockState, MemoryState
from lifecycle_sim.replay.allocator.device import Device
from lifecycle_sim.replay.allocator.model import Allocator
from lifecycle_sim.replay.allocator.pools import PoolId
from lifecycle_sim.replay.allocator.release import Release
from lifecycle_sim.replay.allocator.requests import BEFORE, Requests
from lifecycle_sim.replay.allocator.settings import AllocatorSettings


@dataclass(frozen=True, eq=False)
class Beginning:
    """What an allocator holds before the window.

    Attributes:
        state: segments and blocks.
        pools: the pools that the segments name by number.
        reservations: (address, bytes) of the reserved ranges of expandable segments.
        live: the address of each storage that is handed out, by its number.
        pending: likewise of those whose free is pending.
    """

    state: MemoryState
    pools: tuple[PoolId, ...]
    reservations: tuple[tuple[int, int], ...]
    live: dict[int, int]
    pending: dict[int, int]

    def allocator(self, device: Device, settings: AllocatorSettings, release: Release) -> Allocator:
        """Return an allocator that begins like this."""
        return Allocator.from_state(self.state, device, settings, release, pools=self.pools, reservations=self.reservations)


def beginning_of(requests: Requests, state: MemoryState, reservations: tuple[tuple[int, int], ...] = ()) -> Beginning:
    """Return the beginning with the segments and blocks of *state*, in which the older storages of *requests* lie."""
    blocks = state.blocks
    state_at = dict(zip(blocks.address.tolist(), blocks.state.tolist(), strict=True))
    older = requests.storage[np.flatnonzero(requests.event == BEFORE)[: requests.older]].tolist()
    address = requests.address

    def in_state(wanted: BlockState) -> dict[int, int]:
        return {storage: int(address[storage]) for storage in older if state_at.get(int(address[storage])) == wanted}

    return Beginning(state, requests.pools, reservations, in_state(BlockState.ALLOCATED), in_state(BlockState.PENDING_FREE))
