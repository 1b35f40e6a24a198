"""The allocator's settings: what they are, and how to read them from an options string or from a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lifecycle_sim.errors import InputError, SnapshotError
from lifecycle_sim.replay.allocator.options import read_options
from lifecycle_sim.replay.allocator.release import NEWEST, Behaviour, Release
from lifecycle_sim.replay.allocator.rounding import DIVISION_ENTRIES, LARGE_SEGMENT, NO_DIVISIONS


@dataclass(frozen=True)
class AllocatorSettings:
    """What can be set, in PyTorch's names; sizes are bytes.

    Attributes:
        max_split_size: blocks of this size or larger are not split; None is no such bound.
        max_non_split_rounding: how much larger than such a request an unsplit block may be; None is ``large_segment_size``.
        garbage_collection_threshold: fraction of the memory limit above which old free blocks are given back; 0 is never.
        roundup_power2_divisions: 16 entries; entry i holds for requests in [2^i, 2^(i+1)) MiB, the first also below, the last above.
        expandable_segments: obtain memory by mapping it into reserved address ranges.
        large_segment_size: size of the segments for requests from 1 to 10 MiB, and of the pages of large expandable segments.
        per_process_memory_fraction: fraction of the device that may be held, where the options string sets it.
        throw_on_cudamalloc_oom: refuse a request that would pass that fraction at once, without flushing.
    """

    max_split_size: int | None = None
    max_non_split_rounding: int | None = None
    garbage_collection_threshold: float = 0.0
    roundup_power2_divisions: tuple[int, ...] = NO_DIVISIONS
    expandable_segments: bool = False
    large_segment_size: int = LARGE_SEGMENT
    per_process_memory_fraction: float | None = None
    throw_on_cudamalloc_oom: bool = False

    def __post_init__(self) -> None:
        if len(self.roundup_power2_divisions) != DIVISION_ENTRIES:
            raise InputError(f"roundup_power2_divisions has {len(self.roundup_power2_divisions)} entries: it needs {DIVISION_ENTRIES}")

    @property
    def non_split_rounding(self) -> int:
        """The value of ``max_non_split_rounding`` in force, in bytes."""
        return self.large_segment_size if self.max_non_split_rounding is None else self.max_non_split_rounding


_FIELDS = {f"{name}_mb": name for name in ("max_split_size", "max_non_split_rounding", "large_segment_size")}
_NAMES = AllocatorSettings.__dataclass_fields__.keys()


def parse_options(text: str, release: Release | str = NEWEST, onto: AllocatorSettings | None = None) -> AllocatorSettings:
    """Return the settings that the options string *text* stands for, in PyTorch's own syntax: ``"expandable_segments:True"``.

    Args:
        text: what ``PYTORCH_CUDA_ALLOC_CONF`` would hold.
        release: the PyTorch release; it decides which keys exist and what some of them mean.
        onto: settings in force that a call at run time changes. Such a call first resets the splitting, garbage collection and
            rounding settings; ``expandable_segments`` and ``large_segment_size`` stay. None is the start of the program.

    Raises:
        InputError: one line for each key or value that cannot be accepted.
    """
    release = Release.parse(release)
    settings = AllocatorSettings()
    if onto is not None:
        settings = replace(onto, max_split_size=None, garbage_collection_threshold=0.0, roundup_power2_divisions=NO_DIVISIONS)
        if Behaviour.of(release).resets_non_split_rounding:
            settings = replace(settings, max_non_split_rounding=None)
    options = {_FIELDS.get(key, key): value for key, value in read_options(text, release, settings.large_segment_size).items()}
    return replace(settings, **{name: value for name, value in options.items() if name in _NAMES})


def settings_from_snapshot(recorded: Mapping[str, Any], release: Release | str = NEWEST) -> AllocatorSettings:
    """Return the settings in a snapshot's ``allocator_settings``.

    Large segment size and non-split rounding are only in its copy of the last options string. An empty mapping gives the defaults.

    Raises:
        InputError: the options string cannot be read.
        SnapshotError: a value has the wrong type.
    """
    settings = parse_options(str(recorded.get("PYTORCH_CUDA_ALLOC_CONF") or ""), release)
    try:
        changes: dict[str, Any] = {}
        if "max_split_size" in recorded:
            limit = int(recorded["max_split_size"])
            changes["max_split_size"] = None if limit < 0 else limit
        if "garbage_collection_threshold" in recorded:
            changes["garbage_collection_threshold"] = float(recorded["garbage_collection_threshold"])
        if "expandable_segments" in recorded:
            changes["expandable_segments"] = bool(recorded["expandable_segments"])
        if "roundup_power2_divisions" in recorded:
            table = {str(key): int(value) for key, value in recorded["roundup_power2_divisions"].items()}
            changes["roundup_power2_divisions"] = tuple(table.get(str(1 << entry), 0) for entry in range(DIVISION_ENTRIES))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise SnapshotError(f"allocator_settings: {error}; expected the mapping that PyTorch writes") from error
    return replace(settings, **changes)
