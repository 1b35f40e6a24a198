"""Figures of schedules: that what is drawn is what was run."""

import numpy as np
import pytest

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis
from lifecycle_sim.output import figures
from lifecycle_sim.output.figures import schedules
from lifecycle_sim.output.figures.schedules import shade
from lifecycle_sim.study.pipeline.schedule_costs import Layer, Model
from lifecycle_sim.study.pipeline.schedule_orders import schedule
from lifecycle_sim.study.pipeline.schedule_result import run_schedule

GIB = 1 << 30
MODEL = Model((Layer(activation=GIB, weight_input=GIB, static=GIB, backward_temporary=GIB),) * 8, basis=Basis.PAYLOAD)


def run(name, ranks=4, microbatches=8, model=MODEL):
    return run_schedule(schedule(name, ranks, microbatches), model)


def panels(axes):
    return axes.figure.axes


def lines(ax, what):
    return {int(line.get_gid().rsplit(" ", 1)[1]): line for line in ax.lines if (line.get_gid() or "").startswith(what)}


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "zbv", "dualpipev"])
def test_every_action_is_a_bar_and_every_rank_a_line(name):
    made = run(name)
    gantt, flights, sized = panels(figures.schedule_chart(made, 20 * GIB))
    bars = {collection.get_gid(): len(collection.get_paths()) for collection in gantt.collections}
    assert sum(bars.values()) == len(made.schedule)
    assert {gid.split()[0] for gid in bars} == {action.work.value for actions in made.schedule.lists for action in actions}
    assert {rank: int(max(line.get_ydata())) for rank, line in lines(flights, "in flight").items()} == {
        rank.rank: rank.in_flight for rank in made.ranks
    }
    assert {rank: int(max(line.get_ydata())) for rank, line in lines(sized, "bytes").items()} == {
        rank.rank: rank.peak for rank in made.ranks
    }
    assert all(line.get_ydata()[-1] == 0 for line in lines(flights, "in flight").values())
    assert {rank: int(line.get_ydata()[-1]) for rank, line in lines(sized, "bytes").items()} == {r.rank: r.static for r in made.ranks}
    (peak,) = [line for line in sized.lines if line.get_gid() == "peak"]
    assert (float(peak.get_xdata()[0]), int(peak.get_ydata()[0])) == (made.binding.peak_time, made.peak)


def test_bars_lie_where_the_actions_are():
    made = run("1f1b", 2, 3)
    drawn = set()
    for collection in panels(figures.schedule_chart(made))[0].collections:
        for path in collection.get_paths():
            (left, bottom), (right, top) = np.min(path.vertices, axis=0), np.max(path.vertices, axis=0)
            drawn.add((round((bottom + top) / 2), left, right))
    times = (zip(made.times.starts[rank], made.times.ends[rank], strict=True) for rank in range(2))
    assert drawn == {(rank, float(start), float(end)) for rank, each in enumerate(times) for start, end in each}


def test_twins_say_what_they_share():
    axes = figures.schedule_twins([run("gpipe"), run("1f1b")], 20 * GIB)
    assert axes.figure.get_suptitle() == "Same makespan, same work, different peak"
    assert len(panels(axes)) == 6
    tops = {panel.get_ylim()[1] for panel in panels(axes)[2::3]}
    assert len(tops) == 1
    assert figures.schedule_twins([run("gpipe"), run("zb-h1")]).figure.get_suptitle() == "Same work, different makespan, different peak"
    assert figures.schedule_twins([run("1f1b")]).figure.get_suptitle() == ""


def test_chunks_of_schedules_side_by_side_count_as_parts():
    even = Model(ticks=8)
    flights = panels(figures.schedule_twins([run("1f1b", model=even), run("zbv", model=even)]))[3]
    assert max(max(line.get_ydata()) for line in lines(flights, "in flight").values()) == 4


def test_too_much_to_draw_is_refused(monkeypatch):
    with pytest.raises(InputError, match="0 schedules cannot be drawn side by side: give one to four"):
        figures.schedule_twins([])
    monkeypatch.setattr(schedules, "MOST_DRAWN", 63)
    with pytest.raises(InputError, match="64 actions are too many to draw: at most 63"):
        figures.schedule_chart(run("1f1b"))


def test_a_chunk_is_the_paler_the_earlier_it_is():
    assert shade("#000000", 0, 1) == shade("#000000", 1, 2) == "#000000"
    assert shade("#000000", 0, 2) > shade("#000000", 1, 3) > "#000000"
