"""The allocator on its own beside a recording, "open loop": what it would have done against what was done.

It starts from the rebuilt state at the window's start and carries out the recorded requests and frees. Of everything else it is told
only what it cannot know: at which addresses the device placed new segments and ranges, that memory was given back at some point
(``empty_cache``, or a first attempt that failed), that the device was full, and when frees completed that had to wait. Which block a
request gets, when a segment is obtained and of what size, which segments go and in which order: that it decides, and that is compared.

Where it differs, the difference is counted and set right: the next decision is compared from the recorded state again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Assumption, DeviceTrace, Events, Kind, MemoryState, Trace
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.allocator.recording.beside import Beside
from lifecycle_sim.replay.allocator.recording.calls import CHANGES
from lifecycle_sim.replay.allocator.recording.chosen import RecordedSettings, loss_assumption, recorded_settings, tie_assumption
from lifecycle_sim.replay.allocator.recording.comparison import DECISIONS, LOST, Difference, Score
from lifecycle_sim.replay.allocator.recording.layout import Layout, compare_layouts
from lifecycle_sim.replay.allocator.recording.levels import slack_of
from lifecycle_sim.replay.allocator.recording.rebuild import Rebuilt, open_sizes_assumption, rebuild
from lifecycle_sim.replay.allocator.release import Release
from lifecycle_sim.replay.allocator.statistics import Levels

__all__ = ["DECISIONS", "OpenLoop", "open_loop", "replayable"]


@dataclass(frozen=True, eq=False)
class OpenLoop:
    """What came of replaying a recording.

    Attributes:
        device: the device's name.
        chosen: release and settings, and where they come from.
        start: the state before the first event.
        scores: for each of ``DECISIONS`` how many were exact.
        differences: the first differences, in words.
        difference_count: all of them.
        events: how many events the recording has.
        compared: how many were replayed; fewer than there are if a part was asked for, or if the differences were too many to go on.
        ties_settled: choices between equal blocks of segments older than the window that only the recorded address could settle.
        reserved_error: the largest difference between predicted and recorded reserved bytes, before it was set right.
        levels: requested, allocated, active and reserved bytes before the first event and after each.
        slack: bytes by which allocated and active may be higher, for tails that no later address told; likewise over events.
        final: the state after the last event.
        layout: that state against the recorded one; None where only a part of the recording was replayed.
        assumptions: what had to be assumed.
    """

    device: str
    chosen: RecordedSettings
    start: Rebuilt
    scores: dict[str, Score]
    differences: tuple[Difference, ...]
    difference_count: int
    events: int
    compared: int
    ties_settled: int
    reserved_error: int
    levels: Levels
    slack: Int64
    final: MemoryState
    layout: Layout | None
    assumptions: tuple[Assumption, ...]

    @property
    def exact(self) -> bool:
        """Whether every decision, every reserved byte and the final layout are as recorded."""
        decided = self.difference_count == 0 and all(score.all_exact for score in self.scores.values())
        return decided and self.reserved_error == 0 and (self.layout is None or self.layout.equal)


def open_loop(
    trace: Trace,
    device: str | int | None = None,
    release: Release | str | None = None,
    stop: int | None = None,
    capacity: int | None = None,
) -> OpenLoop:
    """Replay the recorded requests of one device of *trace* with the allocator on its own, and compare.

    Args:
        trace: a recording with events and final segments.
        device: its name, such as ``"cuda:1"``, or 1 for that; by default the only one that has events.
        release: the PyTorch release; by default what the file tells.
        stop: replay only the events before this one, and compare no final layout.
        capacity: bytes of the device, by default as the record states them: the ranges that expandable segments reserve are nine eighths
            of them. It matters only on a device so small, or so full, that a range was used up.

    Raises:
        InputError: the device has no events or no final segments, is no CUDA device, or there are several.
    """
    recorded = _recorded_device(trace, device)
    chosen = recorded_settings(trace, release)
    size = recorded.capacity if capacity is None else capacity
    start = rebuild(recorded, chosen.settings, chosen.release, len(trace.pools), size)
    events = recorded.events
    if stop is not None:
        events = Events(**{name: column[:stop] for name, column in vars(events).items()})
    beside = Beside(trace, events, start, chosen, partial=stop is not None, size=size)
    beside.run()
    final = beside.allocator.state()
    complete = stop is None and beside.compared == len(events)
    found = (
        open_sizes_assumption(start),
        tie_assumption(chosen, beside.ties_settled),
        loss_assumption(beside.tally.count_of(LOST), bool(start.losses)),
    )
    return OpenLoop(
        device=recorded.device,
        chosen=chosen,
        start=start,
        scores=beside.tally.scores(),
        differences=tuple(beside.tally.first),
        difference_count=beside.tally.differences,
        events=len(recorded.events),
        compared=beside.compared,
        ties_settled=beside.ties_settled,
        reserved_error=beside.tally.reserved_error,
        levels=beside.levels(),
        slack=slack_of(start.open_sizes, len(events)),
        final=final,
        layout=compare_layouts(final, recorded.final) if complete and recorded.final is not None else None,
        assumptions=(*chosen.assumptions, *start.losses, *(each for each in found if each is not None)),
    )


def replayable(trace: Trace) -> list[str]:
    """Return the names of the devices whose record holds what :func:`open_loop` needs."""
    return [each.device for each in trace if _obstacle(each) is None]


def _recorded_device(trace: Trace, device: str | int | None) -> DeviceTrace:
    if device is not None:
        recorded = trace.device(device)
    elif not trace.devices:
        raise InputError(f"this {trace.format} trace is empty: no device has events or a recorded state, so there is nothing to replay")
    else:
        able = replayable(trace)
        if len(able) > 1:
            raise InputError(f"several devices have a record: choose one of {', '.join(able)}")
        recorded = trace.device(able[0]) if able else trace.devices[0]
    obstacle = _obstacle(recorded)
    if obstacle is not None:
        raise InputError(f"{recorded.device}: {obstacle}")
    return recorded


def _obstacle(recorded: DeviceTrace) -> str | None:
    """Why the record of a device cannot be replayed by the allocator."""
    if recorded.device == "pinned":
        return "pinned host memory has an allocator of its own, which is not modelled"
    if recorded.final is None:
        how = "a CUDA memory snapshot has them (torch.cuda.memory._dump_snapshot)"
        return f"the record holds no segments, so where blocks lie cannot be told; {how}"
    if not np.isin(recorded.events.kind, (Kind.ALLOC, Kind.FREE, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED, *CHANGES, Kind.OOM)).any():
        how = "call torch.cuda.memory._record_memory_history() before the run"
        return f"no event was recorded, only the state at the end, so there is nothing to replay; {how}"
    return None
