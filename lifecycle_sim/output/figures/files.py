"""Writes figures to files: whole or not at all, and the same bytes for the same figure."""

from __future__ import annotations

import os
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lifecycle_sim.errors import InputError
from lifecycle_sim.output.atomic import refuse_to_overwrite, write_atomically

WITHOUT_DATES: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Creator": None, "Date": None},
    ".pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
"""For each suffix that can be written, the metadata that would differ from day to day or from release to release, taken out."""


def save(figure: Figure | Axes, path: str | os.PathLike[str], force: bool = False) -> Path:
    """Write *figure*, or the figure that an axes belongs to, to *path* as its suffix says: ``.png``, ``.svg`` or ``.pdf``.

    It is written whole or not at all, see :mod:`lifecycle_sim.output.atomic`.

    Raises:
        InputError: another suffix, or axes that are not directly in a figure.
        OutputExistsError: the file is there already and *force* is false.
        OSError: the folder does not exist or cannot be written to.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    check_target(target)
    refuse_to_overwrite(target, force)
    drawn = figure if isinstance(figure, Figure) else figure.figure
    if not isinstance(drawn, Figure):
        raise InputError(f"{target}: these axes are not directly in a figure, so the figure must be given itself")
    stream = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "lifecycle_sim", "svg.fonttype": "path"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a letter that the font lacks is drawn as a box
        drawn.savefig(stream, format=suffix[1:], metadata=WITHOUT_DATES[suffix], facecolor="white")
    write_atomically(target, stream.getvalue(), force)
    return target


def check_target(path: str | os.PathLike[str]) -> None:
    """Check that a figure can be written to *path*, before what it shows is worked out.

    Raises:
        InputError: another suffix than :func:`save` writes.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in WITHOUT_DATES:
        raise InputError(f"{target}: a figure is written as {', '.join(WITHOUT_DATES)}, not as {suffix or 'a file without a suffix'!r}")
