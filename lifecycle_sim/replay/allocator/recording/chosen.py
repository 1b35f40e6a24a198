"""Under which release and settings a recording was made, as far as its file tells."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lifecycle_sim.events import Assumption, Kind, Trace
from lifecycle_sim.replay.allocator.release import NEWEST, Behaviour, Release
from lifecycle_sim.replay.allocator.settings import AllocatorSettings, settings_from_snapshot


@dataclass(frozen=True)
class RecordedSettings:
    """Release and settings for the replay of a recording.

    Attributes:
        release: the release whose rules hold.
        told: what the file tells of its release, such as ``"2.10–2.11"``; None if nothing.
        given: whether the release was given instead of being taken from the file.
        settings: the settings in force. Memory limits are left out: a recording shows when they acted.
        options: the recorded options string, empty where there is none.
        assumptions: what had to be assumed to choose them.
    """

    release: Release
    told: str | None
    given: bool
    settings: AllocatorSettings
    options: str
    assumptions: tuple[Assumption, ...]


def recorded_settings(trace: Trace, release: str | Release | None = None) -> RecordedSettings:
    """Return release and settings for *trace*; *release* overrides what the file tells.

    Raises:
        InputError: *release* is none, or the recorded options cannot be read.
    """
    assumptions = []
    chosen = Release.parse(release or trace.release or NEWEST)
    if release is None and trace.release is None:
        text = f"nothing in the file tells the PyTorch release: {chosen} is taken; give the release if it was another"
        assumptions.append(Assumption("release_unknown", 1, text))
    elif release is None and Behaviour.of(chosen) != Behaviour.of(_last(trace.release or "")):
        text = f"the file may be of any release of {trace.release}, which do not decide alike: {chosen} is taken; give the one it was"
        assumptions.append(Assumption("release_range", 1, text))
    settings = settings_from_snapshot(trace.settings, chosen)
    settings = replace(settings, per_process_memory_fraction=None, throw_on_cudamalloc_oom=False)
    maps = any(
        _maps(device.events.kind.tolist()) or (device.final is not None and device.final.segments.expandable.any()) for device in trace
    )
    if maps and "expandable_segments" not in trace.settings and not settings.expandable_segments:
        settings = replace(settings, expandable_segments=True)
        text = "the settings were not recorded; expandable segments were in use, so they are taken to have been on throughout"
        assumptions.append(Assumption("expandable_taken", 1, text))
    options = trace.settings.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    return RecordedSettings(chosen, trace.release, release is not None, settings, str(options), tuple(assumptions))


def tie_assumption(chosen: RecordedSettings, settled: int) -> Assumption | None:
    """What the recording left open about choices between equal blocks that are older than its window."""
    if not settled:
        return None
    text = (
        f"choices between equal free blocks hang, in PyTorch {chosen.release}, on which segment was obtained first; of segments older than "
        "the window the recording does not tell, and the recorded choice was believed"
    )
    return Assumption("order_unknown", settled, text)


def loss_assumption(lost: int, starts_lossy: bool) -> Assumption | None:
    """What follows for the levels where the recording lost events."""
    if not lost and not starts_lossy:
        return None
    text = (
        "the recording lost events: what was handed out or obtained in a gap is taken to have been there before, so that levels, "
        "peaks and placements near a gap are estimates; the command peak gives bounds"
    )
    return Assumption("levels_estimated", max(lost, 1), text)


def _last(text: str) -> Release:
    """The newest release of a range; an open one ends with the newest that is known."""
    if text.endswith("+"):
        return NEWEST
    return Release.parse(text.replace("–", "-").split("-")[-1])


def _maps(kinds: list[int]) -> bool:
    return Kind.SEGMENT_MAP in kinds or Kind.SEGMENT_UNMAP in kinds
