"""Feed mutated memory snapshots to a reader and count how it answers: valid, refused, or crashed.

usage: python benchmarks/fuzz_snapshots.py [--cases 10000] [--seed 0] [--recordings FOLDER] [--target MODULE:FUNCTION]

A case is a made document of some release, or a recording, with bytes flipped, cut, inserted or repeated, or with a value of a wrong type or
range, or none, at some path of its document, in some container (pickle protocol 0–5, gzip, JSON, viewer HTML). The target is called
with the bytes. It may return, or raise lifecycle_sim.errors.InputError of printable lines; anything else is a crash. A case past
--limit seconds is a hang; one past ten times that ends the process with a traceback. The exit code is 0 if nothing crashed or hung.
"""

from __future__ import annotations

import argparse
import base64
import copy
import faulthandler
import gzip
import importlib
import json
import pickle
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import eras  # noqa: E402

from lifecycle_sim.errors import InputError  # noqa: E402

LARGEST_RECORDING = 500_000
OPCODES = (
    b"(.0123FIJKLMNPQRSTUVXabcdeghijlopqrstu)}]\x80\x81\x82\x83\x84\x85\x86\x87\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98"
)
Where = tuple[Any, ...]
REMOVED = object()


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def nested(depth: int, make: Callable[[Any], Any]) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = make(value)
    return value


def wrong_values() -> list[Any]:
    """Return values that are wrong in most places."""
    numbers = [0, 1, -1, 511, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 200, 1.5, float("nan"), float("inf"), True, False]
    texts = ["", "abc", "START", "alloc", "oom", "snapshot", "free_completed", "inactive", "\ud800", "a\nb\x1b[31m", "x" * 5000, b"abc"]
    plain = [None, [], {}, (), [0], [[]], {"a": 1}, {1: 2}, (0, 0), (0, 1), [0, 0], (True, 0), (0, 1 << 70), (0,) * 5, [None] * 3]
    odd = [REMOVED, frozenset((1,)), cyclic(), nested(60, lambda v: [v]), nested(60, lambda v: {"k": v}), nested(25, lambda v: (v, v))]
    return [*numbers, *texts, *plain, *odd]


def paths(document: Any) -> Iterator[Where]:
    """Give every path of *document*, outer ones first."""
    todo: list[tuple[Where, Any]] = [((), document)]
    for path, value in todo:
        yield path
        if len(path) > 8:
            continue
        if isinstance(value, dict):
            todo.extend(((*path, key), item) for key, item in value.items())
        elif isinstance(value, (list, tuple)):
            todo.extend(((*path, i), item) for i, item in enumerate(value))


def shape(path: Where) -> Where:
    """Return *path* with every index replaced: entries of one list have one shape."""
    return tuple("*" if isinstance(part, int) else part for part in path)


def changed(document: Any, path: Where, change: Callable[[Any], Any]) -> Any:
    """Return *document* with ``change(value)`` at *path*; what is on the way there is copied, the rest is shared."""
    if not path:
        return change(document)
    result = list(document) if isinstance(document, tuple) else copy.copy(document)
    value = changed(document[path[0]], path[1:], change)
    if value is REMOVED:
        del result[path[0]]
    else:
        result[path[0]] = value
    return tuple(result) if isinstance(document, tuple) else result


