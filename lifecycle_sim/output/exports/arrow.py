"""Writes the events or the lifetimes of a trace as a table for pandas, polars, DuckDB and the like: Parquet, or an Arrow file.

Formats: Apache Parquet, and the Arrow IPC file that is also called Feather V2. Both need the extra ``arrow``. One row an event, or
one a storage; the schema's metadata say what the bytes count, and what the times. Text that recurs is kept once (dictionary columns).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lifecycle_sim.errors import MissingExtraError
from lifecycle_sim.events import Category, Clock, DeviceTrace, Kind, Trace
from lifecycle_sim.replay import DeviceReplay, replay_all
from lifecycle_sim.replay.owners import owner_frames

SCHEMA = "lifecycle-sim/table/1"

Columns = dict[str, Any]
"""Arrow arrays of one length by name."""


def write_table(trace: Trace, table: str, parquet: bool) -> bytes:
    """Return the *table* ``"events"`` or ``"lifetimes"`` of *trace* as a Parquet file, or else as an Arrow file.

    Raises:
        InputError: lifetimes were asked for and a device's events carry no identity.
        MissingExtraError: pyarrow is not installed.
    """
    arrow = _pyarrow()
    told = arrow.Table.from_batches(_batches(arrow, trace, table), _schema(arrow, trace, table)).unify_dictionaries()
    sink = arrow.BufferOutputStream()
    if parquet:
        import pyarrow.parquet

        pyarrow.parquet.write_table(told, sink, compression="zstd")
    else:
        with arrow.ipc.new_file(sink, told.schema) as writer:
            writer.write_table(told)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError("pyarrow", "arrow", "writing Parquet or Arrow files") from None
    return pyarrow


def _schema(arrow: Any, trace: Trace, table: str) -> Any:
    """The names and types of the columns, with what the figures mean."""
    whole, text = arrow.int64(), arrow.dictionary(arrow.int32(), arrow.string())
    number_columns = {
        "events": ("event", "address", "size", "stream", "time"),
        "lifetimes": (
            *("storage", "address", "size", "stream", "alloc", "free", "alloc_time", "free_time"),
            *("alloc_earliest", "alloc_latest", "free_earliest", "free_latest"),
        ),
    }
    text_columns = {
        "events": ("kind", "label", "category", "pool", "owner", "stack"),
        "lifetimes": ("label", "category", "owner", "stack"),
    }
    flags = ("lost_alloc", "lost_free") if table == "lifetimes" else ()
    metadata = {
        "schema": SCHEMA,
        "table": table,
        "format": trace.format,
        "release": trace.release or "",
        "evidence": str(trace.evidence),
        "clock": str(trace.clock),
    }
    return arrow.schema(
        [
            ("device", text),
            ("basis", text),
            *((name, whole) for name in number_columns[table]),
            *((name, text) for name in text_columns[table]),
            *((name, arrow.bool_()) for name in flags),
        ],
        metadata=metadata,
    )


def _batches(arrow: Any, trace: Trace, table: str) -> list[Any]:
    """One batch of rows for each device."""
    names = _Names(arrow, trace)
    schema = _schema(arrow, trace, table)
    if table == "events":
        rows = [(recorded, _event_columns(arrow, names, recorded)) for recorded in trace]
    else:
        rows = [(each.recorded, _lifetime_columns(arrow, names, each)) for each in replay_all(trace)]
    batches = []
    for recorded, columns in rows:
        length = len(columns["size"])
        columns["device"] = names.constant(recorded.device, length)
        columns["basis"] = names.constant(str(recorded.basis), length)
        batches.append(arrow.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema))
    return batches


class _Names:
    """The texts that a trace's numbers stand for, as dictionary columns."""

    def __init__(self, arrow: Any, trace: Trace) -> None:
        self._arrow = arrow
        table = trace.stacks
        frames = [str(frame) for frame in table.frames]
        owners = [None if frame < 0 else frames[frame] for frame in owner_frames(table)]
        self.has_clock = trace.clock is not Clock.NONE
        self._texts: dict[str, Sequence[str | None]] = {
            "kind": [kind.name.lower() for kind in Kind],
            "category": [category.word for category in Category],
            "label": trace.labels,
            "pool": [f"({first}, {second})" for first, second in trace.pools],
            "owner": owners,
            "stack": ["\n".join(frames[frame] for frame in stack) for stack in table.stacks],
        }

    def column(self, name: str, number: NDArray[Any]) -> Any:
        """The texts of kind *name* by *number*; null where the number is negative or there is no text."""
        texts = self._texts[name]
        distinct = {text: place for place, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
        place_of = np.array([-1 if text is None else distinct[text] for text in texts] or [-1], np.int32)
        places = np.where(number < 0, -1, place_of[number])
        indices = self._arrow.array(places.astype(np.int32), mask=places < 0)
        return self._dictionary(indices, distinct)

    def constant(self, text: str, length: int) -> Any:
        """*text* in each of *length* rows."""
        return self._dictionary(self._arrow.array(np.zeros(length, np.int32)), [text])

    def _dictionary(self, indices: Any, texts: Iterable[str]) -> Any:
        printable = [text.encode("utf-8", "backslashreplace").decode() for text in texts]
        return self._arrow.DictionaryArray.from_arrays(indices, self._arrow.array(printable, self._arrow.string()))


def _event_columns(arrow: Any, names: _Names, recorded: DeviceTrace) -> Columns:
    events = recorded.events
    columns = {name: arrow.array(getattr(events, name)) for name in ("address", "size", "stream")}
    columns["event"] = arrow.array(np.arange(len(events), dtype=np.int64))
    columns["time"] = arrow.array(events.time, mask=np.full(len(events), not names.has_clock))
    numbers: dict[str, NDArray[Any]] = {"owner": events.stack} | {
        name: getattr(events, name) for name in ("kind", "label", "category", "pool", "stack")
    }
    return columns | {name: names.column(name, number) for name, number in numbers.items()}


def _lifetime_columns(arrow: Any, names: _Names, replayed: DeviceReplay) -> Columns:
    found, times = replayed.identified_lifetimes(), replayed.recorded.events.time
    columns = {name: arrow.array(getattr(found, name)) for name in ("address", "size", "stream", "lost_alloc", "lost_free")}
    columns["storage"] = arrow.array(np.arange(len(found), dtype=np.int64))
    for end in ("alloc", "free"):
        event = getattr(found, end)
        absent = (event < 0) | (event >= found.events)
        at = np.zeros(len(found), np.int64)
        at[~absent] = times[event[~absent]]
        columns[end] = arrow.array(event, mask=absent)
        columns[f"{end}_time"] = arrow.array(at, mask=absent if names.has_clock else np.ones(len(found), bool))
        for bound in ("earliest", "latest"):
            columns[f"{end}_{bound}"] = arrow.array(getattr(found, f"{end}_{bound}"))
    numbers: dict[str, NDArray[Any]] = {"owner": found.stack, "label": found.label, "category": found.category, "stack": found.stack}
    return columns | {name: names.column(name, number) for name, number in numbers.items()}
