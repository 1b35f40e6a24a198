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
def ended_clearly(ctx: click.Context) -> Iterator[None]:
    """Turn every failure inside the block into lines on stderr and an exit code; nothing leaves as a bare traceback."""
    try:
        yield
        sys.stdout.flush()
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except KeyboardInterrupt:
        ctx.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        _forget_stdout()
        ctx.exit(Exit.BROKEN_PIPE)
    except OutputExistsError as error:
        say_error(f"{error.path} exists already and was left as it is: choose another name, or add --force to replace it")
        ctx.exit(Exit.USAGE)
    except InputError as error:
        for problem in error.problems:
            say_error(problem)
        ctx.exit(Exit.BAD_INPUT)
    except MissingExtraError as error:
        say_error(str(error))
        ctx.exit(Exit.MISSING_PACKAGE)
    except OSError as error:
        say_error(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        ctx.exit(Exit.BAD_INPUT)
    except LifecycleError as error:
        say_error(str(error))
        ctx.exit(Exit.BAD_INPUT)
    except Exception as error:
        if ctx.params.get("traceback"):
            traceback.print_exc()
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        say_error(f"internal error: {said} (run lifecycle-sim --traceback … to see where, and please report it)")
        ctx.exit(Exit.INTERNAL_ERROR)


def say_error(problem: str) -> None:
    """Write *problem* as one line on stderr."""
    click.echo(f"error: {one_line(problem)}", err=True)


def _forget_stdout() -> None:
    """Point stdout at nothing, so that the interpreter does not fail again when it flushes on its way out."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
