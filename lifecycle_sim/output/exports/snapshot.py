"""Writes any trace as a CUDA memory snapshot; what a simulated or partial one lacks for that is made up plainly, and said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Category, DeviceTrace, Kind, Trace
from lifecycle_sim.replay import DeviceReplay, replay_all
from lifecycle_sim.replay.placement import in_two_steps, placed
from lifecycle_sim.sources.snapshot.writer import Written, device_indices, write_snapshot


def as_snapshot(trace: Trace) -> Written:
    """Return *trace* as a snapshot that ``torch.cuda._memory_viz`` and the viewer in a browser accept.

    A recorded snapshot is written as it was read. A record without a final state gets one: see :mod:`lifecycle_sim.replay.placement`.

    Raises:
        InputError: there is nothing to write, or a device's events carry no identity.
    """
    device_indices(trace)
    problems = [
        f"{device.device}: this {trace.format} record has amounts without identities, so no snapshot can be made of it: record addresses "
        "(torch.profiler with profile_memory, or a memory snapshot), or choose another device"
        for device in trace
        if not device.identified
    ]
    if problems:
        raise InputError(problems)
    notes: list[str] = []
    devices = tuple(_prepared(replayed, notes) for replayed in replay_all(trace))
    written = write_snapshot(replace(trace, devices=devices))
    return Written(written.data, (*notes, *_renamed(trace), *written.notes))


def _prepared(replayed: DeviceReplay, notes: list[str]) -> DeviceTrace:
    name, recorded = replayed.device, replayed.recorded
    made = placed(replayed)
    if made.made_up is not None:
        notes.append(f"{name}: {made.made_up}; blocks are as large as the request rounded up to 512 bytes")
    if replayed.unidentified:
        notes.append(f"{name}: {replayed.unidentified:,} bytes that belong to no named storage are one block throughout")
    if recorded.basis is not Basis.REQUESTED:
        notes.append(f"{name}: a snapshot's sizes are requested bytes, and these are {recorded.basis} bytes")
    further = int(np.isin(recorded.events.kind, (Kind.SHARE, Kind.RELEASE)).sum())
    if further:
        notes.append(f"{name}: left out {further:,} events of further names of storages, for which snapshots have no action")
    if (recorded.events.category != Category.UNKNOWN).any():
        notes.append(f"{name}: categories are left out: snapshots have none")
    return in_two_steps(made.recorded)


def _renamed(trace: Trace) -> list[str]:
    """A line for each device that a snapshot knows by another name."""
    names = zip([device.device for device in trace], device_indices(trace), strict=True)
    return [f"{name} is written as cuda:{index}" for name, index in names if index >= 0 and name != f"cuda:{index}"]
