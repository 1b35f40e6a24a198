"""Prints a command's answer: one JSON document, or the tables made of it."""

from __future__ import annotations

import errno
import importlib
import json
import sys
from typing import Any

import click


def answer(document: dict[str, Any], as_json: bool) -> None:
    """Print *document*, such as one made by :func:`lifecycle_sim.output.summary.document`, as JSON or as tables.

    The tables of a command are made by ``tables`` in ``lifecycle_sim.output.tables_<command>``, imported only when they are wanted.
    """
    if sys.stdout is None:  # closed before the start: Python has no stream then
        raise OSError(errno.EBADF, "is closed, so there is no place for the answer", "standard output")
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    from lifecycle_sim.output.tables import print_tables

    command = document["schema"].split("/")[1]
    print_tables(importlib.import_module(f"lifecycle_sim.output.tables_{command}").tables(document))
