"""Writes traces in other formats, chosen by the suffix of the file's name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Trace
from lifecycle_sim.output.atomic import refuse_to_overwrite, write_atomically

FORMATS = {
    ".jsonl": "native JSON lines: readable, and the whole trace",
    ".npz": "native numpy columns: compact, and the whole trace",
    ".csv": "minimalloc instance: the lifetimes of one device",
}


def write(trace: Trace, path: str | os.PathLike[str], device: str | int | None = None, force: bool = False) -> None:
    """Write *trace* to *path* in the format that its suffix names: ``.jsonl``, ``.npz`` or ``.csv``.

    Args:
        trace: the trace.
        path: where to; written whole or not at all.
        device: for formats that hold one device, which; by default the one with the highest peak.
        force: whether a file that exists may be replaced.

    Raises:
        InputError: the suffix is not known, or the trace does not fit the format.
        OutputExistsError: the file exists and *force* is false.
    """
    encode = encoder_for(path)
    refuse_to_overwrite(path, force)
    write_atomically(path, encode(trace, device), force)


def encoder_for(path: str | os.PathLike[str]) -> Callable[[Trace, str | int | None], bytes]:
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


def _jsonl(trace: Trace, _: str | int | None) -> bytes:
    from lifecycle_sim.sources.native import write_jsonl

    return write_jsonl(trace)


def _npz(trace: Trace, _: str | int | None) -> bytes:
    from lifecycle_sim.sources.native import write_npz

    return write_npz(trace)


def _minimalloc(trace: Trace, device: str | int | None) -> bytes:
    from lifecycle_sim.output.exports.minimalloc import write_minimalloc
    from lifecycle_sim.replay import replay

    return write_minimalloc(replay(trace, device))


_ENCODERS: dict[str, Callable[[Trace, str | int | None], bytes]] = {".jsonl": _jsonl, ".npz": _npz, ".csv": _minimalloc}
