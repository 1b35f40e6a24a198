"""Read a pickle of plain data, and nothing else: no import, no call, no code.

A CUDA memory snapshot is a pickle of dict, list, tuple, str, int, float, bool and None. A pickle can also ask for a class or
function (GLOBAL, STACK_GLOBAL, INST, an extension code) or for an outside object (a persistent id, an out-of-band buffer); each of
these ends the reading here. The C unpickler does the work.

What stays possible: a file whose dict keys are tuples of tuples, doubled at each level, keeps the hash of a tuple busy for ever, as CPython
neither counts nor interrupts it. No code runs, and the process can be killed.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, BinaryIO, NoReturn

from lifecycle_sim.errors import LifecycleError, SnapshotError, UnsafePickleError
from lifecycle_sim.sources.deep import with_deep_stack
from lifecycle_sim.sources.document_problems import describe, one_line
from lifecycle_sim.sources.guards import collector_paused, memory_bounded

_REFUSED = "a memory snapshot holds plain data only, so loading this file could run code; do not open it, ask for the file to be made again"


class _PlainUnpickler(pickle.Unpickler):
    """The C unpickler with every way out of plain data closed."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnsafePickleError(f"unsafe pickle: it asks for {_shown(module)}.{_shown(name)}; {_REFUSED}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UnsafePickleError(f"unsafe pickle: it asks for the outside object {describe(pid)}; {_REFUSED}")


def load_pickle(source: bytes | BinaryIO, size: int | None = None) -> Any:
    """Return the plain document pickled in *source*, reading up to its STOP; what follows is ignored.

    Args:
        source: the pickle, or a buffered binary stream at its beginning.
        size: bytes in the stream, by which the memory it may take is bounded.

    Raises:
        UnsafePickleError: it asks for more than plain data.
        SnapshotError: it is cut off, damaged, or would take more memory than a file of its size can need.
    """
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    size = len(source) if isinstance(source, bytes) else size or 0
    with collector_paused():
        # The unpickler looks into the cache of extension codes before it asks find_class, so a class that somebody else's
        # load left there would be handed out unseen.
        copyreg.clear_extension_cache()
        with _bytearrays_quiet():
            return with_deep_stack(lambda: _load(stream, size), size)


def _load(stream: BinaryIO, size: int) -> Any:
    try:
        with memory_bounded(size):
            return _PlainUnpickler(stream).load()
    except LifecycleError:
        raise
    except MemoryError:
        pass  # leave the handler first: until then the traceback holds what was made so far
    except EOFError:
        raise SnapshotError("the pickle ends before it is complete: the file was cut off; copy or record it again") from None
    except Exception as error:  # a damaged pickle makes the C unpickler raise nearly anything, from KeyError to OverflowError
        if "out-of-band" in str(error):
            raise UnsafePickleError(f"unsafe pickle: it asks for an out-of-band buffer; {_REFUSED}") from None
        reason = _shown(str(error)) or "no reason given"
        raise SnapshotError(f"the pickle is damaged ({type(error).__name__}: {reason}): copy or record the file again") from None
    raise SnapshotError("the pickle asks for far more memory than a file of its size can need: it is damaged or made to do harm")


@contextmanager
def _bytearrays_quiet() -> Iterator[None]:
    """Keep CPython from printing a SystemError when a pickle asks for a bytearray of impossible size; MemoryError is raised besides."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not (kind is SystemError and "exported buffers" in str(error)):
            before(kind, error, trace)

    sys.excepthook = hook
    try:
        yield
    finally:
        sys.excepthook = before


def _shown(text: str) -> str:
    return one_line(text if len(text) <= 120 else text[:117] + "…")
