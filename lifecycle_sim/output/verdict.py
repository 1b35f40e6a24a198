"""Whether what was replayed fits into a capacity."""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle_sim.replay import DeviceReplay


@dataclass(frozen=True)
class LevelVerdict:
    """One level of a device against the capacity.

    Attributes:
        level: what is compared: ``"requested"``, ``"payload"``, ``"allocated"`` or ``"reserved"``.
        size: its peak in bytes; the least it can be where levels count from an unknown start.
        upper: the most that peak can be, given what the recording lost; None if nothing bounds it.
        overflow: bytes by which ``size`` is above the capacity, 0 if it is not.
    """

    level: str
    size: int
    upper: int | None
    overflow: int


@dataclass(frozen=True)
class Verdict:
    """Whether a device's peaks fit into a capacity.

    Attributes:
        capacity: bytes.
        levels: the level of the record's basis, then reserved bytes where they are known.
    """

    capacity: int
    levels: tuple[LevelVerdict, ...]

    @property
    def fits(self) -> bool | None:
        """True if every known level fits, False if one does not, None if the recording lost or lacks too much to tell."""
        if any(level.overflow for level in self.levels):
            return False
        return True if all(level.upper is not None and level.upper <= self.capacity for level in self.levels) else None


def verdict(replayed: DeviceReplay, capacity: int) -> Verdict:
    """Compare the peaks of *replayed* with *capacity* bytes.

    Reserved bytes are what was taken from the device, so they are compared too where the record tells them; an allocator can give back
    some of them under pressure, but not fall below the requested ones.
    """
    peak = replayed.peak
    compared = [(str(replayed.timeline.basis), max(peak.size, peak.lower), peak.upper)]
    if replayed.reserved is not None:
        reserved = replayed.reserved.peak_size
        compared.append(("reserved", reserved, reserved if replayed.history else None))
    return Verdict(capacity, tuple(LevelVerdict(name, size, upper, max(0, size - capacity)) for name, size, upper in compared))
