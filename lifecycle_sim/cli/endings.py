"""How a command ends: the exit codes, and what each failure says on stderr."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum

import click

from lifecycle_sim.errors import InputError, LifecycleError, MissingExtraError, OutputExistsError
from lifecycle_sim.output.printable import one_line

LONGEST = 900
"""Characters of a line on stderr; a longer one, which quotes its input, loses its middle."""

MOST_PROBLEMS = 100
"""Problems that are told one by one."""


class Exit(IntEnum):
    """What the exit code of a command says."""

    YES = 0
    NO = 1
    USAGE = 2
    BAD_INPUT = 3
    MISSING_PACKAGE = 4
    INTERNAL_ERROR = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141


@contextmanager
def ended_clearly(show_traceback: bool = False) -> Iterator[None]:
    """Turn every failure inside the block into lines on stderr and an exit code; nothing leaves as a bare traceback."""
    try:
        yield
        if sys.stdout is not None:  # as it is where it was closed before the start
            sys.stdout.flush()
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except KeyboardInterrupt:
        raise click.exceptions.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        _forget_stdout()
        raise click.exceptions.Exit(Exit.BROKEN_PIPE) from None
    except OutputExistsError as error:
        say_error(f"{error.path} exists already and was left as it is: choose another name, or add --force to replace it")
        raise click.exceptions.Exit(Exit.USAGE) from None
    except InputError as error:
        for problem in error.problems[:MOST_PROBLEMS]:
            say_error(problem)
        if left := len(error.problems[MOST_PROBLEMS:]):
            say_error(f"and {left:,} more problems like these")
        raise click.exceptions.Exit(Exit.BAD_INPUT) from None
    except MissingExtraError as error:
        say_error(str(error))
        raise click.exceptions.Exit(Exit.MISSING_PACKAGE) from None
    except OSError as error:
        _forget_stdout()  # it may be what failed
        say_error(f"{error.filename or 'standard output'}: {error.strerror or error}")
        raise click.exceptions.Exit(Exit.BAD_INPUT) from None
    except LifecycleError as error:
        say_error(str(error))
        raise click.exceptions.Exit(Exit.BAD_INPUT) from None
    except Exception as error:
        if show_traceback:
            traceback.print_exc()
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        say_error(f"internal error: {said} (run lifecycle-sim --traceback … to see where, and please report it)")
        raise click.exceptions.Exit(Exit.INTERNAL_ERROR) from None


def say_error(problem: str) -> None:
    """Write *problem* as one line on stderr."""
    line = one_line(problem)
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    with suppress(OSError):  # stderr may be gone as well; the exit code is left
        click.echo(f"error: {line}", err=True)


def _forget_stdout() -> None:
    """Point stdout at nothing, so that the interpreter does not fail again when it flushes on its way out."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
