"""Small snapshot documents in the shape of every PyTorch release from 2.0 to 2.14, for tests and fuzzing.

One device holds a segment of three blocks:      A 4096 (asked 4000, live) | B 8192 (pending free) | rest (inactive)
"""

from typing import Any

BASE = 0x7F0000000000
T0 = 1_700_000_000_000_000
SEGMENT = 2 << 20
RELEASES = ("2.0", "2.1", "2.2", "2.3–2.4", "2.5–2.7", "2.8", "2.9", "2.10–2.11", "2.11", "2.12", "2.13", "2.14+")
OUTER = {"name": "main", "filename": "train.py", "line": 20}
INNER = {"name": "forward", "filename": "model.py", "line": 7, "fx_node_op": "call_function"}
STACK = [INNER, OUTER]


def entry(action: str, addr: int, size: int, time: int, **more: Any) -> dict[str, Any]:
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": T0 + time,
        "compile_context": "N/A",
        "user_metadata": "",
        "pool_id": (0, 0),
        "frames": STACK,
    } | more


def entries() -> list[dict[str, Any]]:
    out_of_memory = entry("oom", 0, 1 << 40, 8, device_free=123_456)
    del out_of_memory["addr"]
    marker = entry("snapshot", 0, 12288, 9)
    del marker["frames"]
    return [
        entry("segment_alloc", BASE, SEGMENT, 0),
        entry("alloc", BASE, 4000, 0, user_metadata="weights"),
        entry("alloc", BASE + 4096, 8000, 1, compile_context="0/0", pool_id=(0, 1)),
        entry("alloc", BASE + 12288, 100, 2, stream=0x75A3C0DE0000, frames=[{"name": "torch::unwind", "filename": "??", "line": 0}]),
        entry("free_requested", BASE + 12288, 100, 2, frames=[]),
        entry("free_completed", BASE + 12288, 100, 3),
        entry("free_requested", BASE + 4096, 8000, 4),
        entry("segment_map", BASE + 2 * SEGMENT, SEGMENT, 5),
        entry("segment_unmap", BASE + 2 * SEGMENT, SEGMENT, 6),
        entry("annotate", BASE, 4000, 7, user_metadata="packed"),
        out_of_memory,
        marker,
    ]


def segment(device: int = 0, base: int = BASE, pool: Any = (0, 0)) -> dict[str, Any]:
    rest = SEGMENT - 4096 - 8192
    return {
        "device": device,
        "address": base,
        "total_size": SEGMENT,
        "allocated_size": 4096,
        "active_size": 12288,
        "requested_size": 12000,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": pool,
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {"address": base, "size": 4096, "requested_size": 4000, "state": "active_allocated", "frames": STACK},
            {"address": base + 4096, "size": 8192, "requested_size": 8000, "state": "active_pending_free", "frames": [OUTER]},
            {"address": base + 12288, "size": rest, "requested_size": 1 << 30, "state": "inactive", "frames": []},
        ],
    }


def document(release: str = "2.14+") -> dict[str, Any]:
    """Return a document with the keys that *release* (one of RELEASES) writes."""
    at = RELEASES.index(release)
    has = {name: at >= RELEASES.index(first) for name, first in FIRST_WRITTEN.items()}
    trace = entries()
    if not has["annotate"]:
        trace = [e for e in trace if e["action"] != "annotate"]
    for e in trace:
        for key in ("time_us", "compile_context", "user_metadata", "pool_id"):
            if not has[key]:
                del e[key]
    if has["forward_frames"]:
        trace[1]["forward_frames"] = ["model.py:7 forward"]
    first = segment()
    if not has["segment_pool_id"]:
        for key in ("segment_pool_id", "is_expandable", "frames"):
            del first[key]
        for block in first["blocks"]:
            history = [{"addr": block.pop("address"), "real_size": block["requested_size"], "frames": block.pop("frames")}]
            if block["state"] != "inactive":
                block["history"] = history
        trace = [e for e in trace if e["action"] not in ("segment_map", "segment_unmap")]
    result: dict[str, Any] = {"segments": [first], "device_traces": [trace, []]}
    if has["allocator_settings"]:
        result["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "roundup_power2_divisions": {"1": 0, "2": 0}}
    if has["graph_capture"]:
        result["allocator_settings"]["graph_capture_record_stream_reuse"] = False
    if has["max_round_threshold"]:
        result["allocator_settings"]["max_round_threshold"] = -1
    if has["external_annotations"]:
        result["external_annotations"] = [
            {"stage": "START", "name": "step", "device": 0, "time_us": T0 + 1},
            {"stage": "END", "name": "step", "device": 0, "time_us": T0 + 4},
        ]
    if has["host_segments"]:
        result["host_segments"] = [segment(-1, 0x560000000000)]
        result["host_traces"] = [entry("alloc", 0x560000000000, 4000, 1, compile_context="")]
    return result


FIRST_WRITTEN = {
    "segment_pool_id": "2.1",
    "time_us": "2.2",
    "allocator_settings": "2.3–2.4",
    "external_annotations": "2.5–2.7",
    "compile_context": "2.8",
    "graph_capture": "2.9",
    "user_metadata": "2.10–2.11",
    "forward_frames": "2.11",
    "pool_id": "2.12",
    "max_round_threshold": "2.13",
    "host_segments": "2.14+",
    "annotate": "2.14+",
}
