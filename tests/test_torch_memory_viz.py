"""torch's own viewer as the oracle: the pages it writes are read like the snapshots they were made from, and its figures are ours."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lifecycle_sim.events import Frame, Kind, Trace
from lifecycle_sim.replay import DeviceReplay, replay_device
from lifecycle_sim.sources.detect import read_trace
from tests.conftest import ROOT

viz: Any = pytest.importorskip("torch.cuda._memory_viz", reason="torch is not installed: its viewer is the oracle of these tests")

RECORDINGS = sorted((ROOT / "scenarios").glob("torch*_stub_*.pickle"))
PAGES = {
    "trace_plot": viz.trace_plot,
    "trace_plot of segments": lambda data: viz.trace_plot(data, plot_segments=True),
    "segment_plot": viz.segment_plot,
}


@pytest.fixture(scope="module", params=RECORDINGS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def document(path: Path) -> Any:
    """The snapshot as torch's viewer loads it; some of its functions change it."""
    return pickle.loads(path.read_bytes())


@pytest.fixture(scope="module")
def trace(path: Path) -> Trace:
    return read_trace(path)


@pytest.fixture(scope="module")
def replayed(trace: Trace) -> DeviceReplay:
    return replay_device(trace, "cuda:0")


def test_recordings_ship_with_the_project() -> None:
    assert len(RECORDINGS) >= 3


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_is_read_like_its_snapshot(trace: Trace, document: Any, kind: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGES[kind](document))
    assert read_trace(page) == trace


@pytest.mark.parametrize("padding", range(4))
def test_a_page_is_read_whatever_padding_its_pickle_has(document: Any, padding: int) -> None:
    """The viewer fills the pickle up to a multiple of three with one to three NULs."""
    document["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = "x" * padding
    assert read_trace(viz.trace_plot(document).encode()) == read_trace(pickle.dumps(document))


def test_a_page_without_what_was_freed_holds_what_never_was(replayed: DeviceReplay, document: Any) -> None:
    filtered = replay_device(read_trace(viz.trace_plot(document, filter_freed=True).encode()), "cuda:0")
    kept, all_ = filtered.identified_lifetimes(), replayed.identified_lifetimes()
    assert len(filtered.recorded) < len(replayed.recorded)
    held = Counter(zip(kept.address.tolist(), kept.size.tolist(), strict=True))
    never_freed = Counter(zip(all_.address[all_.leaked].tolist(), all_.size[all_.leaked].tolist(), strict=True))
    if replayed.gaps:  # torch also keeps what was freed while nothing was recorded
        assert never_freed <= held
        return
    assert held == never_freed
    assert filtered.timeline.at(len(filtered.timeline) - 1) == replayed.timeline.at(len(replayed.timeline) - 1)
    assert filtered.reconciliation.difference == 0


def _plain(frame: Frame) -> dict[str, Any]:
    return {"name": frame.name, "filename": frame.filename, "line": frame.line}


def test_live_bytes_by_stack_are_the_flame_graph_of_torch(trace: Trace, replayed: DeviceReplay, document: Any) -> None:
    """``memory`` writes a line for each block, ``stream_0;active_allocated;outer;inner bytes``, and one for what rounding added."""
    expected: Counter[str] = Counter()
    lines = viz.memory(document, format_flamegraph=lambda text: text).splitlines()
    for line in lines:
        where, _, size = line.rpartition(" ")
        stream, state, stack = where.split(";", 2)
        if state.startswith("active") and stack != "<gaps>":
            expected[f"{stream};{stack}"] += int(size)
    found = replayed.identified_lifetimes()
    held: Counter[str] = Counter()
    for stream, stack, size in zip(*(column[found.leaked].tolist() for column in (found.stream, found.stack, found.size)), strict=True):
        frames = viz._frames_fmt([_plain(frame) for frame in trace.stacks.frames_of(stack)], reverse=True)
        held[f"stream_{stream};{';'.join(frames) or '<non-python>'}"] += size
    assert held == expected
    assert replayed.timeline.at(len(replayed.timeline) - 1) == sum(expected.values())
    rounding = sum(int(line.rpartition(" ")[2]) for line in lines if ";active_allocated;<gaps> " in line)
    final = replayed.recorded.final
    assert final is not None
    assert (rounding, sum(int(line.rpartition(" ")[2]) for line in lines)) == (final.active - final.requested, final.reserved)


def test_totals_are_those_of_torchs_summary_of_segments(replayed: DeviceReplay, document: Any) -> None:
    final = replayed.recorded.final
    assert final is not None
    told = dict(line.split(": ", 1) for line in viz.segsum(document).splitlines() if re.match(r"(segments|total_\w+): ", line))
    assert told == {
        "segments": str(len(final.segments)),
        "total_reserved": str(viz.Bytes(final.reserved)),
        "total_allocated": str(viz.Bytes(final.requested)),
        "total_free": viz._report_free(final.reserved - final.active, final.active - final.requested),
    }


WRITTEN = {
    Kind.ALLOC: r"\w+ = \w+\[\d+:(.*)\]",
    Kind.FREE_REQUESTED: r"del \w+ # (.*)",
    Kind.FREE_COMPLETED: r"# free completed for \w+ (.*)",
    Kind.SEGMENT_ALLOC: r"\w+ = cudaMalloc\(\d+, (.*)\)",
    Kind.SEGMENT_FREE: r"cudaFree\(\w+\) # (.*)",
    Kind.OOM: r"raise OutOfMemoryError # (.*) requested, .* free in CUDA",
}
"""How ``trace`` writes an event, with its size; others are written as the dict that the snapshot holds."""


def test_events_are_those_of_torchs_listing(replayed: DeviceReplay, document: Any) -> None:
    heading, count, *lines, total = viz.trace(document).splitlines()
    events = replayed.recorded.events
    assert heading.startswith("Device 0 ")
    assert total.startswith("TOTAL MEM")
    assert count == f"{len(events)} entries"
    for line, kind, size in zip(lines, map(Kind, events.kind.tolist()), events.size.tolist(), strict=True):
        if kind in WRITTEN:
            found = re.fullmatch(WRITTEN[kind], line)
            assert found is not None, line
            assert found[1] == str(viz.Bytes(size))
        else:
            assert f"'action': '{kind.name.lower()}'" in line
            assert f"'size': {size}," in line
