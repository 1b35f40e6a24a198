"""Settings as an options string: the inverse of :func:`~lifecycle_sim.replay.allocator.settings.parse_options`."""

from __future__ import annotations

from lifecycle_sim.replay.allocator.settings import AllocatorSettings

_MIB = 1 << 20


def options_text(settings: AllocatorSettings) -> str:
    """Return the options string that gives *settings*, with only what differs from the defaults; the defaults are an empty string.

    Sizes that are not whole MiB, which no options string can give, are written with a fraction.
    """
    plain = AllocatorSettings()
    parts = []
    if settings.expandable_segments:
        parts.append("expandable_segments:True")
    for name in ("max_split_size", "max_non_split_rounding", "large_segment_size"):
        size = getattr(settings, name)
        if size is not None and size != getattr(plain, name):
            parts.append(f"{name}_mb:{size // _MIB if size % _MIB == 0 else size / _MIB}")
    divisions = settings.roundup_power2_divisions
    if divisions != plain.roundup_power2_divisions:
        each = ",".join(f"{1 << entry}:{count}" for entry, count in enumerate(divisions))
        parts.append(f"roundup_power2_divisions:{divisions[0] if len(set(divisions)) == 1 else f'[{each}]'}")
    for name in ("garbage_collection_threshold", "per_process_memory_fraction", "throw_on_cudamalloc_oom"):
        value = getattr(settings, name)
        if value != getattr(plain, name):
            parts.append(f"{name}:{value}")
    return ",".join(parts)
