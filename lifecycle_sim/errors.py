"""The exceptions of the package: bad input is told apart from a missing extra.

Every exception also inherits the built-in it specialises, so ``except ValueError`` keeps working. A message says what is
wrong, where, why, and how to mend it.
"""

from __future__ import annotations

from collections.abc import Iterable


class LifecycleError(Exception):
    """Base of every error raised on purpose by lifecycle_sim."""


class InputError(LifecycleError, ValueError):
    """Input that cannot be used. ``problems`` holds one clear line for each thing that is wrong."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[object, ...]:
        """Make pickles, and so the way back from another process, keep the problems apart."""
        return type(self), (self.problems,)


class TraceFormatError(InputError):
    """A file that is not in the format it claims, or in none that is known."""


class TraceInvariantError(InputError):
    """A trace that contradicts itself: a double free, a free of the unknown, a negative size."""


class SnapshotError(InputError):
    """A CUDA memory snapshot whose structure is not that of a snapshot."""


class UnsafePickleError(SnapshotError):
    """A pickle that asks for more than plain data; loading it could run code."""


class ScenarioError(InputError):
    """A scenario with problems; all of them are listed, one line each."""


class CaptureError(InputError):
    """A step that could not be captured: its own code failed, or it does what a capture cannot represent."""


class UnitError(InputError):
    """A size or duration without a unit, or with one that is not known."""


class OutputExistsError(LifecycleError, FileExistsError):
    """A file that would have been written over; nothing was written."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} exists already and was left as it is: choose another name, or say force to replace it")

    def __str__(self) -> str:
        return str(self.args[0])


class MissingExtraError(LifecycleError, ImportError):
    """A feature that needs an optional package which is not installed."""

    def __init__(self, package: str, extra: str, feature: str) -> None:
        self.package, self.extra = package, extra
        self.feature = feature
        super().__init__(f"{feature} needs the package {package!r}, which is not installed: pip install 'lifecycle-sim[{extra}]'")

    def __reduce__(self) -> tuple[object, ...]:
        """Make a pickle of what it is made of: it comes back from another process as it was."""
        return type(self), (self.package, self.extra, self.feature)