class Fuzzer:
    """Makes cases from documents; the same seed makes the same cases."""

    def __init__(self, documents: dict[str, Any], seed: int) -> None:
        self.random = random.Random(seed)
        self.documents, self.names = documents, sorted(documents)
        self.values = wrong_values()
        self.pickled = {name: pickle.dumps(documents[name], 4) for name in self.names}
        self.shapes: dict[str, list[list[Where]]] = {}
        for name in self.names:
            by_shape: dict[Where, list[Where]] = {}
            for path in paths(documents[name]):
                by_shape.setdefault(shape(path), []).append(path)
            self.shapes[name] = list(by_shape.values())

    def cases(self, count: int) -> Iterator[tuple[str, bytes]]:
        """Give *count* cases as (how it was made, bytes): one half puts wrong values at every shape of path of every document in turn."""
        all_shapes = [(name, of_shape) for name in self.names for of_shape in self.shapes[name]]
        self.random.shuffle(all_shapes)
        ways = (self.flip, self.cut, self.splice, self.several)
        for number in range(count):
            if number % 2:
                name, of_shape = all_shapes[number // 2 % len(all_shapes)]
                yield self.wrong(name, self.random.choice(of_shape))
            else:
                yield self.random.choice(ways)(self.random.choice(self.names))

    def wrong(self, name: str, path: Where) -> tuple[str, bytes]:
        """Put a wrong value at *path*, or remove what is there."""
        value = self.random.choice(self.values)
        how = f"{name}: {path} = {'removed' if value is REMOVED else type(value).__name__}"
        document = changed(self.documents[name], path, lambda _: value)
        return how, self.contained(None if document is REMOVED else document, as_json=value is not self.values[-1])

    def several(self, name: str) -> tuple[str, bytes]:
        """Put wrong values at a few places, duplicate an item of a list, turn it round, or shift a number."""
        document = self.documents[name]
        for _ in range(self.random.randint(1, 4)):
            path = self.random.choice(self.random.choice(self.shapes[name]))
            value = self.random.choice(self.values[:-6])
            try:
                document = changed(document, path, lambda old, value=value: self.disturbed(old, value))
            except (LookupError, TypeError):  # an earlier change took this path away
                continue
        return f"{name}: several", self.contained(document)

    def disturbed(self, old: Any, value: Any) -> Any:
        if isinstance(old, list) and old:
            return self.random.choice([[*old, old[0]], old[::-1], old[1:], old + old, [*old, value]])
        if type(old) is int:
            return self.random.choice([old + 1, -old, old * 2, old // 2, value])
        return value

    def contained(self, document: Any, as_json: bool = True) -> bytes:
        """Return *document* in some container; a value shared again and again would be spelt out in JSON."""
        way = self.random.randrange(10)
        if way == 0 and as_json:
            try:
                return json.dumps(document).encode()
            except (TypeError, ValueError, RecursionError):
                way = 1
        data = pickle.dumps(document, self.random.randrange(6) if way < 6 else 4)
        if way == 8:
            return gzip.compress(data, 1)
        if way == 9:
            text = base64.b64encode(data + b"\0" * (3 - len(data) % 3)).decode()
            return (
                f"<html><script>const local_files = {json.dumps([{'name': 'snapshot.pickle', 'base64': text}])}\n</script></html>".encode()
            )
        return data

    def bytes_of(self, name: str) -> bytearray:
        return bytearray(self.pickled[name] if self.random.random() < 0.7 else self.contained(self.documents[name]))

    def flip(self, name: str) -> tuple[str, bytes]:
        """Change one to eight bytes, often near the beginning."""
        data = self.bytes_of(name)
        for _ in range(self.random.choice((1, 1, 2, 8))):
            at = self.random.randrange(len(data) if self.random.random() < 0.6 else min(len(data), 400))
            data[at] = self.random.choice((data[at] ^ (1 << self.random.randrange(8)), self.random.randrange(256)))
        return f"{name}: flipped", bytes(data)

    def cut(self, name: str) -> tuple[str, bytes]:
        """Leave out the end."""
        data = self.bytes_of(name)
        return f"{name}: cut", bytes(data[: self.random.randrange(len(data))])

    def splice(self, name: str) -> tuple[str, bytes]:
        """Insert random or repeated bytes, pickle opcodes among them."""
        data = self.bytes_of(name)
        at, length = self.random.randrange(len(data)), self.random.choice((1, 2, 5, 40))
        source = self.random.choice((OPCODES, bytes(range(256)), bytes(data[at : at + 40])))
        data[at:at] = bytes(self.random.choice(source) for _ in range(length))
        return f"{name}: spliced", bytes(data)


def documents(recordings: Path | None) -> dict[str, Any]:
    """Return the documents to mutate: made ones of every release, and the smaller recordings."""
    made: dict[str, Any] = {f"made {release}": eras.document(release) for release in eras.RELEASES}
    made["made list"] = [eras.segment(), eras.segment(1)]
    for path in sorted(recordings.glob("*.pickle")) if recordings and recordings.is_dir() else ():
        if path.stat().st_size <= LARGEST_RECORDING:
            with path.open("rb") as stream:
                made[path.stem] = pickle.load(stream)
    return made


def answer(target: Callable[[bytes], Any], data: bytes) -> str:
    """Return how *target* answers *data*: ``"valid"``, ``"refused"``, or the traceback of a crash."""
    try:
        target(data)
    except InputError as error:
        if error.problems and all(line and line.isprintable() and len(line) < 1000 for line in error.problems):
            return "refused"
        return f"unclear message: {error.problems!r}"[:2000]
    except BaseException:
        return traceback.format_exc()
    return "valid"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=3.0, help="seconds a case may take")
    parser.add_argument("--recordings", type=Path, default=ROOT.parent / "shared" / "data" / "snapshots")
    parser.add_argument(
        "--target", default="lifecycle_sim.sources.detect:read_trace", help="MODULE:FUNCTION, called with the bytes of a case"
    )
    parser.add_argument("--keep", type=Path, help="folder for the cases that crash or hang")
    options = parser.parse_args()
    module, _, function = options.target.partition(":")
    target = getattr(importlib.import_module(module), function)
    outcomes: Counter[str] = Counter()
    slowest = (0.0, "")
    for number, (how, data) in enumerate(Fuzzer(documents(options.recordings), options.seed).cases(options.cases)):
        faulthandler.dump_traceback_later(10 * options.limit, exit=True)
        start = time.perf_counter()
        outcome = answer(target, data)
        took = time.perf_counter() - start
        slowest = max(slowest, (took, how))
        known = outcome if outcome in ("valid", "refused") else "crashed"
        outcomes["hung" if took > options.limit else known] += 1
        if known == "crashed" or took > options.limit:
            print(f"case {number} ({how}, {took:.2f} s): {outcome}")
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"case_{number}").write_bytes(data)
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({key: outcomes[key] for key in ("valid", "refused", "crashed", "hung")}))
    print(f"slowest: {slowest[0]:.2f} s ({slowest[1]})")
    return int(bool(outcomes["crashed"] or outcomes["hung"]))


if __name__ == "__main__":
    sys.exit(main())
