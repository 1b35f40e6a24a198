"""The kinds of events, the categories of storages and the bases of byte figures."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Kind(IntEnum):
    """What an event did. The names are PyTorch's trace actions in capitals; ``FREE``, ``SHARE``, ``RELEASE`` and ``OTHER`` are
    added.

    Only five kinds change a level: ``ALLOC`` adds the size to requested bytes; ``FREE`` or ``FREE_COMPLETED`` takes it away;
    the ``SEGMENT_*`` kinds change reserved bytes.
    """

    ALLOC = 0
    """A storage is handed out; ``size`` is what was asked for."""
    FREE_REQUESTED = 1
    """The program gave the storage up; its bytes stay in use until ``FREE_COMPLETED``."""
    FREE_COMPLETED = 2
    """The storage is gone; ends its live interval."""
    FREE = 3
    """Requested and completed in one: the only free of sources that do not tell the two apart."""
    SEGMENT_ALLOC = 4
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6
    SEGMENT_UNMAP = 7
    OOM = 8
    """An allocation failed. ``size`` is the rounded request, ``address`` the device's free bytes."""
    SNAPSHOT = 9
    ANNOTATE = 10
    """A live storage was given a label."""
    SHARE = 11
    """A further name for a live storage; adds no bytes."""
    RELEASE = 12
    """A name of a storage went away while others remain; frees no bytes."""
    OTHER = 13
    """An action that this version does not know. It changes no level; the row is kept so that indices stay those of the file."""


TAKES = (Kind.SEGMENT_ALLOC, Kind.SEGMENT_MAP)
"""Kinds by which memory is taken from the device: reserved bytes grow."""

GIVES_BACK = (Kind.SEGMENT_FREE, Kind.SEGMENT_UNMAP)
"""Kinds by which it is given back."""


class Category(IntEnum):
    """What a storage is for, where that is known. torch's profiler names, in lower case."""

    UNKNOWN = 0
    PARAMETER = 1
    BUFFER = 2
    GRADIENT = 3
    OPTIMIZER_STATE = 4
    ACTIVATION = 5
    INPUT = 6
    TEMPORARY = 7
    WORKSPACE = 8

    @property
    def word(self) -> str:
        """The category's name in lower case, as every output writes it."""
        return self.name.lower()


class BlockState(IntEnum):
    """The state of a block in a recorded segment."""

    INACTIVE = 0
    ALLOCATED = 1
    PENDING_FREE = 2


class Basis(StrEnum):
    """What a byte figure counts."""

    PAYLOAD = "payload"
    """Bytes counted from shapes or written by hand; no allocator was asked."""
    REQUESTED = "requested"
    """Bytes the program asked the allocator for, before rounding."""
    ALLOCATED = "allocated"
    """Rounded block sizes."""


class Evidence(StrEnum):
    """Where the figures come from."""

    MEASURED = "measured"
    SIMULATED = "simulated"


class Clock(StrEnum):
    """What the time of an event counts."""

    NANOSECONDS = "ns"
    TICKS = "tick"
    NONE = "none"
