"""Pages of ``profile_plot``, by hand: devices, frees and frames as they are meant, and real snapshots left alone."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import pytest

from lifecycle_sim.errors import SnapshotError
from lifecycle_sim.events import Basis, Category, Frame, Kind
from lifecycle_sim.replay import replay_all
from lifecycle_sim.sources.detect import read_trace
from lifecycle_sim.sources.profile_plot import is_profile_plot, read_profile_plot


def _frames(*names: str) -> list[dict[str, Any]]:
    return [{"filename": "none", "line": 0, "name": name} for name in names]


def _entry(action: str, address: int, size: int, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": []} | more


def _freed(address: int, size: int) -> list[dict[str, Any]]:
    return [_entry("free_requested", address, size), _entry("free_completed", address, size)]


def _page() -> dict[str, Any]:
    """One GPU, which is device 0, and the CPU, which is device 1.

    ::

        cuda:0  | 512 older |
                | 1024 kept from here on >
        cpu     | 8 older, to the end   >
                    | 4 |
    """
    held = {"state": "active_allocated", "frames": []}
    return {
        "device_traces": [
            [
                _entry("alloc", 4096, 1024, category="gradient", frames=_frames("<built-in method run_backward>", "model.py(7): f(x)")),
                *_freed(8192, 512),
            ],
            [_entry("alloc", 100, 4, category="autograd_detail"), *_freed(100, 4)],
        ],
        "segments": [
            {
                "device": 0,
                "address": 4096,
                "total_size": 4608,
                "stream": 0,
                "blocks": [held | {"size": 1024, "requested_size": 1024}, {"size": 3584, "state": "inactive"}],
            },
            {"device": 1, "address": 64, "total_size": 8, "stream": 0, "blocks": [held | {"size": 8, "requested_size": 8}]},
        ],
    }


def test_a_page_by_hand() -> None:
    page = b"<html><script>const local_files = [" + json.dumps({"base64": base64.b64encode(pickle.dumps(_page())).decode()}).encode() + b"]"
    trace = read_trace(page)
    gpu, cpu = trace
    assert (gpu.device, gpu.basis, gpu.start, gpu.final) == ("cuda:0", Basis.ALLOCATED, 512, None)
    assert (cpu.device, cpu.basis, cpu.start, cpu.final) == ("cpu", Basis.REQUESTED, 8, None)
    assert gpu.events.kind.tolist() == [Kind.ALLOC, Kind.FREE]
    assert gpu.events.category.tolist() == [Category.GRADIENT, Category.UNKNOWN]
    assert cpu.events.category.tolist() == [Category.UNKNOWN, Category.UNKNOWN]
    assert trace.stacks.frames_of(0) == (Frame("<built-in method run_backward>", "??", 0), Frame("f(x)", "model.py", 7))
    assert [replayed.timeline.levels.tolist() for replayed in replay_all(trace)] == [[512, 1536, 1024], [8, 12, 8]]
    assert (trace.release, trace.format) == (None, "profile-plot")


def test_a_real_snapshot_is_no_such_page() -> None:
    assert is_profile_plot(_page())
    snapshot = _page()
    snapshot["segments"][0]["segment_type"] = "large"
    assert not any(map(is_profile_plot, (snapshot, _page() | {"allocator_settings": {}}, _page() | {"segments": []}, [], None)))
    assert not is_profile_plot({"segments": 3, "device_traces": []})


@pytest.mark.parametrize("traces", [3, [], [[]]])
def test_a_page_without_the_devices_of_its_segments_is_no_such_page(traces: Any) -> None:
    assert not is_profile_plot(_page() | {"device_traces": traces})


@pytest.mark.parametrize("traces", [[3, []], [[3], []], [[_entry("alloc", 1, -4, category=[])], []], [[{"category": 3}], []]])
def test_a_damaged_page_is_refused(traces: Any) -> None:
    with pytest.raises(SnapshotError, match="device_traces"):
        read_profile_plot(_page() | {"device_traces": traces})


@pytest.mark.parametrize("category", [[], 3, "no such category", None])
def test_a_category_that_is_none_is_unknown(category: Any) -> None:
    page = _page()
    page["device_traces"][0][0]["category"] = category
    assert read_profile_plot(page).devices[0].events.category[0] == Category.UNKNOWN
