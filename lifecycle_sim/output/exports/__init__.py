"""Writes traces in other formats, chosen by the suffix of the file's name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Trace
from lifecycle_sim.output.atomic import refuse_to_overwrite, write_atomically

FORMATS = {
    ".jsonl": "native JSON lines: readable, and the whole trace",
    ".npz": "native numpy columns: compact, and the whole trace",
    ".csv": "minimalloc instance: the lifetimes of one device",
    ".pickle": "CUDA memory snapshot: what torch's viewer opens",
}


@dataclass(frozen=True)
class Export:
    """The content of a file, and what it lacks or had to make up, a line each."""

    data: bytes
    notes: tuple[str, ...] = ()


Encoder = Callable[[Trace, str | int | None], Export]


def write(
    trace: Trace,
    path: str | os.PathLike[str],
    device: str | int | None = None,
    force: bool = False,
    window: tuple[int | None, int | None] | None = None,
    largest: int | None = None,
) -> tuple[str, ...]:
    """Write *trace* to *path* in the format that its suffix names: ``.jsonl``, ``.npz``, ``.csv`` or ``.pickle``.

    Args:
        trace: the trace.
        path: where to; written whole or not at all.
        device: write this device alone; by default all, and in formats that hold one device the one with the highest peak.
        force: whether a file that exists may be replaced.
        window: the first event to write and the one to stop before, None for the ends of the record.
        largest: how many storages to write, those with the most bytes.

    Returns:
        What was left out or had to be made up, a line each.

    Raises:
        InputError: the suffix is not known, or the trace does not fit the format.
        OutputExistsError: the file exists and *force* is false.
    """
    encode = encoder_for(path)
    refuse_to_overwrite(path, force)
    export = encode_part(trace, encode, device, window, largest)
    write_atomically(path, export.data, force)
    return export.notes


def encode_part(
    trace: Trace,
    encode: Encoder,
    device: str | int | None = None,
    window: tuple[int | None, int | None] | None = None,
    largest: int | None = None,
) -> Export:
    """Return what *encode* makes of the part of *trace* that was asked for, see :func:`~lifecycle_sim.replay.excerpt.excerpt`."""
    if window is None and largest is None:
        return encode(trace, device)
    from lifecycle_sim.replay.excerpt import excerpt

    part = excerpt(trace, device, window, largest)
    export = encode(part.trace, device)
    return Export(export.data, part.notes + export.notes)


def encoder_for(path: str | os.PathLike[str]) -> Encoder:
    """Return what encodes a trace, or one device of it, in the format that the suffix of *path* names.

    Raises:
        InputError: the suffix is not known.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _ENCODERS:
        known = "; ".join(f"{name} ({text})" for name, text in FORMATS.items())
        raise InputError(
            f"{os.fspath(path)}: cannot write {'this suffix' if suffix else 'a name without a suffix'}: the suffixes known are {known}"
        )
    return _ENCODERS[suffix]


def _jsonl(trace: Trace, device: str | int | None) -> Export:
    from lifecycle_sim.sources.native import write_jsonl

    return Export(write_jsonl(_part(trace, device)))


def _npz(trace: Trace, device: str | int | None) -> Export:
    from lifecycle_sim.sources.native import write_npz

    return Export(write_npz(_part(trace, device)))


def _minimalloc(trace: Trace, device: str | int | None) -> Export:
    from lifecycle_sim.output.exports.minimalloc import write_minimalloc
    from lifecycle_sim.replay import replay_device

    note = "a minimalloc CSV holds sizes and lifetimes alone: read again its bytes are payload, simulated, from a start of 0"
    return Export(write_minimalloc(replay_device(trace, device)), (note,))


def _snapshot(trace: Trace, device: str | int | None) -> Export:
    from lifecycle_sim.output.exports.snapshot import as_snapshot

    written = as_snapshot(_part(trace, device))
    return Export(written.data, written.notes)


def _part(trace: Trace, device: str | int | None) -> Trace:
    return trace if device is None else replace(trace, devices=(trace.device(device),))


_ENCODERS: dict[str, Encoder] = {".jsonl": _jsonl, ".npz": _npz, ".csv": _minimalloc, ".pickle": _snapshot}
