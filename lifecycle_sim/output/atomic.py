"""Writes a file whole or not at all, and never over another one unless told to."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from lifecycle_sim.errors import OutputExistsError


def write_atomically(path: str | os.PathLike[str], data: bytes, force: bool = False) -> None:
    """Write *data* to *path*: at every moment the file is absent, what it was before, or complete.

    The bytes go to a new file beside *path*, which then takes its name. A path that exists and is no regular file, such as
    ``/dev/stdout`` or a named pipe, is written to directly.

    Args:
        path: where to; its folder must exist. A symbolic link is followed.
        data: the whole content.
        force: whether a file that exists may be replaced.

    Raises:
        OutputExistsError: *path* exists and *force* is false.
        OSError: the folder does not exist or cannot be written to, or the disk is full.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file() and not target.is_dir():
        target.write_bytes(data)
        return
    refuse_to_overwrite(path, force)
    draft = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}.part")
    try:
        try:
            with open(draft, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:  # name what was asked for, not the draft
            raise OSError(error.errno, f"cannot be written ({error.strerror or error})", os.fspath(path)) from None
        if force:
            os.replace(draft, target)
        else:
            _take_new_name(draft, target, path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def refuse_to_overwrite(path: str | os.PathLike[str], force: bool) -> None:
    """Raise at once, before any long work, if :func:`write_atomically` would refuse *path*.

    Raises:
        OutputExistsError: a regular file of that name exists and *force* is false.
        OSError: *path* is a folder, or lies in a folder that does not exist.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(21, "is a folder, not a file to write", os.fspath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(2, "lies in a folder that does not exist", os.fspath(path))
    if target.is_file() and not force:
        raise OutputExistsError(os.fspath(path))


def _take_new_name(draft: Path, target: Path, shown: str | os.PathLike[str]) -> None:
    """Give *draft* the name *target*, unless another process has taken it meanwhile."""
    try:
        os.link(draft, target)
    except FileExistsError:
        raise OutputExistsError(os.fspath(shown)) from None
    except OSError:  # a file system without hard links
        if target.exists():
            raise OutputExistsError(os.fspath(shown)) from None
        os.replace(draft, target)
