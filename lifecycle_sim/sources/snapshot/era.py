"""Tell from the keys of a snapshot which PyTorch releases may have written it, and keep the settings recorded with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lifecycle_sim.sources.document_problems import plain
from lifecycle_sim.sources.snapshot.context import INT64_MAX, Context

EVIDENCE_KEY = "lifecycle_sim_evidence"
"""The setting by which a snapshot that was written from a simulation says so."""
LOOKED_AT = 1000
"""Trace entries of a device that are looked at; forward_frames, say, is not on every one."""


def guess_release(document: Mapping[str, Any]) -> str | None:
    """Return the releases that may have written *document*, such as ``"2.0"``, ``"2.3–2.4"`` or ``"2.14+"``; None if nothing tells.

    Every release added keys. The newest key present gives the oldest release; the oldest key absent gives the newest, and a key of
    trace entries can only be missed where there are entries.
    """
    settings = _as_dict(document.get("allocator_settings"))
    traces = [trace for trace in _as_list(document.get("device_traces")) if isinstance(trace, list)]
    entries = [entry for trace in traces for entry in trace[:LOOKED_AT]]
    entry_keys = {key for entry in entries if isinstance(entry, dict) for key in entry if isinstance(key, str)}
    segments = [segment for segment in _as_list(document.get("segments"))[:1] if isinstance(segment, dict)]
    if "host_segments" in document or "host_traces" in document:
        return "2.14+"
    if "max_round_threshold" in settings:
        return "2.13"
    if "pool_id" in entry_keys:
        return "2.12" if settings else "2.12+"
    if "forward_frames" in entry_keys:
        return "2.11"
    if "user_metadata" in entry_keys:
        return "2.10–2.11"
    if "graph_capture_record_stream_reuse" in settings:
        return "2.9" if entries else "2.9–2.12"
    if "compile_context" in entry_keys:
        return "2.8" if settings else "2.8–2.9"
    if "external_annotations" in document:
        return "2.5–2.7" if entries else "2.5–2.8"
    if settings:
        return "2.3–2.4"
    if "time_us" in entry_keys:
        return "2.2"
    if segments and "segment_pool_id" in segments[0]:
        return "2.1" if entries else "2.1–2.2"
    return "2.0" if segments else None


def read_settings(settings: Any, context: Context) -> dict[str, Any]:
    """Return the allocator settings: strings, numbers, truth values, and dicts of these; anything else is counted and left out."""
    if not isinstance(settings, dict):
        context.problems.wrong(("allocator_settings",), settings, "a dict")
        return {}
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            inner = {plain(k): _simple(v) for k, v in value.items() if type(k) is str and _is_simple(v)}
            left_out = len(value) - len(inner)
            value = inner
        else:
            left_out = int(not _is_simple(value))
        if type(key) is str and (isinstance(value, dict) or not left_out):
            kept[plain(key)] = value if isinstance(value, dict) else _simple(value)
        else:
            left_out = max(left_out, 1)
        context.assume("setting_left_out", left_out, "allocator settings that are no string, number or truth value are left out")
    return kept


def _is_simple(value: Any) -> bool:
    return value is None or type(value) in (bool, float, str) or (type(value) is int and abs(value) <= INT64_MAX)


def _simple(value: Any) -> Any:
    return plain(value) if type(value) is str else value


def _as_dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
