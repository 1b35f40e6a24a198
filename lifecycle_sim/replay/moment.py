"""What a device held after any event of a recording: its blocks as the allocator, replayed from the start, has them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import NO_STACK, BlockState, MemoryState
from lifecycle_sim.replay.allocator.recording import open_loop
from lifecycle_sim.replay.device import DeviceReplay


@dataclass(frozen=True)
class Moment:
    """The state after an event, and how many of the allocator's decisions up to it differ from the recording: none if it is exact."""

    state: MemoryState
    differences: int


def moment(replayed: DeviceReplay, event: int) -> Moment:
    """Return what the device of *replayed* held after *event*; -1 asks for the state before the first.

    Raises:
        InputError: there is no such event, or the record cannot be replayed by the allocator (it has no segments, say).
    """
    recorded, last = replayed.recorded, len(replayed.recorded) - 1
    if not -1 <= event <= last:
        raise InputError(f"{recorded.device}: there is no event {event:,}: its events are 0 to {last:,}, and -1 stands for the start")
    if event == last and recorded.final is not None:
        return Moment(recorded.final, 0)
    loop = open_loop(replayed.trace, recorded.device, stop=event + 1)
    unseen = event + 1 - loop.compared
    return Moment(_with_stacks(loop.final, replayed, event), loop.difference_count + unseen)


def _with_stacks(state: MemoryState, replayed: DeviceReplay, event: int) -> MemoryState:
    """Give the active blocks of *state* the stack and the category of the storage that lives in them."""
    found = replayed.identified_lifetimes()
    live = np.flatnonzero(found.live_at(event))
    if not len(live):
        return state
    live = live[np.argsort(found.address[live], kind="stable")]
    row = live[np.minimum(np.searchsorted(found.address[live], state.blocks.address), len(live) - 1)]
    same = (found.address[row] == state.blocks.address) & (state.blocks.state != BlockState.INACTIVE)
    stack = np.where(same, found.stack[row], NO_STACK).astype(np.int32)
    category = np.where(same, found.category[row], 0).astype(np.uint8)
    return MemoryState(state.segments, replace(state.blocks, stack=stack, category=category))
