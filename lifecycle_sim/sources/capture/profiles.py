"""What a capture has to know of a card: architecture, processors, capacity, and the library workspace that PyTorch gives it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches

from lifecycle_sim.errors import InputError

KIB, MIB, GIB = 2**10, 2**20, 2**30

WORKSPACE = 2 * 4096 * KIB + 8 * 16 * KIB
"""Bytes of the cuBLAS workspace of one handle and stream: ``:4096:2:16:8``, PyTorch's choice for most cards."""
HOPPER_WORKSPACE = 8 * 4096 * KIB
"""The same on architectures 9.0 and 10.0: ``:4096:8``."""
HOPPER_LIKE = (90, 100)


@dataclass(frozen=True)
class DeviceProfile:
    """A card, as far as PyTorch's allocations depend on it.

    Attributes:
        name: what the card is called.
        architecture: compute capability times ten, such as 90 for 9.0.
        processors: streaming multiprocessors; with their threads they decide how reductions are split, and so their scratch.
        threads: resident threads of one multiprocessor.
        capacity: bytes of the device as ``torch.cuda.get_device_properties`` tells them, to about one percent: drivers differ.
        workspace: bytes of a cuBLAS workspace; None for the one that PyTorch chooses by architecture.
    """

    name: str
    architecture: int
    processors: int
    threads: int
    capacity: int | None = None
    workspace: int | None = None

    def __post_init__(self) -> None:
        problems = [
            f"device profile {self.name!r}: {what} is {value!r}: give a whole number above 0"
            for what, value in (("architecture", self.architecture), ("processors", self.processors), ("threads", self.threads))
            if not isinstance(value, int) or value <= 0
        ]
        problems += [
            f"device profile {self.name!r}: {what} is {value!r}: give bytes, 0 or more, or None"
            for what, value in (("capacity", self.capacity), ("workspace", self.workspace))
            if value is not None and (not isinstance(value, int) or value < 0)
        ]
        if problems:
            raise InputError(problems)

    @property
    def cublas_workspace(self) -> int:
        """Bytes of the workspace of one cuBLAS handle and stream."""
        if self.workspace is not None:
            return self.workspace
        return HOPPER_WORKSPACE if self.architecture in HOPPER_LIKE else WORKSPACE


def _card(name: str, architecture: int, processors: int, threads: int, gib: float) -> DeviceProfile:
    return DeviceProfile(name, architecture, processors, threads, int(gib * GIB))


PROFILES: dict[str, DeviceProfile] = {
    card.name: card
    for card in (
        _card("v100-16g", 70, 80, 2048, 15.77),
        _card("v100", 70, 80, 2048, 31.73),
        _card("t4", 75, 40, 1024, 14.56),
        _card("rtx2080ti", 75, 68, 1024, 10.75),
        _card("a100-40g", 80, 108, 2048, 39.39),
        _card("a100-80g", 80, 108, 2048, 79.15),
        _card("a10g", 86, 80, 1536, 21.98),
        _card("a40", 86, 84, 1536, 44.35),
        _card("a6000", 86, 84, 1536, 47.4),
        _card("rtx3060", 86, 28, 1536, 11.63),
        _card("rtx3090", 86, 82, 1536, 23.57),
        _card("l4", 89, 58, 1536, 22.03),
        _card("l40s", 89, 142, 1536, 44.39),
        _card("rtx4090", 89, 128, 1536, 23.52),
        _card("h100", 90, 132, 2048, 79.1),
        _card("h100-pcie", 90, 114, 2048, 79.1),
        _card("h200", 90, 132, 2048, 139.8),
        _card("b200", 100, 148, 2048, 178.3),
        _card("rtx5090", 120, 170, 1536, 31.36),
    )
}
ALIASES = {"a100": "a100-80g", "v100-32g": "v100", "h100-sxm": "h100", "4090": "rtx4090", "3090": "rtx3090", "5090": "rtx5090"}


def find_profile(device: str | DeviceProfile, workspace: int | None = None) -> DeviceProfile:
    """Return the profile that *device* names, or *device* itself if it is one.

    Args:
        device: a profile, or the name of one of ``PROFILES``, in any case.
        workspace: bytes of a cuBLAS workspace to have instead, as ``CUBLAS_WORKSPACE_CONFIG`` sets it.

    Raises:
        InputError: no profile has the name.
    """
    if isinstance(device, DeviceProfile):
        found = device
    else:
        name = device.strip().lower().replace("_", "-").replace(" ", "")
        name = ALIASES.get(name, name)
        if name not in PROFILES:
            close = get_close_matches(name, [*PROFILES, *ALIASES], n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise InputError(f"device {device!r} is not known: {hint}the names are {', '.join(PROFILES)}; or give a DeviceProfile")
        found = PROFILES[name]
    return found if workspace is None else replace(found, workspace=workspace)


def workspace_of_config(config: str) -> int:
    """Return the bytes that a ``CUBLAS_WORKSPACE_CONFIG`` such as ``":4096:2:16:8"`` stands for: the sum of KiB times count.

    Raises:
        InputError: it is not pairs of numbers with colons before them.
    """
    parts = config.strip().split(":")
    if parts[0] or len(parts) % 2 == 0 or not all(part.isdigit() for part in parts[1:]):
        raise InputError(f"CUBLAS_WORKSPACE_CONFIG {config!r} is not of the form :KiB:count:KiB:count…, such as :4096:8")
    return sum(int(size) * KIB * int(count) for size, count in zip(parts[1::2], parts[2::2], strict=True))
