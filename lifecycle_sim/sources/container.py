"""From a path, ``-``, bytes or a binary stream to a plain Python document: gzip, pickle, viewer HTML and JSON, told apart by content."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from lifecycle_sim.errors import TraceFormatError
from lifecycle_sim.sources.document_problems import describe, one_line
from lifecycle_sim.sources.guards import collector_paused, memory_bounded
from lifecycle_sim.sources.pickles import load_pickle

Source = str | os.PathLike[str] | bytes | BinaryIO
"""A path, ``"-"`` for standard input, the content itself, or a binary stream."""

HEAD = 1 << 16
"""Bytes at the beginning by which a form is recognised."""
STREAM_LIMIT = 16 << 30
"""Bytes that are read from a pipe or another source without a size."""
PLAIN_LIMIT, RATIO_LIMIT = 256 << 20, 200
"""gzip may expand to 256 MiB, and beyond that to 200 times its size; a real snapshot is below 50 times."""
GZIP_LAYERS = 2
CHUNK = 1 << 24

KNOWN = (
    "a CUDA memory snapshot (pickle, JSON, or the HTML page of a viewer), a profiler trace (Chrome JSON), a memory timeline (raw JSON), "
    "a minimalloc CSV (header id,lower,upper,size), or a native trace (JSONL or npz); each may be gzipped"
)

_GZIP = b"\x1f\x8b"
_GLOBAL_FIRST = re.compile(rb"[ci][A-Za-z_][\w.]*\r?\n[A-Za-z_][\w.]*\r?\n")
_EMBEDDED = re.compile(rb"""["']?base64["']?\s*:\s*["'`]([A-Za-z0-9+/=\\\s]*)["'`]""")


class Form(Enum):
    """The outer form of a content, as far as its first bytes tell."""

    PICKLE = "pickle"
    HTML = "html"
    JSON = "json"
    JSON_LINES = "jsonl"
    ZIP = "zip"
    CSV = "csv"


@dataclass
class Content:
    """The content of a source with its gzip layers taken off.

    Attributes:
        form: its outer form.
        data: the bytes; None while they are still to be read from ``stream``.
        stream: the open file, at its beginning, when it is a plain regular file.
        size: bytes of the content.
    """

    form: Form
    data: bytes | None
    stream: BinaryIO | None
    size: int

    def read(self) -> bytes:
        """Return all bytes."""
        if self.data is not None:
            return self.data
        return b"" if self.stream is None else _read(self.stream, -1)

    def document(self) -> Any:
        """Return the plain document in it, and forget the bytes.

        Raises:
            TraceFormatError: it is not well-formed, or holds no document.
            SnapshotError: a damaged pickle. UnsafePickleError: one that asks for more than plain data.
        """
        if self.form is Form.PICKLE and self.data is None and self.stream is not None:
            return load_pickle(self.stream, self.size)
        data, self.data = self.read(), None
        if self.form is Form.PICKLE:
            return load_pickle(data)
        if self.form is Form.JSON:
            return _load_json(data)
        if self.form is Form.HTML:
            return load_pickle(embedded_pickle(data))
        raise TraceFormatError(f"is {self.form.value}, which holds no document of a snapshot or profiler")


def load_document(source: Source) -> Any:
    """Return the plain Python document in *source*: a pickle, JSON, or the pickle in a viewer's HTML page, each maybe gzipped.

    Raises:
        TraceFormatError: it cannot be read, is empty, or is in no known form. SnapshotError: the pickle is damaged or unsafe.
    """
    with collector_paused(), opened(source) as content:
        return content.document()


@contextmanager
def opened(source: Source) -> Iterator[Content]:
    """Open *source*, take off its gzip layers, and tell its form by its first bytes.

    Raises:
        TraceFormatError: it cannot be read, is empty, expands without end, or is in no known form.
    """
    if isinstance(source, bytes):
        yield _content(source)
    elif not isinstance(source, (str, os.PathLike)):
        yield _content(_read_stream(source))
    elif os.fspath(source) == "-":
        if sys.stdin is None:
            raise TraceFormatError("is closed: give a file, or something to read")
        yield _content(_read_stream(sys.stdin.buffer))
    elif not os.fspath(source):
        raise TraceFormatError("the name of the file is empty: give a path, or - for standard input")
    else:
        stream = _open(Path(source))
        try:
            yield _file_content(stream)
        finally:
            stream.close()


def _open(path: Path) -> BinaryIO:
    try:
        if path.is_dir():
            raise TraceFormatError("is a directory: give the file in it")
        return path.open("rb")
    except FileNotFoundError:
        raise TraceFormatError("there is no such file: check the path") from None
    except OSError as error:
        raise TraceFormatError(f"cannot be read ({error.strerror}): check the path and its permissions") from None
    except ValueError as error:
        if isinstance(error, TraceFormatError):
            raise
        raise TraceFormatError("is no path: it holds a NUL character") from None


def _file_content(stream: BinaryIO) -> Content:
    status = os.fstat(stream.fileno())
    if not stat.S_ISREG(status.st_mode):
        return _content(_read_stream(stream))
    head = _read(stream, HEAD)
    if head.startswith(_GZIP):
        return _content(head + _read(stream, -1))
    form = form_of(head)
    stream.seek(0)
    return Content(form, None, stream, status.st_size)


def _content(data: bytes) -> Content:
    compressed = len(data)
    for _ in range(GZIP_LAYERS):
        if data.startswith(_GZIP):
            data = gunzip(data, max(PLAIN_LIMIT, RATIO_LIMIT * compressed))
    return Content(form_of(data[:HEAD]), data, None, len(data))


def _read_stream(stream: BinaryIO) -> bytes:
    """Read a source without a size; one whose beginning is in no known form is not read on, as it may never end."""
    parts = [_read(stream, HEAD)]
    if not parts[0].startswith(_GZIP):
        form_of(parts[0])
    total = len(parts[0])
    while part := _read(stream, CHUNK):
        parts.append(part)
        total += len(part)
        if total > STREAM_LIMIT:
            raise TraceFormatError(f"holds more than {STREAM_LIMIT >> 30} GiB: write it to a file and give its path")
    return b"".join(parts)


def _read(stream: BinaryIO, size: int) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise TraceFormatError(f"cannot be read ({error.strerror or error})") from None


def gunzip(data: bytes, limit: int) -> bytes:
    """Return the content of the gzip members in *data*, refusing to make more than *limit* bytes.

    Raises:
        TraceFormatError: cut off, damaged, or larger than *limit*.
    """
    parts: list[bytes] = []
    total, rest = 0, data
    while rest.startswith(_GZIP):
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            try:
                part = member.decompress(rest, CHUNK)
            except zlib.error as error:
                raise TraceFormatError(f"the gzip data is damaged ({one_line(str(error))}): copy the file again") from None
            if not part and not member.eof:
                raise TraceFormatError("the gzip data ends before it is complete: the file was cut off; copy it again")
            parts.append(part)
            total += len(part)
            if total > limit:
                raise TraceFormatError(
                    f"the gzip data expands to more than {limit >> 20:,} MiB from {len(data):,} bytes: "
                    "no real recording does; unpack it yourself if you trust it"
                )
            rest = member.unconsumed_tail
        rest = member.unused_data
    if rest.strip(b"\0"):
        raise TraceFormatError(f"{len(rest):,} bytes that are not gzip follow the gzip data: the file is damaged; copy it again")
    return b"".join(parts)


def form_of(head: bytes) -> Form:
    """Return the form of a content that begins with *head*.

    Raises:
        TraceFormatError: it is empty or in no known form.
    """
    if not head:
        raise TraceFormatError("is empty: record or copy it again")
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return Form.ZIP
    if head.startswith((b"\x80", b"(", b"}", b"]", b")")) or _GLOBAL_FIRST.match(head):
        return Form.PICKLE
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<"):
        return Form.HTML
    first_line = text.split(b"\n", 1)[0].strip()
    if text.startswith(b"{") and _is_native_header(first_line):
        return Form.JSON_LINES
    if text.startswith((b"{", b"[")):
        return Form.JSON
    if {b"lower", b"upper", b"size"} <= {word.strip().lower() for word in first_line.split(b",")}:
        return Form.CSV
    if head.startswith(_GZIP):
        raise TraceFormatError(f"is gzipped more than {GZIP_LAYERS} times: unpack it")
    raise TraceFormatError(f"is in no format that is known, it begins with {describe_head(head)}: give {KNOWN}")


def describe_head(head: bytes) -> str:
    """Return the first bytes of a content for a message."""
    return one_line(repr(head[:16].decode("utf-8", "backslashreplace")))


def _is_native_header(line: bytes) -> bool:
    try:
        header = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return isinstance(header, dict) and str(header.get("schema", "")).startswith("lifecycle-sim/trace/")


def _load_json(data: bytes) -> Any:
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        with memory_bounded(len(data)):
            try:
                return msgspec.json.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                first = error
            # Profilers write NaN, raw control characters and stray bytes now and then: the standard library reads those.
            try:
                return json.loads(data.decode("utf-8", "replace"), strict=False)
            except ValueError:
                reason = one_line(str(first))
    except RecursionError:
        reason = "it is nested too deeply"
    except MemoryError:
        reason = "it takes far more memory than a file of its size can need"
    raise TraceFormatError(f"is not valid JSON ({reason}): the file was cut off or damaged; write or copy it again")


def embedded_pickle(page: bytes) -> bytes:
    """Return the pickle in an HTML page that ``torch.cuda._memory_viz`` wrote (``trace_plot``, ``segment_plot`` and the like).

    The page holds ``[{"name": …, "base64": …}]``; one to three NULs may follow the pickle.

    Raises:
        TraceFormatError: the page holds no snapshot, or more than one.
    """
    found = [match for match in _EMBEDDED.findall(page) if match]
    if not found:
        if b"alloc_data" in page or b"elements_size" in page:
            held = "holds only the drawing that an old viewer made of one"
        elif b"image/png" in page:
            held = "holds only a picture"
        else:
            held = "holds none"
        raise TraceFormatError(f"is an HTML page without a memory snapshot (it {held}): give the snapshot from which it was made")
    if len(found) > 1:
        raise TraceFormatError(f"is an HTML page with {len(found)} memory snapshots: give one of the snapshots from which it was made")
    try:
        return base64.b64decode(re.sub(rb"[\\\s]", b"", found[0]), validate=True)
    except (binascii.Error, ValueError) as error:
        raise TraceFormatError(f"is an HTML page whose memory snapshot is damaged ({describe(str(error))}): make the page again") from None
