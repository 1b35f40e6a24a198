"""Reads the handed captures with real checkpoint measurements as graphs of steps."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

from lifecycle_sim.program.step_graph import NO_CALL, Call, Hold, Mark, StepGraph, StepOperator

KINDS = {
    "op": Mark.OPERATOR,
    "alloc": Mark.ALLOC,
    "free": Mark.FREE,
    "pack": Mark.SAVE,
    "unpack": Mark.UNPACK,
    "hold_end": Mark.APPLIED,
    "release": Mark.RELEASE,
    "enter": Mark.ENTER,
    "exit": Mark.LEAVE,
    "bwd": Mark.BACKWARD,
}
NAMES = ("gpt4_p0.0_sdpa", "gpt4_p0.1_eager", "resnet5_inplace")


def read_fixture(directory: Path, name: str) -> tuple[StepGraph, list[dict[str, Any]]]:
    """The graph of a capture, and the plans that were measured on it."""
    document = json.loads(gzip.decompress((directory / f"{name}.json.gz").read_bytes()))
    capture = document["capture"]
    lasting = set(capture["persistent"])
    operators, holds, calls, kinds, values = [], [], [], [], []
    stack: list[int] = []
    numbers: dict[int, int] = {}
    for event in capture["events"]:
        what = event[0]
        if what == "end":
            break
        value = event[1] if len(event) > 1 else 0
        if what == "op":
            if "detach" in event[2]:
                continue
            value = len(operators)
            phase = {"fwd": "forward", "bwd": "backward"}[event[3]]
            operators.append(StepOperator(event[2], phase, flops=event[6], reads=known(event[4]), writes=known(event[5])))
        elif what in ("alloc", "free") and value in lasting:
            continue
        elif what == "pack":
            numbers[value] = len(holds)
            holds.append(Hold(event[2], event[2] in lasting))
        elif what == "enter":
            inputs = tuple(-1 if storage is None or storage in lasting else storage for storage in event[2])
            calls.append(Call(value, stack[-1] if stack else NO_CALL, True, inputs))
            value = len(calls) - 1
            stack.append(value)
        elif what == "exit":
            value = stack.pop()
        if what in ("pack", "unpack", "hold_end", "release"):
            value = numbers[value]
        kinds.append(int(KINDS[what]))
        values.append(value)
    sizes = {int(storage): size for storage, size in capture["sizes"].items()}
    graph = StepGraph(name, 0, 0, tuple(operators), tuple(holds), tuple(calls), kinds, values, sizes)
    return graph, document["plans"]


def known(storages: list[int | None]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(storage for storage in storages if storage is not None))


def sha(rows: list[tuple[str, int, int]]) -> str:
    return hashlib.sha256("\n".join(f"{name} {high} {after}" for name, high, after in rows).encode()).hexdigest()
