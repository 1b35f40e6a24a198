"""Feed mutated profiler traces, memory timelines, native traces, minimalloc instances and scenarios to the commands.

usage: python benchmarks/fuzz_formats.py [--cases 2000] [--seed 0] [--target MODULE:FUNCTION] [--formats NAME …] [--keep FOLDER]

A case is a small valid input with bytes flipped, cut, inserted or repeated, with a word of its text replaced by a wrong one, or with a
value of a wrong type or range, or none, at some path of its document or some column of its arrays. --cases is the number for each format.
The target, see fuzz_cli.py, is called with the bytes and the suffix of the file. The exit code is 0 if nothing crashed or hung.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import io
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_snapshots import REMOVED, ROOT, answer, changed, paths, shape, wrong_values

sys.path.insert(0, str(ROOT))

from lifecycle_sim.sources.detect import read_trace
from lifecycle_sim.sources.native import write_jsonl, write_npz
from tests import eras
from tests.cli_support import small_trace

WORDS = [
    *b"0 1 -1 1.5 nan inf true 9223372036854775807 9223372036854775808 4611686018427387904 1e999 100000000000 null".split(),
    *b"x {} [] [[]] = , # ] }".split(),
    *(b"\n", b"''", b'""', b"\xff", b"\xe2\x80\xae", b"\x1b[31m", b'"1 GiB"', b'"-1 B"', b'"9 EiB"', b'"batch ** 9"'),
    *(b'"1 // 0 * 1 B"', b'"{batch}"', b'"x\\u0000"', b'"99999999999999999999 B"', b'"no such"'),
]
WORD = re.compile(rb'"[^"\n]*"|[\w.+-]+')
ARRAYS = (np.float64, np.int8, np.uint64, np.bool_, "U3", object)


def instant(ts: Any, size: int, address: int | None = None, total: int | None = None, device: tuple[int, int] = (1, 0)) -> dict[str, Any]:
    arguments = {"Device Type": device[0], "Device Id": device[1], "Bytes": size}
    if address is not None:
        arguments |= {"Addr": address, "Total Allocated": total, "Total Reserved": 1 << 21}
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": arguments}


def profiler() -> Any:
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "totalGlobalMem": 1 << 30}],
        "traceEvents": [
            {"ph": "X", "name": "ProfilerStep#1", "ts": 100, "dur": 50},
            {"ph": "X", "cat": "user_annotation", "name": "forward", "ts": 100.5, "dur": 20.25},
            instant(101, 1024, 4096, 1024),
            instant(103.125, 512, 8192, 1536),
            instant(102, -512, 8192, 1024),
            instant(140, -1024, 4096, 512),
            instant(141, 100, device=(0, -1)),
            instant(142, -100, device=(0, -1)),
        ],
    }


def timeline() -> Any:
    return [[-1, 1, 1024, 0], [10, 2, 512, 4], [20, 3, -512, 4], [20, 3, 512, 5], [30, 2, 4096, 6], [40, 4, -4096, 6]]


BY_HAND = b"""{"schema": "lifecycle-sim/trace/1", "clock": "ns"}
# by hand
{"device": "cuda:0", "basis": "requested", "start": "1 KiB", "capacity": "1 GiB"}
{"alloc": "a", "size": "4 KiB", "time": "1 us", "category": "parameter"}
{"begin": "step", "kind": "step"}
{"alloc": "b", "size": 100, "label": "b"}
{"free": "b"}
{"end": "step"}
{"span": "whole", "start": 0, "stop": 3}
{"free": "a", "time": 5000}
"""
MINIMALLOC = b'id,lower,upper,size,alignment\nb1,0,3,4,1\nb2,3,9,4,1\nb3,0,9,4,1\n"b 4",9,21,4,1\n'


def snapshot_trace() -> Any:
    return read_trace(json.dumps(eras.document()).encode())


class Formats:
    """Makes cases of each format; the same seed makes the same cases."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.values = wrong_values()[:-1]  # the last is shared again and again, and JSON would spell it out
        self.lines = [BY_HAND, write_jsonl(small_trace()), write_jsonl(snapshot_trace())]
        self.columns = [write_npz(small_trace()), write_npz(snapshot_trace())]
        self.scenarios = [path.read_bytes() for path in sorted((ROOT / "scenarios").glob("*.toml"))]

    def profiler(self) -> tuple[str, bytes]:
        """A profiler trace."""
        return "", self.document(profiler())

    def timeline(self) -> tuple[str, bytes]:
        """A memory timeline."""
        return "", self.document(timeline())

    def jsonl(self) -> tuple[str, bytes]:
        """Native JSON lines, one line of which is changed as a document, or moved, or left out, or the bytes."""
        data = self.random.choice(self.lines)
        if self.random.random() < 0.3:
            return "", self.bytes(data)
        lines = data.splitlines()
        for _ in range(self.random.choice((1, 1, 2))):
            number = self.random.randrange(len(lines))
            way = self.random.randrange(5)
            if way == 0:
                del lines[number]
            elif way == 1:
                lines.insert(self.random.randrange(len(lines) + 1), lines[number])
            else:
                try:
                    lines[number] = self.document(json.loads(lines[number]))
                except ValueError:  # a comment, or changed already
                    continue
        return "", b"\n".join(lines)

    def npz(self) -> tuple[str, bytes]:
        """Native columns, of which one has another type, length or value, or is left out, or the bytes."""
        data = self.random.choice(self.columns)
        if self.random.random() < 0.3:
            return "", self.bytes(data)
        with np.load(io.BytesIO(data)) as archive:
            arrays = dict(archive)
        name = self.random.choice(sorted(arrays))
        array, way = arrays[name], self.random.randrange(6)
        if way == 0:
            del arrays[name]
        elif way == 1:
            arrays[name] = array[: self.random.randrange(len(array) + 1)] if array.ndim else array.reshape(1)
        elif way == 2 and array.dtype.kind in "iub" and array.size:
            changed_array = array.astype(np.int64)
            changed_array.flat[self.random.randrange(array.size)] = self.random.choice((-1, -(2**63), 2**63 - 1, 2**62, 10**6, 255, 0))
            arrays[name] = changed_array if self.random.random() < 0.5 else changed_array.astype(array.dtype)
        elif way == 3:
            arrays[name] = array.reshape(-1, 1)
        elif way == 4 and array.dtype == np.uint8 and array.size and array.flat[0] == ord("{"):
            arrays[name] = np.frombuffer(self.document(json.loads(array.tobytes())), np.uint8)
        else:
            try:
                arrays[name] = array.astype(self.random.choice(ARRAYS))
            except (TypeError, ValueError):
                arrays[self.random.choice(("more", "../more", "x" * 300))] = array
        stream = io.BytesIO()
        np.savez(stream, **arrays)
        return "", stream.getvalue()

    def minimalloc(self) -> tuple[str, bytes]:
        """A minimalloc instance with words replaced, or the bytes."""
        return self.random.choice(("", ".1048576.csv", ".csv")), self.text(MINIMALLOC)

    def scenario(self) -> tuple[str, bytes]:
        """A shipped scenario with words replaced, or the bytes."""
        return self.random.choice(("", ".toml")), self.text(self.random.choice(self.scenarios))

    def document(self, document: Any) -> bytes:
        """Return *document* as JSON with a wrong value at one or two of its paths, or with the bytes of its JSON changed."""
        if self.random.random() < 0.2:
            return self.bytes(json.dumps(document).encode())
        for _ in range(self.random.choice((1, 1, 1, 2))):
            by_shape: dict[Any, list[Any]] = {}
            for path in paths(document):
                by_shape.setdefault(shape(path), []).append(path)
            path = self.random.choice(self.random.choice(list(by_shape.values())))
            value = self.random.choice(self.values)
            attempt = changed(document, path, lambda _, value=value: value)
            try:
                json.dumps(None if attempt is REMOVED else attempt)
            except (TypeError, ValueError, RecursionError):
                continue
            document = None if attempt is REMOVED else attempt
        return json.dumps(document).encode()

    def text(self, data: bytes) -> bytes:
        """Return *data* with one to three of its words replaced, lines moved, or bytes changed."""
        if self.random.random() < 0.15:
            return self.bytes(data)
        for _ in range(self.random.choice((1, 1, 2, 3))):
            words = [match.span() for match in WORD.finditer(data)]
            if not words:
                return data
            begin, end = self.random.choice(words)
            other = self.random.choice(words)
            new = self.random.choice(WORDS) if self.random.random() < 0.7 else data[slice(*other)]
            data = data[:begin] + new + data[end:]
            if self.random.random() < 0.1:
                lines = data.split(b"\n")
                self.random.shuffle(lines)
                data = b"\n".join(lines)
        return data

    def bytes(self, data: bytes) -> bytes:
        """Return *data* with bytes flipped, cut off, inserted or repeated."""
        raw = bytearray(data)
        way = self.random.randrange(4)
        at = self.random.randrange(len(raw))
        if way == 0:
            return data[:at]
        if way == 1:
            raw[at:at] = self.random.choice((b"\0", b"\n", b'"', b"{", b"]", b"\xff\xfe", raw[at : at + 30], b"[" * 5000))
        else:
            for _ in range(self.random.choice((1, 2, 8))):
                at = self.random.randrange(len(raw))
                raw[at] = self.random.choice((raw[at] ^ (1 << self.random.randrange(8)), self.random.randrange(256)))
        return bytes(raw)


