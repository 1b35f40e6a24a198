"""Carry out programs with PyTorch's compiled allocator and write down everything it did.

    GHOST_RUN PYTHON record.py PROGRAMS.json RECORDINGS.json

All programs of one call run under the same PYTORCH_CUDA_ALLOC_CONF, each in a process of its own, forked after torch was imported.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import torch

_ACTIONS = ("address", "total_size", "stream", "segment_type", "segment_pool_id", "is_expandable")


def run(program: dict[str, Any]) -> dict[str, Any]:
    """Carry out one program on the first device and return what happened."""
    c = torch._C
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=10_000_000)
    needed = max((op[-1] for op in program["ops"] if op[0] in ("malloc", "use", "sync", "begin_stream")), default=0)
    streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(needed))]
    live: dict[int, torch.Tensor] = {}
    pools: dict[int, torch.cuda.MemPool] = {}
    ids: dict[int, tuple[int, int]] = {}
    addresses: list[int | None] = []
    for name, *args in program["ops"]:
        if name == "malloc":
            slot, size, stream = args
            try:
                with torch.cuda.stream(streams[stream]):
                    live[slot] = torch.empty(size, dtype=torch.uint8, device="cuda")
                addresses.append(live[slot].data_ptr())
            except torch.OutOfMemoryError:
                addresses.append(None)
        elif name == "free":
            live.pop(args[0], None)
        elif name == "use":
            if args[0] in live:
                live[args[0]].record_stream(streams[args[1]])
        elif name == "sync":
            streams[args[0]].synchronize()
        elif name == "empty":
            torch.cuda.empty_cache()
        elif name == "fraction":
            torch.cuda.set_per_process_memory_fraction(args[0])
        elif name == "options":
            torch.cuda.memory._set_allocator_settings(args[0])
        elif name == "pool":
            pools[args[0]] = torch.cuda.MemPool(**args[1])
            ids[args[0]] = pools[args[0]].id
        elif name == "begin":
            c._cuda_beginAllocateCurrentThreadToPool(0, ids[args[0]])
        elif name == "begin_stream":
            with torch.cuda.stream(streams[args[1]]):
                c._cuda_beginAllocateCurrentStreamToPool(0, ids[args[0]])
        elif name == "end":
            c._cuda_endAllocateToPool(0, ids[args[0]])
            c._cuda_releasePool(0, ids[args[0]])
        elif name == "drop":
            del pools[args[0]]
        else:
            raise ValueError(f"unknown operation {name}")
    statistics = c._cuda_memoryStats(0)
    private = statistics.pop("reserved_bytes_by_private_pools", {})
    statistics["reserved_bytes_by_private_pools"] = [[list(pool), stats] for pool, stats in private.items()]
    snapshot = torch.cuda.memory._snapshot()
    return {
        "torch": torch.__version__,
        "streams": [[stream.cuda_stream, stream.stream_id] for stream in streams],
        "pools": ids,
        "addresses": addresses,
        "trace": [
            [entry["action"], entry.get("addr", entry.get("device_free")), entry["size"], entry["stream"], entry.get("pool_id")]
            for entry in snapshot["device_traces"][0]
        ],
        "segments": [
            [*(segment[key] for key in _ACTIONS), [[b["address"], b["size"], b["requested_size"], b["state"]] for b in segment["blocks"]]]
            for segment in snapshot["segments"]
        ],
        "statistics": statistics,
    }


def run_apart(program: dict[str, Any]) -> dict[str, Any]:
    """Carry out one program in a forked process with a device of the program's own size."""
    os.environ["FAKE_TOTAL"], os.environ["FAKE_POLICY"] = str(program["total"]), str(program["policy"])
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        try:
            result = run(program)
        except BaseException:
            result = {"error": traceback.format_exc()}
        with os.fdopen(writer, "w") as out:
            json.dump(result, out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.wait()
    return json.loads(text) if text else {"error": "the process died"}


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        programs = json.load(file)
    recordings = [program | run_apart(program) for program in programs]
    with open(sys.argv[2], "w") as file:
        json.dump(recordings, file)
