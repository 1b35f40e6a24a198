"""Tells on stderr what is being done, if it takes longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import click

PATIENCE = 1.0  # seconds


@contextmanager
def progress(doing: str, at_once: bool = False) -> Iterator[None]:
    """Say *doing* on stderr once the block has run for a second: a moving line on a terminal, else one plain line.

    Args:
        doing: such as ``"reading snapshot.pickle"``.
        at_once: say it before the block instead, in a plain line: for work that is known to be long and lets nobody interrupt.
    """
    if at_once:
        click.echo(f"{doing} …", err=True)
        yield
        return
    done = Event()
    teller = Thread(target=_tell, args=(doing, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(doing: str, done: Event) -> None:
    if done.wait(PATIENCE):
        return
    if not sys.stderr.isatty():
        click.echo(f"{doing} …", err=True)
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{doing} …"):
        done.wait()
