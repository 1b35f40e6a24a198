"""Read a trace of any known format, told apart by content, never by the name's ending."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from lifecycle_sim.errors import InputError, TraceFormatError
from lifecycle_sim.events import Trace
from lifecycle_sim.sources.container import KNOWN, Content, Form, Source, opened
from lifecycle_sim.sources.document_problems import describe, one_line
from lifecycle_sim.sources.guards import collector_paused
from lifecycle_sim.sources.memory_timeline import holds_totals
from lifecycle_sim.sources.profile_plot import is_profile_plot, read_profile_plot
from lifecycle_sim.sources.snapshot import read_snapshot

SNAPSHOT_KEYS = ("segments", "device_traces", "host_segments", "host_traces")
TIMELINE_ROW = 4
"""Values in a row of a memory timeline: time, action, bytes, category."""

_CAPACITY = re.compile(r"\.([0-9]{1,18})\.csv(?:\.gz)?$")


def read_trace(source: Source) -> Trace:
    """Return the trace recorded in *source*: a path, ``"-"`` for standard input, bytes, or a binary stream.

    Known are CUDA memory snapshots, profiler traces, memory timelines, minimalloc CSV and native traces; each may be gzipped.

    Raises:
        TraceFormatError: the source cannot be read, is in no known format, or is a scenario, which ``run_scenario`` reads.
        InputError: the source's contents are wrong. Each line begins with the name of the source.
    """
    with collector_paused():
        try:
            with opened(source) as content:
                return _read(content, source)
        except InputError as error:
            name = _name_of(source)
            if name.lower().endswith(".toml") and os.path.isfile(name):
                text = "is a scenario, not a recording: run_scenario(path) runs it and returns its trace, as does the command run"
                raise TraceFormatError(f"{name}: {text}") from None
            raise type(error)(f"{name}: {problem}" for problem in error.problems) from None


def _name_of(source: Source) -> str:
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        return "standard input" if name == "-" else one_line(name)
    return "input"


def _read(content: Content, source: Source) -> Trace:
    match content.form:
        case Form.ZIP:
            return _reader("native", "read_npz")(content.read())
        case Form.JSON_LINES:
            return _reader("native", "read_jsonl")(content.read())
        case Form.CSV:
            return _reader("minimalloc", "read_minimalloc")(_text(content.read()), _capacity_in(source))
        case Form.JSON:
            return _read_json(content.document())
        case Form.PICKLE | Form.HTML:
            document = content.document()
            return read_profile_plot(document) if is_profile_plot(document) else read_snapshot(document)


def _read_json(document: Any) -> Trace:
    first = document[0] if isinstance(document, list) and document else None
    if isinstance(document, dict):
        if "traceEvents" in document:
            return _reader("profiler", "read_profiler")(document)
        if any(key in document for key in SNAPSHOT_KEYS):
            return read_snapshot(document)
    elif isinstance(first, dict):
        if "ph" in first:
            return _reader("profiler", "read_profiler")(document)
        if "blocks" in first or "total_size" in first:
            return read_snapshot(document)
    elif isinstance(first, list) and (len(first) == TIMELINE_ROW or holds_totals(document)):
        return _reader("memory_timeline", "read_memory_timeline")(document)
    elif document == []:
        raise TraceFormatError(
            "is an empty list, as export_memory_timeline writes for a device that has no events: name it with its index, such as 'cuda:0'"
        )
    raise TraceFormatError(f"is JSON in no format that is known, it holds {describe(document)}: give {KNOWN}")


def _reader(module: str, function: str) -> Callable[..., Trace]:
    """Return a reader, imported only now: most runs need one format."""
    reader: Callable[..., Trace] = getattr(import_module(f"lifecycle_sim.sources.{module}"), function)
    return reader


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceFormatError(f"is not UTF-8 text (byte {error.start:,}): save it as UTF-8") from None


def _capacity_in(source: Source) -> int | None:
    """Return the capacity that a minimalloc file has in its name, as in ``A.1048576.csv``."""
    found = _CAPACITY.search(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else None
    return int(found[1]) if found else None
