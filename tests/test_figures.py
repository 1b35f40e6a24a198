"""What figures show: the exact peak, every group, open ends, names; and that they draw where they are told to."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Category, Clock, DeviceTrace, Events, Evidence, Frame, Kind, Span, StackBuilder, Trace
from lifecycle_sim.output.figures import composition, lifecycle_chart, size_span, style, timeline
from lifecycle_sim.output.figures.scale import EventScale
from lifecycle_sim.output.figures.series import rank, series
from lifecycle_sim.output.figures.shares import spread
from lifecycle_sim.output.figures.ticks import ByteLocator
from lifecycle_sim.replay import DeviceReplay, replay_device, steady_state
from tests.programs import final_state

FIGURES = [timeline, lifecycle_chart, composition, size_span]
ROWS = [  # kind, storage, size, category: peaks after event 4 at 7 KiB, of which 4 are weights
    (Kind.ALLOC, 0, 4096, Category.PARAMETER),
    (Kind.ALLOC, 1, 1024, Category.ACTIVATION),
    (Kind.ALLOC, 2, 1024, Category.TEMPORARY),
    (Kind.FREE, 2, 1024, Category.TEMPORARY),
    (Kind.ALLOC, 3, 2048, Category.GRADIENT),
    (Kind.FREE, 1, 1024, Category.ACTIVATION),
    (Kind.FREE, 3, 2048, Category.GRADIENT),
]
NAMES = ("weights", "$activation", "_scratch", "gradient")


def small(rows: list[tuple[Kind, int, int, Category]] = ROWS, **device: object) -> DeviceReplay:
    kind, storage, size, category = (list(column) for column in zip(*rows, strict=True))
    events = Events.of(kind, np.array(storage) * 2**20, size, time=np.arange(len(rows)) * 1500, label=storage, category=category)
    record = DeviceTrace("gpu", events, Basis.PAYLOAD, **({"start": 0} | device))  # type: ignore[arg-type]
    return replay_device(Trace((record,), "scenario", Evidence.SIMULATED, Clock.NANOSECONDS, labels=NAMES))


def lossy() -> DeviceReplay:
    """One free was lost: address 1 is allocated twice."""
    rows = [(Kind.ALLOC, 0, 512, 0), (Kind.ALLOC, 1, 256, 0), (Kind.ALLOC, 2, 128, 0), (Kind.ALLOC, 1, 64, 0), (Kind.FREE, 0, 512, 0)]
    return small(rows)  # type: ignore[arg-type]


def repeated(steps: int = 4) -> DeviceReplay:
    rows = [(Kind.ALLOC, 0, 4096, Category.PARAMETER)]
    spans = []
    for step in range(steps):
        rows += [(Kind.ALLOC, 1, 2048, Category.ACTIVATION), (Kind.FREE, 1, 2048, Category.ACTIVATION)]
        spans.append(Span("step", f"step {step}", len(rows) - 2, len(rows)))
    return small(rows, spans=tuple(spans))


def by_gid(ax: Axes, gid: str) -> list[object]:
    return [artist for artist in ax.get_children() if artist.get_gid() == gid]


def legend_texts(ax: Axes) -> list[str]:
    legend = ax.get_legend()
    return [text.get_text() for text in legend.get_texts()] if legend else []


def all_texts(ax: Axes) -> str:
    return "\n".join(text.get_text() for text in ax.texts)


@pytest.mark.parametrize("draw", FIGURES)
def test_draws_on_the_axes_it_is_given_and_returns_them(draw: Callable[..., Axes]) -> None:
    given_axes = Figure(figsize=(4, 3)).subplots(1, 2)[1]
    assert draw(small(), ax=given_axes) is given_axes
    given_axes.figure.canvas.draw()


@pytest.mark.parametrize("draw", FIGURES)
@pytest.mark.parametrize(
    "replayed", [small(), small(ROWS[:1]), lossy(), repeated(), small(start=None)], ids=["ten", "one", "lossy", "steps", "cut"]
)
def test_every_figure_says_what_its_bytes_are_and_whose(draw: Callable[..., Axes], replayed: DeviceReplay) -> None:
    ax = draw(replayed)
    ax.figure.canvas.draw()
    assert "payload bytes, simulated" in ax.get_ylabel()
    assert "gpu" in ax.get_title(loc="left")
    assert f"scenario, {style.counted(len(replayed.recorded), 'event')}" in all_texts(ax)


def test_figures_do_not_touch_pyplot_and_load_matplotlib_late() -> None:
    code = (
        "import sys, lifecycle_sim.output.figures as f; assert 'matplotlib' not in sys.modules; "
        "f.timeline; assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules; "
        "assert not hasattr(f, 'pie')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class TestTimeline:
    def test_marks_the_exact_peak(self) -> None:
        ax = timeline(small())
        (peak,) = by_gid(ax, "peak")
        assert isinstance(peak, Line2D)
        assert (peak.get_xdata()[0], peak.get_ydata()[0]) == (4, 7168)  # type: ignore[index]
        assert "peak 7 KiB after event 4" in all_texts(ax)

    def test_over_time_the_peak_stands_at_its_time(self) -> None:
        ax = timeline(small(), x="time")
        (peak,) = by_gid(ax, "peak")
        assert peak.get_xdata()[0] == 4 * 1.5  # type: ignore[attr-defined]
        assert ax.get_xlabel() == "time (µs)"

    def test_stacks_every_category_and_tells_what_it_holds_at_the_peak(self) -> None:
        ax = timeline(small())
        assert legend_texts(ax) == ["0 B  temporary", "1 KiB  activation", "2 KiB  gradient", "4 KiB  parameter"]
        for word in ("parameter", "gradient", "activation", "temporary"):
            (area,) = by_gid(ax, f"area {word}")
            assert to_hex(area.get_facecolor()[0]) == style.CATEGORY_COLOURS[word].lower()  # type: ignore[attr-defined]

    def test_top_of_the_stack_is_the_timeline(self) -> None:
        replayed = small()
        (total,) = by_gid(timeline(replayed), "total")
        assert total.get_ydata().tolist() == [*replayed.timeline.levels.tolist(), replayed.timeline.end]  # type: ignore[attr-defined]

    def test_peak_of_a_long_timeline_is_drawn(self) -> None:
        rows = [row for k in range(6000) for row in ((Kind.ALLOC, 1, 8 + (k == 4321), 0), (Kind.FREE, 1, 8 + (k == 4321), 0))]
        ax = timeline(small(rows), by=None)
        (total,) = by_gid(ax, "total")
        assert max(total.get_ydata()) == 9  # type: ignore[attr-defined]
        assert len(total.get_xdata()) < 2010  # type: ignore[attr-defined]
        assert total.get_xdata()[int(np.argmax(total.get_ydata()))] == 8642  # type: ignore[attr-defined]

    def test_bounds_are_shown_where_the_peak_is_not_exact(self) -> None:
        replayed = lossy()
        assert not replayed.peak.exact
        ax = timeline(replayed)
        assert by_gid(ax, "bounds")
        assert "the recording lost events" in legend_texts(ax)
        assert not by_gid(timeline(small()), "bounds")

    @pytest.mark.parametrize(("capacity", "drawn"), [(8192, True), (80 * 2**30, False)])
    def test_capacity_is_a_line_unless_far_above(self, capacity: int, drawn: bool) -> None:
        for ax in (timeline(small(), capacity=capacity), timeline(small(capacity=capacity))):
            assert bool(by_gid(ax, "capacity")) is drawn
            assert any(text.startswith("capacity") for text in legend_texts(ax))
            assert bool(ax.get_ylim()[1] >= capacity) is drawn

    def test_steady_state_is_drawn_from_its_first_step_on(self) -> None:
        replayed = repeated()
        steady = steady_state(replayed)
        ax = timeline(replayed, steady=steady)
        (line,) = by_gid(ax, "steady")
        assert list(line.get_ydata()) == [4096, 4096]  # type: ignore[attr-defined]
        assert line.get_xdata()[0] == steady.steps[steady.since or 0].start  # type: ignore[attr-defined]
        assert "step 0" in all_texts(ax)

    def test_without_identities_the_total_is_drawn(self) -> None:
        ax = timeline(small(identified=False))
        assert legend_texts(ax) == ["7 KiB  payload"]
        assert by_gid(ax, "peak")

    def test_what_holds_the_most_at_the_peak_is_named_before_what_rises_elsewhere(self) -> None:
        """Ten large storages come and go, one after another; then six small ones make the peak together with the last large one."""
        rows = [row for k in range(10) for row in ((Kind.ALLOC, k, 2**20 + k, 0), (Kind.FREE, k, 2**20 + k, 0))]
        rows += [(Kind.ALLOC, 10 + k, 2**18, 0) for k in range(6)]
        names = tuple(f"large{k}" if k < 10 else f"small{k}" for k in range(16))
        kind, storage, size, _ = (list(column) for column in zip(*rows, strict=True))
        events = Events.of(kind, np.array(storage) * 2**24, size, label=storage)
        record = DeviceTrace("gpu", events, Basis.PAYLOAD, start=0)
        ax = timeline(replay_device(Trace((record,), "native", Evidence.SIMULATED, Clock.NONE, labels=names)), by="label")
        texts = legend_texts(ax)
        assert sum(text.startswith("256 KiB  small") for text in texts) == 6
        assert sum(text.startswith("0 B  ") for text in texts) == 3
        assert "0 B  (8 other labels)" in texts

    def test_failed_allocations_are_crosses_with_what_they_asked_for(self) -> None:
        rows = [*ROWS[:3], (Kind.OOM, 9, 2**20, 0), (Kind.OOM, 9, 2**21, 0), *ROWS[3:]]
        ax = timeline(small(rows))  # type: ignore[arg-type]
        (cross,), (reach,) = by_gid(ax, "oom"), by_gid(ax, "oom asked for")
        assert [list(cross.get_xdata()), list(cross.get_ydata())] == [[3, 4], [6144, 6144]]  # type: ignore[attr-defined]
        assert [path.vertices[:, 1].tolist() for path in reach.get_paths()] == [[6144, 6144 + 2**20], [6144, 6144 + 2**21]]  # type: ignore[attr-defined]
        assert "out of memory, event 3: 1 MiB on top of 6 KiB, and 1 more" in legend_texts(ax)
        assert not by_gid(timeline(small()), "oom")

    def test_levels_above_an_unknown_start_say_so(self) -> None:
        ax = timeline(small(start=None, identified=False), capacity=8192)
        ax.figure.canvas.draw()
        assert ax.get_ylabel() == "payload bytes, simulated, above the unknown start"
        assert "peak 7 KiB above the start after event 4" in all_texts(ax)
        assert "+4 KiB" in [label.get_text() for label in ax.get_yticklabels()]
        assert "capacity 8 KiB, not comparable" in legend_texts(ax)
        assert not by_gid(ax, "capacity")
        assert "unknown" not in timeline(small()).get_ylabel()

    @pytest.mark.parametrize("rows", [[], [(Kind.SNAPSHOT, 0, 0, 0)]], ids=["none", "marker"])
    @pytest.mark.parametrize("draw", [timeline, lifecycle_chart])
    def test_a_state_without_history_has_no_peak_and_no_axis(
        self, draw: Callable[..., Axes], rows: list[tuple[Kind, int, int, int]]
    ) -> None:
        events = Events.of(*([row[k] for row in rows] for k in range(3)))
        record = DeviceTrace("gpu", events, Basis.REQUESTED, final_state({1 << 40: 4096, 1 << 41: 512}))
        ax = draw(replay_device(Trace((record,), "cuda-snapshot", Evidence.MEASURED, Clock.NONE)))
        assert not by_gid(ax, "peak")
        assert all_texts(ax).count("peak") == (draw is timeline)
        assert "4.5 KiB at the snapshot" in all_texts(ax)
        assert len(ax.get_xticks()) == 0
        assert ax.get_xlabel().startswith("no allocation or free was recorded")

    def test_unknown_axis_and_grouping_are_refused(self) -> None:
        with pytest.raises(InputError, match="choose event or time"):
            timeline(small(), x="place")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="colour"):
            timeline(small(), by="colour")


class TestLifecycleChart:
    def test_one_bar_a_storage_with_open_ends_reaching_out(self) -> None:
        ax = lifecycle_chart(small())
        (bars,) = by_gid(ax, "intervals")
        assert isinstance(bars, PolyCollection)
        across = [path.vertices[:, 0] for path in bars.get_paths()]
        assert [(x.min(), x.max()) for x in across[1:]] == [(1, 5), (2, 3), (4, 6)]
        assert across[0].min() == 0
        assert across[0].max() > len(ROWS)
        assert [label.get_text() for label in ax.get_yticklabels()] == [
            "weights  4 KiB", "$activation  1 KiB", "_scratch  1 KiB", "gradient  2 KiB",
        ]  # fmt: skip

    def test_storages_older_than_the_window_begin_before_it(self) -> None:
        ax = lifecycle_chart(small([(Kind.ALLOC, 0, 8, 0), (Kind.FREE, 1, 16, 0)], start=None))  # type: ignore[list-item]
        (bars,) = by_gid(ax, "intervals")
        assert bars.get_paths()[0].vertices[:, 0].min() < -1  # type: ignore[attr-defined]

    def test_storages_that_are_alike_share_a_bar(self) -> None:
        rows = [(Kind.FREE, 4096 * k, 64, 0) for k in (1, 2, 3)]
        record = DeviceTrace("gpu", Events.of(*([row[k] for row in rows] for k in range(3))), Basis.REQUESTED, final_state(
            {(1 << 40) + 2**14 * k: size for k, size in enumerate([8192, 512, 512, 512])}))  # fmt: skip
        ax = lifecycle_chart(replay_device(Trace((record,), "cuda-snapshot", Evidence.MEASURED, Clock.NONE)))
        assert [label.get_text() for label in ax.get_yticklabels()] == [
            "older, 0x10000000000  8 KiB", "3 × older  512 B", "older, 0x1000  64 B", "older, 0x2000  64 B", "older, 0x3000  64 B",
        ]  # fmt: skip
        assert "all 7 storages" in ax.get_xlabel()

    def test_signs_are_explained_where_they_occur(self) -> None:
        told = legend_texts(lifecycle_chart(small()))
        assert told[-3:] == ["strong: live at the peak", "pale: not live at the peak", "never freed"]
        assert "may have been live" not in told
        assert "may have been live" in legend_texts(lifecycle_chart(lossy()))
        assert "never freed" not in legend_texts(lifecycle_chart(small(ROWS[1:])))

    def test_a_bar_too_short_to_see_is_drawn_wider(self) -> None:
        rows = [(Kind.ALLOC, 0, 64, 0), (Kind.FREE, 0, 64, 0), *[(Kind.SNAPSHOT, 0, 0, 0)] * 9998]
        (bars,) = by_gid(lifecycle_chart(small(rows)), "intervals")  # type: ignore[arg-type]
        across = bars.get_paths()[0].vertices[:, 0]  # type: ignore[attr-defined]
        assert across.max() - across.min() == pytest.approx(60, rel=0.01)

    def test_largest_are_kept_and_the_rest_is_told(self) -> None:
        ax = lifecycle_chart(small(), top=2, order="size")
        assert [label.get_text() for label in ax.get_yticklabels()] == ["weights  4 KiB", "gradient  2 KiB"]
        assert "2 of at most 1 KiB each are left out and hold 1 KiB at the peak" in ax.get_xlabel()

    def test_peak_is_a_line(self) -> None:
        (line,) = by_gid(lifecycle_chart(small()), "peak")
        assert list(line.get_xdata()) == [4, 4]  # type: ignore[attr-defined]

    def test_refusals(self) -> None:
        with pytest.raises(InputError, match="birth or size"):
            lifecycle_chart(small(), order="age")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="identities"):
            lifecycle_chart(small(identified=False))


class TestComposition:
    def test_peak_stands_beside_the_steady_state(self) -> None:
        ax = composition(repeated())
        assert [label.get_text() for label in ax.get_xticklabels()] == [
            "steady state: 4 KiB\nafter event 8",
            "peak: 6 KiB\nafter event 1\n+2 KiB against steady state",
        ]
        assert "2 KiB  activation  (+2 KiB)" in all_texts(ax)
        assert "4 KiB  parameter  (±0)" in all_texts(ax)

    def test_columns_add_up(self) -> None:
        replayed = small()
        ax = composition(replayed, at=4, against=1)
        heights = np.array([[bar.get_height() for bar in group] for group in ax.containers])
        assert heights.sum(axis=0).tolist() == [5120, 7168]

    def test_without_a_steady_state_the_end_is_taken_and_said(self) -> None:
        left, _ = [label.get_text() for label in composition(small()).get_xticklabels()]
        assert left == "end of window: 4 KiB\nafter event 6\nno steady state was found"
        with pytest.raises(InputError, match="no steady state to compare"):
            composition(small(), against=steady_state(small()))

    def test_no_such_event(self) -> None:
        with pytest.raises(InputError, match="has no event 7"):
            composition(small(), at=7)

    @given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(0.1, 20))
    def test_names_are_moved_apart(self, places: list[float], apart: float) -> None:
        free, held = (spread(np.sort(np.array(places)), apart, ceiling) for ceiling in (10_000.0, 90.0))
        for moved in (free, held):
            assert (np.diff(moved) >= apart * (1 - 1e-9) - 1e-9).all()
        assert free.mean() == pytest.approx(np.mean(places))
        assert held.max() <= 90


class TestSizeSpan:
    def test_every_storage_is_in_a_cell(self) -> None:
        ax = size_span(small(), within=1)
        (cells,) = by_gid(ax, "cells")
        assert cells.get_array().sum() == 4  # type: ignore[attr-defined]
        assert ax.get_xlabel().splitlines()[1:] == [
            "temporary, within 1: 2 storages, 3 KiB     passing: 1 storage, 1 KiB",
            "long-lived: 1 storage, 4 KiB",
        ]

    @settings(max_examples=25)
    @given(st.lists(st.tuples(st.integers(0, 2**45), st.integers(0, 30)), min_size=1, max_size=40), st.integers(0, 200))
    def test_no_storage_is_lost(self, storages: list[tuple[int, int]], within: int) -> None:
        rows = []
        for number, (size, later) in enumerate(storages):
            rows += [(2 * number, Kind.ALLOC, number, size, 0), (2 * (number + later) + 1, Kind.FREE, number, size, 0)]
        ax = size_span(_unlabelled([row[1:] for row in sorted(rows)]), within)
        (cells,) = by_gid(ax, "cells")
        assert cells.get_array().sum() == len(storages)  # type: ignore[attr-defined]


def _unlabelled(rows: list[tuple[Kind, int, int, int]]) -> DeviceReplay:
    kind, storage, size, _ = (list(column) for column in zip(*rows, strict=True))
    record = DeviceTrace("gpu", Events.of(kind, np.array(storage) * 2**20, size), Basis.PAYLOAD, start=0)
    return replay_device(Trace((record,), "native", Evidence.SIMULATED, Clock.NONE))


class TestSeries:
    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2**61)), min_size=1, max_size=40), st.data())
    def test_groups_add_up_to_the_timeline(self, changes: list[tuple[int, int]], data: st.DataObject) -> None:
        live: dict[int, int] = {}
        rows = []
        for storage, size in changes:
            kind = Kind.FREE if storage in live else Kind.ALLOC
            rows.append((kind, storage, live.pop(storage) if storage in live else live.setdefault(storage, size), 0))
        replayed = _unlabelled(rows)
        n = len(rows) + 1
        positions = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1))))
        drawn = series(replayed, "size", positions, data.draw(st.integers(0, 6)))
        assert drawn.levels.sum(axis=0).tolist() == replayed.timeline.levels[positions].tolist()

    def test_groups_that_hold_nothing_at_the_peak_can_be_among_the_largest(self) -> None:
        rows = [(Kind.ALLOC, 1, 100, 0), (Kind.FREE, 1, 100, 0), (Kind.ALLOC, 2, 90, 0), (Kind.ALLOC, 3, 20, 0)]
        ranked = rank(_unlabelled(rows), "size", 1)  # type: ignore[arg-type]
        assert ranked.keys == ("64 B – 128 B", "16 B – 32 B")
        assert rank(_unlabelled([*rows, (Kind.ALLOC, 4, 1, 0)]), "size", 1).keys[1] == "(2 other size classes)"  # type: ignore[list-item]

    def test_a_million_events_in_a_moment(self) -> None:
        storages = 500_000
        kinds = np.tile([Kind.ALLOC, Kind.FREE], storages)
        address = np.repeat(np.arange(storages) % 1000, 2)
        builder = StackBuilder()
        stacks = [builder.add([Frame("forward", f"model_{k}.py", k + 1)]) for k in range(500)]
        events = Events.of(kinds, address, np.repeat(np.arange(storages) + 1, 2), stack=np.repeat(np.resize(stacks, storages), 2))
        replayed = replay_device(
            Trace((DeviceTrace("gpu", events, Basis.PAYLOAD, start=0),), "native", Evidence.SIMULATED, Clock.NONE, builder.table())
        )
        for draw in FIGURES:
            ax = draw(replayed)
            assert sum(len(path.vertices) for c in ax.collections for path in c.get_paths()) < 200_000


class TestLanes:
    def test_spans_that_overlap_take_lanes_of_their_own_and_the_rest_is_counted(self) -> None:
        spans = tuple(Span("operator", f"job{k}", 0, 7) for k in range(6))
        ax = timeline(small(spans=spans))
        assert {f"job{k}" for k in range(4)} <= set(all_texts(ax).splitlines())
        assert "2 more not shown" in all_texts(ax)
        assert "operators" in all_texts(ax)
        assert "not shown" not in all_texts(timeline(small(spans=spans[:4])))

    def test_a_band_ends_with_the_last_event_of_its_span(self) -> None:
        ax = timeline(small(spans=(Span("operator", "first", 0, 4), Span("operator", "second", 4, 7))))
        bands = [path.get_extents() for c in ax.collections for path in c.get_paths() if c.get_gid() == "lane"]
        assert [(band.x0, band.x1) for band in bands] == [(0, 3), (4, 6)]

    def test_names_without_room_are_told_by_the_legend(self) -> None:
        rows = [(Kind.ALLOC, 0, 64, 0), *[(Kind.SNAPSHOT, 0, 0, 0)] * 999]
        spans = [Span("phase", name, start, start + width) for start in (0, 500) for name, width in (("forward", 20), ("backward", 400))]
        spans = [span if span.name == "forward" else Span("phase", span.name, span.start + 20, span.stop + 20) for span in spans]
        ax = timeline(small(rows, spans=tuple(spans)))  # type: ignore[arg-type]
        assert "backward" in all_texts(ax)
        assert "phase forward" in legend_texts(ax)
        assert "phase backward" not in legend_texts(ax)


class TestTitles:
    @pytest.mark.parametrize("draw", FIGURES)
    def test_the_name_that_is_given_and_the_title_of_the_scenario_stand_below_the_headline(self, draw: Callable[..., Axes]) -> None:
        replayed = small()
        replayed = replay_device(dataclasses.replace(replayed.trace, settings={"title": "Three steps"}))
        assert "step.toml · Three steps · scenario, 7 events" in all_texts(draw(replayed, title="step.toml"))
        assert "step.toml · scenario, 7 events" in all_texts(draw(small(), title="step.toml"))


class TestNotebook:
    @pytest.mark.parametrize("draw", FIGURES)
    def test_axes_of_a_figure_of_its_own_and_the_figure_show_themselves(self, draw: Callable[..., Axes]) -> None:
        ax = draw(small())
        for shown in (ax, ax.figure):
            png, size = shown._repr_png_()  # type: ignore[attr-defined]
            assert png.startswith(b"\x89PNG")
            assert size["width"] == round(ax.figure.get_size_inches()[0] * 96)


class TestStyle:
    def test_groups_without_a_name_look_different_from_each_other_and_the_same_everywhere(self) -> None:
        keys = [
            "(no stack recorded)",
            "(older than the window)",
            "(its allocation was lost)",
            "(outside)",
            "(no label)",
            "(3 other owners)",
        ]
        looks = [(style.colours("owner", [key])[key], style.hatch(key)) for key in keys]
        assert len(set(looks)) == len(keys)
        among_others = style.colours("owner", ["a.py:1 f", *keys[::-1], "b.py:2 g"])
        assert [(among_others[key], style.hatch(key)) for key in keys] == looks

    @pytest.mark.parametrize(
        ("name", "short"),
        [
            ("/home/someone/project/model.py:123 forward", "model.py:123 forward"),
            ("model.py:1 f ← run.py:2 main", "model.py:1 f"),
            ("?? torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)", "AccumulateGrad::apply"),
            ("at::(anonymous namespace)::create_out(c10::ArrayRef<long>)", "at::create_out"),
            ("a\nb\x00c", "a b·c"),
            ("x" * 60, "…" + "x" * 43),
        ],
    )
    def test_names_keep_their_tail(self, name: str, short: str) -> None:
        assert style.short_names([name]) == [short]

    def test_names_that_would_be_equal_keep_the_folders_that_tell_them_apart(self) -> None:
        assert style.short_names(["/a/b/model.py:1 f", "/a/c/model.py:1 f", "x.py:2 g"]) == ["b/model.py:1 f", "c/model.py:1 f", "x.py:2 g"]

    def test_categories_have_one_colour_each(self) -> None:
        assert {category.word for category in Category} == set(style.CATEGORY_COLOURS)
        assert len(set(style.CATEGORY_COLOURS.values())) == len(Category)

    @given(st.integers(0, 2**50), st.integers(1, 2**50))
    def test_byte_ticks_are_few_and_whole(self, low: int, width: int) -> None:
        ticks = ByteLocator().tick_values(low, low + width)
        assert len(ticks) <= 9
        assert all(low <= tick <= low + width and tick == int(tick) for tick in ticks)

    def test_times_that_go_back_do_not_fold_the_axis(self) -> None:
        events = Events.of([Kind.ALLOC, Kind.ALLOC, Kind.ALLOC], [1, 2, 3], [1, 1, 1], time=[5, 3, 9])
        trace = Trace((DeviceTrace("gpu", events, Basis.PAYLOAD, start=0),), "native", Evidence.SIMULATED, Clock.TICKS)
        assert EventScale.of(replay_device(trace), "time").at.tolist() == [0, 5, 5, 9, 9]
