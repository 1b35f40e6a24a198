"""Reads JSON lines, written by hand or by :func:`write_jsonl`; every problem is told with its line."""

from __future__ import annotations

import io
from typing import Any

import msgspec

from lifecycle_sim.errors import InputError, TraceFormatError, TraceInvariantError
from lifecycle_sim.events import Clock, Span, Trace
from lifecycle_sim.sources.native.grammar import (
    DEFAULT_POOLS,
    EVENT_KEYS,
    KINDS,
    LINES,
    SCHEMA,
    SHARED_KEYS,
    VERBS,
    DeviceLine,
    Header,
    SettingLine,
    must_be_sound,
)
from lifecycle_sim.sources.native.section import Section, read_size
from lifecycle_sim.sources.native.tables import Tables
from lifecycle_sim.sources.problems import Problems, did_you_mean

_BOM = b"\xef\xbb\xbf"


def read_jsonl(data: bytes) -> Trace:
    """Return the trace that the JSON lines *data* hold; see docs/formats.md for the grammar.

    Raises:
        TraceFormatError: no header, a line that is not JSON, an unknown key, a missing or wrong value.
        TraceInvariantError: the events contradict themselves: a double alloc or a free of the unknown, by name.
    """
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    reader: _Reader | None = None
    with Problems(TraceFormatError) as problems:
        for number, line in enumerate(io.BytesIO(data.removeprefix(_BOM)), start=1):
            text = line.strip()
            if not text or text.startswith(b"#"):
                continue
            try:
                if reader is None:
                    reader = _Reader(_header(decode(text)))
                else:
                    reader.read(decode(text))
            except InputError as error:
                problems.add(f"line {number}", str(error), type(error))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                problems.add(f"line {number}", f"not a JSON object on a line of its own ({error})")
            if reader is None:
                break
    if reader is None:
        raise TraceFormatError(f'no header: the first line is {{"schema": "{SCHEMA}"}}')
    trace = reader.trace()
    must_be_sound(trace, TraceInvariantError, "in the file,")
    return trace


def _header(record: dict[str, Any]) -> Header:
    if record.get("schema") != SCHEMA:
        was = f"schema {record['schema']!r}" if "schema" in record else "a first line without schema"
        raise TraceFormatError(f'{was}: this release reads {{"schema": "{SCHEMA}"}}')
    header: Header = _convert(record, Header, "the header")
    return header


def _convert(record: dict[str, Any], kind: type[msgspec.Struct], what: str) -> Any:
    known = kind.__struct_fields__
    for key in record:
        if key not in known:
            raise TraceFormatError(f"key {key!r} is not known in {what}{did_you_mean(key, known)}")
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        raise TraceFormatError(f"{what}: {error}") from None


class _Reader:
    """Reads one line after another into sections, one for each device, and tables."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._tables = Tables(DEFAULT_POOLS if header.pools is None else header.pools)
        self._sections: dict[str, Section] = {}
        self._current: Section | None = None
        self._timed = False

    def read(self, record: dict[str, Any]) -> None:
        """Read the line *record*."""
        first = next(iter(record), "")
        verb = first if first in KINDS else next((known for known in VERBS if known in record), "")
        if verb in SHARED_KEYS and first not in LINES[verb].__struct_fields__:
            verb = ""  # "label" in {"fre": "a", "label": "b"} is not what the line is about
        if verb in KINDS:
            self._event(verb, record)
        elif verb:
            self._line(verb, _convert(record, LINES[verb], f"a line with {verb!r}"))
        else:
            raise TraceFormatError(f"the line says nothing known: its first key is {first!r}{did_you_mean(first, VERBS)}")

    def _event(self, verb: str, record: dict[str, Any]) -> None:
        known = EVENT_KEYS[verb]
        if not record.keys() <= known:
            wrong = next(key for key in record if key not in known)
            if wrong in VERBS:
                raise TraceFormatError(f"{verb!r} and {wrong!r} in one line: write one event a line")
            raise TraceFormatError(f"key {wrong!r} is not known in a line with {verb!r}{did_you_mean(wrong, known)}")
        self._timed = self._timed or "time" in record
        self._section(record.get("device")).event(KINDS[verb], record[verb], record)

    def _line(self, verb: str, line: Any) -> None:
        match verb:
            case "setting":
                self._setting(line)
            case "frame":
                self._tables.add_frame(line)
            case "stack":
                self._tables.add_stack(line)
            case "label":
                self._tables.add_label(line)
            case "device":
                self._device(line)
            case "span":
                self._section(line.device).add_span(Span(line.kind, line.span, line.start, line.stop, line.closed))
            case "begin":
                self._section(line.device).begin(line.kind, line.begin)
            case "end":
                self._section(line.device).end(line.end)
            case "segment":
                self._section(line.device).add_segment(line)
            case "block":
                self._section(line.device).add_block(line)

    def _setting(self, line: SettingLine) -> None:
        if not line.setting:
            raise TraceFormatError('a setting without a name: give the keys that lead to it, such as ["title"]')
        place = self._header.settings
        for key in line.setting[:-1]:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise TraceFormatError(f"setting {'.'.join(line.setting)}: {key!r} holds a value already, and no further settings")
        place[line.setting[-1]] = line.value

    def _device(self, line: DeviceLine) -> None:
        section = self._section(line.device)
        if section.declared:
            raise TraceInvariantError(f"device {line.device!r} is described a second time")
        if line.capacity is not None:
            read_size(line.capacity, "capacity")
        section.line, section.declared = line, True
        self._current = section

    def _section(self, name: Any) -> Section:
        """Return the section of the device *name*; without one, that of the last ``device`` line."""
        if name is None and self._current is not None:
            return self._current
        if name is not None and not isinstance(name, str):
            raise TraceFormatError(f"device {name!r} is not text")
        name = "device" if name is None else name
        if name not in self._sections:
            self._sections[name] = Section(DeviceLine(name), self._tables, self._header.clock is Clock.NANOSECONDS)
        return self._sections[name]

    def trace(self) -> Trace:
        """Return all that was read."""
        header, tables = self._header, self._tables
        return Trace(
            tuple(section.trace() for section in self._sections.values()),
            header.format,
            header.evidence,
            header.clock or (Clock.TICKS if self._timed else Clock.NONE),
            tables.stacks(),
            tuple(tables.labels),
            tuple(tables.pools),
            header.release,
            header.settings,
            tuple(header.assumptions),
        )