NAMES = ("profiler", "timeline", "jsonl", "npz", "minimalloc", "scenario")


def cases(names: list[str], count: int, seed: int) -> Iterator[tuple[str, str, bytes]]:
    """Give *count* cases of each format: its name, the suffix of its file, and the bytes."""
    formats = Formats(seed)
    for name in names:
        make: Callable[[], tuple[str, bytes]] = getattr(formats, name)
        for _ in range(count):
            yield name, *make()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000, help="for each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=3.0, help="seconds a case may take")
    parser.add_argument("--formats", nargs="*", choices=NAMES, default=list(NAMES))
    parser.add_argument("--target", default="fuzz_cli:commands", help="MODULE:FUNCTION, called with the bytes and the suffix of a case")
    parser.add_argument("--keep", type=Path, help="folder for the cases that crash or hang")
    options = parser.parse_args()
    module, _, function = options.target.partition(":")
    target = getattr(importlib.import_module(module), function)
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in options.formats}
    slowest: dict[str, float] = dict.fromkeys(options.formats, 0.0)
    for number, (name, suffix, data) in enumerate(cases(options.formats, options.cases, options.seed)):
        faulthandler.dump_traceback_later(10 * options.limit, exit=True)
        start = time.perf_counter()
        outcome = answer(lambda data, suffix=suffix: target(data, suffix), data)
        took = time.perf_counter() - start
        slowest[name] = max(slowest[name], took)
        known = outcome if outcome in ("valid", "refused") else "crashed"
        outcomes[name]["hung" if took > options.limit else known] += 1
        if known == "crashed" or took > options.limit:
            print(f"case {number} ({name}, {took:.2f} s): {outcome}", flush=True)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{name}_{number}{suffix}").write_bytes(data)
    faulthandler.cancel_dump_traceback_later()
    for name, counted in outcomes.items():
        print(name, json.dumps({key: counted[key] for key in ("valid", "refused", "crashed", "hung")}), f"slowest {slowest[name]:.2f} s")
    return int(any(counted["crashed"] or counted["hung"] for counted in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
