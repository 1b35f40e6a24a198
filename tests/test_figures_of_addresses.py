"""Address maps, addresses over events, and the four levels: every byte is drawn once, where it is, and the totals are told."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from lifecycle_sim.cli import main
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Kind, Trace
from lifecycle_sim.output.exports.snapshot import as_snapshot
from lifecycle_sim.output.figures import address_map, address_time, levels
from lifecycle_sim.output.figures.rectangles import COLUMNS, ROWS
from lifecycle_sim.program.scenario import run_scenario
from lifecycle_sim.replay import DeviceReplay, Timeline, replay_device
from lifecycle_sim.replay.excerpt import excerpt
from lifecycle_sim.sources.detect import read_trace
from tests.conftest import ROOT
from tests.strategies import traces

MIB = 1 << 20
SHIPPED = ["torch214_stub_train", "torch214_stub_train_expandable", "torch214_stub_small"]


def shipped(name: str) -> DeviceReplay:
    return replay_device(read_trace(ROOT / "scenarios" / f"{name}.pickle"), 0)


def bars(ax: Axes, gid: str) -> list[tuple[float, float, float]]:
    """Left, right and top of all bars called *gid*."""
    found = []
    for artist in ax.collections:
        if isinstance(artist, PolyCollection) and artist.get_gid() == gid:
            for path in artist.get_paths():
                (x0, y0), (x1, _) = path.vertices[0], path.vertices[1]
                found.append((x0, x1, y0))
    return sorted(found, key=lambda bar: (bar[2], bar[0]))


def legend_texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("by", ["state", "owner", "category"])
@pytest.mark.parametrize("name", SHIPPED)
def test_every_byte_of_the_segments_is_in_the_map_once(name: str, by: str) -> None:
    replayed = shipped(name)
    final, ax = replayed.recorded.final, address_map(shipped(name), by=by)
    ax.figure.canvas.draw()
    assert sum(right - left for left, right, _ in bars(ax, "segments")) == final.reserved
    assert sum(right - left for left, right, _ in bars(ax, "blocks")) == final.requested
    assert sum(right - left for left, right, _ in bars(ax, "waste")) == final.active - final.requested
    everything = bars(ax, "blocks") + bars(ax, "waste")
    for one, other in zip(sorted(everything, key=lambda b: (b[2], b[0])), sorted(everything, key=lambda b: (b[2], b[0]))[1:], strict=False):
        assert one[2] < other[2] or one[1] <= other[0]
    segments = bars(ax, "segments")
    assert segments[0][0] == 0
    for left, right, top in everything:
        assert any(low <= left and right <= high and top == line for low, high, line in segments)
    assert any("reserved in" in text for text in legend_texts(ax))


def test_a_map_tells_its_totals_and_names_the_lines() -> None:
    ax = address_map(shipped("torch214_stub_train"))
    assert legend_texts(ax) == [
        "279.454 MiB  allocated",
        "5.408 MiB  of these not asked for, paler",
        "586.546 MiB  free in 38 pieces,\nthe largest 80 MiB",
        "866 MiB  reserved in 44 segments",
    ]
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[0] == "80 MiB at 0x7f0026200000"
    assert sum(int(name.split(" × ")[0]) if "×" in name else 1 for name in names) == 44
    assert "at the end" in ax.get_title(loc="left")


def test_a_map_of_another_event_takes_the_state_from_its_caller() -> None:
    replayed = shipped("torch214_stub_train")
    state = excerpt(replayed.trace, window=(0, 1289)).trace.devices[0].final
    ax = address_map(replayed, state=state, at=1288)
    assert "after event 1,288" in ax.get_title(loc="left")
    assert sum(right - left for left, right, _ in bars(ax, "blocks")) == replayed.peak.size
    with pytest.raises(InputError, match="give the state after event 1,288"):
        address_map(replayed, at=1288)
    with pytest.raises(InputError, match="cannot be coloured by 'size'"):
        address_map(replayed, by="size")


def test_no_segments_no_map() -> None:
    replayed = replay_device(run_scenario(ROOT / "scenarios" / "ledger.toml"))
    for draw in (address_map, address_time):
        with pytest.raises(InputError, match=r"convert SOURCE -o placed\.pickle"):
            draw(replayed)
    placed = replay_device(read_trace(as_snapshot(replayed.trace).data))
    assert "simulated" in address_map(placed).get_ylabel()
    assert "simulated" in address_time(placed).get_ylabel()


def test_what_is_beyond_the_largest_segments_is_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lifecycle_sim.output.figures.blocks.MOST_SEGMENTS", 10)
    replayed = shipped("torch214_stub_train")
    ax = address_map(replayed)
    sizes = np.sort(replayed.recorded.final.segments.size)[::-1]
    assert sum(right - left for left, right, _ in bars(ax, "segments")) == sizes[:10].sum()
    assert ax.get_yticklabels()[-1].get_text().startswith("34 smaller segments, ")
    assert len(bars(ax, "rest")) >= 2


@settings(max_examples=10, deadline=None)
@given(traces(min_devices=1), st.sampled_from(["state", "owner", "category"]))
def test_any_state_can_be_drawn(trace: Trace, by: str) -> None:
    for device in trace:
        if device.final is not None:
            ax = address_map(replay_device(trace, device.device if not device.device.isdigit() else None), by=by)
            assert ax.get_xlim()[1] > 0


def picture(ax: Axes) -> np.ndarray:
    return ax.images[0].get_array()


def test_each_storage_is_painted_where_and_when_it_lived() -> None:
    r"""Two ranges of addresses, 1 MiB each, over four events.

    ::

        4 GiB + 1 MiB                       +----
        4 GiB            (break)
        1 MiB            +--------
                 event   0    1    2    3
    """
    rows = [(Kind.ALLOC, MIB, MIB), (Kind.SNAPSHOT, 0, 0), (Kind.FREE, MIB, MIB), (Kind.ALLOC, 4 << 30, MIB)]
    events = Events.of(*zip(*rows, strict=True))
    trace = Trace((DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0),), "native", Evidence.MEASURED, Clock.NONE)
    ax = address_time(replay_device(trace), by=None)
    ax.figure.canvas.draw()
    painted = (picture(ax)[..., :3] != 255).any(axis=2)
    column = COLUMNS // 5  # the axis goes from -1 to 4
    expected = np.zeros((ROWS, COLUMNS), bool)
    share = round(ROWS / 2.024), round(ROWS * 1.024 / 2.024)
    expected[: share[0], column : 3 * column] = True
    expected[share[1] :, 4 * column :] = True
    assert (painted == expected).all()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0x100000", "0x100000000"]
    assert "2 MiB of addresses in 2 ranges\nrequested bytes, measured" in ax.get_ylabel()


@pytest.mark.parametrize("name", SHIPPED)
def test_the_groups_add_up_to_the_peak(name: str) -> None:
    replayed = shipped(name)
    ax = address_time(replayed, by="size")
    live = replayed.lifetimes.live_at(replayed.peak.event)
    assert replayed.lifetimes.size[live].sum() == replayed.peak.size
    assert "held and not live" in legend_texts(ax)
    assert f"after event {replayed.peak.event:,}" in "\n".join(text.get_text() for text in ax.texts)


def test_a_range_of_addresses_can_be_chosen() -> None:
    replayed = shipped("torch214_stub_train")
    low = int(replayed.recorded.final.segments.address.min())
    ax = address_time(replayed, addresses=(low, low + 20 * MIB))
    assert ax.get_ylabel().startswith("20 MiB of addresses in 1 range")
    with pytest.raises(InputError, match="nothing was held from 0x0 to 0x10"):
        address_time(replayed, addresses=(0, 16))


def test_levels_are_drawn_with_their_peaks_and_the_waste_between_them() -> None:
    replayed = shipped("torch214_stub_train")
    requested, reserved = replayed.timeline, replayed.reserved
    ax = levels(replayed, {"requested": requested, "active": requested.levels + 10, "reserved": reserved}, capacity=1 << 30)
    ax.figure.canvas.draw()
    assert legend_texts(ax)[:5] == [
        "866 MiB  reserved, at event 300" if reserved.peak_event == 300 else f"866 MiB  reserved, at event {reserved.peak_event:,}",
        "733.158 MiB  active, at event 1,288",
        "733.158 MiB  requested, at event 1,288",
        f"{(reserved.levels - requested.levels - 10).max() / MIB:.3f} MiB  external waste at most",
        "10 B  internal waste at most",
    ]
    points = sorted(float(line.get_ydata()[0]) for line in ax.lines if line.get_gid() == "peak")
    assert points == [requested.peak_size, requested.peak_size + 10, reserved.peak_size]


def test_levels_come_from_an_object_too_and_are_checked() -> None:
    class Levels:
        def __init__(self, line: np.ndarray) -> None:
            self.requested, self.reserved = line, line

    replayed = shipped("torch214_stub_small")
    line = replayed.timeline.levels
    assert len([each for each in levels(replayed, Levels(line)).lines if each.get_gid() in ("requested", "reserved")]) == 2
    for wrong, message in (({}, "no level to draw"), ({"resident": line}, "no level 'resident'"), ({"active": line[1:]}, "needs 14")):
        with pytest.raises(InputError, match=message):
            levels(replayed, wrong)
    simulated = Timeline(line, "active", Evidence.SIMULATED)
    assert levels(replayed, {"active": simulated}).get_ylabel() == "bytes, simulated"


def test_the_command_draws_addresses(tmp_path: Path) -> None:
    def lifecycle_sim(*arguments: object) -> Result:
        return CliRunner(catch_exceptions=False).invoke(main, [str(each) for each in arguments])

    source = ROOT / "scenarios" / "torch214_stub_small.pickle"
    for kind, by in (("address-map", "owner"), ("address-time", "size")):
        result = lifecycle_sim("plot", source, "--kind", kind, "--by", by, "-o", tmp_path / f"{kind}.png")
        assert (result.exit_code, result.stdout) == (0, "")
        assert (tmp_path / f"{kind}.png").stat().st_size > 10_000
    for more in (("--kind", "address-map", "--at", "8"), ("--kind", "levels", "--capacity", "1 GiB")):
        result = lifecycle_sim("plot", source, *more, "--device", "0", "-o", tmp_path / "more.png", "--force")
        assert (result.exit_code, result.stdout) == (0, "")
        assert "differs" not in result.stderr
    for wrong_use in (("--kind", "levels", "--by", "owner"), ("--at", "3")):
        assert lifecycle_sim("plot", source, *wrong_use, "-o", tmp_path / "no.png").exit_code == 2
    wrong = lifecycle_sim("plot", source, "--kind", "address-map", "--by", "size", "-o", tmp_path / "no.png")
    assert wrong.exit_code == 2
    assert "choose one of state, owner, category" in " ".join(wrong.stderr.split())
    wrong = lifecycle_sim("plot", source, "--by", "state", "-o", tmp_path / "no.png")
    assert wrong.exit_code == 2
