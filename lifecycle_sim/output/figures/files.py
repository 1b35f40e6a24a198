"""Writes figures to files: whole or not at all, and the same bytes for the same figure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lifecycle_sim.errors import InputError

WITHOUT_DATES: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Creator": None, "Date": None},
    ".pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
"""For each suffix that can be written, the metadata that would differ from day to day or from release to release, taken out."""


def save(figure: Figure | Axes, path: str | os.PathLike[str], force: bool = False) -> Path:
    """Write *figure*, or the figure that an axes belongs to, to *path* as its suffix says: ``.png``, ``.svg`` or ``.pdf``.

    The file is written beside its place and then moved there, so no half-written file is ever seen.

    Raises:
        InputError: another suffix, a folder that does not exist or cannot be written, or a file that is there already without *force*.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in WITHOUT_DATES:
        raise InputError(f"{target}: a figure is written as {', '.join(WITHOUT_DATES)}, not as {suffix or 'a file without a suffix'!r}")
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {str(target.parent)!r} does not exist: make it first")
    if target.exists() and not force:
        raise InputError(f"{target}: the file is there already and is not overwritten: choose another name, or force it")
    drawn = figure if isinstance(figure, Figure) else figure.figure
    if not isinstance(drawn, Figure):
        raise InputError(f"{target}: these axes are not directly in a figure, so the figure must be given itself")
    try:
        _write(drawn, target, suffix)
    except OSError as error:
        raise InputError(f"{target}: the figure cannot be written: {error.strerror or error}") from error
    return target


def _write(figure: Figure, target: Path, suffix: str) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(part, "xb") as stream, matplotlib.rc_context({"svg.hashsalt": "lifecycle_sim", "svg.fonttype": "path"}):
            figure.savefig(stream, format=suffix[1:], metadata=WITHOUT_DATES[suffix], facecolor="white")
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
